"""Greedy output with any drafter is bit for bit the output without one (design.md §1, promise 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specli.drafters import DRAFTERS
from specli.engine.config import RequestConfig, SamplingConfig
from tests.support.runs import GREEDY, executors, run, speculation
from tests.support.tiny_gguf import tiny_gguf

TABLE_TYPES = [name for name, spec in DRAFTERS.items() if not spec.needs_draft_file]
FAMILIES = ["llama", "qwen2", "qwen3", "gemma3"]
LOOP = [5, 6, 7, 8, 9, 10, 11, 12] * 4  # something for every n-gram type to match
LONG, SHORT = LOOP * 4 + [40, 41], [5, 6, 7, 8, 5, 6]
KERNELS = pytest.mark.parametrize("kernels", executors())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lossless")


def model(folder: Path, family: str = "llama", *, seed: int = 0, quant: str = "f32", **fields: Any) -> Path:
    """A tiny model that keeps its last token likely, so that its text repeats itself and drafts are accepted."""
    path = folder / f"{family}-{quant}-{seed}-{len(fields)}.gguf"
    return path if path.exists() else tiny_gguf(path, family, seed=seed, quant=quant, tied=True, **fields)


@KERNELS
@pytest.mark.parametrize("length", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_types_together_at_every_draft_length(folder: Path, kernels: str, family: str, length: int) -> None:
    target, draft = model(folder, family), model(folder, family, seed=1)
    types = [*TABLE_TYPES, "draft-simple"]
    plain = run(target, [LONG, SHORT], kernels=kernels)
    drafted = run(target, [LONG, SHORT], draft=draft, spec=speculation(types, length), kernels=kernels)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert [o.text for o in drafted] == [o.text for o in plain]
    assert any(o.n_drafted for o in drafted)


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


@pytest.mark.parametrize("cache", ["f32", "bf16", "q8_0", "q4_0"])
@KERNELS
def test_cache_types(folder: Path, kernels: str, cache: str) -> None:
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
    target = model(folder)
    request = RequestConfig(n_predict=60, sampling=sampling)
    plain = run(target, [LONG, SHORT], request=request)
    drafted = run(
        target, [LONG, SHORT], request=request, draft=target, spec=speculation([*TABLE_TYPES, "draft-simple"], 5)
    )
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]


def test_logprobs_are_the_same_with_and_without_drafting(folder: Path) -> None:
    target = model(folder)
    request = RequestConfig(n_predict=30, sampling=GREEDY, logprobs=3, prompt_logprobs=True)
    plain = run(target, [LONG], request=request)[0]
    drafted = run(target, [LONG], request=request, draft=target, spec=speculation(["draft-simple"], 5))[0]
    assert drafted.record["logprobs"] == plain.record["logprobs"]
    assert drafted.record["prompt"] == plain.record["prompt"]


def test_second_request_equals_a_fresh_process(folder: Path) -> None:
    """Drafts and verdicts too, not only the text: no drafter carries anything over from an unrelated prompt."""
    target = model(folder)
    for name in [*TABLE_TYPES, "draft-simple"]:
        spec = speculation([name], 5)
        draft = target if name == "draft-simple" else None
        after = run(target, [LONG, SHORT], draft=draft, spec=spec)[1]
        fresh = run(target, [SHORT], draft=draft, spec=spec)[0]
        assert (after.tokens, after.n_drafted, after.n_accepted) == (fresh.tokens, fresh.n_drafted, fresh.n_accepted)


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
