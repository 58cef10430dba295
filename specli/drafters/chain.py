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
from dataclasses import dataclass, field
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
        is_shown: One of them has to be shown what joins the sequences.
    """

    def __init__(self, drafters: Sequence[Drafter], lengths: AdaptiveLengths | None = None) -> None:
        self.drafters = tuple(drafters)
        self.lengths = lengths
        self._fixed = [Choice(i, drafter.max_draft) for i, drafter in enumerate(self.drafters)]
        self._readers = [i for i, drafter in enumerate(self.drafters) if drafter.reads_batches]
        self._held = [HeldParts() if drafter.reads_features else None for drafter in self.drafters]
        self._generating: set[int] = set()  # slots whose prompt has been read
        self._asked: dict[int, tuple[Choice, int]] = {}  # drafter → what it was asked in this round, and the time
        self.max_draft = max((drafter.max_draft for drafter in drafters), default=0)
        self.reads_features = any(drafter.reads_features for drafter in drafters)
        self.is_shown = bool(self._readers)
        self._past = self._zeros()  # of the requests before those in the slots
        self._counters: dict[int, tuple[DrafterStats, ...]] = {}  # slot → of its request
        # slot → whose draft was used last, how many tokens of it were verified, and the draft as it was made
        self._used: dict[int, tuple[int, int, Draft]] = {}

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
        asked_for, lengths = self._asked, self.lengths
        if lengths is None:
            for i in self._readers:
                self._show(i, parts)
            return
        if not asked_for and len(parts) == 1 and parts[0].slot in self._generating:  # the most frequent case
            for i in self._readers:
                held = self._held[i]
                if held is None:
                    self._show(i, parts)
                    continue
                held.add(parts)
                if held.is_full:
                    self._catch_up(i)
            return
        prompts = [part for part in parts if part.slot not in self._generating]
        rounds = [part for part in parts if part.slot in self._generating] if prompts else parts
        for i in self._readers:
            asked, held = asked_for.get(i), self._held[i]
            holds = held is not None and asked is None
            shown = prompts if holds else parts
            if held is not None and holds and rounds:
                held.add(rounds)
            elapsed = self._show(i, shown) if shown else 0
            if asked is not None:
                choice, ns = asked
                lengths.observe_draft(choice, ns + elapsed)
            if held is not None and held.is_full:
                self._catch_up(i)
        asked_for.clear()

    def skips(self, n_sequences: int) -> bool:
        """Whether a round of so many sequences has no draft by choice; then `draft` need not be called."""
        return self.lengths is not None and self.lengths.skips(n_sequences)

    def draft(self, requests: Sequence[DraftRequest], n_beside: int = 0) -> list[tuple[Draft, str | None]]:
        """Asks until everybody has a proposal; requests that are asked together share the time.

        Args:
            requests: One per sequence that drafts.
            n_beside: Rows that the target's next forward will have besides them and their drafts.

        Returns:
            Per request the draft, cut to `max_tokens`, and its drafter's name; an empty draft and None if nobody has
            one.
        """
        self._asked.clear()
        lengths = self.lengths
        choices: Sequence[Choice] = self._fixed
        if lengths is not None:
            choices = lengths.choose(max([request.max_tokens for request in requests]), n_sequences=len(requests))
        found: dict[int, _Proposal] = {}
        compares = len(choices) > 1
        for choice in choices:
            asking = [request for request in requests if _is_asked(found.get(request.slot), choice, lengths)]
            if not asking:
                continue
            for request, proposal in zip(asking, self._ask(choice, asking, compares=compares), strict=True):
                if proposal is not None:
                    found[request.slot] = _better(found.get(request.slot), proposal)
        if lengths is not None and found:
            self._trim(found, len(requests) + n_beside)
        return [self._use(request.slot, found.get(request.slot)) for request in requests]

    def _ask(self, choice: Choice, requests: Sequence[DraftRequest], *, compares: bool) -> list[_Proposal | None]:
        """What one drafter proposes to some of the requests, with its value if it `compares` with others'."""
        lengths, index = self.lengths, choice.drafter
        drafter = self.drafters[index]
        if lengths is not None:
            self._catch_up(index)
            requests = [
                request if choice.length >= request.max_tokens else request._replace(max_tokens=choice.length)
                for request in requests
            ]
        begun = time.perf_counter_ns()
        drafts = drafter.draft(requests)
        elapsed = time.perf_counter_ns() - begun
        self._asked[index] = choice, elapsed
        if lengths is not None:
            lengths.observe_asking(index, elapsed)
        proposals: list[_Proposal | None] = []
        for request, draft in zip(requests, drafts, strict=True):
            n_made, most = len(draft.tokens), request.max_tokens
            if n_made > most:
                _shorten(draft, most)
            self.counters(request.slot)[index].count_call(elapsed // len(requests))
            if not n_made:
                proposals.append(None)
            elif lengths is None:
                proposals.append(_Proposal(choice, draft, n_made))
            else:
                survival = lengths.survival(index, draft)
                value = lengths.value(survival) if compares else 0.0
                proposals.append(_Proposal(choice, draft, n_made, survival, value))
        return proposals

    def _trim(self, found: dict[int, _Proposal], n_rows: int) -> None:
        """Cuts drafts to what is worth its time in the target's forward, over all sequences together."""
        assert self.lengths is not None
        trimmed, survivals = [], []
        for proposal in found.values():
            choice, n_draft = proposal.choice, len(proposal.draft.tokens)
            if (
                choice.is_try
                or proposal.draft.probabilities is not None
                or self.lengths.traits[choice.drafter].min_draft > 1
            ):
                n_rows += n_draft
            else:
                trimmed.append(proposal)
                survivals.append(proposal.survival)
        if not trimmed:
            return
        for proposal, kept in zip(trimmed, self.lengths.trim(survivals, n_rows), strict=True):
            index, n_draft = proposal.choice.drafter, len(proposal.draft.tokens)
            if kept < n_draft and (kept == 0 or not self.lengths.traits[index].is_table):
                kept = max(kept, self.lengths.least(index, n_draft))
            proposal.n_kept = kept

    def _use(self, slot: int, proposal: _Proposal | None) -> tuple[Draft, str | None]:
        """The draft that the slot's round will have; what its drafter and the verdict need to know of it is kept."""
        if proposal is None:
            return Draft(), None
        draft, index, n_kept = proposal.draft, proposal.choice.drafter, proposal.n_kept
        n_draft = len(draft.tokens) if n_kept is None else n_kept
        used = draft
        if n_draft < len(draft.tokens):
            used = Draft(draft.tokens[:n_draft], n_cut=len(draft.tokens) - n_draft)
        if not n_draft:
            return used, None
        if n_draft < proposal.n_made and self.lengths is not None and self.lengths.traits[index].is_table:
            self.drafters[index].cut(slot, n_draft)
        self.counters(slot)[index].count_used(n_draft)
        self._used[slot] = index, n_draft, draft
        return used, self.drafters[index].name

    @property
    def is_asking(self) -> bool:
        """Some drafter was asked in this round; if not, a round without a draft is a choice."""
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
        winner, n_draft, draft = used
        begun = time.perf_counter_ns()
        self.drafters[winner].accept(slot, n_accepted)
        elapsed, stats = time.perf_counter_ns() - begun, self.counters(slot)[winner]
        if n_kept is None or n_kept == n_accepted:
            stats.count_accept(n_accepted, n_draft, elapsed)
        else:  # what is behind the end was not tried
            stats.count_accept(n_kept, n_kept, elapsed)
        if self.lengths is not None:
            self.lengths.observe_verdict(winner, n_accepted, n_draft, draft)

    def rewind(self, slot: int, length: int) -> None:
        """A new request keeps the first `length` tokens of the slot's sequence; its counters start at zero."""
        for into, counted in zip(self._past, self._counters.pop(slot, ()), strict=False):
            add(into, counted)
        self._used.pop(slot, None)
        self._generating.discard(slot)
        for i, drafter in enumerate(self.drafters):
            held = self._held[i]
            if held is not None:
                held.forget(slot, length)
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
        held = self._held[index]
        if held is not None and held.n_rows:
            for parts in held.take():
                self._show(index, parts)

    def _zeros(self) -> tuple[DrafterStats, ...]:
        return tuple(DrafterStats(drafter.name) for drafter in self.drafters)


@dataclass(slots=True)
class _Proposal:
    """A draft that a drafter made for a sequence.

    Attributes:
        choice: What it was asked.
        draft: What it made, cut to what can be used.
        n_made: Tokens it made.
        survival: Chance that the first token is accepted, that the first two are, …; empty with fixed lengths.
        value: See `Choice.value`.
        n_kept: Tokens that are verified; None = all.
    """

    choice: Choice
    draft: Draft
    n_made: int
    survival: list[float] = field(default_factory=list)
    value: float = 0.0
    n_kept: int | None = None


def _is_asked(known: _Proposal | None, choice: Choice, lengths: AdaptiveLengths | None) -> bool:
    """Whether a drafter is asked, given the best proposal so far."""
    if known is None:
        return True
    return lengths is not None and not lengths.is_ordered and choice.value > known.value


def _better(known: _Proposal | None, new: _Proposal) -> _Proposal:
    """The proposal to use.

    A network's draft that a table's draft goes on from, is continued by it: two sources agree on what they share. A
    sampled draft is used in any case, since its tokens would decide about it, and so is a try.
    """
    if known is None or new.choice.is_try or new.draft.probabilities is not None:
        return new
    n_shared = len(new.draft.tokens)
    if new.draft.confidence is not None and known.draft.tokens[:n_shared] == new.draft.tokens:
        surer = [max(pair) for pair in zip(known.survival, new.survival, strict=False)]
        factor = surer[-1] / known.survival[n_shared - 1] if known.survival[n_shared - 1] > 0 else 0.0
        known.survival = [*surer, *(factor * chance for chance in known.survival[n_shared:])]
        return known
    return new if new.value > known.value else known


def _shorten(draft: Draft, n_tokens: int) -> None:
    """Cuts a draft where there is no room for more."""
    for parallel in (draft.tokens, draft.probabilities, draft.confidence, draft.parents):
        if parallel is not None:
            del parallel[n_tokens:]


class HeldParts:
    """What forwards added to the sequences and a drafter has not been shown yet, with copies of its features.

    Attributes:
        n_rows: Tokens of it.
    """

    def __init__(self) -> None:
        self._rounds: list[list[tuple[TargetBatch, dict[str, Array]]]] = []
        self.n_rows = 0
        self._capacity = 0  # rows of the feature buffers

    @property
    def is_full(self) -> bool:
        """There is as much as the feature buffers hold at a time."""
        return self.n_rows > 0 and self.n_rows >= self._capacity

    def add(self, parts: Sequence[TargetBatch]) -> None:
        """Holds back what the latest forward added, whose features are in their buffers."""
        held = []
        for part in parts:
            first, last = part.first_row, part.first_row + len(part.tokens)
            held.append((part, {name: buffer.save(first, last) for name, buffer in part.features.items()}))
            self.n_rows += len(part.tokens)
            if not self._capacity:
                self._capacity = min([buffer.capacity for buffer in part.features.values()], default=0)
        self._rounds.append(held)

    def forget(self, slot: int, length: int) -> None:
        """Drops what is held of a slot from token `length` on, except the rest of a part that begins before."""
        kept = [
            [item for item in held if item[0].slot != slot or item[0].positions[0] < length] for held in self._rounds
        ]
        self._rounds = [held for held in kept if held]
        self.n_rows = sum(len(part.tokens) for held in self._rounds for part, _ in held)

    def take(self) -> Iterator[list[TargetBatch]]:
        """Gives up what was held back, as few calls of `Drafter.process` as the feature buffers allow.

        Writes the features back into their buffers, so what these hold of the latest forward must not be needed any
        more.
        """
        rounds, self._rounds, self.n_rows = self._rounds, [], 0
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
