"""draft-dflash and draft-dspark: recorded drafts, thresholds, limits, chances, and what is refused at the start."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specli.convert import ConvertConfig, convert
from specli.drafters import DRAFTERS, NetworkSpec
from specli.drafters.settings import AUTO_LENGTH, DraftConfig, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.engine.drafting import choose_drafters
from specli.errors import FormatError, IncompatibleError, SpecliError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.models.dflash import DFlashNetwork
from specli.models.dflash_config import DFlashConfig
from specli.models.draft import Anchor, Part
from specli.models.positions import Proposal
from tests.support.drafting import Pair, open_pair
from tests.support.runs import executors, run
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

PROMPT = [(7 * i) % 90 + 5 for i in range(60)]
KERNELS = pytest.mark.parametrize("kernels", executors())
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dflash": ("draft-dflash", {}),
    "dflash2": ("draft-dflash", {"selector": 6}),
    "dspark": ("draft-dspark", {"markov": 16, "confidence": True}),
    "dspark-reserved": ("draft-dspark", {"markov": 16, "confidence": True, "from_anchor": False}),
}
KIND = pytest.mark.parametrize("kind", KINDS)


def files_of(folder: Path, kind: str, architecture: str = "llama", **options: Any) -> tuple[Path, Path, str]:
    spec_type, own = KINDS[kind]
    target = tiny_gguf(folder / "target.gguf", architecture)
    return target, tiny_dflash(folder / "draft.gguf", **{**own, **options}), spec_type


def network_of(pair: Pair) -> DFlashNetwork:
    network = pair.drafter.network  # type: ignore[attr-defined]
    assert isinstance(network, DFlashNetwork)
    return network


def proposals_of(pair: Pair) -> list[Proposal]:
    return network_of(pair).block_positions.read()


@pytest.fixture(scope="module")
def zoo(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Target and drafter of the zoo as f32 files."""
    folder, hf = tmp_path_factory.mktemp("zoo"), shared / "golden" / "zoo"
    (target,) = convert(ConvertConfig(hf / "qwen3" / "hf", outfile=folder / "qwen3.gguf", outtype="f32")).paths
    request = ConvertConfig(
        hf / "dflash_zlab" / "hf", outfile=folder / "dflash.gguf", outtype="f32", target=hf / "qwen3" / "hf"
    )
    return target, convert(request).paths[0]


@KERNELS
@pytest.mark.parametrize("index", range(4))
def test_drafts_equal_recorded_ones(shared: Path, zoo: tuple[Path, Path], index: int, kernels: str) -> None:
    """Every draft of llama.cpp b11434, with the probabilities of its three best candidates."""
    recorded = json.loads((shared / "golden" / "zoo" / "dflash_zlab" / "golden.json").read_text())["runs"][index]
    with open_pair(
        *zoo, "draft-dflash", DraftConfig(n_max=recorded["n_max"], probabilistic=True), kernels=kernels
    ) as pair:
        prompt = pair.tokenizer.encode(recorded["prompt"], add_special=True, parse_special=True)
        pair.prompt(prompt[:-1])
        last, n_drafted, n_accepted = prompt[-1], 0, 0
        for step in recorded["rounds"]:
            expected = [slot["top3"] for slot in step["drafted"]]
            draft = pair.draft(last).tokens
            assert draft == [top[0][0] for top in expected]
            del draft[step["n_draft"] :]  # the recording stops at its limit
            for proposal, top in zip(proposals_of(pair), expected, strict=False):
                weights = np.exp(proposal.values - proposal.values[0])
                found = dict(zip(proposal.ids.tolist(), (weights / weights.sum()).tolist(), strict=True))
                for token, probability in top:
                    assert found[token] == pytest.approx(probability, abs=0.002)
            logits = pair.verify(last, draft, step["accepted"])
            n_drafted += len(draft)
            n_accepted += step["accepted"]
            last = int(logits[step["accepted"]].argmax())
            assert last == step["last"]
        assert (n_drafted, n_accepted) == (recorded["n_drafted"], recorded["n_accept"])


