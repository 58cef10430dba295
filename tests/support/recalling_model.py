"""A stand-in for a draft model whose logits depend on every token it has in its cache."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch

from specli.models.base import ForwardOutput, Ints
from specli.models.writer import Beginning


class RecallingModel:
    """A row's logits are random numbers seeded with the tokens in cells 0 … position: a stale cell changes them."""

    def __init__(self, *, n_vocab: int = 40, max_tokens: int = 8, capacity: int = 600, n_slots: int = 1) -> None:
        self.config = SimpleNamespace(n_vocab=n_vocab)
        self.options = SimpleNamespace(
            max_tokens=max_tokens, capacity=capacity, n_slots=n_slots, log_probabilities=False
        )
        self.cache = self
        self.slots: list[list[int]] = [[] for _ in range(n_slots)]
        self.n_forwards = 0
        self.n_rows = 0
        self.is_closed = False

    @property
    def cells(self) -> list[int]:
        """Of the first slot."""
        return self.slots[0]

    def can_truncate(self, slot: int, length: int) -> bool:
        return True

    def truncate(self, slot: int, length: int) -> None:
        assert length <= len(self.slots[slot])
        del self.slots[slot][length:]

    def forward(self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints) -> ForwardOutput:
        assert 1 <= len(tokens) <= self.options.max_tokens
        assert all(0 <= token < self.config.n_vocab for token in tokens.tolist())
        seen = []
        for token, position, slot in zip(tokens.tolist(), positions.tolist(), slots.tolist(), strict=True):
            assert position == len(self.slots[slot])
            self.slots[slot].append(token)
            seen.append(list(self.slots[slot]))
        self.n_forwards += 1
        self.n_rows += len(tokens)
        rows = [self.logits(seen[row]) for row in outputs.tolist()]
        return ForwardOutput(torch.stack(rows) if rows else torch.empty(0, self.config.n_vocab))

    def writer(self, *, n_steps: int, n_logits: int, n_candidates: int = 10) -> RecallingWriter:
        return RecallingWriter(self, n_steps, n_logits, n_candidates)

    def close(self) -> None:
        self.is_closed = True

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """What it says after a sequence, `[V]`."""
        numbers = np.random.default_rng(abs(hash(tuple(tokens)))).normal(size=self.config.n_vocab)
        return torch.from_numpy(2 * numbers.astype(np.float32))


class RecallingWriter:
    """Writes with such a model as `specli.models.writer.Writer` does, forward by forward."""

    def __init__(self, model: RecallingModel, n_steps: int, n_logits: int, n_candidates: int) -> None:
        self.model = model
        self.n_steps = n_steps
        self.n_logits = n_logits
        self.n_candidates = min(n_candidates, n_logits)

    def write(self, beginnings: Sequence[Beginning], n_steps: int) -> tuple[np.ndarray, Ints]:
        assert 1 <= n_steps <= self.n_steps
        assert sum(len(tokens) for _, tokens, _ in beginnings) <= self.model.options.max_tokens
        written = [self._write(beginning, n_steps) for beginning in beginnings]
        values, ids = (np.stack([part[which] for part in written]) for which in (0, 1))
        return values, ids.astype(np.int32)

    def _write(self, beginning: Beginning, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        best = []
        slot, tokens, position = beginning
        for _ in range(n_steps):
            ids = np.array(tokens, np.int32)
            positions = np.arange(position, position + len(ids), dtype=np.int32)
            logits = self.model.forward(ids, positions, np.full_like(ids, slot), positions[-1:] - position).logits
            best.append(torch.topk(logits[0, : self.n_logits], self.n_candidates))
            tokens, position = best[-1].indices[:1].tolist(), position + len(ids)
        return torch.stack([b.values for b in best]).numpy(), torch.stack([b.indices for b in best]).numpy()


def random_tokens(rng: random.Random, n: int, n_vocab: int) -> list[int]:
    return [rng.randrange(n_vocab) for _ in range(n)]
