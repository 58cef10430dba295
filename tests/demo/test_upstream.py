"""The shipped files in llama.cpp's server (SPECLI_LLAMA_CPP, a folder of its programs): same text, drafts, acceptance.

The files are quantised, and either program rounds activations in its own way, so a token may differ where two are all
but equally likely; with the same weights and caches as float32 hardly any does. `llama-speculative-simple` is no
measure of acceptance here: it drafts the first token of an answer too, so it counts 3 to 4 % more accepted tokens.
"""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from specli.demo import DATA, MODELS, DemoModel, resolve
from specli.demo.train.measure import generate
from tests.support.upstream_server import UpstreamAnswer, upstream_answers

pytestmark = pytest.mark.slow
N_TOKENS = 64
LINES = (DATA / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[::3]
DRAFTING = [model for model in MODELS if model.spec_type]
FLOAT_CACHES = ("-ctk", "f32", "-ctv", "f32", "-ctkd", "f32", "-ctvd", "f32")


@dataclass
class Comparison:
    """Answers of both programs side by side, each as far as its text is the same.

    Attributes:
        n_rounds: Rounds that drafted.
        n_same: Those with the same draft in the other program.
        draft_gaps: Where drafts differ, how much likelier upstream's drafter holds its token than the next, in
            log-probability.
        text_gaps: The same of the target, where texts differ.
        accepted: Accepted tokens of the answers with the same text, here and there.
    """

    n_rounds: int = 0
    n_same: int = 0
    draft_gaps: list[float] = field(default_factory=list)
    text_gaps: list[float] = field(default_factory=list)
    accepted: tuple[int, int] = (0, 0)


@pytest.fixture(scope="module")
def float_copies(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("f32")
    for model in MODELS:
        command = [programs / "llama-quantize", "--allow-requantize", model.path, folder / model.file, "F32"]
        subprocess.run(command, capture_output=True, check=True)
    return folder


def settings(model: DemoModel, folder: Path) -> list[str]:
    files = ["-m", str(folder / resolve(model.name).name)]
    if not model.is_target:
        files += ["-md", str(folder / model.file)]
    return [*files, "--spec-type", str(model.spec_type), "--spec-draft-n-max", str(model.n_max)]


def ask(programs: Path, model: DemoModel, options: list[str], tmp_path: Path) -> list[UpstreamAnswer]:
    """Upstream's answers. Its MTP starts from the hidden state that the last request left: a server for each prompt."""
    prompts = [json.loads(line)["prompt"] for line in LINES]
    groups = [[prompt] for prompt in prompts] if model.spec_type == "draft-mtp" else [prompts]
    server, log = programs / "llama-server", tmp_path / "log"
    return [answer for group in groups for answer in upstream_answers(server, options, group, N_TOKENS, log)]


def compare(model: DemoModel, options: list[str], programs: Path, tmp_path: Path) -> Comparison:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(LINES), encoding="utf-8")
    ours = generate(prompts, N_TOKENS, *options, "--trace", "--logprobs", "2")
    found = Comparison()
    for one, other in zip(ours, ask(programs, model, options, tmp_path), strict=True):
        tokens, n_prompt = one["tokens"], one["prompt"]["n_tokens"]
        n_equal = first_difference(tokens, other.tokens)
        rounds = [round for round in one["rounds"] if round["draft"] and round["position"] - n_prompt < n_equal]
        n_same = 0
        for round in rounds:
            draft, theirs = round["draft"], other.drafts.get(round["position"])
            if theirs is None:  # a draft before it differs, so they accepted more or less
                continue
            assert len(draft) == len(theirs.tokens)
            at = first_difference(draft, theirs.tokens)
            if at < len(draft):
                found.draft_gaps.append(theirs.gaps[at])
            else:
                n_same += 1
        found.n_rounds += len(rounds)
        found.n_same += n_same
        if tokens != other.tokens:
            (_, best), (_, second) = one["logprobs"][n_equal]["top"]
            found.text_gaps.append(best - second)
            continue
        counts = one["timings"].get("draft_n", 0), one["timings"].get("draft_n_accepted", 0)
        assert n_same < len(rounds) or counts == (other.n_drafted, other.n_accepted)
        found.accepted = found.accepted[0] + counts[1], found.accepted[1] + other.n_accepted
    return found


def first_difference(one: list[int], other: list[int]) -> int:
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


@pytest.mark.parametrize("model", DRAFTING, ids=[model.file for model in DRAFTING])
def test_shipped_files_draft_the_same_but_for_near_ties(programs: Path, tmp_path: Path, model: DemoModel) -> None:
    found = compare(model, settings(model, DATA), programs, tmp_path)
    assert found.n_same >= 0.8 * found.n_rounds
    assert median([0.0, *found.draft_gaps]) <= 0.1  # rounding errors feed on themselves within a draft: a few are large
    assert max([0.0, *found.text_gaps]) <= 0.2
    assert found.accepted[1] == pytest.approx(found.accepted[0], rel=0.01)


@pytest.mark.parametrize("model", DRAFTING, ids=[model.file for model in DRAFTING])
def test_float_copies_draft_the_same(programs: Path, float_copies: Path, tmp_path: Path, model: DemoModel) -> None:
    found = compare(model, [*settings(model, float_copies), *FLOAT_CACHES], programs, tmp_path)
    assert found.n_same >= 0.99 * found.n_rounds
    assert max([0.0, *found.draft_gaps]) <= 0.02  # the log tells three decimals of a probability
    assert max([0.0, *found.text_gaps]) <= 0.001
    assert found.accepted[1] == pytest.approx(found.accepted[0], rel=0.002)
