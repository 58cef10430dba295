"""draft-eagle and draft-medusa, which read the target's last normed state, against float64 NumPy networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.drafters import DRAFTERS, FilePair, NetworkSpec, detect_type
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.errors import SpecliError
from specli.gguf.file import GGUFFile
from specli.models.draft import Anchor
from specli.tokenizer import Tokenizer
from tests.drafters.test_eagle3 import TOKENS, assert_close, stepwise
from tests.support.draft_oracle import EagleOracle, MedusaOracle, head_of
from tests.support.drafting import drafted_by, open_pair
from tests.support.oracle import FAMILIES
from tests.support.runs import executors, run, skipping_unsupported, speculation
from tests.support.tiny_drafters import tiny_eagle, tiny_medusa
from tests.support.tiny_gguf import tiny_gguf

KERNELS = pytest.mark.parametrize("kernels", executors())
EAGLE: dict[str, dict[str, Any]] = {
    "all borrowed": {},
    "biases": {"biases": True},
    "own embeddings": {"own_embeddings": True},
    "rotary factors": {"factors": True},
}
MEDUSA: dict[str, dict[str, Any]] = {
    "one part": {},
    "three parts": {"n_residuals": 3},
    "no part": {"n_residuals": 0},
    "no biases": {"biases": False},
}
CASES = [
    *(("draft-eagle", tiny_eagle, EagleOracle, "llama", fields) for fields in EAGLE.values()),
    *(("draft-medusa", tiny_medusa, MedusaOracle, "llama", fields) for fields in MEDUSA.values()),
    *(("draft-eagle", tiny_eagle, EagleOracle, family, {}) for family in FAMILIES if family != "llama"),
    *(("draft-medusa", tiny_medusa, MedusaOracle, family, {}) for family in ("gemma3", "qwen35")),
]
IDS = [f"{case[0]}-{case[3]}-{'-'.join(case[4]) or 'plain'}" for case in CASES]


@KERNELS
@pytest.mark.parametrize(("name", "write", "oracle", "family", "fields"), CASES, ids=IDS)
def test_logits_equal_the_numpy_network(
    tmp_path: Path,
    kernels: str,
    name: str,
    write: Callable[..., Path],
    oracle: Any,
    family: str,
    fields: dict[str, Any],
) -> None:
    """At three depths, with prompts in pieces, after a draft of which nothing, a part, or all stands."""
    target = tiny_gguf(tmp_path / "target.gguf", family)
    draft = write(tmp_path / "draft.gguf", **fields)
    with (
        skipping_unsupported(),
        open_pair(target, draft, name, DraftConfig(n_max=4, probabilistic=True), kernels=kernels) as pair,
        GGUFFile.open(target) as target_file,
        GGUFFile.open(draft) as draft_file,
    ):
        expected = oracle(draft_file, target_file)
        for depth, chunk in ((1, 64), (12, 5), (40, 32)):
            pair.prompt(TOKENS[:depth], chunk=chunk)
            last = TOKENS[depth]
            for n_accepted in (0, 2, 3):
                drafted = pair.draft(last).tokens
                assert_close(stepwise(pair, last, drafted[:3]), expected.steps(pair.history, last, drafted[:3]))
                pair.verify(last, drafted[:3], n_accepted)
                last = drafted[n_accepted]


@KERNELS
@pytest.mark.parametrize(("name", "write"), [("draft-eagle", tiny_eagle), ("draft-medusa", tiny_medusa)])
def test_one_program_drafts_what_single_steps_do(
    tmp_path: Path, kernels: str, name: str, write: Callable[..., Path]
) -> None:
    target, draft = tiny_gguf(tmp_path / "target.gguf"), write(tmp_path / "draft.gguf")
    with open_pair(target, draft, name, DraftConfig(n_max=4, probabilistic=True), kernels=kernels) as pair:
        pair.prompt(TOKENS[:40])
        network = pair.drafter._network  # type: ignore[attr-defined]
        values, ids = drafted_by(pair, TOKENS[40])
        step = network.start([Anchor(0, TOKENS[40], 40)])
        for index in range(4):
            np.testing.assert_array_equal(step[0][0], values[index])
            np.testing.assert_array_equal(step[1][0], ids[index])
            if index < 3:
                step = network.advance(index + 1, ids[index, :1])


def write_following(folder: Path, name: str, family: str) -> tuple[Path, Path]:
    """A quantised target that repeats itself, and a drafter of which some drafts are accepted."""
    target = tiny_gguf(folder / "target.gguf", family, quant="q8_0", tied=True)
    if name == "draft-eagle":
        return target, tiny_eagle(folder / "draft.gguf", quant="q8_0", follows_target=True)
    with GGUFFile.open(target) as file:
        head = head_of(file).astype(np.float32)
    return target, tiny_medusa(folder / "draft.gguf", quant="q8_0", head=head)


@KERNELS
@pytest.mark.parametrize("name", ["draft-eagle", "draft-medusa"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_text_is_that_of_plain_decoding(tmp_path: Path, kernels: str, family: str, name: str) -> None:
    """Bit for bit, quantised too, several requests in one process, drafts accepted in part."""
    target, draft = write_following(tmp_path, name, family)
    prompts = [TOKENS[:70], TOKENS[30:36], TOKENS[:75]]
    plain = run(target, prompts, kernels=kernels)
    drafted = run(target, prompts, draft=draft, spec=speculation([name], 3), kernels=kernels)
    assert [o.tokens for o in drafted] == [o.tokens for o in plain]
    assert sum(o.n_accepted for o in drafted) > 0


@pytest.mark.parametrize("n_batch", [1, 7, 32])
@pytest.mark.parametrize("name", ["draft-eagle", "draft-medusa"])
def test_prompts_longer_than_a_batch(tmp_path: Path, name: str, n_batch: int) -> None:
    target, draft = write_following(tmp_path, name, "llama")
    prompt = (TOKENS * 3)[:200]
    whole = run(target, [prompt], draft=draft, spec=speculation([name], 4), n_batch=512)[0]
    pieces = run(target, [prompt], draft=draft, spec=speculation([name], 4), n_batch=n_batch)[0]
    assert (pieces.tokens, pieces.n_drafted, pieces.n_accepted) == (whole.tokens, whole.n_drafted, whole.n_accepted)


def test_medusa_drafts_are_as_long_as_there_are_heads(tmp_path: Path) -> None:
    with GGUFFile.open(tiny_medusa(tmp_path / "draft.gguf", n_heads=3)) as file:
        spec = DRAFTERS["draft-medusa"]
        assert detect_type(file) == "draft-medusa"
        assert spec.draft_length(SpeculationConfig(draft=DraftConfig(n_max=16)), file) == 3
        assert spec.draft_length(SpeculationConfig(draft=DraftConfig(n_max=2)), file) == 2


REFUSALS: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "eagle, another width": (
        "draft-eagle", lambda path: tiny_eagle(path, width=32), "draft.gguf: hidden width 32 does not match",
    ),
    "eagle, another depth": (
        "draft-eagle", lambda path: tiny_eagle(path, n_layers=3), "draft.gguf: hidden state 3 does not match",
    ),
    "eagle, two layers": (
        "draft-eagle",
        lambda path: tiny_eagle(path, metadata={"eagle.block_count": ("u32", 2)}),
        "draft.gguf: key eagle.block_count is 2, expected 1",
    ),
    "eagle, two states": (
        "draft-eagle",
        lambda path: tiny_eagle(path, metadata={"eagle.target_layers": ("[i32]", [1, 2])}),
        r"draft.gguf: key eagle.target_layers is \[1, 2\], expected one layer",
    ),
    "eagle, no fc": (
        "draft-eagle", lambda path: tiny_eagle(path, tensors={"fc.weight": None}), "draft.gguf: .*fc.weight",
    ),
    "medusa, another width": (
        "draft-medusa", lambda path: tiny_medusa(path, width=32), "draft.gguf: hidden width 32 does not match",
    ),
    "medusa, another depth": (
        "draft-medusa", lambda path: tiny_medusa(path, n_layers=1), "draft.gguf: hidden state 1 does not match",
    ),
    "medusa, no heads": (
        "draft-medusa",
        lambda path: tiny_medusa(path, metadata={"medusa.block_count": ("u32", 0)}),
        "draft.gguf: key medusa.block_count is 0, expected 1 to 64",
    ),
    "medusa, a head missing": (
        "draft-medusa",
        lambda path: tiny_medusa(path, tensors={"blk.2.output.weight": None}),
        "draft.gguf: .*blk.2.output.weight",
    ),
    "the other's file": (
        "draft-medusa", tiny_eagle, "draft.gguf: architecture eagle does not fit draft-medusa, expected medusa",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, case: str) -> None:
    name, write, message = REFUSALS[case]
    spec = DRAFTERS[name]
    assert isinstance(spec, NetworkSpec)
    with (
        GGUFFile.open(tiny_gguf(tmp_path / "target.gguf")) as target,
        GGUFFile.open(write(tmp_path / "draft.gguf")) as file,
        pytest.raises(SpecliError, match=message),
    ):
        spec.check(FilePair(SpeculationConfig(), target, Tokenizer.from_gguf(target), file))
