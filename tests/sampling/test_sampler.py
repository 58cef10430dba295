"""The sampler as a whole: against a plain float64 implementation, and its promises about state."""

import dataclasses
import math
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest

from specli.errors import SpecliError, UsageError
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

N_VOCAB = 600
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def make(seed: int = 1, **settings: Any) -> Sampler:
    return Sampler(SamplingConfig(seed=seed, **settings), ByteVocabulary(), n_vocab=N_VOCAB)


def rows(n: int, seed: int = 0, n_vocab: int = N_VOCAB) -> np.ndarray:
    return (np.random.RandomState(seed).standard_normal((n, n_vocab)) * 2).astype(np.float32)


def slow_distribution(logits: np.ndarray, c: SamplingConfig, history: list[int]) -> dict[int, float]:
    """Penalties, top-k, top-p, min-p and temperature in float64, as their definitions say."""
    scores = {i: float(x) for i, x in enumerate(logits)}
    for token, count in Counter(history[-c.repeat_last_n :]).items():
        score = scores[token]
        scores[token] = score * c.repeat_penalty if score <= 0 else score / c.repeat_penalty
        scores[token] -= count * c.frequency_penalty + c.presence_penalty

    def softmax() -> dict[int, float]:
        weights = {i: math.exp(x) for i, x in scores.items()}
        return {i: w / sum(weights.values()) for i, w in weights.items()}

    def keep(tokens: list[int]) -> dict[int, float]:
        return {i: scores[i] for i in tokens}

    order = sorted(scores, key=lambda i: -scores[i])
    scores = keep(order[: c.top_k or None])
    mass, kept = 0.0, []
    for i, p in softmax().items():
        kept.append(i)
        mass += p
        if mass >= c.top_p:
            break
    scores = keep(kept)
    p = softmax()
    scores = keep([i for i in kept if p[i] >= c.min_p * max(p.values())])
    scores = {i: x / c.temperature for i, x in scores.items()}
    return softmax()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 1.7, "top_k": 0, "top_p": 0.8},
        {"temperature": 0.4, "top_k": 12, "top_p": 0.5, "min_p": 0.2},
        {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.4, "repeat_last_n": 10, "top_k": 100},
    ],
)
def test_distribution_equals_the_definitions(settings: dict[str, Any]) -> None:
    sampler = make(**settings)
    history: list[int] = []
    for logits in rows(20):
        token = sampler.sample(logits)
        ids, p = sampler.distribution()
        expected = slow_distribution(logits, sampler.config, history)
        assert token in expected
        assert dict(zip(ids.tolist(), p.tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)
        assert np.all(p[:-1] >= p[1:])
        sampler.accept(token)
        history.append(token)


def test_draws_follow_the_distribution() -> None:
    """Chi-square over 20 000 draws, 4 degrees of freedom, against the 1e-6 quantile 33.4: finds a shift of 2 %."""
    logits = np.full(N_VOCAB, -np.inf, np.float32)
    logits[:5] = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
    sampler = make(3, **OFF)
    n = 20_000
    counts = Counter(sampler.sample(logits) for _ in range(n))
    expected = np.array([0.4, 0.3, 0.15, 0.1, 0.05]) * n
    assert sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected)) < 33.4
    assert sum(counts.values()) == n


def test_greedy_takes_the_first_of_the_largest() -> None:
    logits = np.float32([0, 5, 1, 5] + [0] * (N_VOCAB - 4))
    sampler = make(temperature=0)
    assert sampler.sample(logits) == 1
    ids, p = sampler.distribution()
    assert (ids.tolist(), p.tolist()) == ([1], [1.0])


def test_one_candidate_costs_a_draw() -> None:
    sampler = make(top_k=1)
    sampler.sample(np.zeros(N_VOCAB, np.float32))
    assert sampler._picker._stream._next == 2  # type: ignore[attr-defined]  # one double is two words


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": -1.0},
        {"repeat_penalty": 1.5, "presence_penalty": 3.0},
        {"samplers": ("top_k", "penalties", "temperature"), "repeat_penalty": 5.0, "top_k": 2},
        {"logit_bias": ((7, 50.0),)},
        {"dry_multiplier": 2.0, "dry_sequence_breakers": ()},
        {"samplers": ("temperature", "top_k")},
        {"top_n_sigma": 1.0},
    ],
)
def test_greedy_equals_a_tiny_temperature(settings: dict[str, Any]) -> None:
    """Cuts are left out of a greedy chain where they cannot matter; the tokens show that they did not."""
    greedy = make(**{"temperature": 0.0} | settings)
    tiny = make(**settings | {"temperature": 1e-4})
    for logits in rows(60, n_vocab=N_VOCAB):
        logits[50:] -= 20  # few tokens in play, so that they repeat
        token = greedy.sample(logits)
        assert tiny.sample(logits) == token
        greedy.accept(token)
        tiny.accept(token)