@KERNELS
@KIND
def test_text_is_that_without_a_drafter(kind: str, kernels: str, tmp_path: Path) -> None:
    """Bit for bit, at every draft length the block allows."""
    target, draft, spec_type = files_of(tmp_path, kind, follows_target=True, block_size=4)
    prompts = [PROMPT[:30], [5, 6, 7]]
    plain = run(target, prompts, kernels=kernels, n_predict=24)
    for n_max in range(1, 5):
        spec = SpeculationConfig(types=(spec_type,), draft=DraftConfig(n_max=n_max))
        drafted = run(target, prompts, draft=draft, spec=spec, kernels=kernels, n_predict=24)
        assert [outcome.tokens for outcome in drafted] == [outcome.tokens for outcome in plain]
        assert all(outcome.n_drafted for outcome in drafted)


@KIND
def test_one_run_per_draft(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain included: nothing returns to the host before the last slot is done."""
    target, draft, spec_type = files_of(tmp_path, kind)
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5)) as pair:
        pair.prompt(PROMPT)
        runs: list[int] = []
        program = network_of(pair)._block
        real = program.run
        monkeypatch.setattr(type(program), "run", lambda self, *counts, **more: (runs.append(1), real(*counts, **more)))
        assert len(pair.draft(9).tokens) == 5
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("kind", "n_max", "n_min", "clamped"),
    [
        ("dflash", 0, 0, 0), ("dflash", 1, 0, 1), ("dflash", 7, 0, 7), ("dflash", 8, 0, 7), ("dflash", 1000, 9, 7),
        ("dspark", 8, 0, 8), ("dspark", 9, 0, 8), ("dspark-reserved", 7, 0, 7), ("dspark-reserved", 8, 0, 7),
    ],
)  # fmt: skip
def test_drafts_stay_within_the_trained_block(
    kind: str, n_max: int, n_min: int, clamped: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/faults.md L10 and C7: as long as the block, one less where the anchor's slot predicts nothing."""
    target, draft, spec_type = files_of(tmp_path, kind, block_size=8)
    with (
        caplog.at_level(logging.WARNING),
        open_pair(target, draft, spec_type, DraftConfig(n_max=n_max, n_min=n_min), capacity=80) as pair,
    ):
        assert pair.drafter.max_draft == clamped
        pair.prompt(PROMPT[:9])
        assert len(pair.draft(9).tokens) == clamped
    said = f"requested draft size {n_max} exceeds the trained block size -- clamping to {clamped}"
    assert caplog.messages == ([said] if n_max > clamped else [])


def test_slot_conventions_differ_by_one_position(tmp_path: Path) -> None:
    """docs/faults.md C7: the same weights, read either way; a missing key means that the anchor predicts."""
    target = tiny_gguf(tmp_path / "target.gguf")
    drafts = {}
    for from_anchor in (None, True, False):
        draft = tiny_dflash(tmp_path / f"{from_anchor}.gguf", markov=16, from_anchor=from_anchor)
        with open_pair(target, draft, "draft-dspark", DraftConfig(n_max=5)) as pair:
            pair.prompt(PROMPT)
            drafts[from_anchor] = pair.draft(9).tokens
    assert drafts[None] == drafts[True] != drafts[False]


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_p_min_ends_a_draft_before_an_unlikely_token(kind: str, tmp_path: Path) -> None:
    """Probabilities are those among ten candidates, or among the selector's."""
    target, draft, spec_type = files_of(tmp_path, kind)
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5, probabilistic=True)) as pair:
        pair.prompt(PROMPT)
        tokens = pair.draft(9).tokens
        best = [float(1 / np.exp(p.values - p.values[0]).sum()) for p in proposals_of(pair)]
    for p_min in sorted({round(p + delta, 4) for p in best for delta in (-0.001, 0.001)}):
        expected = next((i for i, p in enumerate(best) if p < p_min), 5)
        with open_pair(target, draft, spec_type, DraftConfig(n_max=5, p_min=p_min)) as pair:
            pair.prompt(PROMPT)
            assert pair.draft(9).tokens == tokens[:expected]
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5, p_min=max(best), n_min=3)) as pair:
        pair.prompt(PROMPT)
        assert pair.draft(9).tokens == []


