"""The drafters of a run in priority order: the first that has a draft for a sequence wins its round.

llama.cpp `common/speculative.cpp`, `common_speculative_*`: the order is fixed (`specli.drafters.DRAFTERS`), drafts are
never joined, those behind the winner are not asked, and calls, tokens and times are counted here. Different from
llama.cpp, a call counts once per sequence, so that what is counted for a request does not depend on its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch
from specli.drafters.stats import DrafterStats, add


class DrafterChain:
    """Passes the verbs on and counts them.

    Args:
        drafters: Highest priority first; may be empty.

    Attributes:
        drafters: The same.
        max_draft: Longest draft any of them makes, tokens; 0 without drafters.
        reads_features: One of them reads hidden states of the target.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = tuple(drafters)
        self.max_draft = max((drafter.max_draft for drafter in drafters), default=0)
        self.reads_features = any(drafter.reads_features for drafter in drafters)
        self._past = self._zeros()  # of the requests before those in the slots
        self._counters: dict[int, tuple[DrafterStats, ...]] = {}  # slot → of its request
        self._used: dict[int, tuple[int, int]] = {}  # slot → whose draft was used last, and its tokens

    @property
    def stats(self) -> tuple[DrafterStats, ...]:
        """One record per drafter, summed over all requests since the program started."""
        total = self._zeros()
        for counters in (self._past, *self._counters.values()):
            for into, counted in zip(total, counters, strict=True):
                add(into, counted)
        return total

    def counters(self, slot: int) -> tuple[DrafterStats, ...]:
        """One record per drafter, counted since the slot's latest `rewind`: those of its request."""
        found = self._counters.get(slot)
        if found is None:
            found = self._counters[slot] = self._zeros()
        return found

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """A new request in the slot, whose whole prompt went through `process`."""
        for drafter, stats in zip(self.drafters, self.counters(slot), strict=True):
            begun = time.perf_counter_ns()
            drafter.begin(slot, prompt)
            stats.count_begin(time.perf_counter_ns() - begun)

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Shows every drafter what a forward added to the sequences, which share the time."""
        for i, drafter in enumerate(self.drafters):
            begun = time.perf_counter_ns()
            drafter.process(parts)
            elapsed = (time.perf_counter_ns() - begun) // len(parts)
            for part in parts:
                self.counters(part.slot)[i].count_process(elapsed)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[Draft, str | None]]:
        """Asks in order until everybody has a proposal; requests that are asked together share the time.

        Returns:
            Per request the draft, cut to `max_tokens`, and its drafter's name; an empty draft and None if nobody has
            one.
        """
        found: dict[int, tuple[Draft, str | None]] = {}
        asking = requests
        for i, drafter in enumerate(self.drafters):
            begun = time.perf_counter_ns()
            drafts = drafter.draft(asking)
            elapsed = (time.perf_counter_ns() - begun) // len(asking)
            for request, draft in zip(asking, drafts, strict=True):
                slot, tokens = request.slot, draft.tokens
                if len(tokens) > request.max_tokens:
                    del tokens[request.max_tokens :]
                    if draft.probabilities is not None:
                        del draft.probabilities[request.max_tokens :]
                n_tokens = len(tokens)
                self.counters(slot)[i].count_draft(n_tokens, elapsed)
                if n_tokens:
                    self._used[slot] = i, n_tokens
                    found[slot] = draft, drafter.name
            if len(found) == len(requests):
                break
            asking = [request for request in asking if request.slot not in found]
        nothing: tuple[Draft, str | None] = Draft(), None
        return [found.get(request.slot, nothing) for request in requests]

    def accept(self, slot: int, n_accepted: int, n_kept: int | None = None) -> None:
        """Closes a round of the slot that had a draft: `n_accepted` of its tokens were accepted.

        Args:
            slot: Of the sequence.
            n_accepted: Those tokens.
            n_kept: So many of them the request took before it ended; counted in their place.
        """
        used = self._used.get(slot)
        if used is None:
            return
        winner, n_draft = used
        begun = time.perf_counter_ns()
        self.drafters[winner].accept(slot, n_accepted)
        elapsed, stats = time.perf_counter_ns() - begun, self.counters(slot)[winner]
        if n_kept is None or n_kept == n_accepted:
            stats.count_accept(n_accepted, n_draft, elapsed)
        else:  # what is behind the end was not tried
            stats.count_accept(n_kept, n_kept, elapsed)

    def rewind(self, slot: int, length: int) -> None:
        """A new request keeps the first `length` tokens of the slot's sequence; its counters start at zero."""
        for into, counted in zip(self._past, self._counters.pop(slot, ()), strict=False):
            add(into, counted)
        self._used.pop(slot, None)
        for drafter in self.drafters:
            drafter.rewind(slot, length)

    def close(self) -> None:
        """Lets every drafter write and release what it holds."""
        for drafter in self.drafters:
            drafter.close()

    def _zeros(self) -> tuple[DrafterStats, ...]:
        return tuple(DrafterStats(drafter.name) for drafter in self.drafters)
