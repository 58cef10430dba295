"""Whether pairs fit: facts, verdicts and coverage of a text, without weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specli.drafters.config import SpeculationConfig
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.engine.stats import dump_record
from specli.errors import FormatError, SpecliError
from specli.study.check import Fit, check_fit
from tests.support.tiny_drafters import tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("fit") / "t.gguf", "llama")


def fit(target: Path, draft: Path, *types: str, text: str | None = None) -> Fit:
    config = RunConfig(ModelLoadConfig(target), ModelLoadConfig(draft), SpeculationConfig(types=types))
    return check_fit(config, text)


def facts(found: Fit) -> dict[str, bool | None]:
    return {fact.what: fact.is_match for fact in found.facts}


def test_pair_that_fits(target: Path, tmp_path: Path) -> None:
    found = fit(target, tiny_eagle3(tmp_path / "e.gguf"))
    assert (found.error, found.types) == (None, ("draft-eagle3",))
    assert False not in facts(found).values()
    assert facts(found)["hidden states"] is True
    assert json.loads(dump_record(found.to_dict()))["fits"] is True


@pytest.mark.parametrize(
    ("settings", "fact", "message"),
    [
        ({"target_width": 128}, "hidden width read", "target hidden width 128 does not match"),
        ({"taps": (0, 1, 9)}, "hidden states", "hidden state 9 does not exist in"),
        ({"vocab": "spm"}, "vocabulary", "vocabulary size"),
    ],
)
def test_pair_that_does_not(target: Path, tmp_path: Path, settings: dict[str, object], fact: str, message: str) -> None:
    found = fit(target, tiny_eagle3(tmp_path / "e.gguf", **settings))  # type: ignore[arg-type]
    assert found.error is not None
    assert message in found.error
    assert facts(found)[fact] is False


def test_type_that_the_file_is_not(target: Path, tmp_path: Path) -> None:
    found = fit(target, tiny_eagle3(tmp_path / "e.gguf"), "draft-dflash")
    assert found.error is not None
    assert found.hint == "this is a drafter of type draft-eagle3"
    found = fit(target, tiny_mtp(tmp_path / "m.gguf", "glm4moe", heads_only=True), "draft-mtp")
    assert found.error is not None
    assert found.hint == "it belongs to another target"


def test_whole_models_are_checked_tensor_by_tensor(target: Path, tmp_path: Path) -> None:
    broken = tiny_gguf(tmp_path / "broken.gguf", tensors={"blk.1.attn_q.weight": None})
    missing = f"{broken}: tensors do not fit architecture llama: blk.1.attn_q.weight is missing"
    assert fit(target, broken).error == missing
    with pytest.raises(FormatError) as caught:
        fit(broken, target)
    assert str(caught.value) == missing


def test_plain_model_is_compared_token_by_token(target: Path) -> None:
    found = fit(target, target)
    assert (found.error, found.types) == (None, ("draft-simple",))
    assert facts(found)["tokens"] is True


def test_coverage_of_a_text(target: Path, tmp_path: Path) -> None:
    """Half of the vocabulary is missing: what is counted as missing and as covered is the whole text."""
    draft = tiny_eagle3(tmp_path / "e.gguf", reduced=60)
    found = fit(target, draft, text="the cat sat on the mat, the cat! é")
    assert found.coverage is not None
    assert 0 < found.coverage.n_covered < found.coverage.n_tokens
    assert sum(count for _, count in found.coverage.missing) <= found.coverage.n_tokens - found.coverage.n_covered
    whole = fit(target, tiny_eagle3(tmp_path / "w.gguf"), text="the")
    assert whole.coverage is None
    assert "the drafter has the whole vocabulary, so it covers any text" in whole.notes


def test_broken_files_are_errors(target: Path, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"nonsense")
    with pytest.raises(SpecliError, match=r"x\.gguf"):
        fit(target, tmp_path / "x.gguf")
    with pytest.raises(SpecliError, match=r"x\.gguf"):
        fit(tmp_path / "x.gguf", target)
