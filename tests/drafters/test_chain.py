"""Priority, cap and counting of the chain, with scripted drafters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain

SLOT = 2
BATCH = TargetBatch(SLOT, np.array([1], dtype=np.int32), np.array([0], dtype=np.int32))


class Scripted:
    """Proposes what its script says, one entry per call, and keeps a record of the verbs."""

    reads_features = False
    reads_batches = True

    def __init__(self, name: str, *drafts: list[int], max_draft: int = 3) -> None:
        self.name, self.max_draft = name, max_draft
        self.calls: list[object] = []
        self._drafts = iter(drafts)

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        self.calls.append(("begin", slot, list(prompt)))

    def process(self, parts: Sequence[TargetBatch]) -> None:
        self.calls.append("process")

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.calls.append(("draft", *(request.slot for request in requests)))
        candidate = (np.array([0], dtype=np.int32), np.array([1], dtype=np.float32))
        drafts = [next(self._drafts) for _ in requests]
        return [Draft(list(tokens), [candidate] * len(tokens)) for tokens in drafts]

    def accept(self, slot: int, n_accepted: int) -> None:
        self.calls.append(("accept", slot, n_accepted))

    def rewind(self, slot: int, length: int) -> None:
        self.calls.append(("rewind", slot, length))

    def close(self) -> None:
        self.calls.append("close")


def request(max_tokens: int = 10, slot: int = SLOT) -> DraftRequest:
    return DraftRequest(slot, [1, 2], 3, max_tokens)


def test_the_first_with_a_draft_wins_and_the_rest_are_not_asked() -> None:
    first, second, third = Scripted("a", []), Scripted("b", [4, 5]), Scripted("c", [6])
    chain = DrafterChain([first, second, third])
    [(draft, name)] = chain.draft([request()])
    assert (draft.tokens, name) == ([4, 5], "b")
    assert (first.calls, second.calls, third.calls) == ([("draft", SLOT)], [("draft", SLOT)], [])
    assert [stats.n_draft for stats in chain.stats] == [1, 1, 0]


def test_a_draft_is_cut_to_what_can_be_used() -> None:
    chain = DrafterChain([Scripted("a", [4, 5, 6])])
    [(draft, _)] = chain.draft([request(max_tokens=2)])
    assert draft.tokens == [4, 5]
    assert draft.probabilities is not None
    assert len(draft.probabilities) == 2
    assert (chain.stats[0].gen_drafts, chain.stats[0].gen_tokens) == (1, 2)


def test_nobody_has_a_draft() -> None:
    chain = DrafterChain([Scripted("a", [])])
    assert chain.draft([request()]) == [(Draft(), None)]
    assert (chain.stats[0].n_draft, chain.stats[0].gen_drafts) == (1, 0)


def test_no_drafters() -> None:
    chain = DrafterChain([])
    chain.begin(SLOT, [1])
    chain.process([BATCH])
    assert chain.draft([request()]) == [(Draft(), None)]
    assert (chain.max_draft, chain.reads_features, chain.stats) == (0, False, ())


def test_only_the_drafter_of_the_draft_hears_how_much_was_accepted() -> None:
    first, second = Scripted("a", []), Scripted("b", [4, 5])
    chain = DrafterChain([first, second])
    chain.draft([request()])
    chain.accept(SLOT, 1)
    assert first.calls == [("draft", SLOT)]
    assert second.calls == [("draft", SLOT), ("accept", SLOT, 1)]
    assert (chain.stats[0].n_accept, chain.stats[1].n_accept) == (0, 1)
    assert (chain.stats[1].acc_drafts, chain.stats[1].acc_tokens, chain.stats[1].acc_per_pos) == (1, 1, [1])


def test_statistics_of_rounds_shared_by_two_drafters() -> None:
    """Rounds: a drafts 3 of which 2 stand; b drafts 2, none stands; a drafts 1, it stands."""
    chain = DrafterChain([Scripted("a", [1, 2, 3], [], [1]), Scripted("b", [7, 8])])
    chain.begin(SLOT, [1])
    for n_accepted in (2, 0, 1):
        chain.draft([request()])
        chain.accept(SLOT, n_accepted)
    a, b = chain.stats
    assert (a.n_begin, a.n_draft, a.n_accept) == (1, 3, 2)
    assert (a.gen_drafts, a.acc_drafts, a.gen_tokens, a.acc_tokens) == (2, 2, 4, 3)
    assert (a.acc_per_pos, a.acc_len_histogram) == ([2, 1], [0, 1, 1])
    assert (b.n_begin, b.n_draft, b.n_accept) == (1, 1, 1)
    assert (b.gen_drafts, b.acc_drafts, b.gen_tokens, b.acc_tokens, b.acc_per_pos) == (1, 0, 2, 0, [])


def test_every_verb_reaches_every_drafter_in_order() -> None:
    drafters = [Scripted("a"), Scripted("b", max_draft=9)]
    chain = DrafterChain(drafters)
    chain.begin(SLOT, [5])
    chain.process([BATCH])
    chain.rewind(SLOT, 4)
    chain.close()
    for drafter in drafters:
        assert drafter.calls == [("begin", SLOT, [5]), "process", ("rewind", SLOT, 4), "close"]
    assert chain.max_draft == 9


def test_times_are_kept_per_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by 1, 2, 3, … ns from reading to reading: so later calls take longer."""
    readings = iter(i * (i + 1) // 2 for i in range(100))
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(readings))
    chain = DrafterChain([Scripted("a", [4])])
    chain.begin(SLOT, [1])
    chain.process([BATCH])
    chain.draft([request()])
    chain.accept(SLOT, 1)
    (stats,) = chain.stats
    assert (stats.begin_ns, stats.process_ns, stats.draft_ns, stats.accept_ns) == (1, 3, 5, 7)


def test_sequences_that_draft_together_have_winners_and_counters_of_their_own() -> None:
    """In slot 0 the first drafter has a draft, in slots 1 and 2 it has none; the second has one for slot 2 alone."""
    first, second = Scripted("a", [1, 2], [], []), Scripted("b", [], [3, 4, 5])
    chain = DrafterChain([first, second])
    found = chain.draft([request(slot=0), request(slot=1), request(slot=2)])
    assert [(draft.tokens, name) for draft, name in found] == [([1, 2], "a"), ([], None), ([3, 4, 5], "b")]
    chain.accept(2, 3)
    chain.accept(0, 1)
    assert first.calls == [("draft", 0, 1, 2), ("accept", 0, 1)]
    assert second.calls == [("draft", 1, 2), ("accept", 2, 3)]
    of_slots = [[(s.n_draft, s.gen_tokens, s.acc_tokens) for s in chain.counters(slot)] for slot in range(3)]
    assert of_slots == [[(1, 2, 1), (0, 0, 0)], [(1, 0, 0), (1, 0, 0)], [(1, 0, 0), (1, 3, 3)]]
    assert [(s.n_draft, s.gen_tokens, s.acc_tokens) for s in chain.stats] == [(3, 2, 1), (2, 3, 3)]


def test_a_new_request_counts_from_zero_and_the_sum_goes_on() -> None:
    chain = DrafterChain([Scripted("a", [1, 2], [3])])
    for n_accepted in (2, 0):
        chain.rewind(SLOT, 0)
        chain.draft([request()])
        chain.accept(SLOT, n_accepted)
    assert [(s.n_accept, s.acc_tokens, s.acc_len_histogram) for s in chain.counters(SLOT)] == [(1, 0, [1])]
    assert [(s.n_accept, s.acc_tokens, s.acc_len_histogram) for s in chain.stats] == [(2, 2, [1, 0, 1])]