@pytest.mark.parametrize("survival", [False, True], ids=["each", "product"])
def test_confidence_ends_a_draft(survival: bool, tmp_path: Path) -> None:
    target, draft, spec_type = files_of(tmp_path, "dspark")
    with open_pair(target, draft, spec_type, DraftConfig(n_max=6, probabilistic=True)) as pair:
        pair.prompt(PROMPT)
        tokens = pair.draft(9).tokens
        confidence = np.array([p.confidence for p in proposals_of(pair)])
    assert len(tokens) == 6
    assert 0 < confidence.min() < confidence.max() < 1
    bounds = np.cumprod(confidence) if survival else confidence
    for p_min in np.concatenate([bounds * 0.999, bounds * 1.001]):
        expected = next((i for i, bound in enumerate(bounds) if bound < p_min), 6)
        config = DraftConfig(n_max=6, p_min=float(p_min), survival=survival)
        with open_pair(target, draft, spec_type, config) as pair:
            pair.prompt(PROMPT)
            assert pair.draft(9).tokens == tokens[:expected]


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
def test_impossible_logits_end_a_draft(poison: float, tmp_path: Path) -> None:
    """docs/faults.md D22."""
    target, draft, spec_type = files_of(tmp_path, "dflash", own_head=True)
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5)) as pair:
        pair.prompt(PROMPT)
        network = network_of(pair)
        real = network.block

        def spoilt(anchors: Sequence[Anchor]) -> tuple[np.ndarray, np.ndarray]:
            found = real(anchors)
            network.block_positions.values.data[2] = poison
            return found

        network.block = spoilt  # type: ignore[method-assign]
        assert len(pair.draft(9).tokens) == 2


@KIND
def test_drawn_tokens_carry_the_probabilities_they_were_drawn_with(kind: str, tmp_path: Path) -> None:
    """Each token given the one drawn before it; frequencies over many seeds agree with the stated probabilities."""
    target, draft, spec_type = files_of(tmp_path, kind)
    config = DraftConfig(n_max=3, probabilistic=True)
    with open_pair(target, draft, spec_type, config, kernels=executors()[-1]) as pair:
        pair.prompt(PROMPT)
        first: Counter[int] = Counter()
        second: dict[int, bytes] = {}
        n = 1000
        for seed in range(n):
            drawn = pair.draft(9, temperature=1.5, seed=seed)
            assert drawn.probabilities is not None
            assert len(drawn.tokens) == len(drawn.probabilities) == 3
            for token, (ids, probabilities) in zip(drawn.tokens, drawn.probabilities, strict=True):
                assert token in ids
                assert probabilities.sum() == pytest.approx(1, abs=1e-5)
            first[drawn.tokens[0]] += 1
            second.setdefault(drawn.tokens[0], drawn.probabilities[1][1].tobytes())
            ids, probabilities = drawn.probabilities[0]
        chi2 = sum(
            (first[int(token)] - n * p) ** 2 / (n * p) for token, p in zip(ids, probabilities, strict=True) if p > 0.01
        )
        assert chi2 < 30  # 9 degrees of freedom: exceeded once in 2000 tries; seeds are fixed
        is_chained = kind != "dflash"
        assert (len(set(second.values())) > 1) == is_chained


@pytest.mark.parametrize("kind", ["dflash2", "dspark"])
def test_steps_and_chain_agree(kind: str, tmp_path: Path) -> None:
    """Drawing almost surely the best token step by step gives the draft that one program gives."""
    target, draft, spec_type = files_of(tmp_path, kind)
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5, probabilistic=True)) as pair:
        pair.prompt(PROMPT)
        greedy = pair.draft(9).tokens
        assert pair.draft(9, temperature=1e-4, seed=3).tokens == greedy


