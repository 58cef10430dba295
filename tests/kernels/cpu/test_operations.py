"""Row-wise operations against the reference executor."""

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantType
from specli.kernels.ops import Buffer, Extent, Ops, RopeTable
from tests.support.native import Bench, T

WIDTHS = (16, 48, 100, 7)


def close(results: list[list[torch.Tensor]], *, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("width", WIDTHS)
def test_elementwise(bench: Bench, width: int) -> None:
    x, y, row = bench.rows(width), bench.rows(width), bench.random(width)

    def trace(ops: Ops) -> None:
        ops.add(x, y)
        ops.multiply(x, y)
        ops.add_row(x, row)
        ops.scale(x, 3.0)
        ops.centre(x)
        ops.gelu(x)
        ops.softcap(x, 5.0)
        ops.sigmoid(x)
        ops.copy(y, x)

    close(bench.both(trace, x.data, y.data))


@pytest.mark.parametrize("width", WIDTHS)
def test_log_softmax(bench: Bench, width: int) -> None:
    x, values, ids = bench.rows(width), bench.zeros(3), bench.zeros(3, np.int32)
    x.data[0] += 300.0  # no exponential overflows

    def trace(ops: Ops) -> None:
        ops.top_k(values, ids, x)
        ops.log_softmax(values, x)

    close(bench.both(trace, values.data))


@pytest.mark.parametrize("width", WIDTHS)
def test_norms(bench: Bench, width: int) -> None:
    x, out, weight, double = bench.rows(2 * width), bench.zeros(2 * width), bench.random(width), bench.random(2 * width)

    def trace(ops: Ops) -> None:
        ops.rms_norm(out, x, weight, eps=1e-5)
        ops.rms_norm(x, x, double, eps=1e-6)
        ops.rms_norm_heads(x, x, head_size=width, eps=1e-5)
        ops.rms_norm(x, x, None, eps=1e-5)

    close(bench.both(trace, x.data, out.data))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("head", "pairs"), [(16, 6), (64, 32), (40, 20), (80, 16)])
def test_rope(bench: Bench, head: int, pairs: int, interleaved: bool) -> None:
    x, positions = bench.rows(3 * head), bench.ints([(5 * t) % 40 for t in range(T)])
    angle = bench.random(40, pairs)
    table = RopeTable(angle.cos(), angle.sin(), interleaved)
    close(bench.both(lambda ops: ops.rope(x, positions, table, head_size=head), x.data))


@pytest.mark.parametrize("block", [1, 16, 64, 256])
def test_rotate(bench: Bench, block: int) -> None:
    x = bench.rows(512)
    close(bench.both(lambda ops: ops.rotate(x, block=block), x.data))


def test_gather_map_and_feedback(bench: Bench) -> None:
    """Rows of another extent, then the best ids looked up in a table and embedded again."""
    x, out = bench.rows(40), Buffer(bench.random(5, 40), Extent.TOKENS)
    values, ids = Buffer(torch.zeros(5, 3), Extent.TOKENS), Buffer(torch.zeros(5, 3, dtype=torch.int32), Extent.TOKENS)
    mapped, rows = Buffer(torch.zeros(5, 3, dtype=torch.int32), Extent.TOKENS), bench.ints([4, 4, 0, 9, 2])
    table = torch.randperm(40, generator=bench.generator, dtype=torch.int32)

    def trace(ops: Ops) -> None:
        ops.gather(out, x, rows)
        ops.top_k(values, ids, out)
        ops.map_ids(mapped, ids, table)

    ours, theirs = bench.both(trace, out.data, values.data, ids.data, mapped.data, tokens=5)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("k", [1, 2, 40, 300])
def test_top_k_prefers_the_lowest_id(bench: Bench, k: int) -> None:
    x = Buffer(bench.random(T, 1000).mul(3).round(), Extent.TOKENS)  # many ties
    x.data[3] = -torch.inf
    values, ids = bench.zeros(k), bench.zeros(k, np.int32)
    ours, theirs = bench.both(lambda ops: ops.top_k(values, ids, x), values.data, ids.data)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_columns_and_rows_of_buffers(bench: Bench) -> None:
    """Views: concatenation into columns, and a chain over the rows of a block, each row after the one before."""
    a, b, joined = bench.rows(20), bench.rows(12), bench.zeros(32)
    block = bench.rows(32)

    def trace(ops: Ops) -> None:
        ops.copy(joined.columns(0, 20), a)
        ops.copy(joined.columns(20, 32), b)
        for i in range(1, T):
            ops.add(block.per_sequence(i, i + 1), block.per_sequence(i - 1, i))

    close(bench.both(trace, joined.data, block.data, sequences=1))


def test_rows_that_feed_their_neighbours_wait(bench: Bench) -> None:
    """A buffer that starts one row later shares memory with other rows: these operations may not run row by row."""
    data = bench.random(T + 1, 24)
    rows, shifted = Buffer(data[:T], Extent.TOKENS), Buffer(data[1:], Extent.TOKENS)
    other = bench.zeros(24)

    def trace(ops: Ops) -> None:
        ops.scale(shifted, 2.0)
        ops.copy(other, rows)

    for _ in range(20):
        close(bench.both(trace, data, other.data))


def test_no_rows_do_nothing(bench: Bench) -> None:
    weight, _ = bench.weight(QuantType.Q8_0, 16, 32)
    x, out = Buffer(bench.random(4, 32), Extent.OUTPUTS), Buffer(torch.ones(4, 16), Extent.OUTPUTS)
    tokens = bench.rows(8)

    def trace(ops: Ops) -> None:
        ops.linear([out], x, [weight])
        ops.scale(tokens, 0.0)

    bench.run(trace, tokens=3, outputs=0)
    assert out.data.eq(1).all()
    assert not tokens.data[:3].any()
    assert tokens.data[3:].all()
