"""Trained EAGLE-3 drafters against llama.cpp's recorded runs: the zoo exactly, SmolLM2 up to near ties."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.convert import ConvertConfig, convert
from specli.drafters.settings import DraftConfig
from specli.engine.config import RequestConfig
from tests.support.drafting import Pair, drafted_by, open_pair
from tests.support.runs import GREEDY, executors, run, speculation

NAME = "draft-eagle3"
NEAR_TIE = 0.35  # logits; the recorded runs multiply int8 and bfloat16 activations, and the logits' spread is about 2
KERNELS = executors()[-1]
MISTAKES: dict[str, dict[str, Any]] = {
    "right": {},
    "taps one lower": {"target_layers": (1, 14, 26)},
    "normed residual": {"norm_before_residual": True},
    "rotary base of the target": {"rope_theta": 100000.0},
}  # measured with llama.cpp when the drafters were trained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


# -- the zoo -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zoo(shared: Path, folder: Path) -> tuple[Path, Path]:
    """Target and drafter as float32 files."""
    hf = shared / "golden" / "zoo"
    target, draft = folder / "zoo-target.gguf", folder / "zoo-draft.gguf"
    convert(ConvertConfig(hf / "qwen3" / "hf", outfile=target, outtype="f32"))
    convert(ConvertConfig(hf / "eagle3_angelslim" / "hf", outfile=draft, outtype="f32", target=hf / "qwen3" / "hf"))
    return target, draft


@pytest.mark.parametrize("kernels", executors())
def test_zoo_drafts_are_the_recorded_ones(zoo: tuple[Path, Path], shared: Path, kernels: str) -> None:
    """Three best candidates of every step with their probabilities, how many stood, and the target's next token."""
    golden = json.loads((shared / "golden" / "zoo" / "eagle3_angelslim" / "golden.json").read_text(encoding="utf-8"))
    with open_pair(*zoo, NAME, DraftConfig(n_max=3, probabilistic=True), kernels=kernels) as pair:
        for recorded in golden["runs"]:
            ids = pair.tokenizer.encode(recorded["prompt"], add_special=True, parse_special=True)
            pair.prompt(ids[:-1])
            last = ids[-1]
            for found in recorded["rounds"]:
                values, best = drafted_by(pair, last)
                weights = np.exp(values - values[:, :1])
                probabilities = weights / weights.sum(axis=1, keepdims=True)
                for step, slot in enumerate(found["drafted"]):
                    expected, likely = zip(*slot["top3"], strict=True)
                    assert tuple(best[step, :3]) == expected
                    np.testing.assert_allclose(probabilities[step, :3], likely, rtol=0, atol=1e-3)
                draft = pair.draft(last).tokens[: found["n_draft"]]
                chosen = pair.verify(last, draft, found["accepted"]).argmax(dim=1).tolist()
                assert chosen[: found["accepted"]] == draft[: found["accepted"]]
                last = chosen[found["accepted"]]
                assert last == found["last"]


# -- SmolLM2 -----------------------------------------------------------------------------------------------------------


def smollm2_drafter(shared: Path, folder: Path, source: str = "angelslim", **changes: Any) -> Path:
    """The converted drafter; `changes` are deliberate mistakes."""
    path = folder / f"{source}-{'-'.join(changes)}.gguf"
    if not path.exists():
        directory = shared / "drafters"
        source_directory = directory / f"eagle3-{source}"
        convert(ConvertConfig(source_directory, outfile=path, target=directory / "target", **changes))
    return path


@contextmanager
def smollm2(target: Path, draft: Path, n_max: int) -> Iterator[Pair]:
    config = DraftConfig(n_max=n_max, probabilistic=True)  # so that `gap` sees ten candidates
    with open_pair(target, draft, NAME, config, kernels=KERNELS, cache="f16", capacity=1024) as pair:
        yield pair


@dataclass
class Tally:
    """Recorded rounds drafted again: how often the first i tokens of a draft stood, here and there."""

    n_rounds: int = 0
    n_drafted: int = 0
    n_equal: int = 0
    here: np.ndarray = field(default_factory=lambda: np.zeros(16, int))
    there: np.ndarray = field(default_factory=lambda: np.zeros(16, int))
    gaps: list[float] = field(default_factory=list)  # where a draft first differs: how far the recorded token is behind


