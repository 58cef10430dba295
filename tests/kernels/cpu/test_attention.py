"""Attention and cache writing: every cache type, mask, head shape; the same bits in any company."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from specli.errors import UnsupportedError
from specli.gguf.quant import QuantType
from specli.kernels.ops import AttentionSpec, Buffer, Extent, KVLayer, Ops, Program, tensor_of
from tests.support.native import Bench

CACHE_TYPES = [
    QuantType.from_label(n) for n in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
]
CAPACITY = 600


def filled(
    bench: Bench, type_k: QuantType, type_v: QuantType, *, heads: int, size_k: int, size_v: int, slots: int = 1,
    n_cells: int = CAPACITY,
) -> KVLayer:  # fmt: skip
    """A layer whose cells hold random keys and values, written by the reference."""
    layer = bench.executor.kv_layer(slots, heads, CAPACITY, size_k, size_v, type_k, type_v)
    k = Buffer(bench.random(n_cells, heads * size_k), Extent.TOKENS)
    v = Buffer(bench.random(n_cells, heads * size_v), Extent.TOKENS)
    positions = bench.ints(list(range(n_cells)))
    for slot in range(slots):
        program = bench.reference.compile(
            lambda ops, slot=slot: ops.store(layer, k, v, positions, bench.ints([slot] * n_cells))
        )
        program.run(n_cells)
    return layer


@dataclass
class Block:
    """Rows of queries, keys and values over a layer; `program` stores and attends them, or attends only."""

    bench: Bench
    layer: KVLayer
    spec: AttentionSpec
    n: int

    def __post_init__(self) -> None:
        layer, new = self.layer, self.bench.zeros
        self.k = new(layer.n_kv_heads * layer.head_size_k, n_rows=self.n)
        self.v = new(layer.n_kv_heads * layer.head_size_v, n_rows=self.n)
        self.q = new(self.spec.n_heads * layer.head_size_k, n_rows=self.n)
        self.out = new(self.spec.n_heads * layer.head_size_v, n_rows=self.n)
        self.positions, self.slots = new(1, np.int32, n_rows=self.n), new(1, np.int32, n_rows=self.n)

    def program(self, *, stores: bool) -> Program:
        def trace(ops: Ops) -> None:
            if stores:
                ops.store(self.layer, self.k, self.v, self.positions, self.slots)
            ops.attention(self.out, self.q, self.layer, self.positions, self.slots, self.spec)

        return self.bench.executor.compile(trace)


@pytest.mark.parametrize("type", CACHE_TYPES, ids=lambda t: t.label)
def test_stored_cells_are_the_references(bench: Bench, type: QuantType) -> None:
    """All bytes equal, but for a code that sits on a rounding limit."""
    layer = bench.executor.kv_layer(2, 2, 40, 64, 96, type, type)
    k, v = bench.rows(128, n_rows=20), bench.rows(192, n_rows=20)
    k.data[0] = 0
    k.data[1, :32] = 1e-30
    positions, slots = bench.ints([2 * t % 40 for t in range(20)]), bench.ints([t // 10 for t in range(20)])
    ours, theirs = bench.both(
        lambda ops: ops.store(layer, k, v, positions, slots), tensor_of(layer.k), tensor_of(layer.v), tokens=20
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a == b).float().mean() > 0.999


@pytest.mark.parametrize(("type_k", "type_v"), [*zip(CACHE_TYPES, CACHE_TYPES, strict=True)], ids=str)
def test_attention_over_every_cache_type(bench: Bench, type_k: QuantType, type_v: QuantType) -> None:
    layer = filled(bench, type_k, type_v, heads=2, size_k=64, size_v=32)
    q, out = bench.rows(6 * 64, n_rows=9), bench.zeros(6 * 32, n_rows=9)
    positions, slots = bench.ints([0, 1, 15, 16, 127, 128, 300, 511, 599]), bench.ints([0] * 9)
    spec = AttentionSpec(n_heads=6, scale=0.2)
    results = bench.both(lambda ops: ops.attention(out, q, layer, positions, slots, spec), out.data, tokens=9)
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("type", CACHE_TYPES, ids=str)
def test_values_may_lie_in_their_keys(bench: Bench, type: QuantType) -> None:
    """As with a layer that has them beside the keys, bit for bit, and as the reference."""
    joined = bench.executor.kv_layer(1, 1, CAPACITY, 96, 64, type, type, has_values=False)
    apart = bench.executor.kv_layer(1, 1, CAPACITY, 96, 64, type, type)
    k, positions, slots = bench.rows(96, n_rows=300), bench.ints(list(range(300))), bench.ints([0] * 300)
    q = bench.rows(40 * 96, n_rows=300)  # more heads than one item takes
    outs = [bench.zeros(40 * 64, n_rows=300) for _ in range(2)]

    def trace(ops: Ops) -> None:
        for layer, v, out in ((joined, None, outs[0]), (apart, k.columns(0, 64), outs[1])):
            ops.store(layer, k, v, positions, slots)
            ops.attention(out, q, layer, positions, slots, AttentionSpec(40, 0.1))

    bench.executor.compile(trace).run(300)
    assert torch.equal(outs[0].data, outs[1].data)
    last = slice(299, 300)
    q_last, out = Buffer(q.storage[last], q.extent), bench.zeros(40 * 64, n_rows=1)
    at, slot = bench.ints([299]), bench.ints([0])
    results = bench.both(
        lambda ops: ops.attention(out, q_last, joined, at, slot, AttentionSpec(40, 0.1)), out.data, tokens=1
    )
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)
    assert torch.equal(results[0][0][0], outs[0].data[299])  # alone as in a batch


HEADS = [  # query heads, key/value heads, key size, value size
    (4, 4, 16, 16),
    (4, 1, 256, 256),
    (9, 3, 64, 64),
    (64, 1, 32, 32),
    (80, 2, 16, 16),
    (3, 1, 100, 20),
    (2, 2, 7, 5),
    (1, 1, 512, 512),
]


@pytest.mark.parametrize(("n_heads", "kv_heads", "size_k", "size_v"), HEADS)
@pytest.mark.parametrize("features", ["causal", "window", "ends", "sinks", "chunk", "all"])
def test_heads_and_masks(bench: Bench, n_heads: int, kv_heads: int, size_k: int, size_v: int, features: str) -> None:
    layer = filled(bench, QuantType.F16, QuantType.F16, heads=kv_heads, size_k=size_k, size_v=size_v, slots=2)
    at = [3, 500, 77, 0, 130, 131, 132, 599, 255, 256]
    n = len(at)
    q, out = bench.rows(n_heads * size_k, n_rows=n), bench.zeros(n_heads * size_v, n_rows=n)
    positions, slots = bench.ints(at), bench.ints([0, 0, 1, 0, 1, 1, 1, 0, 0, 0])
    every = features == "all"
    spec = AttentionSpec(
        n_heads=n_heads,
        scale=size_k**-0.5,
        window=50 if features == "window" or every else 0,
        sinks=bench.random(n_heads) if features == "sinks" or every else None,
        chunk=30 if features == "chunk" else 0,
        softcap=1.5 if features == "chunk" or every else 0.0,
    )
    ends = bench.ints([min(p + 20, CAPACITY) for p in at]) if features == "ends" or every else None
    results = bench.both(
        lambda ops: ops.attention(out, q, layer, positions, slots, spec, ends=ends), out.data, tokens=n
    )
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("type", CACHE_TYPES, ids=lambda t: t.label)
def test_rows_do_not_depend_on_the_others(type: QuantType) -> None:
    """40 rows stored and attended in one call, one by one, in parts; one and two threads; NaN rows behind them."""
    n, first = 40, 250
    found = []
    spec = AttentionSpec(n_heads=6, scale=0.125, window=200)
    for n_threads, step in itertools.product((1, 2), (1, 2, 3, 5, 8, 9, 17, n)):
        bench = Bench.open(n_threads=n_threads)
        layer = filled(bench, type, type, heads=2, size_k=64, size_v=64, n_cells=first)
        block = Block(bench, layer, spec, n + 1)
        data = [(buffer, bench.random(n, buffer.width)) for buffer in (block.k, block.v, block.q)]
        program = block.program(stores=True)
        rows = []
        for start in range(0, n, step):
            count = min(step, n - start)
            for buffer, values in data:
                buffer.data[:count] = values[start : start + count]
                buffer.data[count:] = torch.nan
            block.positions.data[:, 0] = torch.arange(first + start, first + start + n + 1)
            program.run(count + (step % 2 and count > 1))
            rows.append(block.out.data[:count].clone())
        found.append(torch.cat(rows))
    assert all(torch.equal(rows, found[0]) for rows in found)
    assert found[0].isfinite().all()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_long_caches_split_over_threads_give_the_same_bits(n_threads: int) -> None:
    results = []
    spec = AttentionSpec(n_heads=4, scale=0.3, sinks=torch.ones(4))
    for count in (n_threads, 1):
        bench = Bench.open(n_threads=count)
        layer = filled(bench, QuantType.F16, QuantType.Q8_0, heads=1, size_k=32, size_v=64)
        block = Block(bench, layer, spec, 8)
        block.q.data.copy_(bench.random(8, 128))
        block.positions.data[:, 0] = 599 - 3 * torch.arange(8)
        program = block.program(stores=False)
        for n in (8, 1, 3):
            program.run(n)
            results.append(block.out.data[:1].clone())
    assert all(torch.equal(row, results[0]) for row in results)


def test_heads_that_do_not_fit_quantised_caches_are_refused(bench: Bench) -> None:
    layer = bench.executor.kv_layer(1, 1, 32, 64, 2048, QuantType.F16, QuantType.F16)
    q, out, zero = bench.rows(64), bench.zeros(2048), bench.zeros(1, np.int32)
    with pytest.raises(UnsupportedError, match="f16 cache with head size 2048: not handled by the CPU kernels"):
        bench.run(lambda ops: ops.attention(out, q, layer, zero, zero, AttentionSpec(n_heads=1, scale=1.0)))
