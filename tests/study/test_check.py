"""Whether pairs fit: facts, verdicts and coverage of a text, without weights."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from specli.drafters.settings import SpeculationConfig
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.engine.load import open_engine
from specli.engine.stats import dump_record
from specli.errors import FormatError, IncompatibleError, SpecliError
from specli.study.check import Fit, check_fit
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_vocab import bpe_vocab


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
    [cells] = [fact.target for fact in found.facts if fact.what == "cache per token"]
    assert cells == f"{2 * 2 * (16 + 16) * 2} bytes in f16"  # two layers, two heads
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


def renamed(n: int, *, start: int = 10) -> dict[str, tuple[str, object]]:
    """Metadata of the tiny vocabulary with `n` tokens renamed."""
    kind, texts = bpe_vocab().metadata["tokenizer.ggml.tokens"]
    assert isinstance(texts, list)
    changed = [f"<other {i}>" if start <= i < start + n else text for i, text in enumerate(texts)]
    return {"tokenizer.ggml.tokens": (kind, changed)}


NETWORKS = {
    "draft-eagle3": tiny_eagle3,
    "draft-dflash": tiny_dflash,
    "draft-dspark": partial(tiny_dflash, markov=8),
}


@pytest.mark.parametrize("spec_type", NETWORKS)
@pytest.mark.parametrize(
    ("n", "verdict"), [(0, (True, False)), (3, (None, True)), (300, (False, False))], ids=["none", "few", "most"]
)
def test_token_texts_have_a_verdict(
    target: Path, tmp_path: Path, spec_type: str, n: int, verdict: tuple[bool | None, bool]
) -> None:
    draft = NETWORKS[spec_type](tmp_path / "d.gguf", metadata=renamed(n))
    found = fit(target, draft)
    [tokens] = [fact for fact in found.facts if fact.what == "tokens"]
    assert found.types == (spec_type,)
    assert (tokens.is_match, tokens.is_doubtful) == verdict
    difference = f"token 10 is '<other 10>', in {target} "
    assert (found.error is not None) == (verdict[0] is False)
    assert (difference in (found.error or "")) == (verdict[0] is False)
    assert any(difference in doubt for doubt in found.doubts) == verdict[1]
    assert (False in facts(found).values()) == (found.error is not None)


def test_trained_context_of_the_drafter_has_a_verdict(target: Path, tmp_path: Path) -> None:
    """The tiny target was trained with 512 tokens."""
    for length, is_doubtful in ((512, False), (2048, False), (511, True)):
        draft = tiny_eagle3(tmp_path / "e.gguf", metadata={"eagle3.context_length": ("u32", length)})
        found = fit(target, draft)
        [context] = [fact for fact in found.facts if fact.what == "context"]
        assert (context.target, context.draft, context.is_doubtful) == ("512", str(length), is_doubtful)
        message = f"{draft}: trained with a context of 511 tokens, here it has 512; drafts may miss beyond"
        assert found.doubts == ((message,) if is_doubtful else ())
        assert found.error is None


def test_run_says_what_speaks_against_its_drafter(
    target: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draft = tiny_eagle3(tmp_path / "e.gguf", metadata={**renamed(2), "eagle3.context_length": ("u32", 64)})
    config = RunConfig(
        ModelLoadConfig(target, device="cpu", kernels="reference"),
        ModelLoadConfig(draft, device="cpu", kernels="reference"),
        SpeculationConfig(types=("draft-eagle3",)),
        n_ctx=128,
    )
    with open_engine(config):
        pass
    assert [message.partition(": ")[2].partition(",")[0] for message in caplog.messages] == [
        "token 10 is '<other 10>'",
        "trained with a context of 64 tokens",
    ]
    other = replace(config, draft=ModelLoadConfig(tiny_eagle3(tmp_path / "o.gguf", metadata=renamed(300))))
    with pytest.raises(IncompatibleError, match="tokens differ"), open_engine(other):
        pass
