"""Rotary tables: hand-worked angles for every scaling rule (docs/targets.md §2.3)."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.errors import FormatError
from specli.kernels.ops import RopeTable
from specli.kernels.reference import ReferenceExecutor
from specli.models.architecture import RopeConfig
from specli.models.rope import rope_table
from tests.support.running import all_logits, open_model
from tests.support.tiny_gguf import tiny_gguf

CPU = ReferenceExecutor()
PLAIN = RopeConfig(n_rot=4, base=10000.0, n_ctx_original=64)


def angles(table: RopeTable) -> torch.Tensor:
    """`[capacity, n_rot/2]`, in (-π, π]."""
    return torch.atan2(table.sin, table.cos)


def test_plain_angles_fall_with_the_pair() -> None:
    """Two pairs, base 10000: 1 and 10000^(-2/4) = 0.01 radians per position."""
    table = rope_table(PLAIN, 4, CPU)
    torch.testing.assert_close(angles(table), torch.tensor([[0.0, 0.0], [1.0, 0.01], [2.0, 0.02], [3.0, 0.03]]))
    assert (table.n_rot, table.interleaved) == (4, False)


def test_distant_positions_are_as_exact_as_near_ones() -> None:
    """Half a unit in the last place of float32, against each angle by itself in float64."""
    table = rope_table(replace(PLAIN, n_rot=32), 100_003, CPU)
    frequency = 10000.0 ** (-np.arange(16) / 16)
    for position in (0, 63, 64, 4095, 65_537, 100_002):
        np.testing.assert_allclose(table.cos[position].numpy(), np.cos(position * frequency), rtol=0, atol=6.1e-8)
        np.testing.assert_allclose(table.sin[position].numpy(), np.sin(position * frequency), rtol=0, atol=6.1e-8)


def test_linear_scaling_divides_positions() -> None:
    table = rope_table(replace(PLAIN, factor=4.0), 9, CPU)
    torch.testing.assert_close(angles(table)[8], torch.tensor([2.0, 0.02]))


def test_factors_divide_the_angles_before_scaling() -> None:
    table = rope_table(replace(PLAIN, factor=2.0), 5, CPU, factors=torch.tensor([1.0, 8.0]))
    torch.testing.assert_close(angles(table)[4], torch.tensor([2.0, 0.0025]))


def test_attention_factor_scales_cos_and_sin() -> None:
    table = rope_table(replace(PLAIN, attention_factor=1.5), 3, CPU)
    torch.testing.assert_close(table.cos**2 + table.sin**2, torch.full((3, 2), 2.25))


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    """n_rot 16, base 10000, original context 4096, factor 4.

    c(32) = 16·ln(4096/(2π·32))/(2·ln 10000) = 2.618 → low 2; c(1) = 5.628 → high 6. Pairs 0-2 keep their angle, 6 and 7
    get a quarter, pair 3 is (3 - 2)/(6 - 2) of the way: 1 - 0.25·0.75 = 0.8125. Magnitude 1 + 0.1·ln 4 = 1.13863.
    """
    config = RopeConfig(n_rot=16, base=10000.0, scaling="yarn", factor=4.0, n_ctx_original=4096)
    table = rope_table(config, 2, CPU)
    plain = 10000.0 ** (-np.arange(8) / 8)
    share = np.array([1, 1, 1, 0.8125, 0.625, 0.4375, 0.25, 0.25])
    np.testing.assert_allclose(angles(table)[1].numpy(), plain * share, rtol=1e-5)
    magnitude = 1 + 0.1 * math.log(4)
    torch.testing.assert_close(table.cos**2 + table.sin**2, torch.full((2, 8), magnitude**2))


def test_longrope_takes_long_factors_beyond_the_original_context(tmp_path: Path) -> None:
    """capacity 512 against an original context of 100 or 512: the long, then the short factors."""
    factors = {"long": np.full(8, 4.0, np.float32), "short": np.full(8, 2.0, np.float32)}
    tensors = {f"rope_factors_{name}.weight": values for name, values in factors.items()}
    tokens = [1, 5, 9, 2]
    for n_ctx, which in ((100, "long"), (512, "short")):
        metadata = {
            "llama.rope.scaling.type": ("str", "longrope"),
            "llama.rope.scaling.original_context_length": ("u32", n_ctx),
        }
        found = open_model(tiny_gguf(tmp_path / f"{which}.gguf", "llama", metadata=metadata, tensors=tensors))
        same = open_model(tiny_gguf(tmp_path / "f.gguf", "llama", tensors={"rope_freqs.weight": factors[which]}))
        assert torch.equal(all_logits(found, tokens), all_logits(same, tokens))


def test_rope_factors_of_another_length_are_refused(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama", tensors={"rope_freqs.weight": np.ones(4, np.float32)})
    with pytest.raises(FormatError, match=r"rope_freqs\.weight has shape \[4\], expected \[8\]$"):
        open_model(path)