@KERNELS
@KIND
def test_whole_drafts_look_at_one_candidate(kind: str, kernels: str, tmp_path: Path) -> None:
    """It is the first of several, and nobody asks for confidence."""
    target, draft, spec_type = files_of(tmp_path, kind)
    drafts = []
    for config in (DraftConfig(n_max=5, probabilistic=True), DraftConfig(n_max=5)):
        with open_pair(target, draft, spec_type, config, kernels=kernels) as pair:
            pair.prompt(PROMPT)
            drafts.append([pair.draft(9).tokens, pair.draft(31).tokens])
            positions = network_of(pair).block_positions
    assert drafts[0] == drafts[1]
    assert (positions.ids.width, positions.confidence) == (1, None)


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("cache", ["f16", "bf16", "q8_0", "q4_0"])
def test_cache_types_change_drafts_little(cache: str, kernels: str, tmp_path: Path) -> None:
    """docs/faults.md M2: injected keys need the same rotation as the block's; without it nothing would be left."""
    target = tiny_gguf(tmp_path / "target.gguf", head_size=64)
    draft, spec_type = tiny_dflash(tmp_path / "draft.gguf", head_size=64), "draft-dflash"
    values = []
    for type in ("f32", cache):
        with open_pair(target, draft, spec_type, DraftConfig(n_max=5), kernels=kernels, cache=type) as pair:
            features = pair.target.features["layers"]
            torch.manual_seed(0)
            noise = torch.randn(48, features.width)  # the same context, whatever the target's cache did to it
            features.data[:48] = noise
            network_of(pair).ingest([Part(0, np.zeros(48, np.int32), 0, 0)])
            network_of(pair).block([Anchor(0, 9, 48)])
            values.append(network_of(pair).block_positions.logits.data.clone())
    spread = values[0].std()
    assert (values[1] - values[0]).abs().mean() < {"q4_0": 0.25, "q8_0": 0.02}.get(cache, 0.01) * spread


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_target_family_can_be_tapped(architecture: str, tmp_path: Path) -> None:
    """docs/faults.md D14, also after the last layer, which llama.cpp does not offer."""
    target, draft, spec_type = files_of(tmp_path, "dflash", architecture, taps=(0, 2))
    with open_pair(target, draft, spec_type, DraftConfig(n_max=5)) as pair:
        pair.prompt(PROMPT)
        assert len(pair.draft(9).tokens) == 5


def test_prompts_longer_than_a_batch(tmp_path: Path) -> None:
    """docs/faults.md D13."""
    target, draft, spec_type = files_of(tmp_path, "dflash", taps=(0, 1, 2))
    drafts = []
    for chunk in (200, 32):
        with open_pair(target, draft, spec_type, DraftConfig(n_max=5), max_tokens=chunk) as pair:
            pair.prompt(PROMPT * 3, chunk=chunk)
            drafts.append(pair.draft(9).tokens)
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("n_ctx", [40, 41, 44])
def test_the_context_ends_where_it_would_without_drafts(n_ctx: int, tmp_path: Path) -> None:
    target, draft, spec_type = files_of(tmp_path, "dspark", follows_target=True)
    spec = SpeculationConfig(types=(spec_type,), draft=DraftConfig(n_max=6))
    (plain,) = run(target, [PROMPT[:30]], n_predict=-1, n_ctx=n_ctx)
    (drafted,) = run(target, [PROMPT[:30]], draft=draft, spec=spec, n_predict=-1, n_ctx=n_ctx)
    assert (drafted.tokens, drafted.stop) == (plain.tokens, plain.stop)


