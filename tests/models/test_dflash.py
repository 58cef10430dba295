"""DFlash networks against a float64 forward of the written-down maths, at several depths and by any path to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from specli.drafters.dflash import DFlash
from specli.drafters.settings import DraftConfig
from specli.gguf.file import GGUFFile
from tests.support.dflash_oracle import DFlashOracle, OracleSlot
from tests.support.drafting import Pair, open_pair
from tests.support.oracle import run_oracle
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_gguf import tiny_gguf

TOLERANCE = 1e-4  # float32 against float64 on logits of size 10
N_DRAFT = 5
SEVERAL = DraftConfig(n_max=N_DRAFT, probabilistic=True)  # several candidates, and confidence
# name: type, what the file has, target architecture
CASES: dict[str, tuple[str, dict[str, object], str]] = {
    "plain": ("draft-dflash", {}, "llama"),
    "causal": ("draft-dflash", {"metadata": {"dflash.attention.causal": ("bool", True)}}, "llama"),
    "windows": ("draft-dflash", {"windows": (True, False), "n_layer": 2, "window": 7}, "qwen3"),
    "sliding layers causal": (
        "draft-dflash",
        {"windows": (True, False), "metadata": {"dflash.attention.causal_pattern": ("[bool]", [True, False])}},
        "qwen3",
    ),
    "own-ends": ("draft-dflash", {"own_embeddings": True, "own_head": True}, "llama"),
    "own-tied": ("draft-dflash", {"own_embeddings": True}, "llama"),
    "reduced": ("draft-dflash", {"reduced": 90}, "qwen2"),
    "gemma-like": ("draft-dflash", {"gemma": True, "values": False, "sinks": True, "factors": True}, "gemma3"),
    "mrope": (
        "draft-dflash",
        {"metadata": {"dflash.rope.dimension_sections": ("[i32]", [16, 0, 0, 0])}},
        "llama",
    ),
    "one-tap": ("draft-dflash", {"taps": (0,), "n_layer": 1}, "llama"),
    "dflash2": ("draft-dflash", {"selector": 7}, "llama"),
    "dflash2-scaled": (
        "draft-dflash",
        {
            "selector": 4,
            "reduced": 120,
            "metadata": {"dflash.logit_scale": ("f32", 0.5), "dflash.final_logit_softcapping": ("f32", 4.0)},
        },
        "qwen3",
    ),
    "unscaled-without-selector": (
        "draft-dflash",
        {"metadata": {"dflash.logit_scale": ("f32", 0.5), "dflash.final_logit_softcapping": ("f32", 4.0)}},
        "llama",
    ),
    "dspark": ("draft-dspark", {"markov": 16, "confidence": True}, "llama"),
    "dspark-reserved": ("draft-dspark", {"markov": 16, "confidence": True, "from_anchor": False}, "llama"),
    "dspark-reduced": ("draft-dspark", {"markov": 16, "reduced": 80, "from_anchor": True}, "qwen3"),
}  # fmt: skip


def expected(pair_files: tuple[Path, Path], history: list[int], last: int, n_draft: int = N_DRAFT) -> list[OracleSlot]:
    with GGUFFile.open(pair_files[0]) as target, GGUFFile.open(pair_files[1]) as draft:
        return DFlashOracle(draft, target).block(run_oracle(target, history).hidden, last, n_draft)


def compare(pair: Pair, files: tuple[Path, Path], last: int, n_draft: int = N_DRAFT) -> None:
    """The next draft, candidate by candidate."""
    tokens = pair.draft(last).tokens
    slots = expected(files, pair.history, last, n_draft)
    assert tokens == [slot.token for slot in slots]
    drafter = pair.drafter
    assert isinstance(drafter, DFlash)
    assert drafter.network is not None
    for proposal, slot in zip(drafter.network.block_positions.read(), slots, strict=True):
        found = dict(zip(proposal.ids.tolist(), proposal.values.tolist(), strict=True))
        assert found.keys() == slot.scores.keys()
        for token, value in slot.scores.items():
            assert found[token] == pytest.approx(value, abs=TOLERANCE)
        if not np.isnan(slot.confidence):
            assert proposal.confidence == pytest.approx(slot.confidence, abs=1e-5)


def files_of(folder: Path, case: str) -> tuple[Path, Path, str]:
    spec_type, options, architecture = CASES[case]
    target = tiny_gguf(folder / "target.gguf", architecture, n_layer=3)
    return target, tiny_dflash(folder / "draft.gguf", **options), spec_type  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_equals_the_written_maths(case: str, tmp_path: Path) -> None:
    """After prompts of several lengths in chunks of several sizes, and after drafts that stand in part."""
    target, draft, spec_type = files_of(tmp_path, case)
    rng = random.Random(case)
    with open_pair(target, draft, spec_type, SEVERAL) as pair:
        n_vocab = pair.target.config.n_vocab
        for length, chunk in ((1, 1), (6, 4), (40, 13)):
            pair.prompt([rng.randrange(n_vocab) for _ in range(length)], chunk=chunk)
            compare(pair, (target, draft), rng.randrange(n_vocab))
        for n_accepted in (0, 3, 5):
            last = rng.randrange(n_vocab)
            pair.verify(last, pair.draft(last).tokens, n_accepted)
            compare(pair, (target, draft), rng.randrange(n_vocab))


@pytest.mark.parametrize("case", ["plain", "dflash2", "dspark", "gemma-like"])
def test_any_path_to_a_position_gives_the_same_bits(case: str, tmp_path: Path) -> None:
    target, draft, spec_type = files_of(tmp_path, case)
    prompt = [(7 * i) % 90 + 5 for i in range(50)]

    def bits(path: Callable[[Pair], None]) -> list[tuple[bytes, bytes]]:
        with open_pair(target, draft, spec_type, SEVERAL, kernels="cpu", cache="f16") as pair:
            path(pair)
            pair.draft(9)
            assert pair.history == prompt
            return [(p.values.tobytes(), p.ids.tobytes()) for p in pair.drafter.network.block_positions.read()]  # type: ignore[attr-defined]

    def in_rounds(pair: Pair) -> None:
        pair.prompt(prompt[:20], chunk=3)
        while len(pair.history) < len(prompt):
            pair.draft(pair.history[-1])
            here = len(pair.history)
            right = prompt[here : here + 3]
            pair.verify(right[0], [*right[1:], 77], len(right) - 1)

    whole = bits(lambda pair: pair.prompt(prompt, chunk=50))
    assert bits(lambda pair: pair.prompt(prompt, chunk=1)) == whole
    assert bits(in_rounds) == whole


@pytest.mark.parametrize("depth", [16, 256, 700])
@pytest.mark.parametrize("case", ["dspark", "windows"])
def test_depth_changes_nothing(case: str, depth: int, tmp_path: Path) -> None:
    """docs/faults.md D10 (a block one position too early), D11 and C5 (a window with other positions): near and far."""
    target, draft, spec_type = files_of(tmp_path, case)
    rng = random.Random(depth)
    with open_pair(target, draft, spec_type, SEVERAL, capacity=1024, max_tokens=128) as pair:
        pair.prompt([rng.randrange(pair.target.config.n_vocab) for _ in range(depth)], chunk=128)
        compare(pair, (target, draft), 8)


MISTAKES = {
    "taps one lower": {"taps": (0, 1)},
    "taps in another order": {"taps": (2, 1)},
    "mask id": {"metadata": {"tokenizer.ggml.mask_token_id": ("u32", 9)}},
    "rope base": {"metadata": {"dflash.rope.freq_base": ("f32", 10000.0)}},
    "causal block": {"metadata": {"dflash.attention.causal": ("bool", True)}},
    "slot 0 reserved": {"from_anchor": False},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_would_be_seen(mistake: str, tmp_path: Path) -> None:
    """Mistakes that acceptance may hide; logits do not."""
    target = tiny_gguf(tmp_path / "target.gguf", n_layer=3)
    right = tiny_dflash(tmp_path / "right.gguf", markov=16)
    wrong = tiny_dflash(tmp_path / "wrong.gguf", markov=16, **MISTAKES[mistake])  # type: ignore[arg-type]
    history = [(5 * i) % 80 + 5 for i in range(30)]
    good, bad = (expected((target, path), history, 7) for path in (right, wrong))
    difference = max(np.abs(a.logits - b.logits).max() for a, b in zip(good, bad, strict=True))
    assert difference > 100 * TOLERANCE
