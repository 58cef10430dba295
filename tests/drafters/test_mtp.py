"""draft-mtp against a float64 NumPy network, on every family that has heads; files of every kind."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tests.support.draft_oracle import AssistantOracle, MTPOracle
from tests.support.drafting import Pair, open_pair
from tests.support.runs import executors, run, skipping_unsupported, speculation
from tests.support.tiny_drafters import tiny_assistant, tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "draft-mtp"
TOKENS = [(7 * i * i + 3 * i) % 190 + 5 for i in range(90)]
KERNELS = pytest.mark.parametrize("kernels", executors())
FAMILIES = ("llama", "qwen3", "glm4moe", "deepseek2", "qwen35", "qwen35moe", "qwen3next", "hy_v3", "mimo2")


def assert_drafts_as(oracle: Any, pair: Pair, draft_length: int = 3) -> None:
    """At three depths, with prompts in pieces, after drafts of which nothing, a part, or all stands."""
    network = pair.drafter._network  # type: ignore[attr-defined]
    for depth, chunk in ((1, 64), (12, 5), (70, 32)):
        pair.prompt(TOKENS[:depth], chunk=chunk)
        last = TOKENS[depth]
        for n_accepted in (0, min(2, draft_length - 1), draft_length - 1):
            draft = pair.draft(last).tokens[:draft_length]
            expected = oracle.steps(pair.history, last, draft[: draft_length - 1])
            network.start([Anchor(0, last, len(pair.history))])
            for index, logits in enumerate(expected):
                if index:
                    network.advance(index, np.array(draft[index - 1 : index], np.int32))
                error = np.abs(network.logits.data[0].numpy() - logits).max()
                assert error < 1e-4 * max(1.0, np.abs(logits).max()), (depth, n_accepted, index)
                assert draft[index] == logits.argmax()
            pair.verify(last, draft, n_accepted)
            last = draft[n_accepted]


@contextmanager
def opened(target: Path, draft: Path | None, **options: Any) -> Iterator[tuple[Pair, GGUFFile, GGUFFile]]:
    config = DraftConfig(n_max=options.pop("n_max", 4), probabilistic=True)
    with (
        skipping_unsupported(),
        open_pair(target, draft, NAME, config, **options) as pair,
        GGUFFile.open(draft or target) as draft_file,
        GGUFFile.open(target) as target_file,
    ):
        yield pair, draft_file, target_file


@KERNELS
@pytest.mark.parametrize("family", FAMILIES)
def test_one_head_in_the_target_s_file(tmp_path: Path, kernels: str, family: str) -> None:
    with opened(tiny_mtp(tmp_path / "m.gguf", family), None, kernels=kernels) as (pair, file, target):
        assert_drafts_as(MTPOracle(file, target), pair)


@KERNELS
@pytest.mark.parametrize("fields", [{}, {"own_ends": True}, {"own_norm": False}, {"tied": True}], ids=str)
def test_a_file_with_nothing_but_heads(tmp_path: Path, kernels: str, fields: dict[str, bool]) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "glm4moe")
    draft = tiny_mtp(tmp_path / "draft.gguf", "glm4moe", heads_only=True, seed=5, **fields)
    with opened(target, draft, kernels=kernels) as (pair, file, target_file):
        assert_drafts_as(MTPOracle(file, target_file), pair)


@KERNELS
def test_several_heads_make_a_token_each(tmp_path: Path, kernels: str) -> None:
    target = tiny_mtp(tmp_path / "m.gguf", "qwen3", n_heads=3, own_ends=True)
    with opened(target, None, kernels=kernels, n_max=3) as (pair, file, target_file):
        assert_drafts_as(MTPOracle(file, target_file), pair)


def test_drafts_are_no_longer_than_the_row_of_heads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tiny_mtp(tmp_path / "m.gguf", "qwen3", n_heads=2), None, n_max=5) as (pair, file, _):
        assert pair.drafter.max_draft == 2
        assert DRAFTERS[NAME].draft_length(SpeculationConfig(draft=DraftConfig(n_max=5)), file) == 2
        pair.prompt(TOKENS[:9])
        assert len(pair.draft(5).tokens) == 2
    assert "requested draft size 5 exceeds the number of MTP heads -- clamping to 2" in caplog.text


@KERNELS
@pytest.mark.parametrize("n_layer", [2, 4], ids=["own caches", "shared caches"])
def test_an_assistant_reads_the_target_s_cache(tmp_path: Path, kernels: str, n_layer: int) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "gemma4", n_layer=n_layer)
    draft = tiny_assistant(tmp_path / "draft.gguf")
    with opened(target, draft, kernels=kernels) as (pair, file, target_file):
        assert_drafts_as(AssistantOracle(file, target_file), pair)


@KERNELS
@pytest.mark.parametrize("length", [1, 2, 5, 16])
@pytest.mark.parametrize("family", ["qwen3", "glm4moe", "deepseek2", "qwen35"])
def test_text_is_that_of_plain_decoding(tmp_path: Path, kernels: str, family: str, length: int) -> None:
    """Bit for bit, quantised too, several requests in one process."""
    target = tiny_mtp(tmp_path / "m.gguf", family, quant="q8_0", follows_target=True)
    prompts = [TOKENS[:50], TOKENS[30:36]]
    with skipping_unsupported():
        plain = run(target, prompts, kernels=kernels, n_predict=24)
    drafted = run(target, prompts, spec=speculation([NAME], length), kernels=kernels, n_predict=24)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert 0 < sum(o.n_accepted for o in drafted) < sum(o.n_drafted for o in drafted)


@KERNELS
def test_text_with_an_assistant_is_that_of_plain_decoding(tmp_path: Path, kernels: str) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "gemma4", n_layer=4)
    draft = tiny_assistant(tmp_path / "draft.gguf")
    prompts = [TOKENS[:50], TOKENS[30:36]]
    with skipping_unsupported():
        plain = run(target, prompts, kernels=kernels, n_predict=24)
    drafted = run(target, prompts, draft=draft, spec=speculation([NAME], 4), kernels=kernels, n_predict=24)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]


@pytest.mark.parametrize("family", ["qwen3", "qwen35"])
def test_second_request_drafts_as_a_fresh_process_does(tmp_path: Path, family: str) -> None:
    """Upstream carries the last state over to the next request; here the first token is paired with zeros again."""
    target = tiny_mtp(tmp_path / "m.gguf", family, follows_target=True)
    spec = speculation([NAME], 4)
    first = TOKENS[:40]
    answer = run(target, [first], spec=spec, n_predict=12)[0].tokens
    for prompt in (TOKENS[50:60], first + answer + [11, 12]):
        fresh = run(target, [prompt], spec=spec, n_predict=12)[0]
        second = run(target, [first, prompt], spec=spec, n_predict=12)[1]
        assert (second.tokens, second.n_drafted, second.n_accepted) == (fresh.tokens, fresh.n_drafted, fresh.n_accepted)


def test_the_target_s_own_file_as_draft_file_is_not_loaded_twice(tmp_path: Path) -> None:
    """docs/faults.md D16: embedding and head are borrowed."""
    target = tiny_mtp(tmp_path / "m.gguf", "qwen3")
    with opened(target, target) as (pair, _, _):
        assert pair.drafter._network._token_embd.value is pair.target.token_embd  # type: ignore[attr-defined]


# -- files that do not fit ---------------------------------------------------------------------------------------------


def refusal(target: Path, draft: Path | None) -> str:
    with GGUFFile.open(target) as target_file, GGUFFile.open(draft or target) as draft_file:
        vocabulary = Tokenizer.from_gguf(target_file)
        spec = DRAFTERS[NAME]
        assert isinstance(spec, NetworkSpec)
        with pytest.raises(SpecliError) as caught:
            spec.check(FilePair(SpeculationConfig(), target_file, vocabulary, draft_file if draft else target_file))
    return str(caught.value).replace(f"{draft}", "DRAFT").replace(f"{target}", "TARGET")


def test_a_target_without_heads_is_refused(tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "target.gguf")
    assert refusal(target, None) == "TARGET: there are no MTP heads in this file"
    model = ModelLoadConfig(target, device="cpu", kernels="reference")
    with (
        pytest.raises(SpecliError) as caught,
        open_engine(RunConfig(model, speculation=SpeculationConfig(types=(NAME,)))),
    ):
        pass
    assert caught.value.hint == "give a file that has them with -md"


def test_heads_alone_are_refused_as_target(tmp_path: Path) -> None:
    heads = tiny_mtp(tmp_path / "heads.gguf", "glm4moe", heads_only=True)
    with pytest.raises(SpecliError) as caught, open_engine(RunConfig(ModelLoadConfig(heads))):
        pass
    assert str(caught.value) == f"{heads}: has the MTP heads of a glm4moe model, not the model"
    assert caught.value.hint == "this is a drafter; use -md"


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "qwen3")
    assert refusal(target, tiny_eagle3(tmp_path / "e.gguf")) == "DRAFT: there are no MTP heads in this file"
    other = tiny_mtp(tmp_path / "glm.gguf", "glm4moe", heads_only=True)
    assert refusal(target, other) == "DRAFT: architecture glm4moe does not fit draft-mtp, expected qwen3"


def test_heads_with_missing_or_foreign_tensors_are_refused(tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "qwen3")
    draft = tiny_mtp(tmp_path / "d.gguf", "qwen3", heads_only=True, tensors={"blk.2.nextn.hnorm.weight": None})
    expected = "DRAFT: tensors do not fit architecture qwen3: blk.2.nextn.hnorm.weight is missing"
    assert refusal(target, draft) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"target_width": 32}, "DRAFT: target hidden width 32 does not match TARGET (64)"),
        ({"head_size": 32}, "DRAFT: head size of layer 2 32 does not match TARGET (16)"),
        ({"head_size_swa": 16}, "DRAFT: head size of layer 0 16 does not match TARGET (8)"),
        (
            {"metadata": {"gemma4-assistant.nextn_predict_layers": ("u32", 2)}},
            "DRAFT: key gemma4-assistant.nextn_predict_layers is 2, expected block_count (3)",
        ),
    ],
)
def test_assistants_of_other_targets_are_refused(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    target = tiny_gguf(tmp_path / "target.gguf", "gemma4", n_layer=4)
    assert refusal(target, tiny_assistant(tmp_path / "d.gguf", **fields)) == expected


def test_the_type_is_read_off_the_file(tmp_path: Path) -> None:
    files = {
        tiny_mtp(tmp_path / "a.gguf", "glm4moe", heads_only=True): NAME,
        tiny_assistant(tmp_path / "b.gguf"): NAME,
        tiny_gguf(tmp_path / "c.gguf", "glm4moe"): "draft-simple",
    }
    for path, expected in files.items():
        with GGUFFile.open(path) as file:
            assert detect_type(file) == expected


def test_start_line_names_the_source(tmp_path: Path) -> None:
    target = tiny_mtp(tmp_path / "m.gguf", "qwen3")
    model = ModelLoadConfig(target, device="cpu", kernels="reference")
    config = RunConfig(model, speculation=SpeculationConfig(types=(NAME,)))
    with open_engine(config) as engine:
        assert engine.drafter_names == (NAME,)
    heads = tiny_mtp(tmp_path / "heads.gguf", "qwen3", heads_only=True)
    with open_engine(replace(config, draft=replace(model, path=heads))) as engine:
        assert any(f"draft-mtp (--spec-type, {heads})" in line for line in engine.start_lines())
