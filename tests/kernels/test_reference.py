"""The reference operations against their formulas, and their rows against the same rows in other company."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F

from specli.gguf.quant import QuantTensor, QuantType, dequantise, quantise
from specli.kernels.ops import Activation, AttentionSpec, Buffer, Extent, KVLayer, Ops, RopeTable
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig

ROW_COUNTS = (1, 2, 3, 5, 8, 17)
CACHE_TYPES = [
    QuantType.F32,
    QuantType.F16,
    QuantType.BF16,
    QuantType.Q8_0,
    QuantType.Q4_0,
    QuantType.Q4_1,
    QuantType.IQ4_NL,
    QuantType.Q5_0,
    QuantType.Q5_1,
]
T = max(ROW_COUNTS)


@dataclass
class Bench:
    """An executor with random inputs of 17 rows."""

    executor: ReferenceExecutor = field(default_factory=lambda: ReferenceExecutor(threads=ThreadConfig(n_threads=1)))
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def rows(self, width: int, extent: Extent = Extent.TOKENS) -> Buffer:
        return Buffer(self.random(T, width), extent)

    def zeros(self, width: int, dtype: npt.DTypeLike = np.float32) -> Buffer:
        return self.executor.buffer(T, width, Extent.TOKENS, dtype)

    def ints(self, values: list[int], extent: Extent = Extent.TOKENS) -> Buffer:
        return Buffer(torch.tensor(values, dtype=torch.int32)[:, None], extent)

    def weight(self, *shape: int, type: QuantType = QuantType.F32) -> tuple[object, torch.Tensor]:
        """A weight and its dequantised values."""
        data = quantise(type, self.random(*shape).reshape(-1, shape[-1]).numpy())
        tensor = QuantTensor("w", type, shape, data.reshape(-1))
        return self.executor.weight(tensor), torch.from_numpy(tensor.dequantise())

    def run(self, trace: Callable[[Ops], None], tokens: int = T, outputs: int = 0) -> None:
        self.executor.compile(trace).run(tokens, outputs)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_embed_scales_rows(bench: Bench) -> None:
    weight, values = bench.weight(50, 32, type=QuantType.Q4_0)
    out, ids = bench.zeros(32), bench.ints([7 * t % 50 for t in range(T)])
    bench.run(lambda ops: ops.embed(out, weight, ids, scale=8.0))
    assert torch.equal(out.data, values[ids.data[:, 0].long()] * 8)


@pytest.mark.parametrize("head", [48, 16])
def test_rms_norm_treats_each_run_by_itself(bench: Bench, head: int) -> None:
    x, out, weight = bench.rows(48), bench.zeros(48), bench.random(head)
    bench.run(lambda ops: ops.rms_norm(out, x, weight, eps=1e-5))
    expected = F.rms_norm(x.data.double().view(T, -1, head), (head,), weight.double(), 1e-5)
    torch.testing.assert_close(out.data, expected.view(T, -1).float())


def test_weightless_norms(bench: Bench) -> None:
    x, whole, heads = bench.rows(48), bench.zeros(48), bench.zeros(48)
    bench.run(lambda ops: ops.rms_norm(whole, x, None, eps=1e-5))
    bench.run(lambda ops: ops.rms_norm_heads(heads, x, head_size=16, eps=1e-5))
    torch.testing.assert_close(whole.data, F.rms_norm(x.data, (48,), None, 1e-5))
    torch.testing.assert_close(heads.data, F.rms_norm(x.data.view(T, 3, 16), (16,), None, 1e-5).view(T, -1))


def test_linear_shares_its_input_and_adds_where_told(bench: Bench) -> None:
    (a, a_values), (b, b_values) = bench.weight(40, 64, type=QuantType.Q8_0), bench.weight(8, 64)
    x, bias = bench.rows(64), bench.random(8)
    joined = bench.rows(48)
    before = joined.data.clone()
    outs = [joined.columns(0, 40), joined.columns(40, 48)]
    bench.run(lambda ops: ops.linear(outs, x, [a, b], biases=[None, bias], accumulate=True))
    torch.testing.assert_close(joined.data[:, :40], before[:, :40] + x.data @ a_values.T)
    torch.testing.assert_close(joined.data[:, 40:], before[:, 40:] + x.data @ b_values.T + bias)
    bench.run(lambda ops: ops.linear(outs[:1], x, [a]))
    torch.testing.assert_close(joined.data[:, :40], x.data @ a_values.T)


@pytest.mark.parametrize("activation", Activation)
def test_gated_linear_follows_its_formula(bench: Bench, activation: Activation) -> None:
    (gate, gate_values), (up, up_values) = bench.weight(96, 64), bench.weight(96, 64)
    x, out, gate_bias, up_bias = bench.rows(64), bench.zeros(96), bench.random(96), bench.random(96)
    bench.run(lambda ops: ops.gated_linear(out, x, gate, up, activation, gate_bias=gate_bias, up_bias=up_bias))
    g = (x.data @ gate_values.T + gate_bias).double()
    u = (x.data @ up_values.T + up_bias).double()
    clamped = g.clamp(max=7)
    expected = {
        Activation.SILU: g / (1 + (-g).exp()) * u,
        Activation.GELU: 0.5 * g * (1 + ((2 / np.pi) ** 0.5 * (g + 0.044715 * g**3)).tanh()) * u,
        Activation.SWIGLU_OAI: clamped / (1 + (-1.702 * clamped).exp()) * (u.clamp(-7, 7) + 1),
    }[activation]
    torch.testing.assert_close(out.data, expected.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rope_turns_pairs_and_passes_the_rest(bench: Bench, interleaved: bool) -> None:
    """Heads of 16 with 12 rotated elements: as complex numbers, each pair is multiplied by e^{iθ}."""
    x, positions = bench.rows(32), bench.ints(list(range(3, 3 + T)))
    angle = bench.random(40, 6)
    table = RopeTable(angle.cos(), angle.sin(), interleaved)
    heads = x.data.clone().view(T, 2, 16)
    bench.run(lambda ops: ops.rope(x, positions, table, head_size=16))
    split = heads[..., :12].unflatten(2, (6, 2)).unbind(3) if interleaved else heads[..., :12].split(6, dim=2)
    turned = torch.complex(*split) * torch.polar(torch.ones(T, 1, 6), angle[3 : 3 + T, None])
    pair = [turned.real, turned.imag]
    expected = torch.stack(pair, 3).flatten(2) if interleaved else torch.cat(pair, 2)
    torch.testing.assert_close(x.data.view(T, 2, 16)[..., :12], expected)
    assert torch.equal(x.data.view(T, 2, 16)[..., 12:], heads[..., 12:])


@pytest.mark.parametrize("block", [64, 128])
def test_rotate_is_the_walsh_hadamard_matrix(bench: Bench, block: int) -> None:
    matrix = torch.ones(1, 1)
    while len(matrix) < block:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    x = bench.rows(256)
    expected = x.data.view(T, -1, block) @ (matrix / block**0.5)
    bench.run(lambda ops: ops.rotate(x, block=block))
    torch.testing.assert_close(x.data, expected.view(T, -1))


def cache_of(bench: Bench, type_k: QuantType, type_v: QuantType) -> KVLayer:
    """Two slots of 24 cells, 2 heads, keys of 64 and values of 32 elements, all cells written."""
    layer = bench.executor.kv_layer(2, 2, 24, 64, 32, type_k, type_v)
    for slot in range(2):
        for start, count in ((0, T), (T, 24 - T)):
            k, v = bench.rows(128), bench.rows(64)
            positions = bench.ints(list(range(start, start + count)) + [0] * (T - count))
            slots = bench.ints([slot] * T)
            bench.run(lambda ops, k=k, v=v, p=positions, s=slots: ops.store(layer, k, v, p, s), tokens=count)
    return layer


def cells(layer: KVLayer, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 keys and values `[n_kv_heads, cells, head_size]` of a slot."""
    found = []
    for type, data in ((layer.type_k, layer.k), (layer.type_v, layer.v)):
        rows = data[slot].reshape(-1, data.shape[-1]).numpy()
        found.append(torch.from_numpy(dequantise(type, rows)).view(layer.n_kv_heads, layer.capacity, -1))
    return found[0], found[1]