def follow(pair: Pair, recorded: dict[str, Any], tally: Tally) -> None:
    """Drafts at every recorded round, then goes on with what was recorded."""
    tokens = recorded["prompt_ids"] + recorded["generated_ids"]
    pair.prompt(recorded["prompt_ids"][:-1])
    for position, last, draft, result in recorded["steps"]:
        assert position == len(pair.history)
        found = pair.draft(last).tokens[: len(draft)]
        tally.n_rounds += 1
        tally.n_drafted += len(found)
        tally.n_equal += found == draft
        if found != draft:
            tally.gaps.append(gap(pair, last, found, draft))
        following = tokens[position + 1 :]
        for counts, proposed in ((tally.here, found), (tally.there, draft)):
            n = next((i for i, (a, b) in enumerate(zip(proposed, following, strict=False)) if a != b), len(proposed))
            counts[:n] += 1
        pair.verify(last, draft, len(result) - 1)


def gap(pair: Pair, last: int, found: list[int], draft: list[int]) -> float:
    """Logits between the token drafted here and the recorded one; infinite if that is not among the ten best."""
    step = next(i for i, (a, b) in enumerate(zip(found, draft, strict=True)) if a != b)
    values, ids = drafted_by(pair, last)
    place = np.flatnonzero(ids[step] == draft[step])
    return float(values[step, 0] - values[step, place[0]]) if len(place) else np.inf


def recorded_runs(name: str) -> list[dict[str, Any]]:
    golden = json.loads((Path(__file__).parents[1] / "golden" / "drafters.json").read_text(encoding="utf-8"))
    return [entry for entry in golden["runs"] if entry["run"] == name]


@pytest.mark.real
@pytest.mark.parametrize("n_max", [3, 7])
def test_smollm2_drafts_are_llama_cpps_up_to_near_ties(
    smollm2_path: Path, shared: Path, folder: Path, n_max: int
) -> None:
    tally = Tally()
    with smollm2(smollm2_path, smollm2_drafter(shared, folder), n_max) as pair:
        for recorded in recorded_runs(f"eagle3 bf16 n{n_max}"):
            before = tally.n_drafted
            follow(pair, recorded, tally)
            assert tally.n_drafted - before == recorded["n_drafted"]
    assert max(tally.gaps) < NEAR_TIE
    assert tally.n_equal > 0.8 * tally.n_rounds
    np.testing.assert_allclose(tally.here / tally.n_rounds, tally.there / tally.n_rounds, rtol=0, atol=0.02)


@pytest.mark.real
def test_both_layouts_of_the_drafter_draft_alike(smollm2_path: Path, shared: Path, folder: Path) -> None:
    drafts = []
    for source in ("angelslim", "speculators"):
        with smollm2(smollm2_path, smollm2_drafter(shared, folder, source), 5) as pair:
            pair.prompt(recorded_runs("eagle3 bf16 n3")[0]["prompt_ids"])
            drafts.append(pair.draft(3725).tokens)
    assert drafts[0] == drafts[1]


@pytest.mark.real
@pytest.mark.parametrize("mistake", MISTAKES)
def test_deliberate_mistakes_show(smollm2_path: Path, shared: Path, folder: Path, mistake: str) -> None:
    """Acceptance finds only the gross one of them; the drafted tokens find all."""
    draft = smollm2_drafter(shared, folder, **MISTAKES[mistake])
    tally = Tally()
    with smollm2(smollm2_path, draft, 3) as pair:
        for recorded in recorded_runs("eagle3 bf16 n3")[:2]:
            follow(pair, recorded, tally)
    assert (max(tally.gaps) < NEAR_TIE) == (mistake == "right")


@pytest.mark.real
@pytest.mark.parametrize("n_max", [1, 3, 8, 16])
def test_smollm2_text_is_that_of_plain_decoding(smollm2_path: Path, shared: Path, folder: Path, n_max: int) -> None:
    prompts = [entry["prompt_ids"] for entry in recorded_runs("eagle3 bf16 n3")]
    request = RequestConfig(n_predict=64, sampling=GREEDY)
    plain = run(smollm2_path, prompts, request=request, kernels=KERNELS, n_ctx=1024)
    drafted = run(
        smollm2_path, prompts, request=request, kernels=KERNELS, n_ctx=1024,
        draft=smollm2_drafter(shared, folder), spec=speculation([NAME], n_max),
    )  # fmt: skip
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert sum(o.n_accepted for o in drafted) > 30