def test_greedy_chain_without_modifiers_is_one_argmax() -> None:
    assert [type(link).__name__ for link in make(temperature=0)._links] == ["Temperature"]


def test_typical_sampling_may_drop_the_largest_even_when_greedy() -> None:
    """p = .4 .2 .2 .2: the entropy 1.33 is nearer to the surprise of the small ones, 1.61, than to .92."""
    logits = np.full(N_VOCAB, -np.inf, np.float32)
    logits[:4] = np.log([0.4, 0.2, 0.2, 0.2])
    assert make(temperature=0, samplers=("typ_p", "temperature"), typical_p=0.5).sample(logits) == 1


ALL_STATE: dict[str, Any] = {
    "repeat_penalty": 1.2,
    "repeat_last_n": 5,
    "dry_multiplier": 0.5,
    "dry_penalty_last_n": 9,
    "xtc_probability": 0.5,
    "top_k": 30,
    "xtc_threshold": 0.02,
}
STATEFUL = [ALL_STATE, {"mirostat": 1}, {"mirostat": 2}, {"samplers": ("min_p", "adaptive_p"), "adaptive_target": 0.3}]


def run(sampler: Sampler, logits: np.ndarray) -> list[int]:
    tokens = []
    for row in logits:
        tokens.append(sampler.sample(row))
        sampler.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("settings", STATEFUL)
def test_samplers_share_no_state(settings: dict[str, Any]) -> None:
    sampler, other = make(**settings), make(**settings)
    first = run(sampler, rows(30, 2))
    run(sampler, rows(10, 1))
    assert run(other, rows(30, 2)) == first


def test_a_prompt_at_once_equals_its_tokens_one_by_one() -> None:
    prompt = np.random.RandomState(0).randint(0, 20, 50).tolist()
    one, other = make(**ALL_STATE), make(**ALL_STATE)
    one.accept_prompt(prompt)
    for token in prompt:
        other.accept(token, generated=False)
    assert run(one, rows(20, 3)) == run(other, rows(20, 3))


def test_penalties_forget_what_left_the_window() -> None:
    sampler = make(temperature=0, presence_penalty=100, repeat_last_n=2)
    logits = np.float32([9, 8, 7, 6] + [0] * (N_VOCAB - 4))
    assert run(sampler, np.stack([logits] * 7)) == [0, 1, 2, 0, 1, 2, 0]


def test_seed_minus_one_differs_between_samplers_and_is_reported() -> None:
    seeds = {make(-1).seed for _ in range(4)} | {make(0xFFFFFFFF).seed}
    assert len(seeds) > 1
    assert 0xFFFFFFFF not in seeds
    seed = next(iter(seeds))
    assert run(make(seed), rows(20)) == run(make(seed), rows(20))


def test_banned_tokens_never_come() -> None:
    logits = np.zeros(N_VOCAB, np.float32)
    logits[[256, 9, 10]] = [30, 29, 28]
    config = SamplingConfig(seed=1, temperature=0, ignore_eos=True, logit_bias=((10, -math.inf),))
    sampler = Sampler(config, ByteVocabulary(suppress_ids=(9,)), n_vocab=N_VOCAB)
    assert sampler.sample(logits) == 0
    ending = Sampler(dataclasses.replace(config, ignore_eos=False), ByteVocabulary(), n_vocab=N_VOCAB)
    assert ending.sample(logits) == 256


@pytest.mark.parametrize("size", [10_000_000, 2**31 - 1])
@pytest.mark.parametrize("field", ["dry_penalty_last_n", "repeat_last_n", "top_k", "min_keep", "dry_allowed_length"])
def test_large_sizes_take_no_memory_before_there_are_so_many_tokens(field: str, size: int) -> None:
    settings = {"dry_multiplier": 0.8, "repeat_penalty": 1.2, "dry_allowed_length": 1} | {field: size}
    tracemalloc.start()
    sampler = make(**settings)
    sampler.accept_prompt([1, 2, 3, 4, 1, 2])
    for row in rows(8):
        sampler.accept(sampler.sample(row))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_biases_of_one_token_add_up() -> None:
    logits = np.float32([1.5] + [0] * (N_VOCAB - 1))
    assert make(temperature=0, logit_bias=((3, 1.0), (3, 1.0))).sample(logits) == 3


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}, OFF, {"mirostat": 2}, {"temperature": 1e-6}, {
    "samplers": ("top_n_sigma", "typ_p", "min_p", "xtc", "temperature"), "top_n_sigma": 1.0, "typical_p": 0.5,
}])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_infinite_bias_makes_a_token_certain(settings: dict[str, Any]) -> None:
    sampler = make(**settings, logit_bias=((3, math.inf),), repeat_penalty=1.5)
    for logits in rows(20):
        token = sampler.sample(logits)
        sampler.accept(token)
        assert token == 3
    banned = make(**settings, logit_bias=((3, math.inf), (3, -math.inf)))
    assert all(banned.sample(logits) != 3 for logits in rows(20))