def test_a_drafter_that_loses_its_turn_stays_up_to_date(tmp_path: Path) -> None:
    """n-gram types win some rounds; what the network then drafts is what it would have drafted alone."""
    target, draft, spec_type = files_of(tmp_path, "dflash", follows_target=True)
    loop = PROMPT[:12] * 5
    spec = SpeculationConfig(types=(spec_type, "ngram-mod", "ngram-cache"), draft=DraftConfig(n_max=4))
    (plain,) = run(target, [loop])
    (both,) = run(target, [loop], draft=draft, spec=spec)
    assert both.tokens == plain.tokens
    with open_pair(target, draft, spec_type, DraftConfig(n_max=4)) as pair:
        pair.prompt(loop)
        alone = pair.draft(9).tokens
        pair.verify(9, [8, 7, 6], 1)  # somebody else's draft
        pair.prompt(loop)
        assert pair.draft(9).tokens == alone


Refusal = tuple[Callable[[Path], Path], str, dict[str, Any], type[SpecliError], str]


def dflash(**options: Any) -> Callable[[Path], Path]:
    return lambda path: tiny_dflash(path, **options)


def keys(**pairs: Any) -> Callable[[Path], Path]:
    return dflash(metadata={name.replace("__", "."): pair for name, pair in pairs.items()})


