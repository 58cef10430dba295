"""The lossless promise on families with experts, windows, sinks and recurrent layers; requests after one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from specli.models import ARCHITECTURES
from tests.support.published import PUBLISHED_ARCHITECTURES
from tests.support.runs import executors, run, speculation
from tests.support.tiny_pairs import NETWORK_TYPES, TABLE_TYPES, tiny_pair, tiny_target

ELSEWHERE = {"llama", "qwen2", "qwen3", "gemma3"}  # test_lossless.py
OTHERS = sorted(PUBLISHED_ARCHITECTURES)  # whose layers are made of the same parts
FAMILIES = [*sorted(set(ARCHITECTURES) - ELSEWHERE - PUBLISHED_ARCHITECTURES), "gemma4-dense"]
RECURRENT = ["qwen35", "qwen35moe", "qwen3next"]
WITH_HEADS = [
    "glm4moe",
    "deepseek2",
    "hy_v3",
    "mimo2",
    "gemma4",
    "gemma4-dense",
    *RECURRENT,
]  # families that are published with heads or an assistant
NETWORKS = [
    (family, name)
    for family in FAMILIES
    for name in NETWORK_TYPES
    if name != "draft-simple" and (name != "draft-mtp" or family in WITH_HEADS)
]
LOOP = [5, 6, 7, 8, 9, 10, 11, 12] * 4
UNLIKE = [(7 * i * i + 3 * i) % 190 + 5 for i in range(40)]
LONG, SHORT = LOOP * 2 + [40, 41], [5, 6, 7, 8, 5, 6]
KERNELS = pytest.mark.parametrize("kernels", executors())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def model(folder: Path, family: str, *, seed: int = 0, quant: str = "f32", tied: bool = True) -> Path:
    path = folder / f"{family}-{quant}-{seed}-{tied}.gguf"
    if not path.exists():
        tiny_target(path, family, seed=seed, quant=quant, tied=tied)
    return path


@KERNELS
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_drafting_changes_no_token(folder: Path, kernels: str, family: str, length: int) -> None:
    target, draft = model(folder, family), model(folder, family, seed=1)
    types = [*TABLE_TYPES, "draft-simple"]
    plain = run(target, [LONG, SHORT, LONG], kernels=kernels, n_predict=24)
    drafted = run(
        target, [LONG, SHORT, LONG], draft=draft, spec=speculation(types, length), kernels=kernels, n_predict=24
    )
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert any(o.n_drafted for o in drafted)
    assert plain[0].tokens == plain[2].tokens


@KERNELS
@pytest.mark.parametrize(("family", "name"), NETWORKS)
def test_no_network_changes_a_token(folder: Path, kernels: str, family: str, name: str) -> None:
    """Every kind of draft network alone, so that each round is its own; more of everything on the fast kernels."""
    target, draft = tiny_pair(folder, name, family)
    prompts, n = ([UNLIKE, SHORT, UNLIKE[:9]], 24) if kernels == "cpu" else ([SHORT], 8)
    plain = run(target, prompts, kernels=kernels, n_predict=n)
    for length in (1, 3, 6) if kernels == "cpu" else (5,):
        drafted = run(target, prompts, draft=draft, spec=speculation([name], length), kernels=kernels, n_predict=n)
        assert [o.tokens for o in drafted] == [o.tokens for o in plain]
        assert all(o.n_drafted for o in drafted)


@pytest.mark.parametrize("name", ["draft-eagle3", "draft-dflash"])
@pytest.mark.parametrize("family", OTHERS)
def test_tapped_drafts_change_no_token_of_any_family(folder: Path, family: str, name: str) -> None:
    target, draft = tiny_pair(folder, name, family)
    plain = run(target, [UNLIKE, SHORT], kernels=executors()[-1], n_predict=16)
    spec = speculation([name, *TABLE_TYPES], 5)
    drafted = run(target, [UNLIKE, SHORT], draft=draft, spec=spec, kernels=executors()[-1], n_predict=16)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert all(o.n_drafted for o in drafted)


@KERNELS
@pytest.mark.parametrize("quant", ["f32", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_drafting_for_itself_is_accepted_entirely(folder: Path, kernels: str, family: str, quant: str) -> None:
    target = model(folder, family, quant=quant, tied=False)
    plain = run(target, [LONG], kernels=kernels, n_predict=30)[0]
    drafted = run(target, [LONG], draft=target, spec=speculation(["draft-simple"], 4), kernels=kernels, n_predict=30)[0]
    assert drafted.tokens == plain.tokens
    assert drafted.n_accepted == drafted.n_drafted > 15
    assert len(set(plain.tokens)) > 5


@KERNELS
@pytest.mark.parametrize("family", RECURRENT)
def test_recurrent_targets_reuse_what_they_can_go_back_to(folder: Path, kernels: str, family: str) -> None:
    """Half a prompt again: states so far back are gone, it is read from the start. A longer one goes on at the end."""
    target = model(folder, family)
    fresh = run(target, [LONG[:30]], kernels=kernels, n_predict=8)[0]
    first, cut = run(target, [LONG, LONG[:30]], kernels=kernels, n_predict=8)
    assert cut.tokens == fresh.tokens
    assert cut.record["timings"]["prompt_n"] == 30
    longer = [*LONG, *first.tokens, 7, 8]
    again = run(target, [LONG, longer], kernels=kernels, n_predict=8)[1]
    assert again.tokens == run(target, [longer], kernels=kernels, n_predict=8)[0].tokens
    assert again.record["timings"]["prompt_n"] <= 4
