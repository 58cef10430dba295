"""The acceptance rules: exact on small cases, and the target's distribution kept (chi-square)."""

import logging
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from specli.drafters.base import Draft
from specli.drafters.settings import SynthConfig
from specli.engine.verify import (
    SyntheticRates,
    Verdict,
    lossless_rule,
    rejection,
    resolve_synthetic,
    sample_and_match,
    synthetic,
    synthetic_rule,
)
from specli.errors import SpecliError, UsageError
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

PLAIN: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
NO_END: frozenset[int] = frozenset()
END = 256  # of a `ByteVocabulary`


def make(n_vocab: int, seed: int = 1, **settings: Any) -> Sampler:
    return Sampler(SamplingConfig(**PLAIN | settings | {"seed": seed}), ByteVocabulary(), n_vocab=n_vocab)


def certain(*tokens: int, n_vocab: int = 6) -> np.ndarray:
    """Rows of logits that leave no choice."""
    rows = np.full((len(tokens), n_vocab), -50, np.float32)
    rows[np.arange(len(tokens)), tokens] = 50
    return rows


@pytest.mark.parametrize(
    ("draft", "target", "tokens"),
    [
        ([], [4], [4]),
        ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3], [1, 5, 3, 4], [1, 5]),
        ([1, 2, 3], [5, 2, 3, 4], [5]),
        ([1, 0, 3], [1, 0, 3, 4], [1, 0]),  # an end token behind which more was drafted
        ([1, 2, 0], [1, 2, 0, 4], [1, 2, 0, 4]),  # an end token at the end of the draft
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sample_and_match(draft: list[int], target: list[int], tokens: list[int], temperature: float) -> None:
    sampler = make(6, temperature=temperature)
    verdict = sample_and_match(Draft(draft), certain(*target), sampler, frozenset({0}))
    assert verdict == Verdict(tokens)
    assert verdict.n_accepted == len(tokens) - 1


@pytest.mark.parametrize(
    "settings", [{}, {"repeat_penalty": 1.4, "presence_penalty": 0.5}, {"temperature": 0.0, "frequency_penalty": 0.9}]
)
def test_matching_gives_the_tokens_of_plain_decoding(settings: dict[str, Any]) -> None:
    """The logits depend on the position only, so that plain decoding is one row after the other."""
    rows = np.random.RandomState(0).standard_normal((200, 12)).astype(np.float32)
    plain = make(12, 5, **settings)
    expected = []
    for row in rows:
        expected.append(plain.sample(row))
        plain.accept(expected[-1])
    sampler = make(12, 5, **settings)
    drafts = np.random.RandomState(1)
    found: list[int] = []
    n_accepted = 0
    while len(found) < 190:
        k = int(drafts.randint(0, 6))
        right = expected[len(found) : len(found) + k]
        draft = [token if drafts.rand() < 0.8 else int(drafts.randint(12)) for token in right]
        verdict = sample_and_match(Draft(draft), rows[len(found) : len(found) + k + 1], sampler, NO_END)
        found += verdict.tokens
        n_accepted += verdict.n_accepted
    assert found == expected[: len(found)]
    assert n_accepted > 50


# Target and draft distributions over four tokens, for two positions.
P = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]])
Q = np.array([[0.1, 0.6, 0.1, 0.2], [0.25, 0.25, 0.5, 0.0]])


def draft_of(source: np.random.RandomState, n: int = 2) -> Draft:
    tokens = [int(source.choice(4, p=q)) for q in Q[:n]]
    ids = np.arange(4, dtype=np.int32)
    return Draft(tokens, [(ids, q.astype(np.float32)) for q in Q[:n]])


def chi_square(counts: Counter[int], p: np.ndarray) -> float:
    n = sum(counts.values())
    return sum((counts[i] - n * x) ** 2 / (n * x) for i, x in enumerate(p) if x)


LIMIT = 30.7  # 1 - 1e-6 quantile of chi-square with 3 degrees of freedom
# Power at n = 25 000: a shift of 2 points in one of the four probabilities gives n·Σδ²/p ≥ 25 000·(.02²/.5 + .02²/.5)
# = 40 and more, so it is found nearly always; mixing up p and q gives thousands.


def test_rejection_keeps_the_targets_distribution() -> None:
    sampler, source = make(4, 11), np.random.RandomState(3)
    logits = np.log(np.vstack([P, P[:1]])).astype(np.float32)
    first: Counter[int] = Counter()
    second: Counter[int] = Counter()
    n_first = 0
    n = 25_000
    for _ in range(n):
        verdict = rejection(draft_of(source), logits, sampler)
        first[verdict.tokens[0]] += 1
        n_first += verdict.n_accepted > 0
        if len(verdict.tokens) > 1:
            second[verdict.tokens[1]] += 1
    assert chi_square(first, P[0]) < LIMIT
    assert chi_square(second, P[1]) < LIMIT
    accepted = np.minimum(P[0], Q[0]).sum()  # 0.55
    assert n_first / n == pytest.approx(accepted, abs=5 * math.sqrt(accepted * (1 - accepted) / n))


