"""Chains whose drafters are chosen round by round: who is asked, and what those who are not asked see later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from specli.drafters.adaptive import AdaptiveLengths, DrafterTraits
from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.drafters.costs import RowCosts
from specli.drafters.ngram import NgramDrafter, NgramTable
from specli.kernels.ops import Buffer, Extent

CHEAP, DEAR = {1: 1e7, 16: 1.1e7}, {1: 1e7, 2: 5e7}


class Reader:
    """Reads features and keeps what it saw: position → (token, feature), by slot."""

    reads_features = True
    reads_batches = True
    max_draft = 4

    def __init__(self, name: str = "reader", draft: Sequence[int] = (7, 7, 7, 7)) -> None:
        self.name = name
        self.seen: dict[int, dict[int, tuple[int, float]]] = {}
        self.n_process = 0
        self.asked: list[int] = []
        self._draft = list(draft)

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        assert sorted(self.seen.get(slot, {})) == list(range(len(prompt)))

    def process(self, parts: Sequence[TargetBatch]) -> None:
        self.n_process += 1
        assert len({part.slot for part in parts}) == len(parts)
        for part in parts:
            rows = part.features["layers"].read()[part.first_row :, 0]
            for token, position, value in zip(part.tokens, part.positions, rows, strict=False):
                self.seen.setdefault(part.slot, {})[int(position)] = int(token), float(value)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        for request in requests:
            self.asked.append(request.max_tokens)
            assert sorted(self.seen[request.slot]) == list(range(len(request.history)))
        return [Draft(list(self._draft)) for _ in requests]

    def accept(self, slot: int, n_accepted: int) -> None:
        pass

    def rewind(self, slot: int, length: int) -> None:
        self.seen[slot] = {p: item for p, item in self.seen.get(slot, {}).items() if p < length}

    def close(self) -> None:
        pass


class Rounds:
    """Forwards of a target that leave a recognisable feature, slot · 1000 + position, in a buffer of 8 rows."""

    def __init__(self, chain: DrafterChain, storage: np.ndarray | torch.Tensor) -> None:
        self.chain, self.buffer = chain, Buffer(storage, Extent.TOKENS)
        self.histories: dict[int, list[int]] = {}

    def forward(self, new: dict[int, list[int]]) -> None:
        parts, row = [], 0
        for slot, tokens in new.items():
            history = self.histories.setdefault(slot, [])
            positions = np.arange(len(history), len(history) + len(tokens), dtype=np.int32)
            for i, position in enumerate(positions):
                self.buffer.storage[row + i] = 1000 * slot + float(position)
            ids = np.array(tokens, dtype=np.int32)
            parts.append(TargetBatch(slot, ids, positions, row, {"layers": self.buffer}))
            history += tokens
            row += len(tokens)
        self.chain.process(parts)

    def start(self, slot: int, prompt: list[int]) -> None:
        self.chain.rewind(slot, 0)
        self.histories[slot] = []
        self.forward({slot: prompt})
        self.chain.begin(slot, prompt)

    def draft(self, *slots: int) -> list[tuple[Draft, str | None]]:
        return self.chain.draft([DraftRequest(slot, self.histories[slot], 1, 8) for slot in slots])


def chain_of(*drafters: Reader, costs: dict[int, float]) -> DrafterChain:
    return DrafterChain(drafters, AdaptiveLengths(RowCosts(costs), [DrafterTraits(4) for _ in drafters]))


def storages() -> list[np.ndarray | torch.Tensor]:
    return [np.zeros((8, 1), dtype=np.float32), torch.zeros(8, 1)]


@pytest.mark.parametrize("storage", storages(), ids=["numpy", "torch"])
def test_a_drafter_that_was_not_asked_for_long_sees_every_token_with_its_feature(
    storage: np.ndarray | torch.Tensor,
) -> None:
    reader = Reader()
    rounds = Rounds(chain_of(reader, costs=DEAR), storage)
    rounds.start(0, [5, 6, 7])
    rounds.start(3, [8, 9])
    seen, asked = reader.n_process, 0
    for number in range(60):
        drafted = rounds.draft(0, 3)
        asked += any(name for _, name in drafted)
        rounds.forward({0: [10 + number] * (1 + number % 3), 3: [40 + number]})
        for slot, (draft, _) in zip((0, 3), drafted, strict=True):
            if draft.tokens:
                rounds.chain.accept(slot, 0)
    assert 0 < asked < 10
    assert reader.n_process - seen < 60  # not one call per round
    rounds.chain.rewind(0, len(rounds.histories[0]))  # whatever is held back comes first
    for slot, history in rounds.histories.items():
        assert reader.seen[slot] == {p: (token, 1000.0 * slot + p) for p, token in enumerate(history)}


def test_what_a_new_request_does_not_keep_is_not_taken_in_late() -> None:
    reader = Reader()
    rounds = Rounds(chain_of(reader, costs=DEAR), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    for number in range(3):
        rounds.forward({0: [number, number]})
    rounds.chain.rewind(0, 4)  # within the second of three parts
    assert reader.seen[0] == {p: (token, float(p)) for p, token in enumerate([5, 0, 0, 1])}
    assert reader.n_process == 2


def test_what_is_held_back_never_exceeds_the_feature_buffers() -> None:
    reader = Reader()
    rounds = Rounds(chain_of(reader, costs=DEAR), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    for number in range(6):
        rounds.forward({0: [number] * 7})
    rounds.chain.rewind(0, 43)
    assert reader.seen[0] == {p: (token, float(p)) for p, token in enumerate(rounds.histories[0])}


def test_a_drafter_in_use_is_shown_every_round_at_once() -> None:
    reader = Reader()
    rounds = Rounds(chain_of(reader, costs=CHEAP), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    for _ in range(5):
        rounds.draft(0)
        before = reader.n_process
        rounds.forward({0: [1, 7]})
        assert reader.n_process == before + 1
        rounds.chain.accept(0, 1)


def test_drafts_are_cut_to_the_chosen_length() -> None:
    reader = Reader()
    rounds = Rounds(chain_of(reader, costs={1: 1e7, 2: 1.1e7, 3: 4e7}), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    [(draft, name)] = rounds.draft(0)
    assert (draft.tokens, name, reader.asked) == ([7], "reader", [1])


def test_without_lengths_everybody_is_asked_for_all_that_is_of_use() -> None:
    reader = Reader()
    rounds = Rounds(DrafterChain([reader]), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    rounds.draft(0)
    assert reader.asked == [8]


def test_the_next_drafter_is_asked_where_the_best_one_has_nothing() -> None:
    silent, reader = Reader("silent", draft=()), Reader()
    rounds = Rounds(chain_of(silent, reader, costs=CHEAP), np.zeros((8, 1), dtype=np.float32))
    rounds.start(0, [5])
    [(draft, name)] = rounds.draft(0)
    assert (len(draft.tokens), name, len(silent.asked)) == (4, "reader", 1)


class Table(NgramTable):
    """Proposes what it is told to."""

    name = "table"
    max_draft = 6

    def __init__(self, draft: Sequence[int]) -> None:
        super().__init__()
        self.proposes, self.told, self.cuts = list(draft), [], []

    def draft(self, request: DraftRequest) -> Draft:
        return Draft(list(self.proposes))

    def accept(self, n_accepted: int) -> None:
        self.told.append(n_accepted)

    def cut(self, n_tokens: int) -> None:
        self.cuts.append(n_tokens)

    def _forget(self) -> None:
        pass

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        pass


class Sure(Reader):
    """Says how sure it is of its tokens, and may have drawn them."""

    def __init__(self, draft: Sequence[int], confidence: Sequence[float], *, sampled: bool = False) -> None:
        super().__init__("network", draft)
        self.confidence, self.sampled = list(confidence), sampled

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = super().draft(requests)
        for draft in drafts:
            draft.confidence = list(self.confidence)
            if self.sampled:
                draft.probabilities = [(np.array([7], np.int32), np.ones(1, np.float32))] * len(draft.tokens)
        return drafts


def pair(table: Table, network: Reader, costs: dict[int, float], *, ordered: bool = False) -> Rounds:
    traits = [DrafterTraits(6, is_table=True), DrafterTraits(4)]
    lengths = AdaptiveLengths(RowCosts(costs), traits, ordered=ordered)
    rounds = Rounds(DrafterChain([NgramDrafter(lambda: table), network], lengths), np.zeros((64, 1), np.float32))
    rounds.start(0, [5])
    return rounds


def taught(rounds: Rounds, *, table: tuple[int, int], network: tuple[int, int]) -> None:
    """Verdicts (accepted, verified) of both."""
    for _ in range(50):
        rounds.chain.lengths.observe_verdict(0, *table, Draft([9] * 6))
        rounds.chain.lengths.observe_verdict(1, *network)


def test_the_round_goes_to_the_draft_that_promises_most() -> None:
    table, network = Table([9] * 6), Sure([7] * 4, [0.9] * 4)
    rounds = pair(table, network, CHEAP)
    taught(rounds, table=(5, 6), network=(1, 2))
    assert rounds.draft(0)[0][1] == "table"
    assert not network.asked  # what it could bring is less, so it is not asked at all
    taught(rounds, table=(0, 6), network=(4, 4))
    rounds.forward({0: [1]})
    assert rounds.draft(0)[0][1] == "network"


def test_a_fixed_order_uses_the_first_that_has_a_draft() -> None:
    table, network = Table([9] * 6), Sure([7] * 4, [0.99] * 4)
    rounds = pair(table, network, CHEAP, ordered=True)
    taught(rounds, table=(1, 6), network=(4, 4))
    assert rounds.draft(0)[0][1] == "table"
    table.proposes = []
    rounds.forward({0: [1]})
    assert rounds.draft(0)[0][1] == "network"


def test_a_table_continues_the_draft_of_a_network_that_it_agrees_with() -> None:
    table, network = Table([7, 7, 7, 8, 9, 9]), Sure([7, 7, 7], [0.99] * 3)
    rounds = pair(table, network, CHEAP)
    taught(rounds, table=(1, 6), network=(4, 4))
    [(draft, name)] = rounds.draft(0)
    assert (draft.tokens[:4], name) == ([7, 7, 7, 8], "table")
    assert network.asked


def test_a_draft_is_cut_where_its_tokens_are_unlikely_and_a_table_hears_of_it() -> None:
    network = Sure([7] * 4, [0.99, 0.98, 0.02, 0.9])
    rounds = pair(Table([]), network, {1: 1e7, 2: 1.1e7, 3: 1.2e7, 4: 1.5e7, 5: 1.8e7})
    taught(rounds, table=(0, 6), network=(4, 4))
    [(draft, name)] = rounds.draft(0)
    assert (draft.tokens, draft.n_cut, name) == ([7, 7], 2, "network")
    table = Table([9] * 6)
    rounds = pair(table, Sure([], []), {1: 1e7, 4: 1.2e7, 5: 3e7, 8: 9e7})
    [(draft, _)] = rounds.draft(0)
    assert (len(draft.tokens), draft.n_cut, table.cuts) == (3, 3, [3])
    rounds.chain.accept(0, 3)
    assert table.told == [3]


def test_a_sampled_draft_is_verified_as_it_was_drawn() -> None:
    network = Sure([7] * 4, [0.99, 0.02, 0.02, 0.9], sampled=True)
    rounds = pair(Table([]), network, {1: 1e7, 2: 1.1e7, 8: 1.6e7})
    for _ in range(40):
        rounds.draft(0)
        rounds.chain.accept(0, 4)
        rounds.forward({0: [1]})
    [(draft, _)] = rounds.draft(0)
    assert draft.tokens == [7] * network.asked[-1]
    assert draft.n_cut == 0