def test_infinite_biases_are_equal() -> None:
    sampler = make(logit_bias=((3, math.inf), (5, math.inf)))
    counts = Counter(sampler.sample(logits) for logits in rows(400))
    assert set(counts) == {3, 5}
    assert 140 < counts[3] < 260  # 6 standard deviations


def test_bias_of_a_token_that_is_not_there_is_said_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    plain, biased = make(), make(logit_bias=((N_VOCAB, 5.0), (-1, 5.0)))
    assert [plain.sample(logits) for logits in rows(20)] == [biased.sample(logits) for logits in rows(20)]
    assert [record.getMessage() for record in caplog.records] == [
        f"the logit bias of token {token} has no effect: the vocabulary has 600 tokens" for token in (600, -1)
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_numbers_are_an_error(temperature: float) -> None:
    with pytest.raises(SpecliError, match=r"^the model's logits are not numbers$"):
        make(temperature=temperature).sample(np.full(N_VOCAB, np.nan, np.float32))


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {"temperature": 0, "top_p": 0.5}, {}, OFF, {"typical_p": 0.5}, {"min_p": 0.1, "top_k": 0}]
    + [{"mirostat": version} for version in (1, 2)]
    + [{"samplers": ("top_k", "adaptive_p"), "adaptive_target": 0.5}],
)
def test_a_row_of_which_every_token_is_banned(settings: dict[str, Any]) -> None:
    banned = tuple((token, -math.inf) for token in range(N_VOCAB))
    with pytest.raises(SpecliError, match=r"^every token is banned$"):
        make(logit_bias=banned, **settings).sample(rows(1)[0])


@pytest.mark.filterwarnings("error")
def test_extreme_penalties_are_no_warnings() -> None:
    """1e-38 makes a positive logit infinite, which is the largest."""
    sampler = make(repeat_penalty=1e-38, temperature=0.0)
    sampler.accept_prompt([599])
    assert sampler.sample(np.linspace(-5, 5, N_VOCAB, dtype=np.float32)) == 599


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeat_penalty": 0.0}, "penalty_repeat must be finite and greater than 0"),
        ({"repeat_penalty": math.nan}, "penalty_repeat must be finite and greater than 0"),
        ({"frequency_penalty": math.inf}, "penalty_freq must be finite"),
        ({"presence_penalty": math.nan}, "penalty_present must be finite"),
        ({"mirostat": 3}, "mirostat must be 0, 1 or 2, got 3"),
        ({"top_p": math.nan}, "top_p is not a number"),
        ({"temperature": math.nan}, "temperature is not a number"),
        ({"samplers": ("top_q",)}, "sampler 'top_q' is not known"),
        ({"logit_bias": ((1, math.nan),)}, "the logit bias of token 1 is not a number"),
        ({"grammar": "root ::= [a]", "json_schema": "{}"}, "a grammar and a JSON schema are mutually exclusive"),
    ],
)
def test_settings_out_of_range_are_usage_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize("p", [1e-320, 1e-60])
def test_min_p_below_float32_is_off(p: float) -> None:
    """llama.cpp keeps the value as a float, which is 0 there, and does nothing then."""
    row = rows(1)[0]
    drawn = [make(seed=3, min_p=value, top_k=0, top_p=1.0).sample(row) for value in (p, 0.0)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "samplers",
    [
        ("top_k", "top_p", "min_p", "temperature"),
        ("temperature", "top_k", "min_p"),
        ("top_n_sigma", "temperature", "top_p"),
        ("temperature", "typ_p", "top_k"),
        ("penalties", "temperature"),
    ],
    ids="+".join,
)
def test_a_greedy_chain_in_any_order_gives_what_its_links_give_one_by_one(samplers: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {
        "temperature": 0,
        "samplers": samplers,
        "top_n_sigma": 1.0,
        "typical_p": 0.9,
        "repeat_penalty": 1.3,
    }
    fast, slow = make(seed=2, **settings), make(seed=2, **settings)
    slow._takes_largest, slow._tail = False, None
    logits = rows(20, seed=5)
    logits[3, 7] = logits[3, 9] = 50.0  # of equal ones the first
    for number, row in enumerate(logits):
        token = fast.sample(row)
        assert token == slow.sample(row)
        assert number != 3 or token == 7
        for each in (fast, slow):
            ids, p = each.distribution()
            assert (ids.tolist(), p.tolist()) == ([token], [1.0])
            each.accept(token)
