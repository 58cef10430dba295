"""Quantisation against the `gguf` package, against the rules worked out, and against upstream's errors."""

import gguf
import numpy as np
import pytest

from specli.errors import UnsupportedError
from specli.gguf.decode import IQ4_VALUES
from specli.gguf.encode import ENCODERS
from specli.gguf.quant import QuantType, dequantise, quantise

K_TYPES = (QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K)
PACKAGE_TYPES = sorted(ENCODERS.keys() - {*K_TYPES, QuantType.IQ4_NL})


def awkward_rows() -> np.ndarray:
    """`[n, 512]` float32: spreads from 1e-6 to 1e4, zeros, constants, one sign, ties, signed zeros, outliers."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((512, 512)) * 10.0 ** rng.uniform(-6, 4, (512, 1))
    rows[0] = 0
    rows[1] = 1.5
    rows[2] = -1.5
    rows[3] = np.abs(rows[3])
    rows[4] = -np.abs(rows[4])
    rows[5] = np.where(np.arange(512) % 2, 1, -1)  # which of two equal magnitudes is the largest
    rows[6] = np.arange(512) / 2 - 128  # halves
    rows[7] = -0.0
    rows[8] = 0
    rows[8, ::32] = 1000
    return rows.astype(np.float32)


@pytest.mark.parametrize("type", PACKAGE_TYPES, ids=lambda t: t.label)
def test_equals_the_gguf_package(type: QuantType) -> None:
    rows = awkward_rows()
    expected = gguf.quantize(rows, gguf.GGMLQuantizationType(type))
    assert np.array_equal(quantise(type, rows), np.ascontiguousarray(expected).view(np.uint8))


@pytest.mark.parametrize("type", [QuantType.F32, QuantType.F16, QuantType.BF16], ids=lambda t: t.label)
def test_floats_keep_infinities_and_nan(type: QuantType) -> None:
    special = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0]], np.float32)
    found = dequantise(type, quantise(type, special))
    assert np.array_equal(found, special, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(special))


def test_bf16_rounds_to_nearest_even() -> None:
    bits = np.array([[0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x3F80_7FFF, 0x7F7F_FFFF]], np.uint32)
    rounded = quantise(QuantType.BF16, bits.view(np.float32)).view(np.uint16)
    assert rounded.tolist() == [[0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80]]


def test_iq4_nl_follows_the_rule_value_by_value() -> None:
    """Nearest level to x/d₀, a tie taking the upper one; then the scale that fits those levels best."""
    rows = awkward_rows()[:, :32]
    found = dequantise(QuantType.IQ4_NL, quantise(QuantType.IQ4_NL, rows))
    for row, values in zip(rows, found, strict=True):
        extreme = row[np.argmax(np.abs(row))]
        first = np.float32(extreme) / np.float32(-127)
        inverse = np.float32(1) / first if first else np.float32(0)
        levels = []
        for x in row:
            distance = np.abs(IQ4_VALUES - x * inverse)
            levels.append(IQ4_VALUES[np.flatnonzero(distance == distance.min())[-1]])
        level = np.array(levels, np.float64)
        weight = row.astype(np.float64) ** 2
        norm = (weight * level**2).sum()
        scale = (weight * level * row).sum() / norm if norm else 0.0
        assert np.allclose(values, scale * level, rtol=1e-3, atol=127 * 2**-24)  # the scale is stored as half


# Root-mean-square errors of `ggml_quantize_chunk` (llama.cpp b11434, no importance matrix) on the rows of `samples`.
UPSTREAM_ERRORS = {
    ("normal", QuantType.Q4_K): 0.0716469,
    ("normal", QuantType.Q5_K): 0.0363064,
    ("normal", QuantType.Q6_K): 0.0177714,
    ("student", QuantType.Q4_K): 0.1602706,
    ("student", QuantType.Q5_K): 0.0814460,
    ("student", QuantType.Q6_K): 0.0445460,
    ("uniform", QuantType.Q4_K): 0.0168538,
    ("uniform", QuantType.Q5_K): 0.0083307,
    ("uniform", QuantType.Q6_K): 0.0075966,
}


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    size = (128, 1024)
    return {
        "normal": rng.standard_normal(size).astype(np.float32),
        "student": rng.standard_t(3, size).astype(np.float32),
        "uniform": rng.random(size).astype(np.float32),
    }


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


@pytest.mark.parametrize(("name", "type"), UPSTREAM_ERRORS, ids=str)
def test_k_types_are_as_good_as_upstreams(name: str, type: QuantType) -> None:
    rows = samples()[name]
    error = rms(dequantise(type, quantise(type, rows)) - rows)
    assert error < 1.02 * UPSTREAM_ERRORS[name, type]


@pytest.mark.parametrize("type", K_TYPES, ids=lambda t: t.label)
def test_k_types_stay_close_on_awkward_rows(type: QuantType) -> None:
    """Half a step of the coarsest scale: 1/15 of a sub-block's range, plus the rounding of scales to 6 bits."""
    rows = awkward_rows()[:, :256]
    # Halves hold scales down to 2**-24: rows whose scales are smaller come out as zero, in upstream as well.
    rows = rows[(np.abs(rows).max(axis=1) > 0.1) | (np.abs(rows).max(axis=1) == 0)]
    found = dequantise(type, quantise(type, rows))
    assert np.all(np.isfinite(found))
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert np.all(np.abs(found - rows) <= 0.15 * largest)
    assert np.all(found[largest[:, 0] == 0] == 0)


@pytest.mark.parametrize(("type", "top"), [(QuantType.Q4_K, 15), (QuantType.Q5_K, 31)], ids=str)
def test_affine_k_types_keep_values_that_lie_on_the_grid(type: QuantType, top: int) -> None:
    """0.5·q - 4 with all sub-blocks alike: scale and minimum are the largest 6-bit codes and exact in half."""
    codes = np.resize(np.arange(top + 1), 256)[None]
    rows = (0.5 * 63 / 64 * codes - 4 * 63 / 64).astype(np.float32)
    assert np.allclose(dequantise(type, quantise(type, rows)), rows, atol=2e-3)


def test_q6_k_uses_its_lowest_code() -> None:
    rows = np.resize(np.arange(-32, 32), 256).astype(np.float32)[None]
    assert np.allclose(dequantise(QuantType.Q6_K, quantise(QuantType.Q6_K, rows)), rows, atol=0.3)


@pytest.mark.parametrize("type", ENCODERS, ids=lambda t: t.label)
def test_rows_do_not_depend_on_their_neighbours(type: QuantType) -> None:
    rows = np.tile(awkward_rows(), (3, 1))  # more than one chunk
    whole = quantise(type, rows)
    assert np.array_equal(whole[::5], quantise(type, rows[::5]))
    assert whole.shape == (len(rows), type.row_bytes(512))


def test_types_without_a_quantiser_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot quantise to q2_k, expected one of f32, f16"):
        quantise(QuantType.Q2_K, np.zeros((1, 256), np.float32))


def test_rows_that_are_no_whole_blocks() -> None:
    with pytest.raises(ValueError, match="48 elements are not a whole number of q8_0 blocks of 32"):
        quantise(QuantType.Q8_0, np.zeros((1, 48), np.float32))
