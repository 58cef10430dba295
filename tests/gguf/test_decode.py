"""Dequantisation against the `gguf` package and against blocks worked out by hand."""

import gguf
import numpy as np
import pytest

from specli.errors import UnsupportedError
from specli.gguf.decode import CHUNK_ELEMENTS, DECODERS
from specli.gguf.quant import QuantTensor, QuantType, dequantise
from tests.support.blocks import BLOCK_TYPES, random_rows

NUMBERS = {
    QuantType.F64: np.float64,
    QuantType.I8: np.int8,
    QuantType.I16: np.int16,
    QuantType.I32: np.int32,
    QuantType.I64: np.int64,
}
HAND_ONLY = {QuantType.Q1_0, QuantType.Q2_0}  # no decoder in gguf 0.19


def half(value: float) -> bytes:
    return np.float16(value).tobytes()


@pytest.mark.parametrize("type", sorted(DECODERS.keys() - NUMBERS.keys() - HAND_ONLY), ids=lambda t: t.label)
def test_equals_the_gguf_package_on_random_bytes(type: QuantType) -> None:
    """Random bytes include infinite, NaN and subnormal scales. Compared as bits, NaN as NaN."""
    rng = np.random.default_rng(type)
    rows = rng.integers(0, 256, (16, 4 * type.block_bytes), np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(rows, gguf.GGMLQuantizationType(type))
    found = dequantise(type, rows)
    assert found.dtype == np.float32
    both_nan = np.isnan(found) & np.isnan(expected)
    assert np.all(both_nan | (found.view(np.uint32) == expected.view(np.uint32)))


@pytest.mark.parametrize(("type", "dtype"), NUMBERS.items(), ids=lambda x: getattr(x, "label", None))
def test_plain_numbers(type: QuantType, dtype: np.dtype) -> None:
    values = np.array([[1, -2, 100]], dtype)
    assert dequantise(type, values.view(np.uint8)).tolist() == [[1, -2, 100]]


# One block each: bytes, and some of its values by element number, worked out from docs/quant-types.md §§2-3.
BY_HAND = [
    # byte 3 = 0xF1: element 3 is 1, element 19 is 15; the other nibbles are 0
    (QuantType.Q4_0, half(2) + bytes([0, 0, 0, 0xF1] + [0] * 12), {0: -16, 3: 2 * (1 - 8), 19: 2 * (15 - 8)}),
    (QuantType.Q4_1, half(2) + half(5) + bytes([0, 0, 0, 0xF1] + [0] * 12), {0: 5, 3: 2 * 1 + 5, 19: 2 * 15 + 5}),
    # the fifth bits of elements 3 and 31
    (
        QuantType.Q5_0,
        half(0.5) + (1 << 3 | 1 << 31).to_bytes(4, "little") + bytes([0, 0, 0, 0xF1] + [0] * 12),
        {0: -8, 3: 0.5 * (17 - 16), 19: 0.5 * (15 - 16), 31: 0.5 * (16 - 16)},
    ),
    (
        QuantType.Q5_1,
        half(0.5) + half(-1) + (1 << 3 | 1 << 31).to_bytes(4, "little") + bytes([0, 0, 0, 0xF1] + [0] * 12),
        {0: -1, 3: 0.5 * 17 - 1, 19: 0.5 * 15 - 1, 31: 0.5 * 16 - 1},
    ),
    (QuantType.Q8_0, half(0.25) + bytes([127, 0x80] + [1] * 30), {0: 31.75, 1: -32, 2: 0.25}),
    (QuantType.IQ4_NL, half(1) + bytes([0xF0] + [0x88] * 15), {0: -127, 16: 113, 1: 1}),
    # exponent 129 doubles the doubled table; code 15 is -12
    (QuantType.MXFP4, bytes([129, 0xF7] + [0] * 15), {0: 2 * 12, 16: 2 * -12, 1: 0}),
    (QuantType.Q1_0, half(3) + bytes([0b101] + [0] * 15), {0: 3, 1: -3, 2: 3, 127: -3}),
    (QuantType.Q2_0, half(3) + bytes([0b11_10_01_00] + [0b01_01_01_01] * 15), {0: -3, 1: 0, 2: 3, 3: 6, 63: 0}),
    # group 1: scale 2, minimum 3; element 16 is crumb 0 of byte 16; element 144 that of byte 48 in half 1
    (
        QuantType.Q2_K,
        bytes([0, 0x32] + [0] * 14) + bytes([0] * 16 + [3] + [0] * 47) + half(10) + half(1),
        {0: 0, 16: 10 * 2 * 3 - 3, 17: -3, 144: 0},
    ),
    # group 0: low 1, high 2 → 33 - 32 = 1; element 0: crumb 2 with its mask bit set, element 1: crumb 0 without
    (
        QuantType.Q3_K,
        bytes([1] + [0] * 31) + bytes([2] + [0] * 63) + bytes([1] + [0] * 7 + [2, 0, 0, 0]) + half(5),
        {0: 5 * 1 * 2, 1: 5 * 1 * -4, 16: 5 * -32 * -4},
    ),
    # sub-block 0: scale 63, minimum 1; sub-block 4: scale 2 | 3 << 4 = 50 from bytes 8 and 0
    (
        QuantType.Q4_K,
        half(1) + half(2) + bytes([63 | 3 << 6, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]) + bytes([0x0A] + [0] * 63 + [1] * 64),
        {0: 63 * 10 - 2, 1: -2, 128: 50 * 1, 160: 0},
    ),
    (
        QuantType.Q5_K,
        half(1) + half(2) + bytes([63, 0, 0, 0, 1] + [0] * 7) + bytes([1] + [0] * 31) + bytes([0x0A] + [0] * 127),
        {0: 63 * 26 - 2, 1: -2, 32: 0},
    ),
    # element 0: low 5, high 2 → 37 - 32; element 64 (quarter 2): high nibble of byte 0, high bits 0
    (
        QuantType.Q6_K,
        bytes([0x15] + [0] * 127) + bytes([2] + [0] * 63) + bytes([3, 0, 0, 0, 0xFF] + [0] * 11) + half(2),
        {0: 2 * 3 * 5, 1: 2 * 3 * -32, 64: 2 * -1 * (1 - 32)},
    ),
    # sub-block 1: low 4 bits 5, high bits 2 → 37 - 32 = 5
    (
        QuantType.IQ4_XS,
        half(1) + (2 << 2).to_bytes(2, "little") + bytes([0x50, 0, 0, 0]) + bytes([0] * 16 + [0xF8] + [0] * 111),
        {0: -32 * -127, 32: 5 * 1, 48: 5 * 113, 33: 5 * -127},
    ),
]


@pytest.mark.parametrize(("type", "block", "values"), BY_HAND, ids=[row[0].label for row in BY_HAND])
def test_a_block_worked_out_by_hand(type: QuantType, block: bytes, values: dict[int, float]) -> None:
    found = dequantise(type, np.frombuffer(block, np.uint8)[None])
    assert found.shape == (1, type.block_size)
    assert {index: found[0, index] for index in values} == values


@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.label)
def test_rows_do_not_depend_on_their_neighbours(type: QuantType) -> None:
    """More rows than one chunk, and strided ones."""
    width = 4096
    n_rows = CHUNK_ELEMENTS // width * 2 + 3
    rows = random_rows(type, n_rows, width, np.random.default_rng(1))
    whole = dequantise(type, rows)
    assert np.array_equal(whole[::7], dequantise(type, rows[::7]), equal_nan=True)


