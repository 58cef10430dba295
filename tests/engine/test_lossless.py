"""Greedy output with any drafter is bit for bit the output without one (docs/architecture.md §1, promise 1)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specli.drafters import DRAFTERS
from specli.engine.config import RequestConfig, SamplingConfig
from tests.support.runs import GREEDY, Outcome, executors, run, speculation
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import BLOCK, NETWORK_TYPES, TABLE_TYPES, tiny_pair

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3", "qwen35"]  # test_lossless_families.py has the others
LOOP = [5, 6, 7, 8, 9, 10, 11, 12] * 4  # something for every n-gram type to match
LONG, SHORT = LOOP * 4 + [40, 41], [5, 6, 7, 8, 5, 6]
UNLIKE = [(7 * i * i + 3 * i) % 190 + 5 for i in range(40)]  # leaves rounds to the draft networks
FASTEST = executors()[-1]
KERNELS = pytest.mark.parametrize("kernels", executors())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lossless")


def model(folder: Path, family: str = "llama", *, seed: int = 0, quant: str = "f32", **fields: Any) -> Path:
    """A tiny model that keeps its last token likely, so that its text repeats itself and drafts are accepted."""
    path = folder / f"{family}-{quant}-{seed}-{len(fields)}.gguf"
    return path if path.exists() else tiny_gguf(path, family, seed=seed, quant=quant, tied=True, **fields)


@KERNELS
@pytest.mark.parametrize("name", NETWORK_TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_all_types_together_at_every_draft_length(folder: Path, kernels: str, family: str, name: str) -> None:
    """Five n-gram types and a network in one run. Slow kernels get one of the lengths, each length in some family."""
    target, draft = tiny_pair(folder, name, family)
    types = [name, *reversed(TABLE_TYPES)]  # the order in which they are given does not matter
    prompts, request = [LONG[-34:], UNLIKE], RequestConfig(n_predict=24, sampling=GREEDY, trace=True)
    plain = run(target, prompts, kernels=kernels, request=request)
    winners: set[str | None] = set()
    lengths = [*range(1, BLOCK + 1), 64]
    for length in lengths if kernels == "cpu" else [lengths[(FAMILIES.index(family) + NETWORK_TYPES.index(name)) % 7]]:
        drafted = run(target, prompts, draft=draft, spec=speculation(types, length), kernels=kernels, request=request)
        assert [(o.tokens, o.text, o.stop) for o in drafted] == [(o.tokens, o.text, o.stop) for o in plain]
        check_counts(drafted, [*TABLE_TYPES, name])
        winners |= {r["drafter"] for o in drafted for r in o.record["rounds"]}
    assert name in winners
    assert kernels == "reference" or not winners.isdisjoint(TABLE_TYPES)


def check_counts(outcomes: list[Outcome], types: list[str]) -> None:
    """What is counted per drafter since the start is the sum of the rounds; nobody is asked after a draft was found."""
    statistics = outcomes[-1].record["statistics"]
    assert [s["type"] for s in statistics] == types == [name for name in DRAFTERS if name in types]
    rounds = [r for o in outcomes for r in o.record["rounds"]]
    for stats in statistics:
        own = [r["n_accepted"] for r in rounds if r["drafter"] == stats["type"]]
        histogram = [own.count(n) for n in range(max(own, default=-1) + 1)]
        assert stats["gen_drafts"] == stats["calls"]["accept"] == len(own)
        assert stats["gen_tokens"] == sum(r["n_draft"] for r in rounds if r["drafter"] == stats["type"])
        assert (stats["acc_tokens"], stats["acc_drafts"]) == (sum(own), sum(n > 0 for n in own))
        assert stats["acc_len_histogram"] == histogram
        assert stats["calls"]["begin"] == len(outcomes)
    for before, after in pairwise(statistics):
        assert after["calls"]["draft"] == before["calls"]["draft"] - before["gen_drafts"]
    for outcome in outcomes:
        written = [t for r in outcome.record["rounds"] for t in [*r["draft"][: r["n_accepted"]], r["target_token"]]]
        assert written[: len(outcome.tokens) - 1] == outcome.tokens[1:]
        assert outcome.n_drafted == sum(r["n_draft"] for r in outcome.record["rounds"])
        assert outcome.n_accepted == sum(r["n_accepted"] for r in outcome.record["rounds"])


@KERNELS
@pytest.mark.parametrize("name", TABLE_TYPES)
def test_each_type_alone_on_quantised_weights(folder: Path, kernels: str, name: str) -> None:
    target = model(folder, quant="q4_1")
    plain = run(target, [LONG, SHORT], kernels=kernels)
    drafted = run(target, [LONG, SHORT], spec=speculation([name], 8), kernels=kernels)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]


@KERNELS
@pytest.mark.parametrize("quant", ["f16", "bf16", "q8_0", "q5_0", "q4_k", "q6_k"])
def test_a_model_drafting_for_itself_is_accepted_entirely(folder: Path, kernels: str, quant: str) -> None:
    target = model(folder, quant=quant)
    plain = run(target, [LONG], kernels=kernels)[0]
    drafted = run(target, [LONG], draft=target, spec=speculation(["draft-simple"], 4), kernels=kernels)[0]
    assert drafted.tokens == plain.tokens
    assert drafted.n_accepted == drafted.n_drafted > 20


@KERNELS
def test_a_draft_model_of_other_weights_changes_nothing(folder: Path, kernels: str) -> None:
    target, draft = model(folder), model(folder, seed=5)
    plain = run(target, [LONG], n_predict=200, kernels=kernels)[0]
    drafted = run(target, [LONG], draft=draft, spec=speculation(["draft-simple"], 5), n_predict=200, kernels=kernels)[0]
    assert drafted.tokens == plain.tokens


@pytest.mark.parametrize("length", [1, 3, 16])
@pytest.mark.parametrize("place", [3, 6, 11])
def test_end_token_inside_a_draft(folder: Path, length: int, place: int) -> None:
    """The token that plain decoding writes at `place` is declared the end, so that drafts run across it."""
    free = run(model(folder, seed=3), [LOOP])[0].tokens
    end = {"tokenizer.ggml.eos_token_id": ("u32", free[place])}
    target = tiny_gguf(folder / f"end-{place}.gguf", seed=3, tied=True, metadata=end)
    plain = run(target, [LOOP])[0]
    drafted = run(target, [LOOP], draft=target, spec=speculation(["draft-simple"], length))[0]
    assert plain.stop == drafted.stop == "eos"
    assert drafted.tokens == plain.tokens == free[: free.index(free[place]) + 1]


@pytest.mark.parametrize("n_prompt", [230, 252, 253, 254, 255])
def test_context_end_inside_a_draft(folder: Path, n_prompt: int) -> None:
    target = model(folder)
    prompt = (LOOP * 8)[:n_prompt]
    plain = run(target, [prompt], n_predict=-1, n_ctx=256)[0]
    drafted = run(target, [prompt], draft=target, spec=speculation(["draft-simple"], 16), n_predict=-1, n_ctx=256)[0]
    assert plain.stop == drafted.stop == "context"
    assert drafted.tokens == plain.tokens
    assert len(plain.tokens) == 256 - n_prompt


@pytest.mark.parametrize("n_prompt", [249, 254, 255])
@pytest.mark.parametrize("name", NETWORK_TYPES)
def test_context_end_inside_the_draft_of_a_network(folder: Path, name: str, n_prompt: int) -> None:
    """docs/faults.md M4."""
    target, draft = tiny_pair(folder, name, "gemma3")
    prompt = (UNLIKE * 7)[:n_prompt]
    plain = run(target, [prompt], n_predict=-1, n_ctx=256, kernels=FASTEST)[0]
    drafted = run(
        target, [prompt, prompt], draft=draft, spec=speculation([name], 16), n_predict=-1, n_ctx=256, kernels=FASTEST
    )
    assert plain.stop == drafted[0].stop == drafted[1].stop == "context"
    assert drafted[0].tokens == drafted[1].tokens == plain.tokens
    assert len(plain.tokens) == 256 - n_prompt


@pytest.mark.parametrize("cache", ["f32", "bf16", "q8_0", "q4_0"])
@KERNELS
def test_cache_types(folder: Path, kernels: str, cache: str) -> None:
    """docs/faults.md M1, M2."""
    target = model(folder, head_size=64)
    plain = run(target, [LONG], kernels=kernels, type_k=cache, type_v=cache)[0]
    drafted = run(target, [LONG], spec=speculation(TABLE_TYPES, 6), kernels=kernels, type_k=cache, type_v=cache)[0]
    assert drafted.tokens == plain.tokens


@pytest.mark.parametrize("n_batch", [1, 7, 32])
def test_prompt_in_pieces_of_any_size(folder: Path, n_batch: int) -> None:
    target = model(folder)
    whole = run(target, [LONG])[0]
    pieces = run(target, [LONG], n_batch=n_batch, spec=speculation(TABLE_TYPES, 6))[0]
    assert pieces.tokens == whole.tokens


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(seed=7),
        SamplingConfig(seed=7, temperature=1.5, top_k=0, min_p=0.0, top_p=1.0),
        SamplingConfig(seed=7, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5),
        SamplingConfig(seed=7, dry_multiplier=0.8),
        SamplingConfig(seed=7, mirostat=2),
        SamplingConfig(seed=7, xtc_probability=0.5),
        SamplingConfig(seed=7, logit_bias=((9, 4.0),)),
        SamplingConfig(seed=7, temperature=0.0, repeat_penalty=1.3),
    ],
    ids=["default", "hot", "penalties", "dry", "mirostat", "xtc", "bias", "greedy-penalties"],
)
def test_same_seed_gives_the_same_tokens_with_and_without_drafting(folder: Path, sampling: SamplingConfig) -> None:
    request = RequestConfig(n_predict=40, sampling=sampling)
    for name in NETWORK_TYPES:
        target, draft = tiny_pair(folder, name)
        spec = speculation([*TABLE_TYPES, name], 5)
        plain = run(target, [LONG, SHORT], request=request, kernels=FASTEST)
        drafted = run(target, [LONG, SHORT], request=request, draft=draft, spec=spec, kernels=FASTEST)
        assert [o.tokens for o in drafted] == [o.tokens for o in plain]


def test_logprobs_are_the_same_with_and_without_drafting(folder: Path) -> None:
    target = model(folder)
    request = RequestConfig(n_predict=30, sampling=GREEDY, logprobs=3, prompt_logprobs=True)
    plain = run(target, [LONG], request=request)[0]
    drafted = run(target, [LONG], request=request, draft=target, spec=speculation(["draft-simple"], 5))[0]
    assert drafted.record["logprobs"] == plain.record["logprobs"]
    assert drafted.record["prompt"] == plain.record["prompt"]


@pytest.mark.parametrize("name", DRAFTERS)
def test_second_request_equals_a_fresh_process(folder: Path, name: str) -> None:
    """Drafts and verdicts too, not only the text: no drafter carries anything over from an unrelated prompt."""
    target, draft = tiny_pair(folder, name) if name in NETWORK_TYPES else (model(folder), None)
    request = RequestConfig(n_predict=40, sampling=GREEDY, trace=True)
    spec = speculation([name], 5)
    after = run(target, [LONG, SHORT], draft=draft, spec=spec, request=request, kernels=FASTEST)[1]
    fresh = run(target, [SHORT], draft=draft, spec=spec, request=request, kernels=FASTEST)[0]
    assert rounds_of(after) == rounds_of(fresh)
    assert after.tokens == fresh.tokens


def rounds_of(outcome: Outcome) -> list[dict[str, Any]]:
    """The trace without times."""
    return [{key: value for key, value in r.items() if not key.endswith("_ms")} for r in outcome.record["rounds"]]


@pytest.mark.real
@pytest.mark.parametrize("which", ["smollm2_path", "gemma3_path"])
def test_real_models(which: str, request: pytest.FixtureRequest) -> None:
    target = request.getfixturevalue(which)
    kernels = executors()[-1]
    plain = run(target, [LONG, SHORT], kernels=kernels, n_predict=96, n_ctx=1024)
    for length in (1, 3, 8, 48):
        drafted = run(
            target, [LONG, SHORT], kernels=kernels, n_predict=96, n_ctx=1024, draft=target,
            spec=speculation([*TABLE_TYPES, "draft-simple"], length),
        )  # fmt: skip
        assert [o.tokens for o in drafted] == [o.tokens for o in plain]
        assert any(o.n_accepted for o in drafted)
