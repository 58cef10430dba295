"""The shipped drafters in the engine: lossless, and as good as the table says."""

import json
from functools import cache
from pathlib import Path

import pytest

from specli.demo import DATA, MODELS, DemoModel, resolve
from specli.demo.train.measure import Answers, generate, mean_lengths, tokens_per_second

N_TOKENS = 64
LINES = (DATA / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[::3]
DRAFTING = [model for model in MODELS if model.spec_type]


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "prompts.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@cache
def plain(prompts: Path, target: Path) -> Answers:
    return generate(prompts, N_TOKENS, "-m", str(target))


@pytest.mark.slow
@pytest.mark.parametrize("model", DRAFTING, ids=[model.file for model in DRAFTING])
def test_drafts_are_accepted_and_change_nothing(model: DemoModel, prompts: Path) -> None:
    assert model.spec_type is not None
    target = resolve(model.name)
    files = ("-m", str(target)) if model.is_target else ("-m", str(target), "-md", str(model.path))
    drafted = generate(
        prompts, N_TOKENS, *files, "--spec-type", model.spec_type, "--spec-draft-n-max", str(model.n_max)
    )
    assert [answer["tokens"] for answer in drafted] == [answer["tokens"] for answer in plain(prompts, target)]
    kinds = [json.loads(line)["id"] for line in LINES]
    assert mean_lengths(drafted, kinds)["all"] > 0.85 * model.acceptance  # fewer, shorter answers


def test_figures_of_a_run() -> None:
    """10 tokens, 6 of them drafted: the first with the prompt, so 9 tokens from 3 verifications."""
    drafted = {"predicted_n": 10, "predicted_ms": 20.0, "draft_n_accepted": 6}
    alone = {"predicted_n": 10, "predicted_ms": 20.0, "draft_n_accepted": 0}
    answers = [{"timings": drafted}, {"timings": alone}]
    assert mean_lengths(answers, ["a", "b"]) == {"all": 1.5, "a": 3, "b": 1}
    assert tokens_per_second(answers) == 500