REFUSALS: dict[str, Refusal] = {
    "other architecture": (
        lambda path: tiny_eagle3(path), "draft-dflash", {}, IncompatibleError,
        "{draft}: architecture eagle3 does not fit draft-dflash, expected dflash",
    ),
    "dspark as dflash": (
        dflash(markov=16), "draft-dflash", {}, IncompatibleError,
        "{draft}: a drafter of type draft-dspark does not fit draft-dflash",
    ),
    "dflash as dspark": (
        dflash(), "draft-dspark", {}, IncompatibleError,
        "{draft}: a drafter of type draft-dflash does not fit draft-dspark",
    ),
    "no confidence head": (
        dflash(markov=16), "draft-dspark", {"p_min": 0.5}, IncompatibleError,
        "{draft}: DSpark draft has no confidence head: please set --spec-draft-p-min 0",
    ),
    "width": (
        dflash(width=128), "draft-dflash", {}, IncompatibleError,
        "{draft}: hidden width 128 does not match {target} (64)",
    ),
    "vocabulary": (
        dflash(vocab="spm"), "draft-dflash", {}, IncompatibleError,
        "{draft}: vocabulary size 389 does not match {target} (355)",
    ),
    "taps": (
        dflash(taps=(1, 3)), "draft-dflash", {}, IncompatibleError,
        "{draft}: hidden state 3 does not exist in {target} (0 to 2)",
    ),
    "a tap twice": (
        keys(dflash__target_layers=("[i32]", [1, 1])), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.target_layers is [1, 1], expected different layers, counted from 0",
    ),
    "no taps": (
        keys(dflash__target_layers=("[i32]", [])), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.target_layers is [], expected different layers, counted from 0",
    ),
    "mask id": (
        keys(tokenizer__ggml__mask_token_id=("u32", 355)), "draft-dflash", {}, FormatError,
        "{draft}: key tokenizer.ggml.mask_token_id is 355, expected an id below 355",
    ),
    "block size": (
        keys(dflash__block_size=("u32", 1)), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.block_size is 1, expected more than 1",
    ),
    "activation": (
        keys(dflash__hidden_activation=("str", "relu")), "draft-dflash", {}, UnsupportedError,
        "{draft}: unsupported DFlash hidden activation 'relu', expected one of silu, gelu, gelu_pytorch_tanh",
    ),
    "window without windowed layers": (
        keys(
            dflash__attention__sliding_window=("u32", 8),
            dflash__attention__sliding_window_pattern=("[bool]", [False, False]),
        ), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.attention.sliding_window_pattern is [0, 0], expected 2 flags, at least one of them set",
    ),
    "value width": (
        keys(dflash__attention__value_length=("u32", 16)), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.attention.value_length is 16, expected the key length (32)",
    ),
    "hyper-connections": (
        keys(dflash__hyper_connection__count=("u32", 4)), "draft-dflash", {}, UnsupportedError,
        "{draft}: a DSpark drafter with hyper-connections (DeepSeek-V4) is not handled",
    ),
    "MTP layers": (
        keys(dflash__nextn_predict_layers=("u32", 1)), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.nextn_predict_layers is 1, expected 0",
    ),
    "convolution group": (
        dflash(selector=4, metadata={"dflash.conv_group_size": ("u32", 24)}), "draft-dflash", {}, FormatError,
        "{draft}: key dflash.conv_group_size is 24, expected a divisor of embedding_length (64)",
    ),
    "selector keys": (
        dflash(selector=4, metadata={"dflash.selector_rank": None}), "draft-dflash", {}, FormatError,
        "{draft}: DFlash2 model is missing conv/selector metadata "
        "(conv_kernel_size, conv_group_size, selector_rank, selector_top_k)",
    ),
    "missing tensor": (
        dflash(tensors={"fc.weight": None}), "draft-dflash", {}, FormatError,
        "{draft}: tensors do not fit architecture dflash: fc.weight is missing",
    ),
    "unknown tensor": (
        dflash(tensors={"blk.0.attn_q.bias": np.zeros(128, np.float32)}), "draft-dflash", {}, FormatError,
        "{draft}: tensors do not fit architecture dflash: blk.0.attn_q.bias is not part of the architecture",
    ),
    "d2t twice": (
        dflash(reduced=3, tensors={"d2t": np.array([5, 6, 5])}), "draft-dflash", {}, FormatError,
        "{draft}: d2t names a token twice",
    ),
    "d2t outside": (
        dflash(reduced=3, tensors={"d2t": np.array([5, 6, 355])}), "draft-dflash", {}, FormatError,
        "{draft}: d2t has ids 5 to 355, expected 0 to 354",
    ),
    "d2t without head": (
        dflash(tensors={"d2t": np.array([5, 6, 7])}), "draft-dflash", {}, FormatError,
        "{draft}: d2t names 3 of 355 tokens, but output.weight, their head, is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_before_weights_are_read(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, spec_type, config, error, message = REFUSALS[case]
    target, draft = tiny_gguf(tmp_path / "target.gguf"), make(tmp_path / "draft.gguf")
    monkeypatch.setattr("tests.support.drafting.load_model", lambda *_: pytest.fail("the target was loaded"))
    with pytest.raises(error) as caught, open_pair(target, draft, spec_type, DraftConfig(n_max=3, **config)):
        pass
    assert str(caught.value) == message.format(target=target, draft=draft)


@pytest.mark.parametrize("taken", [True, False], ids=["n-max 1000", "n-max 3"])
def test_start_line_says_how_long_drafts_get(taken: bool, tmp_path: Path) -> None:
    _, draft, _ = files_of(tmp_path, "dspark", block_size=8)
    load = ModelLoadConfig(draft)
    spec = SpeculationConfig(draft=DraftConfig(n_max=1000 if taken else 3))
    with GGUFFile.open(draft) as file:
        _, lines = choose_drafters(RunConfig(load, draft=load, speculation=spec), file, file)
    (line,) = lines
    assert line.startswith(
        f"drafting: draft-dspark (read off the draft file, {draft}), up to {8 if taken else 3} tokens: "
    )


def test_the_length_auto_is_that_of_the_trained_block(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, draft, spec_type = files_of(tmp_path, "dspark", block_size=8)
    spec, config = DRAFTERS[spec_type], SpeculationConfig(draft=DraftConfig(n_max=AUTO_LENGTH, n_min=2))
    assert isinstance(spec, NetworkSpec)
    with GGUFFile.open(draft) as file:
        assert spec.draft_length(config, file) == DFlashConfig.from_gguf(file).max_draft
        spec.warn_of_limit(config, file)
    assert spec.is_sound(config)
    assert not caplog.text
