"""Whatever is chosen, cut or exchanged, rejection sampling keeps the target's distribution.

Two tokens, A and B, which the target writes with .5 each, and a network that draws A with chance .9, then .9 again
behind an A and .6 behind a B; its confidence is the chance of the likelier token. 20,000 tokens are written in rounds
of the real chain with real choices; the share of A, and that of A behind A, must be .5 within four standard deviations.
A rule that looks at drawn tokens misses that by far, which the last test shows.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from specli.drafters.adaptive import AdaptiveLengths, DrafterTraits
from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.drafters.costs import RowCosts
from specli.drafters.ngram import NgramDrafter, NgramTable

A, B = 5, 6
N_TOKENS = 20_000
FLAT, STEEP, STAIRCASE = {1: 10.0, 8: 11.0}, {1: 10.0, 8: 60.0}, {1: 10.0, 2: 10.0, 3: 19.0, 4: 19.0, 5: 28.0}


class Drawing:
    """Draws tokens; the chance of A depends on the token drawn before."""

    name, max_draft, reads_features, reads_batches = "drawing", 4, False, True

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draw(request.max_tokens) for request in requests]

    def _draw(self, n: int) -> Draft:
        draft, share = Draft(probabilities=[], confidence=[]), 0.9
        assert draft.probabilities is not None
        assert draft.confidence is not None
        for _ in range(min(n, self.max_draft)):
            token = A if self._source.random() < share else B
            draft.tokens.append(token)
            draft.probabilities.append((np.array([A, B], np.int32), np.array([share, 1 - share], np.float32)))
            draft.confidence.append(max(share, 1 - share))
            share = 0.9 if token == A else 0.6
        return draft

    def begin(self, slot: int, prompt: Sequence[int]) -> None: ...
    def process(self, parts: Sequence[TargetBatch]) -> None: ...
    def cut(self, slot: int, n_tokens: int) -> None: ...
    def accept(self, slot: int, n_accepted: int) -> None: ...
    def rewind(self, slot: int, length: int) -> None: ...
    def close(self) -> None: ...


class Repeating(NgramTable):
    """Proposes A behind A A, so it may have a draft or not."""

    name, max_draft = "repeating", 3

    def draft(self, request: DraftRequest) -> Draft:
        return Draft([A] * 3 if [*request.history[-1:], request.last_token] == [A, A] else [])

    def _forget(self) -> None: ...
    def _learn_prompt(self, prompt: Sequence[int]) -> None: ...


def written(chain: DrafterChain, source: random.Random, costs: dict[int, float]) -> list[int]:
    """What rounds of two sequences write: drafted tokens by rejection, those of a table by sample-and-match."""
    histories = [[A, B], [B, A]]
    while sum(map(len, histories)) < N_TOKENS:
        requests = [DraftRequest(slot, history[:-1], history[-1], 4) for slot, history in enumerate(histories)]
        drafts = [(Draft(), None)] * 2 if chain.skips(2) else chain.draft(requests)
        for slot, (draft, name) in enumerate(drafts):
            n_accepted = 0
            for place, token in enumerate(draft.tokens):
                if draft.probabilities:
                    ids, q = draft.probabilities[place]
                    drawn = dict(zip(ids.tolist(), q.tolist(), strict=True))
                    stands = source.random() < 0.5 / drawn[token]
                    left = {each: max(0.0, 0.5 - drawn[each]) for each in (A, B)}
                    own = A if source.random() * sum(left.values()) < left[A] else B
                else:
                    own = A if source.random() < 0.5 else B
                    stands = own == token
                if not stands:
                    histories[slot].append(own)
                    break
                histories[slot].append(token)
                n_accepted += 1
            else:
                histories[slot].append(A if source.random() < 0.5 else B)
            if name is not None:
                chain.accept(slot, n_accepted)
        if chain.lengths is not None:
            chain.lengths.costs.observe(3, costs[1] * (0.8 + 0.4 * source.random()))
        chain.process([])
    return [token for history in histories for token in history]


def deviations(tokens: list[int]) -> tuple[float, float]:
    """Standard deviations by which the shares of A, and of A behind A, miss one half."""

    def off(found: list[int]) -> float:
        return (sum(token == A for token in found) - len(found) / 2) / (len(found) / 4) ** 0.5

    return off(tokens), off([token for before, token in itertools.pairwise(tokens) if before == A])


@pytest.mark.parametrize(
    ("costs", "with_table", "ordered"),
    [(FLAT, False, False), (FLAT, True, True), (FLAT, True, False), (STEEP, True, False), (STAIRCASE, True, False)],
    ids=["flat-alone", "flat-fixed", "flat-best", "steep-best", "staircase-best"],
)
def test_every_choice_keeps_the_distribution(costs: dict[int, float], *, with_table: bool, ordered: bool) -> None:
    source = random.Random(7)
    network: Drafter = Drawing(source)
    drafters: list[Drafter] = [NgramDrafter(Repeating), network] if with_table else [network]
    traits = [DrafterTraits(3, is_table=True)] * with_table + [DrafterTraits(4)]
    chain = DrafterChain(drafters, AdaptiveLengths(RowCosts(costs), traits, ordered=ordered))
    found = deviations(written(chain, source, costs))
    assert all(abs(each) < 4 for each in found), found


def own_chance(draft: Draft) -> int:
    return next((i for i, token in enumerate(draft.tokens) if token == B), len(draft.tokens))


def later_confidence(draft: Draft) -> int:
    """Cuts before the token that makes the next one unsure: known only when that token is drawn."""
    assert draft.confidence is not None
    return next((i - 1 for i, chance in enumerate(draft.confidence) if i and chance < 0.8), len(draft.tokens))


@pytest.mark.parametrize("rule", [own_chance, later_confidence])
def test_the_check_finds_a_rule_that_looks_at_drawn_tokens(rule: Callable[[Draft], int]) -> None:
    source = random.Random(7)

    class Wrong(Drawing):
        def _draw(self, n: int) -> Draft:
            draft = super()._draw(n)
            kept = rule(draft)
            assert draft.probabilities is not None
            return Draft(draft.tokens[:kept], draft.probabilities[:kept])

    found = deviations(written(DrafterChain([Wrong(source)]), source, FLAT))
    assert max(map(abs, found)) > 8
