"""draft-eagle3 against a float64 NumPy network, drafts that llama.cpp recorded, and what goes wrong elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.drafters import DRAFTERS, FilePair, NetworkSpec, detect_type
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.engine.load import open_engine
from specli.errors import SpecliError
from specli.gguf.file import GGUFFile
from specli.models.draft import Anchor
from specli.tokenizer import Tokenizer
from tests.support.draft_oracle import Eagle3Oracle
from tests.support.drafting import Pair, drafted_by, open_pair
from tests.support.oracle import FAMILIES
from tests.support.runs import executors, run, skipping_unsupported, speculation
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

NAME = "draft-eagle3"
TOKENS = [(7 * i * i + 3 * i) % 190 + 5 for i in range(90)]
KERNELS = pytest.mark.parametrize("kernels", executors())
VARIANTS: dict[str, dict[str, Any]] = {
    "all borrowed": {},
    "reduced vocabulary": {"reduced": 100},
    "normed before fc": {"norm_before_fc": True},
    "normed residual": {"norm_before_residual": True},
    "states normed apart": {"fc_norm": True},
    "normed state goes on": {"norm_output": True},
    "normed heads": {"head_norms": True},
    "window": {"window": 6},
    "as speculators trains": {"norm_before_fc": True, "norm_output": True, "window": 6, "reduced": 100},
    "own ends": {"own_embeddings": True, "own_head": True},
    "narrower than the target": {"width": 32, "own_embeddings": True, "reduced": 64, "head_size": 16},
    "rotary factors": {"factors": True},
    "two taps": {"taps": (2, 0)},
    "one head for all": {"n_head_kv": 1, "head_size": 32},
}


def stepwise(pair: Pair, last: int, draft: list[int]) -> list[np.ndarray]:
    """Logits of every step that reads the given tokens."""
    network = pair.drafter._network  # type: ignore[attr-defined]
    position = len(pair.history)
    network.start([Anchor(0, last, position)])
    logits = [network.logits.data[0].numpy().astype(np.float64)]
    for index, token in enumerate(draft, 1):
        network.advance(index, np.array([token], np.int32))
        logits.append(network.logits.data[0].numpy().astype(np.float64))
    return logits


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for step, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert np.abs(a - b).max() < 1e-4 * max(1.0, np.abs(b).max()), step


@KERNELS
@pytest.mark.parametrize(
    ("family", "variant"),
    [("llama", name) for name in VARIANTS] + [(family, "all borrowed") for family in FAMILIES],
)
def test_logits_equal_the_numpy_network(tmp_path: Path, kernels: str, family: str, variant: str) -> None:
    """At three depths, with prompts in pieces, after a draft of which nothing, a part, or all stands.

    On every target family (docs/faults.md D14).
    """
    target = tiny_gguf(tmp_path / "target.gguf", family)
    draft = tiny_eagle3(tmp_path / "draft.gguf", **VARIANTS[variant])
    config = DraftConfig(n_max=4, probabilistic=True)
    with (
        skipping_unsupported(),
        open_pair(target, draft, NAME, config, kernels=kernels) as pair,
        GGUFFile.open(target) as target_file,
        GGUFFile.open(draft) as draft_file,
    ):
        oracle = Eagle3Oracle(draft_file, target_file)
        for depth, chunk in ((1, 64), (12, 5), (70, 32)):
            pair.prompt(TOKENS[:depth], chunk=chunk)
            last = TOKENS[depth]
            for n_accepted in (0, 2, 3):
                drafted = pair.draft(last).tokens
                assert_close(stepwise(pair, last, drafted[:3]), oracle.steps(pair.history, last, drafted[:3]))
                pair.verify(last, drafted[:3], n_accepted)
                last = drafted[n_accepted]


@KERNELS
def test_one_program_drafts_what_single_steps_do(tmp_path: Path, kernels: str) -> None:
    target = tiny_gguf(tmp_path / "target.gguf")
    draft = tiny_eagle3(tmp_path / "draft.gguf", reduced=100)
    with open_pair(target, draft, NAME, DraftConfig(n_max=8, probabilistic=True), kernels=kernels) as pair:
        pair.prompt(TOKENS[:40])
        network = pair.drafter._network  # type: ignore[attr-defined]
        values, ids = drafted_by(pair, TOKENS[40])
        step = network.start([Anchor(0, TOKENS[40], 40)])
        for index in range(8):
            np.testing.assert_array_equal(step[0][0], values[index])
            np.testing.assert_array_equal(step[1][0], ids[index])
            if index < 7:
                step = network.advance(index + 1, ids[index, :1])


@KERNELS
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_text_is_that_of_plain_decoding(tmp_path: Path, kernels: str, family: str, length: int) -> None:
    """Bit for bit, quantised too, two requests in one process, drafts accepted in part."""
    target = tiny_gguf(tmp_path / "target.gguf", family, quant="q8_0", tied=True)
    draft = tiny_eagle3(tmp_path / "draft.gguf", quant="q8_0", follows_target=True)
    prompts = [TOKENS[:70], TOKENS[30:36], TOKENS[:75]]
    plain = run(target, prompts, kernels=kernels)
    drafted = run(target, prompts, draft=draft, spec=speculation([NAME], length), kernels=kernels)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert sum(o.n_accepted for o in drafted) > 0


@pytest.mark.parametrize("n_batch", [1, 7, 32])
def test_prompts_longer_than_a_batch(tmp_path: Path, n_batch: int) -> None:
    """docs/faults.md D13: drafts do not depend on how the prompt was cut."""
    target = tiny_gguf(tmp_path / "target.gguf", tied=True)
    draft = tiny_eagle3(tmp_path / "draft.gguf", follows_target=True)
    prompt = (TOKENS * 3)[:200]
    whole = run(target, [prompt], draft=draft, spec=speculation([NAME], 4), n_batch=512)[0]
    pieces = run(target, [prompt], draft=draft, spec=speculation([NAME], 4), n_batch=n_batch)[0]
    assert (pieces.tokens, pieces.n_drafted, pieces.n_accepted) == (whole.tokens, whole.n_drafted, whole.n_accepted)


@pytest.mark.parametrize("first", [TOKENS[:80], [*TOKENS[:20], 9, 9, 9], TOKENS[:5]], ids=["longer", "fork", "shorter"])
def test_second_request_drafts_as_a_fresh_process_does(tmp_path: Path, first: list[int]) -> None:
    """docs/faults.md D1: long before short, a shared beginning, the first answer continued."""
    target = tiny_gguf(tmp_path / "target.gguf", tied=True)
    draft = tiny_eagle3(tmp_path / "draft.gguf", follows_target=True)
    spec = speculation([NAME], 5)
    answer = run(target, [first], draft=draft, spec=spec)[0].tokens
    for prompt in (TOKENS[:30], first + answer + [11, 12]):
        fresh = run(target, [prompt], draft=draft, spec=spec)[0]
        second = run(target, [first, prompt], draft=draft, spec=spec)[1]
        assert (second.tokens, second.n_drafted, second.n_accepted) == (fresh.tokens, fresh.n_drafted, fresh.n_accepted)


@pytest.mark.parametrize("n_prompt", [120, 125, 127])
def test_context_end_inside_a_draft(tmp_path: Path, n_prompt: int) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", tied=True)
    draft = tiny_eagle3(tmp_path / "draft.gguf", follows_target=True)
    prompt = (TOKENS * 2)[:n_prompt]
    plain = run(target, [prompt], n_predict=-1, n_ctx=128)[0]
    drafted = run(target, [prompt], draft=draft, spec=speculation([NAME], 16), n_predict=-1, n_ctx=128)[0]
    assert (drafted.tokens, drafted.stop) == (plain.tokens, plain.stop)


def test_another_drafter_s_round_leaves_the_same_state(tmp_path: Path) -> None:
    """Drafts after rounds that n-grams won equal those of a drafter that was alone."""
    target = tiny_gguf(tmp_path / "target.gguf")
    draft = tiny_eagle3(tmp_path / "draft.gguf")
    drafts = []
    for own in (True, False):
        with open_pair(target, draft, NAME, DraftConfig(n_max=4)) as pair:
            pair.prompt(TOKENS[:30])
            if own:
                pair.draft(TOKENS[30])
            pair.feed([TOKENS[30], 7, 8, 9], 2)
            if own:
                pair.drafter.accept(0, 1)
            drafts.append(pair.draft(50).tokens)
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_head_that_says_nothing_drafts_nothing(tmp_path: Path, value: float) -> None:
    """docs/faults.md D22."""
    target = tiny_gguf(tmp_path / "target.gguf")
    norm = np.full(64, value, np.float32)
    draft = tiny_eagle3(tmp_path / "draft.gguf", own_head=True, tensors={"output_norm.weight": norm})
    with open_pair(target, draft, NAME, DraftConfig(n_max=3)) as pair:
        pair.prompt(TOKENS[:9])
        assert pair.draft(5).tokens == []


def test_thresholds(tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "target.gguf")
    draft = tiny_eagle3(tmp_path / "draft.gguf")
    lengths = {}
    for n_max, n_min, p_min in ((6, 0, 0.0), (6, 0, 0.5), (6, 6, 0.5), (0, 0, 0.0)):
        with open_pair(target, draft, NAME, DraftConfig(n_max=n_max, n_min=n_min, p_min=p_min)) as pair:
            pair.prompt(TOKENS[:50])
            lengths[n_max, n_min, p_min] = len(pair.draft(5).tokens)
    assert lengths[6, 0, 0.0] == 6
    assert lengths[6, 0, 0.5] < 6
    assert lengths[6, 6, 0.5] == 0
    assert lengths[0, 0, 0.0] == 1  # as llama.cpp (docs/speculation.md §5.0)


def test_sampled_drafts_come_from_the_candidates(tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "target.gguf")
    draft = tiny_eagle3(tmp_path / "draft.gguf")
    with open_pair(target, draft, NAME, DraftConfig(n_max=5, probabilistic=True)) as pair:
        pair.prompt(TOKENS[:50])
        first = pair.draft(5, temperature=2.0, seed=3)
        second = pair.draft(5, temperature=2.0, seed=3)
        assert first.probabilities is not None
        for token, (ids, probabilities) in zip(first.tokens, first.probabilities, strict=True):
            assert token in ids
            assert probabilities.sum() == pytest.approx(1)
        assert first.tokens != second.tokens  # the stream goes on within a request
        pair.drafter.begin(0, pair.history)
        assert pair.draft(5, temperature=2.0, seed=3).tokens == first.tokens
        assert pair.draft(5).probabilities is None


# -- files that do not fit ---------------------------------------------------------------------------------------------


def refusal(target: Path, draft: Path) -> str:
    """What `check` says about a pair; weights are never read."""
    with GGUFFile.open(target) as target_file, GGUFFile.open(draft) as draft_file:
        vocabulary = Tokenizer.from_gguf(target_file)
        spec = DRAFTERS[NAME]
        assert isinstance(spec, NetworkSpec)
        with pytest.raises(SpecliError) as caught:
            spec.check(FilePair(SpeculationConfig(), target_file, vocabulary, draft_file))
    return str(caught.value).replace(f"{draft}", "DRAFT").replace(f"{target}", "TARGET")


WRONG_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "width of the target": ({"target_width": 32}, "DRAFT: target hidden width 32 does not match TARGET (64)"),
    "tap": ({"taps": (0, 1, 3)}, "DRAFT: hidden state 3 does not exist in TARGET (0 to 2)"),
    "a tap twice": (
        {"metadata": {"eagle3.target_layers": ("[i32]", [0, 1, 1])}},
        "DRAFT: key eagle3.target_layers is [0, 1, 1], expected different layers, counted from 0",
    ),
    "no taps": (
        {"metadata": {"eagle3.target_layers": ("[i32]", [])}},
        "DRAFT: key eagle3.target_layers is [], expected different layers, counted from 0",
    ),
    "taps missing": (
        {"metadata": {"eagle3.target_layers": None}},
        "DRAFT: key 'eagle3.target_layers' is missing, expected [int]",
    ),
    "layers": ({"metadata": {"eagle3.block_count": ("u32", 2)}}, "DRAFT: key eagle3.block_count is 2, expected 1"),
    "borrowed embedding of another width": (
        {"width": 32, "reduced": 64, "head_size": 8},
        "DRAFT: token_embd.weight is missing, and that of TARGET has width 64, not 32",
    ),
    "borrowed head of another width": (
        {"width": 32, "own_embeddings": True, "head_size": 8},
        "DRAFT: output.weight is missing, and that of TARGET has width 64, not 32",
    ),
    "reduced head without a mapping": (
        {"reduced": 100, "tensors": {"d2t": None}},
        "DRAFT: output.weight has 100 rows, but d2t is missing, the vocabulary has {n_vocab}",
    ),
    "mapping without a head": (
        {"reduced": 100, "tensors": {"output.weight": None}},
        "DRAFT: d2t names 100 of {n_vocab} tokens, but output.weight, their head, is missing",
    ),
    "mapping shorter than the head": (
        {"reduced": 100, "tensors": {"d2t": np.arange(90)}},
        "DRAFT: output.weight has 100 rows, but d2t names 90",
    ),
    "mapping below the vocabulary": (
        {"reduced": 100, "tensors": {"d2t": np.arange(100) - 1}},
        "DRAFT: d2t has ids -1 to 98, expected 0 to {last}",
    ),
    "mapping beyond the vocabulary": (
        {"reduced": 100, "tensors": {"d2t": np.arange(100) * 1000}},
        "DRAFT: d2t has ids 0 to 99000, expected 0 to {last}",
    ),
    "mapping with a double": (
        {"reduced": 100, "tensors": {"d2t": np.arange(100) // 2 * 2}},
        "DRAFT: d2t names a token twice",
    ),
    "norm that the flag denies": (
        {"norm_before_fc": True, "metadata": {"eagle3.norm_before_fc": ("bool", False)}},
        "DRAFT: tensors do not fit architecture eagle3: enc.output_norm.weight is not part of the architecture",
    ),
    "norm that the flag promises": (
        {"metadata": {"eagle3.norm_before_fc": ("bool", True)}},
        "DRAFT: tensors do not fit architecture eagle3: enc.output_norm.weight is missing",
    ),
    "head without axes": (
        {"reduced": 100, "tensors": {"output.weight": np.zeros((), np.float32)}},
        "DRAFT: output.weight has 1 rows, but d2t names 100",
    ),
    "fusion for two states": (
        {"tensors": {"fc.weight": np.zeros((64, 128), np.float32)}},
        "DRAFT: tensors do not fit architecture eagle3: fc.weight has shape [64, 128], expected [64, 192]",
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_files_that_do_not_fit_are_refused_before_weights_are_read(tmp_path: Path, case: str) -> None:
    """docs/faults.md C8, C10, C11, C13, C16, D14."""
    fields, expected = WRONG_FILES[case]
    target = tiny_gguf(tmp_path / "target.gguf")
    with GGUFFile.open(target) as file:
        n_vocab = file.metadata.length("tokenizer.ggml.tokens")
    found = refusal(target, tiny_eagle3(tmp_path / "draft.gguf", **fields))
    assert found == expected.format(n_vocab=n_vocab, last=n_vocab - 1)


def test_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    found = refusal(tiny_gguf(tmp_path / "t.gguf"), tiny_eagle3(tmp_path / "d.gguf", vocab="spm"))
    assert found.startswith("DRAFT: vocabulary size ")
    assert " does not match TARGET (" in found


def test_a_whole_model_is_refused_and_named(tmp_path: Path) -> None:
    target, other = tiny_gguf(tmp_path / "target.gguf"), tiny_gguf(tmp_path / "other.gguf")
    assert refusal(target, other) == "DRAFT: architecture llama does not fit draft-eagle3, expected eagle3"


def test_a_drafter_is_refused_as_target(tmp_path: Path) -> None:
    draft = tiny_eagle3(tmp_path / "draft.gguf")
    with pytest.raises(SpecliError) as caught, open_engine(RunConfig(ModelLoadConfig(draft))):
        pass
    assert str(caught.value) == f"{draft}: architecture eagle3 is a drafter, not a target"


def test_the_type_is_read_off_the_file(tmp_path: Path) -> None:
    target, draft = tiny_gguf(tmp_path / "target.gguf"), tiny_eagle3(tmp_path / "draft.gguf")
    with GGUFFile.open(draft) as file:
        assert detect_type(file) == NAME
    model = ModelLoadConfig(target, device="cpu", kernels="reference")
    with open_engine(RunConfig(model, replace(model, path=draft))) as engine:
        assert engine.drafter_names == (NAME,)
        assert any("draft-eagle3 (read off the draft file" in line for line in engine.start_lines())


def test_own_ends_win_over_the_target_s(tmp_path: Path) -> None:
    """docs/faults.md C14: presence in the file decides."""
    target = tiny_gguf(tmp_path / "target.gguf")
    drafts = {}
    for own in (False, True):
        draft = tiny_eagle3(tmp_path / f"draft-{own}.gguf", own_head=own)
        with open_pair(target, draft, NAME, DraftConfig(n_max=6)) as pair:
            pair.prompt(TOKENS[:30])
            drafts[own] = pair.draft(5).tokens
    assert drafts[False] != drafts[True]