def test_the_check_would_find_a_wrong_rule() -> None:
    """Taking 5 % of the tokens from the draft instead of the target exceeds the limit."""
    source = np.random.RandomState(0)
    wrong = Counter(int(source.choice(4, p=0.95 * P[0] + 0.05 * Q[0])) for _ in range(25_000))
    assert chi_square(wrong, P[0]) > LIMIT


def test_rejection_respects_filters_of_the_target() -> None:
    """top-k 2 leaves .625 and .375; drafted tokens outside never stand."""
    sampler, source = make(4, 2, top_k=2), np.random.RandomState(4)
    counts: Counter[int] = Counter()
    for _ in range(20_000):
        counts[rejection(draft_of(source, 1), np.log(P).astype(np.float32), sampler).tokens[0]] += 1
    assert set(counts) == {0, 1}
    assert chi_square(counts, np.array([0.625, 0.375, 0, 0])) < 23.9  # 1 degree of freedom


def test_equal_distributions_are_always_accepted() -> None:
    """p = q: every draft token stands, without a draw of the rejection stream."""
    sampler, source = make(4, 2), np.random.RandomState(4)
    rows = np.log(np.vstack([P[0], P[1]])).astype(np.float32)
    for _ in range(200):
        sampler.sample(rows[0])
        draft = Draft([int(source.choice(4, p=P[0]))], [sampler.distribution()])
        assert rejection(draft, rows, sampler).n_accepted == 1
    assert sampler.rejections._next == 0


def test_a_hand_worked_rejection() -> None:
    """q is certain of token 1, so it stands with p(1), else the residual, token 0 alone, is taken. The first float of
    the rejection stream of seed 1 is 1909002083 / 2³² = .4445 (test_rng.py)."""
    sampler = make(2, 1)
    draft = Draft([1], [(np.array([1], np.int32), np.array([1.0], np.float32))])
    assert rejection(draft, np.zeros((2, 2), np.float32), sampler).tokens[0] == 1  # .4445 < .5
    sampler = make(2, 1)
    rows = np.log(np.array([[0.6, 0.4], [0.5, 0.5]])).astype(np.float32)
    assert rejection(draft, rows, sampler) == Verdict([0])  # .4445 ≥ .4


def test_a_draft_token_its_drafter_gave_no_chance_is_rejected() -> None:
    draft = Draft([1], [(np.array([0], np.int32), np.array([1.0], np.float32))])
    assert rejection(draft, certain(1, 2), make(6)) == Verdict([1])  # residual: the target's token


def test_without_a_residual_the_targets_own_token_is_taken() -> None:
    rows = np.full((2, 6), -np.inf, np.float32)
    rows[:, 3] = 0
    draft = Draft([2], [(np.arange(6, dtype=np.int32), np.float32([1, 1, 0, 1, 1, 1]))])
    assert rejection(draft, rows, make(6)) == Verdict([3])


def test_rejection_under_a_grammar_follows_the_allowed_part() -> None:
    rows = np.full((2, 300), -np.inf, np.float32)
    rows[:, [97, 98, 99]] = np.log([0.5, 0.3, 0.2])
    ids, q = np.array([97, 98, 99], np.int32), np.array([0.2, 0.5, 0.3])
    sampler, source = make(300, 8, grammar="root ::= [ac]+"), np.random.RandomState(5)
    counts: Counter[int] = Counter()
    n = 3000
    for _ in range(n):
        drafted = int(source.choice([97, 98, 99], p=q))
        counts[rejection(Draft([drafted], [(ids, q.astype(np.float32))]), rows, sampler).tokens[0]] += 1
    assert set(counts) == {97, 99}
    assert counts[97] / n == pytest.approx(5 / 7, abs=5 * math.sqrt(5 / 7 * 2 / 7 / n))


def test_lossless_rule_chooses_by_draft_and_temperature() -> None:
    rows = np.zeros((2, 4), np.float32)
    sampled = Draft([1], [(np.arange(4, dtype=np.int32), np.full(4, 0.25, np.float32))])
    rule = lossless_rule(NO_END)
    assert rule(sampled, rows, make(4)).tokens[0] == 1  # p = q: rejection sampling takes it
    cold = make(4, temperature=0.0)
    assert rule(sampled, rows, cold) == Verdict([0])  # greedy: matching
    greedy = [rule(Draft([1]), rows, make(4, seed)).tokens[0] for seed in range(1, 40)]
    assert set(greedy) == {0, 1, 2, 3}  # matching: the target's own sample