def test_no_rows_and_empty_rows() -> None:
    assert dequantise(QuantType.Q4_K, np.empty((0, 144), np.uint8)).shape == (0, 256)
    assert dequantise(QuantType.Q4_K, np.empty((3, 0), np.uint8)).shape == (3, 0)


def test_bytes_that_are_no_whole_blocks() -> None:
    with pytest.raises(ValueError, match="rows of 19 bytes are not whole q4_0 blocks of 18"):
        dequantise(QuantType.Q4_0, np.empty((1, 19), np.uint8))


@pytest.mark.parametrize("type", [QuantType.Q8_1, QuantType.Q8_K])
def test_work_formats_are_refused(type: QuantType) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot dequantise {type.label}"):
        dequantise(type, np.zeros((1, type.block_bytes), np.uint8))


def test_sizes_agree_with_the_gguf_package() -> None:
    sizes = {int(type): size for type, size in gguf.GGML_QUANT_SIZES.items()}
    del sizes[QuantType.Q8_1]  # the package says 40 bytes, ggml.h's block_q8_1 has 36
    assert {int(type): (type.block_size, type.block_bytes) for type in QuantType if type in sizes} == sizes


def test_labels() -> None:
    assert QuantType.from_label("q4_k") is QuantType.from_label("Q4_K") is QuantType.Q4_K
    assert QuantType.IQ4_NL.label == "iq4_nl"
    with pytest.raises(UnsupportedError, match="unknown quant type 'q9', expected one of f32, f16, q4_0"):
        QuantType.from_label("q9")


def test_leading_rows_of_a_tensor() -> None:
    rows = random_rows(QuantType.Q4_0, 12, 64, np.random.default_rng(0))
    tensor = QuantTensor("experts", QuantType.Q4_0, (4, 3, 64), rows.reshape(-1))
    whole = tensor.dequantise()
    assert whole.shape == (4, 3, 64)
    assert np.array_equal(tensor.dequantise(1, 3), whole[1:3])
    assert np.array_equal(tensor.dequantise(2), whole[2:])
    assert tensor.dequantise(3, 3).shape == (0, 3, 64)
    assert np.array_equal(tensor.rows(), rows)
    vector = QuantTensor("norm", QuantType.F32, (4,), np.zeros(16, np.uint8))
    with pytest.raises(ValueError, match=r"norm: a tensor of shape \(4,\) has no leading rows"):
        vector.dequantise(0, 1)
