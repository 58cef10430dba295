"""Two draft networks at once: which file serves which type."""

from pathlib import Path

import pytest

from specli.drafters.settings import SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import open_engine
from specli.errors import IncompatibleError, UsageError
from tests.support.runs import GREEDY
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf


def config(target: Path, draft: Path | None, *types: str) -> RunConfig:
    load, speculation = ModelLoadConfig(target, device="cpu", kernels="reference"), SpeculationConfig(types=types)
    own = ModelLoadConfig(draft, device="cpu", kernels="reference") if draft else None
    return RunConfig(load, own, speculation, n_ctx=128)


def generate(run: RunConfig) -> tuple[list[int], list[str], dict[str, int]]:
    """Tokens, start lines about drafting, and draft tokens per drafter."""
    with open_engine(run) as engine:
        events = engine.generate(engine.encode("the cat the cat"), RequestConfig(n_predict=24, sampling=GREEDY))
        for _ in events:
            pass
        lines = [line for line in engine.start_lines() if line.startswith("drafting: ")]
        return events.tokens, lines, {stats.name: stats.n_draft for stats in engine.result().statistics.drafters}


@pytest.mark.parametrize("make", [tiny_eagle3, tiny_dflash])
def test_heads_in_the_target_serve_mtp_beside_a_draft_file(tmp_path: Path, make: object) -> None:
    target = tiny_mtp(tmp_path / "t.gguf", "qwen3")
    draft = make(tmp_path / "d.gguf")  # type: ignore[operator]
    spec_type = "draft-eagle3" if make is tiny_eagle3 else "draft-dflash"
    plain, _, _ = generate(config(target, None, "none"))
    tokens, lines, asked = generate(config(target, draft, "draft-mtp", spec_type))
    assert tokens == plain
    for name, file in ((spec_type, draft), ("draft-mtp", target)):
        assert any(line.startswith(f"drafting: {name} (--spec-type, {file})") for line in lines)
    assert set(asked) == {"draft-mtp", spec_type}


def test_two_types_cannot_share_a_file(tmp_path: Path) -> None:
    target, draft = tiny_gguf(tmp_path / "t.gguf", "llama"), tiny_dflash(tmp_path / "d.gguf")
    for other in ("draft-eagle3", "draft-mtp"):
        with (
            pytest.raises(UsageError) as caught,
            open_engine(config(target, draft, "draft-dflash", other)),
        ):
            pass
        assert str(caught.value) == f"{other} needs a draft model of its own: {draft} serves draft-dflash"
        assert caught.value.hint == "there can be one draft file; leave out one of the types"


def test_draft_file_without_heads_is_no_reason_to_use_the_targets(tmp_path: Path) -> None:
    target, draft = tiny_mtp(tmp_path / "t.gguf", "qwen3"), tiny_dflash(tmp_path / "d.gguf")
    with (
        pytest.raises(IncompatibleError, match="there are no MTP heads in this file"),
        open_engine(config(target, draft, "draft-mtp")),
    ):
        pass
