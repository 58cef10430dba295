"""Models and drafters that follow a script: the loop's arithmetic can be checked by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.models.base import ForwardOutput, Ints


class ScriptedTarget:
    """Greedily continues with `rule(tokens so far)`; checks that the loop feeds positions without a gap."""

    def __init__(
        self,
        rule: Callable[[list[int]], int],
        *,
        n_vocab: int = 50,
        max_tokens: int = 8,
        max_outputs: int = 8,
        n_slots: int = 1,
    ) -> None:
        self.rule = rule
        self.config = SimpleNamespace(n_vocab=n_vocab)
        self.options = SimpleNamespace(max_tokens=max_tokens, max_outputs=max_outputs, n_slots=n_slots)
        self.cache = self
        self.slots: list[list[int]] = [[] for _ in range(n_slots)]
        self.n_rows = 0
        self.batches: list[dict[int, int]] = []  # per forward: slot → rows

    @property
    def cells(self) -> list[int]:
        """Tokens of the first slot."""
        return self.slots[0]

    def can_truncate(self, slot: int, length: int) -> bool:
        return True

    def truncate(self, slot: int, length: int) -> None:
        assert length <= len(self.slots[slot])
        del self.slots[slot][length:]

    def forward(self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints) -> ForwardOutput:
        assert 1 <= len(tokens) <= self.options.max_tokens
        assert len(outputs) <= self.options.max_outputs
        self.n_rows += len(tokens)
        self.batches.append(dict(Counter(slots.tolist())))
        for token, position, slot in zip(tokens.tolist(), positions.tolist(), slots.tolist(), strict=True):
            assert position <= len(self.slots[slot]), "a position was left out"
            self.slots[slot][position:] = [token]
        logits = np.zeros((len(outputs), self.config.n_vocab), np.float32)
        for n, row in enumerate(outputs.tolist()):
            logits[n, self.rule(self.slots[slots[row]][: positions[row] + 1])] = 5.0
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
        self.reads_features, self.reads_batches = reads_features, True
        self.prompts: list[list[int]] = []
        self.seen_in: dict[int, list[int]] = defaultdict(list)  # slot → tokens
        self.verdicts: list[int] = []
        self.rewinds: list[int] = []
        self.n_calls = 0  # of `draft`
        self.is_closed = False

    @property
    def seen(self) -> list[int]:
        """Tokens shown of the first slot."""
        return self.seen_in[0]

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        assert self.seen_in[slot][: len(prompt)] == list(prompt)
        self.prompts.append(list(prompt))

    def process(self, parts: Sequence[TargetBatch]) -> None:
        assert len({part.slot for part in parts}) == len(parts)
        for part in parts:
            seen = self.seen_in[part.slot]
            assert int(part.positions[0]) == len(seen), "a batch left a gap, or showed tokens again"
            assert len(part.tokens) == len(part.positions)
            seen += part.tokens.tolist()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.n_calls += 1
        drafts = []
        for request in requests:
            assert self.seen_in[request.slot] == list(request.history)
            tokens = [*request.history, request.last_token]
            drafts.append(Draft(self.rule(tokens, min(self.max_draft, request.max_tokens))))
        return drafts

    def accept(self, slot: int, n_accepted: int) -> None:
        self.verdicts.append(n_accepted)

    def rewind(self, slot: int, length: int) -> None:
        self.rewinds.append(length)
        del self.seen_in[slot][length:]

    def close(self) -> None:
        self.is_closed = True


class LetterTokenizer:
    """Token i is the letter `chr(97 + i % 26)`; token `end` ends a generation and has no text."""

    def __init__(self, *, n_vocab: int = 50, end: int = 49) -> None:
        self.n_vocab = n_vocab
        self.end = end
        self.eog_ids = frozenset({end})
        self.suppress_ids: tuple[int, ...] = ()

    def stream(self, *, special: bool = False, visible: tuple[str, ...] = ()) -> LetterTokenizer:
        return self

    def push(self, token: int) -> str:
        return "" if token == self.end else chr(97 + token % 26)

    def flush(self) -> str:
        return ""


def count_up(tokens: list[int]) -> int:
    """The target's rule of most tests: one more than the last token, modulo 40."""
    return (tokens[-1] + 1) % 40
