"""A stand-in for a draft model whose logits depend on every token it has in its cache."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch

from specli.models.base import ForwardOutput, Ints


class RecallingModel:
    """A row's logits are random numbers seeded with the tokens in cells 0 … position: a stale cell changes them."""

    def __init__(self, *, n_vocab: int = 40, max_tokens: int = 8, capacity: int = 600) -> None:
        self.config = SimpleNamespace(n_vocab=n_vocab)
        self.options = SimpleNamespace(max_tokens=max_tokens, capacity=capacity)
        self.cache = self
        self.cells: list[int] = []
        self.n_forwards = 0
        self.n_rows = 0
        self.is_closed = False

    def can_truncate(self, slot: int, length: int) -> bool:
        return True

    def truncate(self, slot: int, length: int) -> None:
        assert slot == 0
        assert length <= len(self.cells)
        del self.cells[length:]

    def forward(self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints) -> ForwardOutput:
        assert 1 <= len(tokens) <= self.options.max_tokens
        assert not slots.any()
        assert all(0 <= token < self.config.n_vocab for token in tokens.tolist())
        assert positions.tolist() == list(range(len(self.cells), len(self.cells) + len(tokens)))
        start = len(self.cells)
        self.cells += tokens.tolist()
        self.n_forwards += 1
        self.n_rows += len(tokens)
        rows = [self.logits(self.cells[: start + row + 1]) for row in outputs.tolist()]
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

    def write(self, tokens: Ints, position: int) -> tuple[np.ndarray, Ints]:
        best = []
        for step in range(self.n_steps):
            if step:
                tokens = best[-1].indices[:1].numpy().astype(np.int32)
            positions = np.arange(len(tokens), dtype=np.int32) + (position if step == 0 else len(self.model.cells))
            logits = self.model.forward(tokens, positions, 0 * tokens, positions[-1:] - positions[0]).logits
            best.append(torch.topk(logits[0, : self.n_logits], self.n_candidates))
        values, ids = (torch.stack([getattr(b, name) for b in best]).numpy() for name in ("values", "indices"))
        return values, ids.astype(np.int32)


def random_tokens(rng: random.Random, n: int, n_vocab: int) -> list[int]:
    return [rng.randrange(n_vocab) for _ in range(n)]
