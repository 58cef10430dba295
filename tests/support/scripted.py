"""Models and drafters that follow a script: the loop's arithmetic can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.models.base import ForwardOutput, Ints


class ScriptedTarget:
    """Greedily continues with `rule(tokens so far)`; checks that the loop feeds positions without a gap."""

    def __init__(
        self, rule: Callable[[list[int]], int], *, n_vocab: int = 50, max_tokens: int = 8, max_outputs: int = 8
    ) -> None:
        self.rule = rule
        self.config = SimpleNamespace(n_vocab=n_vocab)
        self.options = SimpleNamespace(max_tokens=max_tokens, max_outputs=max_outputs)
        self.cache = self
        self.cells: list[int] = []
        self.n_rows = 0

    def can_truncate(self, slot: int, length: int) -> bool:
        return True

    def truncate(self, slot: int, length: int) -> None:
        assert length <= len(self.cells)
        del self.cells[length:]

    def forward(self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints) -> ForwardOutput:
        assert 1 <= len(tokens) <= self.options.max_tokens
        assert len(outputs) <= self.options.max_outputs
        start = int(positions[0])
        assert positions.tolist() == list(range(start, start + len(tokens)))
        assert start <= len(self.cells)
        self.cells[start:] = tokens.tolist()
        self.n_rows += len(tokens)
        logits = np.zeros((len(outputs), self.config.n_vocab), np.float32)
        for n, row in enumerate(outputs.tolist()):
            logits[n, self.rule(self.cells[: start + row + 1])] = 5.0
        return ForwardOutput(logits)


class ScriptedDrafter:
    """Drafts what `rule(history + [last], most)` says and records what it is told."""

    def __init__(
        self,
        rule: Callable[[list[int], int], list[int]],
        *,
        name: str = "scripted",
        max_draft: int = 4,
        reads_features: bool = False,
    ) -> None:
        self.rule = rule
        self.name = name
        self.max_draft = max_draft
        self.reads_features = reads_features
        self.prompts: list[list[int]] = []
        self.seen: list[int] = []
        self.verdicts: list[int] = []
        self.rewinds: list[int] = []
        self.is_closed = False

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        assert self.seen[: len(prompt)] == list(prompt)
        self.prompts.append(list(prompt))

    def process(self, parts: Sequence[TargetBatch]) -> None:
        [batch] = parts
        start = int(batch.positions[0])
        assert start == len(self.seen), "a batch left a gap, or showed tokens again"
        assert len(batch.tokens) == len(batch.positions)
        self.seen += batch.tokens.tolist()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        [request] = requests
        assert self.seen == list(request.history)
        tokens = [*request.history, request.last_token]
        return [Draft(self.rule(tokens, min(self.max_draft, request.max_tokens)))]

    def accept(self, slot: int, n_accepted: int) -> None:
        self.verdicts.append(n_accepted)

    def rewind(self, slot: int, length: int) -> None:
        self.rewinds.append(length)
        del self.seen[length:]

    def close(self) -> None:
        self.is_closed = True


class LetterTokenizer:
    """Token i is the letter `chr(97 + i % 26)`; token `end` ends a generation and has no text."""

    def __init__(self, *, n_vocab: int = 50, end: int = 49) -> None:
        self.n_vocab = n_vocab
        self.end = end
        self.eog_ids = frozenset({end})
        self.suppress_ids: tuple[int, ...] = ()

    def is_end(self, token: int) -> bool:
        return token == self.end

    def stream(self, *, special: bool = False) -> LetterTokenizer:
        return self

    def push(self, token: int) -> str:
        return "" if token == self.end else chr(97 + token % 26)

    def flush(self) -> str:
        return ""


def count_up(tokens: list[int]) -> int:
    """The target's rule of most tests: one more than the last token, modulo 40."""
    return (tokens[-1] + 1) % 40
