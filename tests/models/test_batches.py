"""Batch invariance: a token's row is bit for bit the same whatever else the call holds (docs/architecture.md §1)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantType
from specli.models import ARCHITECTURES
from specli.models.base import Model
from tests.support.running import all_logits, forward, open_model
from tests.support.tiny_gguf import tiny_gguf

ROW_COUNTS = (1, 2, 3, 5, 8, 17)
TOKENS = np.random.default_rng(3).integers(0, 200, 34).tolist()
CACHES = {
    "f32": (QuantType.F32, QuantType.F32),
    "f16": (QuantType.F16, QuantType.F16),
    "q8_0, q4_0": (QuantType.Q8_0, QuantType.Q4_0),
    "iq4_nl, bf16": (QuantType.IQ4_NL, QuantType.BF16),
}


def model_of(tmp_path: Path, architecture: str, cache: str = "f16", **options: object) -> Model:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, width=128, n_head=2, n_head_kv=1, quant="q4_0")
    type_k, type_v = CACHES[cache]
    return open_model(path, type_k=type_k, type_v=type_v, **options)


@pytest.mark.parametrize(
    ("architecture", "cache"),
    [(name, "f16") for name in ARCHITECTURES] + [(name, cache) for name in ("llama", "gemma3") for cache in CACHES],
)
def test_rows_do_not_depend_on_the_row_count(tmp_path: Path, architecture: str, cache: str) -> None:
    model = model_of(tmp_path, architecture, cache)
    one_by_one = all_logits(model, TOKENS, chunk=1)
    for count in ROW_COUNTS[1:]:
        assert torch.equal(all_logits(model, TOKENS, chunk=count), one_by_one)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_do_not_depend_on_other_slots_and_wanted_outputs(tmp_path: Path, architecture: str) -> None:
    """Slot 1 gets a sequence mixed, row by row, with another one in slot 0; only some rows get logits."""
    model = model_of(tmp_path, architecture, n_slots=2)
    alone = all_logits(model, TOKENS)
    model.cache.truncate(0, 0)
    n = len(TOKENS)
    others = np.random.default_rng(4).integers(0, 200, n)
    mixed = np.stack([others, TOKENS], axis=1).reshape(-1).astype(np.int32)
    positions = np.repeat(np.arange(n, dtype=np.int32), 2)
    slots = np.tile(np.array([0, 1], np.int32), n)
    wanted = np.arange(1, 2 * n, 4, dtype=np.int32)  # rows of slot 1, every second position
    output = model.forward(mixed, positions, slots, wanted)
    assert torch.equal(output.logits, alone[::2])
    assert [model.cache.length(0), model.cache.length(1)] == [n, n]


def test_features_do_not_depend_on_the_row_count(tmp_path: Path) -> None:
    model = model_of(tmp_path, "gemma3", taps=(0, 1, 2), nextn=True)
    together = {name: b.data[: len(TOKENS)].clone() for name, b in forward(model, TOKENS).features.items()}
    for start in range(0, len(TOKENS), 5):
        part = TOKENS[start : start + 5]
        for name, buffer in forward(model, part, start=start).features.items():
            assert torch.equal(buffer.data[: len(part)], together[name][start : start + len(part)])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_rejected_tail_leaves_no_trace(tmp_path: Path, architecture: str) -> None:
    """Other tokens at positions 20 … 33, then cut: the true continuation comes out as if they had never been there."""
    model = model_of(tmp_path, architecture)
    expected = all_logits(model, TOKENS)
    model.cache.truncate(0, 0)
    forward(model, TOKENS[:20])
    forward(model, TOKENS[:14], start=20)
    model.cache.truncate(0, 20)
    assert torch.equal(forward(model, TOKENS[20:], start=20).logits, expected[20:])
