"""DraftCandidates, sampling among them, and the stop rules of token-by-token drafting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from specli.drafters.base import Draft, DraftRequest
from specli.drafters.settings import DraftConfig
from specli.drafters.stepping import CandidateSampler, DraftCandidates, GrowingDraft, collect, likeliest, trimmed
from specli.rng import DRAFT_SALT, RANDOM_SEED, MersenneTwister

Floats = npt.NDArray[np.float32]


def request(temperature: float = 0.0, seed: int = 7) -> DraftRequest:
    return DraftRequest(0, [1], 2, 8, temperature, seed)


def candidates_of(*logits: float, temperature: float = 1.0) -> DraftCandidates:
    """Candidates of logits over tokens 0, 1, …"""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    values = np.array([logits[token] for token in order], np.float32)
    found = DraftCandidates.best(values, np.array(order, np.int32), temperature=temperature)
    assert found is not None
    return found


def test_probabilities_are_those_of_the_candidates() -> None:
    found = candidates_of(*(float(i) for i in range(10)))
    assert found.ids.tolist() == list(range(9, -1, -1))
    expected = np.exp(-np.arange(10.0))
    np.testing.assert_allclose(found.probabilities, expected / expected.sum(), rtol=1e-6)


def test_temperature_divides_the_logits() -> None:
    """Logits 2 and 0 at temperature 2: e / (e + 1)."""
    assert candidates_of(2.0, 0.0, temperature=2.0).probabilities[0] == pytest.approx(math.e / (math.e + 1))


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_no_candidates_where_nothing_is_possible(value: float) -> None:
    """docs/faults.md D22: a head that yields only -inf means no draft."""
    values, ids = np.full((2, 10), value, np.float32), np.arange(20, dtype=np.int32).reshape(2, 10)
    assert DraftCandidates.best(values[0], ids[0]) is None
    assert likeliest(values, ids, DraftConfig(n_max=2), limit=9).tokens == []


def test_impossible_tokens_have_no_probability() -> None:
    assert candidates_of(1.0, -math.inf, -math.inf).probabilities.tolist() == [1.0, 0.0, 0.0]


def test_greedy_picks_the_best() -> None:
    sampler = CandidateSampler(probabilistic=True)
    sampler.prepare(request(temperature=0.0))
    assert sampler.is_greedy
    assert sampler.pick(candidates_of(0.0, 2.0, 1.0)) == 1


def test_sampling_follows_the_stream_of_the_salted_seed() -> None:
    sampler = CandidateSampler(probabilistic=True)
    sampler.prepare(request(temperature=1.0, seed=7))
    found = candidates_of(0.0, 0.0, 0.0, 0.0)
    stream = MersenneTwister(7 ^ DRAFT_SALT)
    expected = [math.ceil(4 * stream.double()) - 1 for _ in range(50)]
    assert [sampler.pick(found) for _ in range(50)] == expected
    assert set(expected) == {0, 1, 2, 3}


def test_stream_starts_over_with_a_request_and_with_new_settings_but_not_with_a_draft() -> None:
    found = candidates_of(*[0.0] * 10)
    sampler = CandidateSampler(probabilistic=True)

    def draws(n: int = 8) -> list[int]:
        return [sampler.pick(found) for _ in range(n)]

    sampler.prepare(request(1.0))
    first = draws()
    sampler.prepare(request(1.0))
    assert draws() != first
    sampler.reset()
    assert draws() == first
    sampler.prepare(request(0.5))
    sampler.prepare(request(1.0))
    assert draws() == first


def test_random_seed_stays_random() -> None:
    found = candidates_of(*[0.0] * 10)
    runs = set()
    for _ in range(2):
        sampler = CandidateSampler(probabilistic=True)
        sampler.prepare(request(1.0, seed=RANDOM_SEED))
        runs.add(tuple(sampler.pick(found) for _ in range(40)))
    assert len(runs) == 2


# --- stop rules ----------------------------------------------------------------------------------------------------


def step(token: int, probability: float) -> DraftCandidates:
    """DraftCandidates among two tokens that give `token` this probability."""
    logits = [0.0, 0.0]
    logits[token] = math.log(probability / (1 - probability))
    return candidates_of(*logits)


def run(steps: list[DraftCandidates | None], config: DraftConfig, *, limit: int = 100) -> tuple[Draft, list[int]]:
    """The draft from scripted steps, and the tokens that were fed."""
    fed: list[int] = []
    script = iter(steps)

    def advance(tokens: Sequence[int | None]) -> list[DraftCandidates | None]:
        [token] = tokens
        assert token is not None
        fed.append(token)
        return [next(script)]

    draft = GrowingDraft(CandidateSampler(probabilistic=False), config, limit=limit)
    return collect([draft], [next(script)], advance)[0], fed


STEPS = [step(1, 0.9), step(0, 0.8), step(1, 0.6), step(0, 0.9)]


@pytest.mark.parametrize(
    ("config", "limit", "tokens"),
    [
        (DraftConfig(n_max=3), 100, [1, 0, 1]),
        (DraftConfig(n_max=3), 2, [1, 0]),
        (DraftConfig(n_max=1), 100, [1]),
        (DraftConfig(n_max=0), 100, [1]),  # llama.cpp appends before it counts
        (DraftConfig(n_max=4, p_min=0.7), 100, [1, 0]),
        (DraftConfig(n_max=4, p_min=0.95), 100, []),
        (DraftConfig(n_max=4, p_min=0.7, n_min=2), 100, [1, 0]),
        (DraftConfig(n_max=4, p_min=0.7, n_min=3), 100, []),  # docs/faults.md S1: dropped, so never counted
        (DraftConfig(n_max=4, n_min=3), 2, []),
    ],
)
def test_stop_rules(config: DraftConfig, limit: int, tokens: list[int]) -> None:
    draft, fed = run(list(STEPS), config, limit=limit)
    assert draft.tokens == tokens
    assert draft.probabilities is None
    assert not tokens or len(fed) <= len(tokens)
    if not config.is_stepwise and config.n_max:  # all steps made at once give the same draft
        values = np.array([[1.0, 0.0]] * len(STEPS), np.float32)
        ids = np.array([candidates.ids for candidates in STEPS])
        assert likeliest(values, ids, config, limit=limit).tokens == tokens


def test_the_last_proposed_token_is_not_fed() -> None:
    assert run(list(STEPS), DraftConfig(n_max=3))[1] == [1, 0]


def test_drafting_ends_where_nothing_is_possible() -> None:
    assert run([STEPS[0], None], DraftConfig(n_max=3))[0].tokens == [1]
    values = np.array([[1.0], [-math.inf], [1.0]], np.float32)
    assert likeliest(values, np.array([[1], [0], [1]]), DraftConfig(n_max=3), limit=9).tokens == [1]


def test_a_sampled_draft_is_kept_however_short() -> None:
    """Whether it ended early depends on the tokens drawn."""
    sampler = CandidateSampler(probabilistic=True)
    sampler.prepare(request(temperature=1.0))
    config = DraftConfig(n_max=3, n_min=2, p_min=0.85)
    [draft] = collect([GrowingDraft(sampler, config, limit=100)], [STEPS[0]], lambda _: [STEPS[1]])
    assert len(draft.tokens) == 1


def test_sampled_drafts_carry_the_candidates_of_every_token() -> None:
    sampler = CandidateSampler(probabilistic=True)
    sampler.prepare(request(temperature=1.0))
    [draft] = collect([GrowingDraft(sampler, DraftConfig(n_max=3), limit=100)], [STEPS[0]], lambda _: [STEPS[1]])
    assert draft.probabilities is not None
    assert len(draft.probabilities) == len(draft.tokens) == 3
    ids, probabilities = draft.probabilities[0]
    assert ids.tolist() == [1, 0]
    np.testing.assert_allclose(probabilities, [0.9, 0.1], rtol=1e-6)


def test_drafts_end_each_for_itself() -> None:
    """Three sequences: one ends by its limit, one where nothing is possible, one by p_min, in that order."""
    config, sampler = DraftConfig(n_max=9, p_min=0.7), CandidateSampler(probabilistic=False)
    scripts = [STEPS[:1], [*STEPS[:2], None], [STEPS[0], STEPS[1], STEPS[3], STEPS[2]]]
    fed: list[list[int | None]] = []

    def advance(tokens: Sequence[int | None]) -> list[DraftCandidates | None]:
        fed.append(list(tokens))
        return [None if token is None else script[len(fed)] for token, script in zip(tokens, scripts, strict=True)]

    drafts = [GrowingDraft(sampler, config, limit=limit) for limit in (1, 100, 100)]
    made = collect(drafts, [script[0] for script in scripts], advance)
    assert [draft.tokens for draft in made] == [[1], [1, 0], [1, 0, 0]]
    assert fed == [[None, 1, 1], [None, 0, 0], [None, None, 0]]


def test_finished_drafts_at_the_end_are_left_out() -> None:
    assert trimmed([3, None, 5, None, None]).tolist() == [3, 0, 5]