# ---- synthetic acceptance


def test_rates_of_a_mean_length() -> None:
    rates = resolve_synthetic(SynthConfig(length=3.4), 4)
    assert rates is not None
    assert rates.rates[0] == 0.805809203418903
    assert rates.mean_length == pytest.approx(3.4, abs=1e-8)
    assert rates.conditional == pytest.approx([0.805809203418903] * 4)


@pytest.mark.parametrize(("length", "rates"), [(1, (0.0, 0.0)), (3, (1.0, 1.0))])
def test_extreme_lengths_are_exact(length: float, rates: tuple[float, ...]) -> None:
    assert resolve_synthetic(SynthConfig(length=length), 2) == SyntheticRates(rates)


def test_conditional_rates() -> None:
    assert SyntheticRates((0.8, 0.4, 0.0, 0.0)).conditional == (0.8, 0.5, 0.0, 0.0)


def test_off_is_none() -> None:
    assert resolve_synthetic(SynthConfig(), 0) is None


def test_start_up_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        resolve_synthetic(SynthConfig(rates=(0.75, 0.5, 1 / 3)), 3, 8)
    assert caplog.messages == [
        "synthetic speculative acceptance is enabled for benchmarking; generated output is not valid",
        "synthetic acceptance draft limit was reduced from 8 to 3 by the initialized speculative implementations",
        "synthetic acceptance: n_max = 3, mean length = 2.583333, rates = [0.75, 0.5, 0.333333]",
    ]


