"""The drafters of a run: the first that has a draft for a sequence wins its round.

llama.cpp `common/speculative.cpp`, `common_speculative_*`: the order is fixed (`specli.drafters.DRAFTERS`), drafts are
never joined, those behind the winner are not asked, and calls, tokens and times are counted here. Different from
llama.cpp, a call counts once per sequence, so that what is counted for a request does not depend on its neighbours.

With `AdaptiveLengths` the drafters worth asking, their order and their draft lengths are chosen round by round. A
drafter that reads hidden states and is not asked is not shown tokens one by one either: they are held back, with a copy
of their features, until it is asked again, and then taken in together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specli.drafters.adaptive import AdaptiveLengths, Choice
from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch
from specli.drafters.stats import DrafterStats, add

if TYPE_CHECKING:
    from specli.kernels.ops import Array


class DrafterChain:
    """Passes the verbs on and counts them.

    Args:
        drafters: Highest priority first; may be empty.
        lengths: Chooses who is asked and for how much; None = everybody in order, as long as configured.

    Attributes:
        drafters: The same.
        lengths: As given.
        max_draft: Longest draft any of them makes, tokens; 0 without drafters.
        reads_features: One of them reads hidden states of the target.
    """

    def __init__(self, drafters: Sequence[Drafter], lengths: AdaptiveLengths | None = None) -> None:
        self.drafters = tuple(drafters)
        self.lengths = lengths
        self._fixed = [Choice(i, drafter.max_draft) for i, drafter in enumerate(self.drafters)]
        self._held = [HeldParts() for _ in self.drafters]
        self._generating: set[int] = set()  # slots whose prompt has been read
        self._asked: dict[int, tuple[Choice, int]] = {}  # drafter → what it was asked in this round, and the time
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
        self._generating.add(slot)
        for i, (drafter, stats) in enumerate(zip(self.drafters, self.counters(slot), strict=True)):
            self._catch_up(i)
            begun = time.perf_counter_ns()
            drafter.begin(slot, prompt)
            stats.count_begin(time.perf_counter_ns() - begun)

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Shows every drafter what a forward added to the sequences, which share the time."""
        if self.lengths is None:
            for i in range(len(self.drafters)):
                self._show(i, parts)
            return
        prompts = [part for part in parts if part.slot not in self._generating]
        rounds = [part for part in parts if part.slot in self._generating] if prompts else parts
        for i, drafter in enumerate(self.drafters):
            asked = self._asked.get(i)
            holds = drafter.reads_features and asked is None
            shown = prompts if holds else parts
            if holds and rounds:
                self._held[i].add(rounds)
            elapsed = self._show(i, shown) if shown else 0
            if asked is not None:
                choice, ns = asked
                self.lengths.observe_draft(choice, ns + elapsed)
        self._asked.clear()
        for i, held in enumerate(self._held):
            if held.is_full:
                self._catch_up(i)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[Draft, str | None]]:
        """Asks until everybody has a proposal; requests that are asked together share the time.

        Returns:
            Per request the draft, cut to `max_tokens`, and its drafter's name; an empty draft and None if nobody has
            one.
        """
        found: dict[int, tuple[Draft, str | None]] = {}
        asking, choices = requests, self._fixed
        if self.lengths is not None:
            most = max(request.max_tokens for request in requests)
            choices = self.lengths.choose(most, n_sequences=len(requests))
        for choice in choices:
            index, drafter = choice.drafter, self.drafters[choice.drafter]
            asked = asking
            if self.lengths is not None:
                self._catch_up(index)
                asked = [_cut(request, choice) for request in asking]
            begun = time.perf_counter_ns()
            drafts = drafter.draft(asked)
            elapsed = time.perf_counter_ns() - begun
            self._asked[index] = choice, elapsed
            for request, draft in zip(asked, drafts, strict=True):
                slot, tokens = request.slot, draft.tokens
                if len(tokens) > request.max_tokens:
                    del tokens[request.max_tokens :]
                    if draft.probabilities is not None:
                        del draft.probabilities[request.max_tokens :]
                n_tokens = len(tokens)
                self.counters(slot)[index].count_draft(n_tokens, elapsed // len(asked))
                if n_tokens:
                    self._used[slot] = index, n_tokens
                    found[slot] = draft, drafter.name
            if len(found) == len(requests):
                break
            asking = [request for request in asking if request.slot not in found]
        nothing: tuple[Draft, str | None] = Draft(), None
        return [found.get(request.slot, nothing) for request in requests]

    @property
    def is_asking(self) -> bool:
        """Some drafter was asked since the latest `process`; if not, a round without a draft is a choice."""
        return bool(self._asked)

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
        if self.lengths is not None:
            self.lengths.observe_verdict(winner, n_accepted, n_draft)

    def rewind(self, slot: int, length: int) -> None:
        """A new request keeps the first `length` tokens of the slot's sequence; its counters start at zero."""
        for into, counted in zip(self._past, self._counters.pop(slot, ()), strict=False):
            add(into, counted)
        self._used.pop(slot, None)
        self._generating.discard(slot)
        for i, drafter in enumerate(self.drafters):
            self._catch_up(i)
            drafter.rewind(slot, length)
        if self.lengths is not None:
            self.lengths.begin()

    def close(self) -> None:
        """Lets every drafter write and release what it holds."""
        for drafter in self.drafters:
            drafter.close()

    def _show(self, index: int, parts: Sequence[TargetBatch]) -> int:
        """Shows one drafter what joined the sequences; returns the nanoseconds it took."""
        begun = time.perf_counter_ns()
        self.drafters[index].process(parts)
        elapsed = time.perf_counter_ns() - begun
        for part in parts:
            self.counters(part.slot)[index].count_process(elapsed // len(parts))
        return elapsed

    def _catch_up(self, index: int) -> None:
        """Shows one drafter what was held back from it."""
        for parts in self._held[index].take():
            self._show(index, parts)

    def _zeros(self) -> tuple[DrafterStats, ...]:
        return tuple(DrafterStats(drafter.name) for drafter in self.drafters)


def _cut(request: DraftRequest, choice: Choice) -> DraftRequest:
    if choice.length >= request.max_tokens:
        return request
    return request._replace(max_tokens=choice.length, is_cut=True)


class HeldParts:
    """What forwards added to the sequences and a drafter has not been shown yet, with copies of its features."""

    def __init__(self) -> None:
        self._rounds: list[list[tuple[TargetBatch, dict[str, Array]]]] = []
        self._n_rows = 0
        self._capacity = 0  # rows of the feature buffers

    @property
    def is_full(self) -> bool:
        """There is as much as the feature buffers hold at a time."""
        return self._n_rows > 0 and self._n_rows >= self._capacity

    def add(self, parts: Sequence[TargetBatch]) -> None:
        """Holds back what the latest forward added, whose features are in their buffers."""
        held = []
        for part in parts:
            first, last = part.first_row, part.first_row + len(part.tokens)
            held.append((part, {name: buffer.save(first, last) for name, buffer in part.features.items()}))
            self._n_rows += len(part.tokens)
            self._capacity = min((buffer.capacity for buffer in part.features.values()), default=0)
        self._rounds.append(held)

    def take(self) -> Iterator[list[TargetBatch]]:
        """Gives up what was held back, as few calls of `Drafter.process` as the feature buffers allow.

        Writes the features back into their buffers, so what these hold of the latest forward must not be needed any
        more.
        """
        rounds, self._rounds, self._n_rows = self._rounds, [], 0
        together: dict[int, list[tuple[TargetBatch, dict[str, Array]]]] = {}
        n_rows = 0
        for held in rounds:
            n_new = sum(len(part.tokens) for part, _ in held)
            if n_rows + n_new > self._capacity:
                yield restore(together)
                together, n_rows = {}, 0
            for item in held:
                together.setdefault(item[0].slot, []).append(item)
            n_rows += n_new
        if together:
            yield restore(together)


def restore(held: Mapping[int, Sequence[tuple[TargetBatch, Mapping[str, Array]]]]) -> list[TargetBatch]:
    """Writes features back, sequence after sequence, and joins the parts of each slot."""
    parts, row = [], 0
    for items in held.values():
        first = row
        for part, features in items:
            for name, rows in features.items():
                part.features[name].restore(rows, row)
            row += len(part.tokens)
        tokens = np.concatenate([part.tokens for part, _ in items])
        positions = np.concatenate([part.positions for part, _ in items])
        parts.append(items[0][0]._replace(tokens=tokens, positions=positions, first_row=first))
    return parts