@pytest.mark.parametrize("type", CACHE_TYPES)
def test_store_writes_quantised_rows_to_their_cells(bench: Bench, type: QuantType) -> None:
    layer = bench.executor.kv_layer(2, 2, 24, 64, 32, type, QuantType.F16)
    k, v = bench.rows(128), bench.rows(64)
    positions, slots = bench.ints([23 - t for t in range(T)]), bench.ints([t % 2 for t in range(T)])
    bench.run(lambda ops: ops.store(layer, k, v, positions, slots), tokens=9)
    for t in range(T):
        for head in range(2):
            row = k.data[t, 64 * head : 64 * head + 64]
            expected = torch.from_numpy(quantise(type, row.numpy()[None]))[0]
            assert torch.equal(layer.k[t % 2, head, 23 - t], expected if t < 9 else torch.zeros_like(expected))


@pytest.mark.parametrize("type", CACHE_TYPES)
@pytest.mark.parametrize("case", ["causal", "window", "sinks", "ends"])
def test_attention_equals_torch(bench: Bench, type: QuantType, case: str) -> None:
    layer = cache_of(bench, type, type)
    q, out = bench.rows(4 * 64), bench.zeros(4 * 32)
    position = [(5 * t) % 24 for t in range(T)]
    slot = [t % 2 for t in range(T)]
    spec = AttentionSpec(
        4,
        0.125,
        window=6 if case == "window" else 0,
        sinks=bench.random(4) if case == "sinks" else None,
    )
    end = [24 if case == "ends" else p + 1 for p in position]
    ends = bench.ints(end) if case == "ends" else None
    positions, slots = bench.ints(position), bench.ints(slot)
    bench.run(lambda ops: ops.attention(out, q, layer, positions, slots, spec, ends=ends))
    for t in range(T):
        keys, values = (x.double().repeat_interleave(2, dim=0) for x in cells(layer, slot[t]))
        scores = (keys @ q.data[t].double().view(4, 64, 1))[..., 0] * spec.scale  # [4, 24]
        cell = torch.arange(24)
        hidden = (cell >= end[t]) | ((position[t] - cell >= spec.window) & (spec.window > 0))
        if spec.chunk:
            hidden |= cell // spec.chunk != position[t] // spec.chunk
        if spec.softcap:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        weights = torch.exp(scores.masked_fill(hidden, -torch.inf))
        extra = 0 if spec.sinks is None else spec.sinks.double().exp()[:, None]
        expected = torch.einsum("hc,hcd->hd", weights / (weights.sum(1, keepdim=True) + extra), values)
        torch.testing.assert_close(out.data[t], expected.reshape(-1).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("type", CACHE_TYPES)
def test_values_may_lie_in_their_keys(bench: Bench, type: QuantType) -> None:
    """Attention over such a layer equals that over one with the same keys and their first elements as values."""
    joined = bench.executor.kv_layer(2, 1, 24, 96, 64, type, type, has_values=False)
    apart = bench.executor.kv_layer(2, 1, 24, 96, 64, type, type)
    assert joined.nbytes == joined.k.nbytes < apart.nbytes
    k, q = bench.rows(96), bench.rows(4 * 96)
    first, second = bench.zeros(4 * 64), bench.zeros(4 * 64)
    positions, slots = bench.ints(list(range(T))), bench.ints([1] * T)

    def trace(ops: Ops) -> None:
        for layer, v, out in ((joined, None, first), (apart, k.columns(0, 64), second)):
            ops.store(layer, k, v, positions, slots)
            ops.attention(out, q, layer, positions, slots, AttentionSpec(4, 0.1))

    bench.run(trace)
    assert torch.equal(first.data, second.data)
    assert first.data.abs().sum() > 0


def test_heads_are_joined_one_by_one(bench: Bench) -> None:
    a, b, out = bench.rows(6), bench.rows(4), bench.zeros(10)
    bench.run(lambda ops: ops.join_heads(out, a, b, n_heads=2))
    assert torch.equal(out.data, torch.cat([a.data[:, :3], b.data[:, :2], a.data[:, 3:], b.data[:, 2:]], 1))


def test_elementwise_operations(bench: Bench) -> None:
    x, y, row = bench.rows(8), bench.rows(8), bench.random(8)
    start = x.data.clone()
    expected = 3 * torch.tanh(torch.sigmoid(((start + y.data) + row) * y.data * 0.5) / 3)
    expected = expected - expected.mean(1, keepdim=True)
    expected = 0.5 * expected * (1 + torch.tanh(0.7978845608 * (expected + 0.044715 * expected**3)))

    def trace(ops: Ops) -> None:
        ops.add(x, y)
        ops.add_row(x, row)
        ops.multiply(x, y)
        ops.scale(x, 0.5)
        ops.sigmoid(x)
        ops.softcap(x, 3.0)
        ops.centre(x)
        ops.gelu(x)

    bench.run(trace, tokens=11)
    torch.testing.assert_close(x.data[:11], expected[:11])
    assert torch.equal(x.data[11:], start[11:])  # rows beyond the live ones stay


def test_gather_reads_rows_of_another_extent(bench: Bench) -> None:
    x = bench.rows(8)
    out = Buffer(torch.zeros(4, 8), Extent.OUTPUTS)
    rows = bench.ints([16, 0, 3, 1], Extent.OUTPUTS)
    bench.run(lambda ops: ops.gather(out, x, rows), outputs=3)
    assert torch.equal(out.data[:3], x.data[[16, 0, 3]])
    assert not out.data[3].any()


def test_copy_and_ids(bench: Bench) -> None:
    ids, copied, mapped = bench.ints(list(range(T))), bench.zeros(1, np.int32), bench.zeros(1, np.int32)
    table = torch.arange(100, 100 + T, dtype=torch.int32)
    bench.run(lambda ops: ops.copy(copied, ids))
    bench.run(lambda ops: ops.map_ids(mapped, copied, table))
    assert mapped.data[:, 0].tolist() == list(range(100, 100 + T))


def test_top_k_takes_the_lowest_id_of_equal_values(bench: Bench) -> None:
    x = bench.zeros(6)
    x.data[0] = torch.tensor([1.0, 5.0, 2.0, 5.0, -1.0, 2.0])
    values, ids = bench.zeros(4), bench.zeros(4, np.int32)
    bench.run(lambda ops: ops.top_k(values, ids, x))
    assert ids.data[0].tolist() == [1, 3, 2, 5]
    assert values.data[0].tolist() == [5, 5, 2, 2]
    assert ids.data[1].tolist() == [0, 1, 2, 3]


def test_log_softmax_gives_log_probabilities_of_the_best(bench: Bench) -> None:
    x = bench.zeros(4)
    x.data[0] = torch.tensor([1.0, 3.0, 2.0, -torch.inf])
    values, ids = bench.zeros(2), bench.zeros(2, np.int32)

    def trace(ops: Ops) -> None:
        ops.top_k(values, ids, x)
        ops.log_softmax(values, x)

    bench.run(trace)
    norm = math.log(math.exp(1) + math.exp(2) + math.exp(3))
    assert values.data[0].tolist() == pytest.approx([3 - norm, 2 - norm])
    assert values.data[1].tolist() == pytest.approx([math.log(0.25)] * 2)


def test_rows_per_sequence_are_as_many_as_a_run_says(bench: Bench) -> None:
    """Number 1 of every three rows, for two of the sequences."""
    x = bench.rows(8)
    start = x.data.clone()
    program = bench.executor.compile(lambda ops: ops.scale(x.per_sequence(1, step=3), 2.0))
    program.run(T, sequences=2)
    start[[1, 4]] *= 2
    assert torch.equal(x.data, start)


def invariant_traces(bench: Bench) -> dict[str, tuple[Callable[[Ops], None], Buffer, Buffer]]:
    """Operations that sum or call transcendental functions: trace, input, output. Widths that are no multiple of a
    vector register, inputs in strided columns."""
    wide = Buffer(bench.random(T, 200), Extent.TOKENS)
    x, out, big = wide.columns(3, 3 + 96), bench.zeros(96), bench.zeros(77)
    gate, up = bench.weight(77, 96)[0], bench.weight(77, 96)[0]
    layer = cache_of(bench, QuantType.Q8_0, QuantType.F16)
    q, attended = bench.rows(4 * 64), bench.zeros(4 * 32)
    positions, slots = bench.ints([(5 * t) % 24 for t in range(T)]), bench.ints([t % 2 for t in range(T)])

    def pointwise(ops: Ops) -> None:
        ops.copy(out, x)
        ops.centre(out)
        ops.gelu(out)
        ops.sigmoid(out)
        ops.softcap(out, 3.0)

    return {
        "rms_norm": (lambda ops: ops.rms_norm(out, x, None, eps=1e-6), x, out),
        "rms_norm_heads": (lambda ops: ops.rms_norm_heads(out, x, head_size=32, eps=1e-6), x, out),
        "linear": (lambda ops: ops.linear([big], x, [gate]), x, big),
        "gated_linear": (lambda ops: ops.gated_linear(big, x, gate, up, Activation.GELU), x, big),
        "attention": (
            lambda ops: ops.attention(attended, q, layer, positions, slots, AttentionSpec(4, 0.125)),
            q,
            attended,
        ),
        "pointwise": (pointwise, x, out),
    }


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_heads", "linear", "gated_linear", "attention", "pointwise"])
def test_rows_do_not_depend_on_their_company(bench: Bench, name: str) -> None:
    trace, x, out = invariant_traces(bench)[name]
    bench.run(trace)
    expected = out.data.clone()
    inputs = x.data.clone()
    for count in ROW_COUNTS:
        x.data.copy_(inputs)
        x.data[1:count] = 7 * bench.random(max(0, count - 1), x.width)  # only row 0 keeps its input
        out.data.zero_()
        bench.run(trace, tokens=count)
        assert torch.equal(out.data[0], expected[0])
        x.data.copy_(inputs)
        bench.run(trace, tokens=count)
        assert torch.equal(out.data[:count], expected[:count])


@pytest.mark.parametrize("name", ["rms_norm", "rms_norm_heads", "linear", "gated_linear", "pointwise"])
def test_rows_do_not_depend_on_their_place(bench: Bench, name: str) -> None:
    trace, x, out = invariant_traces(bench)[name]
    inputs = x.data.clone()
    bench.run(trace)
    expected = out.data.clone()
    for shift in (1, 6, 15):
        x.data.copy_(inputs.roll(shift, 0))
        bench.run(trace)
        assert torch.equal(out.data, expected.roll(shift, 0))


@pytest.mark.parametrize("width", [4, 33, 77, 100])
@pytest.mark.parametrize("n_out", [1, 3, 5, 8])
def test_products_of_odd_sizes_do_not_depend_on_the_place(bench: Bench, width: int, n_out: int) -> None:
    weight = bench.weight(n_out, width)[0]
    x, out = Buffer(bench.random(1, width).repeat(T, 1), Extent.TOKENS), bench.zeros(n_out)
    bench.run(lambda ops: ops.linear([out], x, [weight]))
    assert (out.data == out.data[:1]).all()
