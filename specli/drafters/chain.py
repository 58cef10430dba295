"""The drafters of a run in priority order: the first that has a draft wins the round (speculation.md §2).

llama.cpp `common/speculative.cpp`, `common_speculative_*`: the order is fixed (`specli.drafters.DRAFTERS`), drafts are
never joined, those behind the winner are not asked, and calls, tokens and times are counted here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch
from specli.drafters.stats import DrafterStats


class DrafterChain:
    """Passes the verbs on and counts them.

    Args:
        drafters: Highest priority first; may be empty.

    Attributes:
        drafters: The same.
        stats: One record per drafter, counted since the program started.
        max_draft: Longest draft any of them makes, tokens; 0 without drafters.
        reads_features: One of them reads hidden states of the target.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = tuple(drafters)
        self.stats = tuple(DrafterStats(drafter.name) for drafter in drafters)
        self._pairs = tuple(zip(self.drafters, self.stats, strict=True))
        self.max_draft = max((drafter.max_draft for drafter in drafters), default=0)
        self.reads_features = any(drafter.reads_features for drafter in drafters)
        self._winner: int | None = None  # whose draft was used last
        self._n_draft = 0  # tokens of the latest draft

    def begin(self, prompt: Sequence[int]) -> None:
        """A new request whose whole prompt went through `process`."""
        for drafter, stats in self._pairs:
            begun = time.perf_counter_ns()
            drafter.begin(prompt)
            stats.count_begin(time.perf_counter_ns() - begun)

    def process(self, batch: TargetBatch) -> None:
        """Shows every drafter a batch that the target evaluated."""
        for drafter, stats in self._pairs:
            begun = time.perf_counter_ns()
            drafter.process(batch)
            stats.count_process(time.perf_counter_ns() - begun)

    def draft(self, request: DraftRequest) -> tuple[Draft, str | None]:
        """Asks in order until one proposes something.

        Returns:
            The draft, cut to `request.max_tokens`, and its drafter's name; an empty draft and None if nobody has one.
        """
        for i, (drafter, stats) in enumerate(self._pairs):
            begun = time.perf_counter_ns()
            draft = drafter.draft(request)
            elapsed = time.perf_counter_ns() - begun
            del draft.tokens[request.max_tokens :]
            if draft.probabilities is not None:
                del draft.probabilities[request.max_tokens :]
            self._n_draft = len(draft.tokens)
            stats.count_draft(self._n_draft, elapsed)
            if draft.tokens:
                self._winner = i
                return draft, drafter.name
        return Draft(), None

    def accept(self, n_accepted: int) -> None:
        """Closes a round that had a draft: `n_accepted` of its tokens stood. All drafters hear of it."""
        if self._winner is None:
            return
        begun = time.perf_counter_ns()
        self.drafters[self._winner].accept(n_accepted, own=True)
        self.stats[self._winner].count_accept(n_accepted, self._n_draft, time.perf_counter_ns() - begun)
        for i, drafter in enumerate(self.drafters):
            if i != self._winner:
                drafter.accept(n_accepted, own=False)

    def rewind(self, length: int) -> None:
        """The target's sequence was cut to `length` tokens."""
        for drafter in self.drafters:
            drafter.rewind(length)

    def close(self) -> None:
        """Lets every drafter write and release what it holds."""
        for drafter in self.drafters:
            drafter.close()
