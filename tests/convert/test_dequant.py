"""Quantised checkpoints against numbers worked out by hand (docs/checkpoints.md §8)."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.convert.checkpoint import Checkpoint
from specli.convert.dequant import dequantised
from specli.errors import SpecliError
from tests.support.hf_files import Stored, stored, write_checkpoint

ONE, TWO, HALF, MINUS_ONE = 0x38, 0x40, 0x30, 0xB8  # fp8 E4M3


def fp8(rows: list[list[int]]) -> Stored:
    return Stored("F8_E4M3", np.shape(rows), np.array(rows, np.uint8).tobytes())


def floats(rows: list[Any]) -> Stored:
    return stored(np.array(rows, np.float32), "F32")


def words(rows: list[list[int]]) -> Stored:
    return Stored("I32", np.shape(rows), b"".join(struct.pack("<I", word) for row in rows for word in row))


def compressed(kind: str, **weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": {"group_0": {"weights": weights}}}


def read(folder: Path, config: dict[str, Any], **parts: Stored) -> dict[str, list[Any]]:
    """Every tensor of a checkpoint whose tensors are named w.PART: read at once, and the same row by row."""
    write_checkpoint(folder, {"quantization_config": config}, {f"w.{part}": tensor for part, tensor in parts.items()})
    with Checkpoint.open(folder) as checkpoint:
        found = dequantised(checkpoint)
        values = {name: tensor.all() for name, tensor in found.items()}
        for name, tensor in found.items():
            rows = [tensor.read(row, row + 1) for row in range(tensor.shape[0])]
            assert np.array_equal(np.concatenate(rows), values[name])
    return {name: array.tolist() for name, array in values.items()}


def test_fp8_blocks(tmp_path: Path) -> None:
    """Blocks of 2 x 2; the last row has half a block."""
    config = {"quant_method": "fp8", "weight_block_size": [2, 2]}
    weight = fp8([[ONE, TWO, ONE, ONE], [ONE] * 4, [MINUS_ONE, ONE, HALF, ONE]])
    scale = floats([[2, 4], [8, 16]])
    assert read(tmp_path, config, weight=weight, weight_scale_inv=scale, input_scale=floats([1])) == {
        "w.weight": [[2, 4, 4, 4], [2, 2, 4, 4], [-8, 8, 8, 16]]
    }


@pytest.mark.parametrize(("scale", "expected"), [([[2], [4]], [[2, 4], [-4, 2]]), ([3], [[3, 6], [-3, 1.5]])])
def test_floats_with_a_scale_per_row_or_one(tmp_path: Path, scale: list[Any], expected: list[list[float]]) -> None:
    config = compressed("float-quantized", strategy="tensor" if len(scale) == 1 else "channel")
    weight = fp8([[ONE, TWO], [MINUS_ONE, HALF]])
    assert read(tmp_path, config, weight=weight, weight_scale=floats(scale)) == {"w.weight": expected}


@pytest.mark.parametrize("kind", ["int-quantized", "naive-quantized"])
def test_integers_with_a_scale_per_row(tmp_path: Path, kind: str) -> None:
    weight = Stored("I8", (2, 2), struct.pack("4b", 3, -2, 127, -128))
    config = compressed(kind, strategy="channel")
    assert read(tmp_path, config, weight=weight, weight_scale=floats([[0.5], [2]])) == {
        "w.weight": [[1.5, -1], [254, -256]]
    }


PACKED = {
    "weight_packed": words([[0x76543210, 0x98], [0xFFFFFFFF, 0xFF]]),  # codes 0…9, and ten times 15
    "weight_scale": floats([[1, 2, 4], [1, 1, 1]]),
    "weight_shape": stored(np.array([2, 10]), "I64"),
}
GROUPS = compressed("pack-quantized", strategy="group", num_bits=4, group_size=4)


def test_packed_integers(tmp_path: Path) -> None:
    """Groups of 4, the last of 2; codes minus 8: row 0 is -8 … -5, then -4 … -1 doubled, then 0 and 1 times 4."""
    assert read(tmp_path, GROUPS, **PACKED) == {"w.weight": [[-8, -7, -6, -5, -8, -6, -4, -2, 0, 4], [7] * 10]}


def test_packed_integers_with_zero_points(tmp_path: Path) -> None:
    """Zero points of rows 0 and 1 stand in the lowest two nibbles: 8 and 15, 5 and 0, 9 and 15."""
    points = words([[0xF8, 0x05, 0xF9]])
    assert read(tmp_path, GROUPS, **PACKED, weight_zero_point=points) == {
        "w.weight": [[-8, -7, -6, -5, -2, 0, 2, 4, -4, 0], [0, 0, 0, 0, 15, 15, 15, 15, 0, 0]]
    }


def test_packed_three_bit_integers(tmp_path: Path) -> None:
    """Ten codes to a word, two bits unused: 0o7654321076 is 6, 7, 0, 1, … 7, and code c stands for c - 4."""
    parts = PACKED | {"weight_packed": words([[0o7654321076]] * 2)}
    config = compressed("pack-quantized", strategy="group", num_bits=3, group_size=10)
    parts |= {"weight_scale": floats([[1], [2]])}
    row = [2, 3, -4, -3, -2, -1, 0, 1, 2, 3]
    assert read(tmp_path, config, **parts) == {"w.weight": [row, [2 * value for value in row]]}


REFUSED: list[tuple[dict[str, Any], dict[str, Stored], str]] = [
    (
        compressed("marlin-24", strategy="group"),
        {},
        "x/config.json: compressed-tensors format 'marlin-24' with strategy 'group' is not handled",
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}},
        {},
        "x/config.json: 2 compressed-tensors groups, one is handled",
    ),
    (
        compressed("pack-quantized", strategy="group", num_bits=9, group_size=4),
        PACKED,
        "x/config.json: num_bits is 9, pack-quantized is handled up to 8",
    ),
    (GROUPS, PACKED | {"weight_shape": stored(np.array([2]), "I64")}, "x: w.weight_shape holds 1 numbers, expected 2"),
    (
        GROUPS,
        PACKED | {"weight_shape": stored(np.array([2, 30]), "I64")},
        "x: w.weight_packed has shape [2, 2], expected [2, 4]",
    ),
    (
        GROUPS,
        PACKED | {"weight_zero_point": words([[0]])},
        "x: w.weight_zero_point has shape [1, 1], expected [1, 3]",
    ),
    (
        GROUPS,
        {"weight_packed": words([[0]])},
        "x: w.weight_packed needs w.weight_scale, which is missing",
    ),
    (
        {"quant_method": "fp8", "weight_block_size": [0, 2]},
        {"weight": fp8([[ONE]]), "weight_scale_inv": floats([[1]])},
        "x: w.weight has shape [1, 1], its scale's blocks [0, 2]",
    ),
    (
        {"quant_method": "fp8", "weight_block_size": [2, 2]},
        {"weight": fp8([[ONE]]), "weight_scale_inv": floats([[1, 1]])},
        "x: w.weight has shape [1, 1], its scale [1, 2]",
    ),
    (
        {"quant_method": "fp8"},
        {"weight_scale_inv": floats([[1]])},
        "x: w.weight_scale_inv scales w.weight, which is missing",
    ),
]


@pytest.mark.parametrize(
    ("config", "parts", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, config: dict[str, Any], parts: dict[str, Stored], message: str
) -> None:
    with pytest.raises(SpecliError) as caught:
        read(tmp_path / "x", config, **parts)
    assert str(caught.value).replace(str(tmp_path) + "/", "") == message