@pytest.mark.parametrize(
    ("config", "n_max", "message"),
    [
        (SynthConfig(2.0, (0.5,)), 0, "synthetic acceptance length and rates are mutually exclusive"),
        (SynthConfig(9.0), 0, "synthetic acceptance requires at least one speculative token"),
        (SynthConfig(rates=(0.5,)), 2, "synthetic acceptance rates must contain 2 values, got 1"),
        (SynthConfig(rates=(0.5, math.nan)), 2, "synthetic acceptance rates must be finite and within [0, 1]"),
        (SynthConfig(rates=(1.5, 0.5)), 2, "synthetic acceptance rates must be finite and within [0, 1]"),
        (SynthConfig(rates=(0.5, 0.6)), 2, "synthetic acceptance rates must be monotonically non-increasing"),
        (SynthConfig(rates=(0.5, 0.6, 2.0)), 3, "synthetic acceptance rates must be monotonically non-increasing"),
        (SynthConfig(0.5), 3, "synthetic acceptance length must be finite and within [1, 4]"),
        (SynthConfig(4.5), 3, "synthetic acceptance length must be finite and within [1, 4]"),
        (SynthConfig(math.inf), 3, "synthetic acceptance length must be finite and within [1, 4]"),
    ],
)
def test_contradictions_are_usage_errors(config: SynthConfig, n_max: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_synthetic(config, n_max)
    assert str(caught.value) == message


def test_synthetic_acceptance_follows_the_rates() -> None:
    """Unconditional acceptance of 20 000 rounds within five standard deviations; the target's samples do not matter."""
    rates = SyntheticRates((0.9, 0.6, 0.3))
    rule = synthetic_rule(rates, NO_END)
    sampler = make(6)
    rows = certain(5, 5, 5, 5)
    n = 20_000
    lengths = Counter(rule(Draft([1, 2, 3]), rows, sampler).n_accepted for _ in range(n))
    for i, rate in enumerate(rates.rates):
        stood = sum(count for length, count in lengths.items() if length > i) / n
        assert stood == pytest.approx(rate, abs=5 * math.sqrt(rate * (1 - rate) / n))


def test_synthetic_decisions_come_from_the_request_seed() -> None:
    """Seed 42's doubles are .7965 and .1834: with rates .8 and .1 the first token stands, the second does not."""
    sampler = make(6, 42)
    assert synthetic(Draft([1, 2]), certain(5, 4, 3), sampler, (0.8, 0.1), NO_END) == Verdict([1, 4])
    sampler = make(6, 42)
    assert synthetic(Draft([1]), certain(5, 4), sampler, (0.79, 0.1), NO_END) == Verdict([5])


def test_a_drafted_end_token_never_stands_but_costs_its_draw() -> None:
    sampler = make(6)
    assert synthetic(Draft([0, 2]), certain(5, 4, 3), sampler, (1.0, 1.0), frozenset({0})) == Verdict([5])
    assert sampler.synthetic._next == 2


def test_rates_of_zero_give_the_tokens_of_plain_decoding() -> None:
    rows = np.random.RandomState(0).standard_normal((50, 6)).astype(np.float32)
    plain, forced = make(6, 3, presence_penalty=1.0), make(6, 3, presence_penalty=1.0)
    expected, found = [], []
    for row in rows:
        expected.append(plain.sample(row))
        plain.accept(expected[-1])
        found += synthetic(Draft([1, 2]), np.stack([row] * 3), forced, (0.0, 0.0), NO_END).tokens
    assert found == expected


LEARNING: tuple[dict[str, Any], ...] = (
    {"mirostat": 2, "mirostat_ent": 1.0, "mirostat_lr": 2.0},
    {"mirostat": 1, "mirostat_ent": 1.0, "mirostat_lr": 2.0},
    {"samplers": ("adaptive_p",), "adaptive_target": 0.5, "adaptive_decay": 0.5},
)


@pytest.mark.parametrize("settings", LEARNING, ids=["mirostat 2", "mirostat 1", "adaptive_p"])
def test_samplers_learn_from_the_token_that_was_taken(settings: dict[str, Any]) -> None:
    """Rejection sampling may take another one than they picked: they go on as if they had picked that."""
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    chances = {}
    for taken in (0, 1):
        for seed in range(20):
            sampler = make(4, seed, **settings)
            picked = sampler.sample(row)
            sampler.accept(taken)
            sampler.sample(row)
            ids, p = sampler.distribution()
            chances.setdefault((taken, picked == taken), set()).add((*ids.tolist(), *p.tolist()))
    assert len(chances) == 4
    assert chances[0, True] == chances[0, False]
    assert chances[1, True] == chances[1, False]
    assert chances[0, True] != chances[1, True]


def test_rejection_keeps_the_distribution_under_mirostat() -> None:
    """Counts of neighbouring tokens in a long text: as in plain decoding, within 5 standard deviations."""
    n, row = 6000, np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    rows, q = np.stack([row] * 3), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    source, ids = np.random.RandomState(1), np.arange(4, dtype=np.int32)
    plain, judge = make(4, 1, **LEARNING[0]), make(4, 2, **LEARNING[0])
    texts: list[list[int]] = [[], []]
    while len(texts[0]) < n:
        texts[0].append(plain.sample(row))
        plain.accept(texts[0][-1])
    while len(texts[1]) < n:
        drafted = source.choice(4, size=2, p=q / q.sum()).tolist()
        texts[1] += rejection(Draft(drafted, [(ids, q)] * 2), rows, judge).tokens
    expected, found = (np.bincount(4 * np.array(text[:-1]) + text[1:], minlength=16)[:16] for text in texts)
    assert np.all(np.abs(found - expected) <= 5 * np.sqrt(np.maximum(found + expected, 1)))


def row_of(*letters: str) -> np.ndarray:
    """Rows of 300 logits, each with one letter far ahead."""
    rows = np.zeros((len(letters), 300), np.float32)
    rows[np.arange(len(letters)), [ord(letter) for letter in letters]] = 60
    return rows


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("settings", [{"ignore_eos": True}, {"logit_bias": ((END, -math.inf),)}])
def test_an_error_of_the_grammar_keeps_the_tokens_before_it(temperature: float, settings: dict[str, Any]) -> None:
    what = "the end token, which --ignore-eos" if "ignore_eos" in settings else "tokens that --logit-bias"
    message = f"the grammar allows only {what} bans"
    draft, rows = Draft([97, 98, 99]), row_of("a", "b", "c", "d")
    q = np.array([1], np.float32)
    sampled = Draft(draft.tokens, [(np.array([token], np.int32), q) for token in draft.tokens])
    for rule in (
        lambda sampler: sample_and_match(draft, rows, sampler, NO_END),
        lambda sampler: rejection(sampled, rows, sampler),
    ):
        sampler = make(300, temperature=temperature, grammar='root ::= "ab"', **settings)
        verdict = rule(sampler)
        assert (verdict.tokens, verdict.n_accepted) == ([97, 98], 2)
        assert str(verdict.error) == message
        with pytest.raises(SpecliError, match=f"^{message}$"):
            rule(sampler)  # no token stands before the error


def test_synthetic_tokens_are_not_shown_to_the_grammar() -> None:
    sampler = make(300, 1, grammar='root ::= "a" "b"')
    rows = np.zeros((2, 300), np.float32)
    rows[:, 97] = 9
    assert synthetic(Draft([200]), rows, sampler, (1.0,), NO_END) == Verdict([200, 97])
