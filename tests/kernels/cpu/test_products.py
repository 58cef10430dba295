"""Products with every weight type: values against NumPy, and the same bits whatever else the call holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.cpu.executor import NATIVE_TYPES
from specli.kernels.ops import Activation, Buffer, Extent, Program, Weight
from tests.support.native import ROW_COUNTS, Bench, T, tensor

QUANTISED = sorted(NATIVE_TYPES - {QuantType.F32, QuantType.F16, QuantType.BF16})
TYPES = sorted(NATIVE_TYPES)
by_label = pytest.mark.parametrize("type", TYPES, ids=lambda t: t.label)
FMA_KERNELS = ("AVX-512 VNNI", "AVX2", "NEON dot product")  # these compute the same bits


def image_of(x: np.ndarray) -> np.ndarray:
    """x as int8 per 32 values, back in float64: d·round(x·127/max|x|), d = max|x|/127."""
    blocks = x.reshape(len(x), -1, 32)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    q = np.rint(blocks * np.float32(127) / most)
    return (q.astype(np.float64) * (most / np.float32(127))).reshape(x.shape)


def product(bench: Bench, out: Buffer, x: Buffer, weight: Weight) -> Program:
    return bench.executor.compile(lambda ops: ops.linear([out], x, [weight]))


def embedding(bench: Bench, out: Buffer, weight: Weight, ids: Buffer) -> Program:
    return bench.executor.compile(lambda ops: ops.embed(out, weight, ids, scale=8.0))


@pytest.mark.parametrize("type", QUANTISED, ids=lambda t: t.label)
def test_product_is_that_of_the_quantised_activations(bench: Bench, kernels: list[str], type: QuantType) -> None:
    """int8 activations times exact weights, summed in float64 here; the only other error is float32 summation.

    One value in a thousand may lie so near a rounding limit of the image that NumPy rounds it the other way.
    """
    x = bench.random(T, 512)
    for name in kernels:
        own = Bench.open(n_threads=2, kernels=name)
        weight, values = own.weight(type, 50, 512)
        out = own.zeros(50)
        product(own, out, Buffer(x, Extent.TOKENS), weight).run(T)
        expected = image_of(x.numpy()) @ values.numpy().astype(np.float64).T
        error = np.abs(out.data.numpy() - expected)
        assert np.quantile(error, 0.99) < 2e-4 * np.abs(expected).std()
        assert error.max() < 0.02 * np.abs(expected).std()


@by_label
def test_exact_mode_multiplies_the_floats(type: QuantType) -> None:
    bench = Bench.open(n_threads=2, exact=True)
    weight, values = bench.weight(type, 50, 512)
    x, out, bias = bench.rows(512), bench.zeros(50), bench.random(50)
    bench.run(lambda ops: ops.linear([out], x, [weight], biases=[bias]))
    expected = x.data.double() @ values.double().T + bias
    torch.testing.assert_close(out.data, expected.float(), rtol=1e-5, atol=1e-4)


@by_label
def test_embedded_rows_are_the_dequantised_rows(bench: Bench, kernels: list[str], type: QuantType) -> None:
    for name in kernels:
        own = Bench.open(n_threads=1, kernels=name)
        weight, values = own.weight(type, 50, 512)
        out, ids = own.zeros(512), own.ints([7 * t % 50 for t in range(T)])
        embedding(own, out, weight, ids).run(T)
        assert torch.equal(out.data, values[ids.data[:, 0].long()] * 8)


@pytest.mark.parametrize("exact", [False, True])
@by_label
def test_rows_do_not_depend_on_the_others(kernels: list[str], type: QuantType, exact: bool) -> None:
    """Bit for bit: row counts, one and two threads, what the other rows hold, and the instruction set."""
    x = torch.randn(T, 512, generator=torch.Generator().manual_seed(1))
    source = tensor(type, 40, 512)
    found: dict[str, torch.Tensor] = {}
    for name in kernels:
        for n_threads in (1, 2):
            bench = Bench.open(n_threads=n_threads, exact=exact, kernels=name)
            weight = bench.executor.weight(source)
            rows, out = bench.zeros(512), bench.zeros(40)
            program = product(bench, out, rows, weight)
            rows.data.copy_(x)
            program.run(T)
            expected = found.setdefault(name, out.data.clone())
            for n in ROW_COUNTS:
                for start in (0, T - n):
                    rows.data.fill_(torch.nan)
                    rows.data[:n] = x[start : start + n]
                    out.data.zero_()
                    program.run(n)
                    assert torch.equal(out.data[:n], expected[start : start + n]), (name, n_threads, n)
                    assert not out.data[n:].any()
            if n_threads == 1:
                for other in range(1, T, 5):  # rows after the first are garbage
                    rows.data[:] = x
                    rows.data[other:] = torch.inf
                    program.run(T)
                    assert torch.equal(out.data[:other], expected[:other])
    fused = [found[name] for name in kernels if name in FMA_KERNELS]
    for bits in fused[1:]:
        assert torch.equal(bits, fused[0])


@pytest.mark.parametrize("activation", Activation)
@by_label
def test_gated_product_joins_both_halves(bench: Bench, type: QuantType, activation: Activation) -> None:
    (gate, _), (up, _) = bench.weight(type, 40, 256, seed=1), bench.weight(type, 40, 256, seed=2)
    x, out, g, u = bench.rows(256), bench.zeros(40), bench.zeros(40), bench.zeros(40)
    gate_bias, up_bias = bench.random(40), bench.random(40)
    bench.run(lambda ops: ops.linear([g, u], x, [gate, up], biases=[gate_bias, up_bias]))
    bench.run(lambda ops: ops.gated_linear(out, x, gate, up, activation, gate_bias=gate_bias, up_bias=up_bias))
    a, b = g.data.double(), u.data.double()
    clamped = a.clamp(max=7)
    expected = {
        Activation.SILU: a / (1 + (-a).exp()) * b,
        Activation.GELU: 0.5 * a * (1 + ((2 / np.pi) ** 0.5 * (a + 0.044715 * a**3)).tanh()) * b,
        Activation.SWIGLU_OAI: clamped / (1 + (-1.702 * clamped).exp()) * (b.clamp(-7, 7) + 1),
    }[activation]
    torch.testing.assert_close(out.data, expected.float(), rtol=2e-6, atol=1e-4)


def test_outputs_share_their_input_and_add_where_told(bench: Bench) -> None:
    (a, a_values), (b, b_values) = bench.weight(QuantType.F32, 40, 63), bench.weight(QuantType.F16, 7, 63)
    x, bias, joined = bench.rows(63), bench.random(7), bench.rows(47)
    before = joined.data.clone()
    outs = [joined.columns(0, 40), joined.columns(40, 47)]
    bench.run(lambda ops: ops.linear(outs, x, [a, b], biases=[None, bias], accumulate=True))
    torch.testing.assert_close(joined.data[:, :40], before[:, :40] + x.data @ a_values.T)
    torch.testing.assert_close(joined.data[:, 40:], before[:, 40:] + x.data @ b_values.T + bias)


def test_extreme_blocks_stay_exact(bench: Bench) -> None:
    """Q8_0 codes of -128 and activations of -127 and 127 in one block: -128·127·32 in integers, no saturation."""
    block = np.concatenate([np.array([1.0], np.float16).view(np.uint8), np.full(32, 128, np.uint8)])  # d = 1, all -128
    weight = bench.executor.weight(QuantTensor("w", QuantType.Q8_0, (1, 32), block))
    x, out = bench.zeros(32), bench.zeros(1)
    x.data[0], x.data[1] = 127.0, -127.0
    x.data[2] = torch.tensor([127.0, -127.0]).repeat(16)
    bench.run(lambda ops: ops.linear([out], x, [weight]))
    assert out.data[:3, 0].tolist() == [-128 * 127 * 32, 128 * 127 * 32, 0]


def test_zero_and_tiny_activations_give_zero(bench: Bench) -> None:
    weight, _ = bench.weight(QuantType.Q4_1, 16, 64)
    x, out = bench.zeros(64), bench.rows(16)
    x.data[1] = 1e-42
    bench.run(lambda ops: ops.linear([out], x, [weight]), 2)
    assert not out.data[:2].any()


def test_other_types_are_converted_with_a_note(bench: Bench) -> None:
    weight, values = bench.weight(QuantType.IQ2_XXS, 20, 256)
    x, out = bench.rows(256), bench.zeros(20)
    bench.run(lambda ops: ops.linear([out], x, [weight]))
    assert weight.type == QuantType.F16
    assert bench.executor.notes == ["1 matrix of type iq2_xxs converted to f16 (no cpu kernels for the type)"]
    torch.testing.assert_close(out.data, x.data @ values.half().float().T, rtol=1e-4, atol=1e-4)


def test_tied_weights_are_kept_once(bench: Bench, tmp_path: Path) -> None:
    source = tensor(QuantType.Q8_0, 32, 64)
    source.data.tofile(tmp_path / "w")
    mapped = replace(source, data=np.memmap(tmp_path / "w", source.data.dtype, mode="r"))
    assert bench.executor.weight(mapped) is bench.executor.weight(mapped)
    assert bench.executor.weight(source) is not bench.executor.weight(
        source
    )  # an array may be gone, its address reused
