"""Operations that only draft networks use: products with chosen rows, convolutions along a block."""

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantTensor, QuantType, quantise
from specli.kernels.cpu.executor import CpuExecutor
from specli.kernels.ops import Executor, Extent, Ops
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig

ONE_THREAD = ThreadConfig(n_threads=1)
EXECUTORS = {
    "reference": lambda: ReferenceExecutor(threads=ONE_THREAD),
    "cpu": lambda: CpuExecutor(threads=ONE_THREAD, exact=True),
}


@pytest.fixture(params=EXECUTORS.values(), ids=EXECUTORS.keys())
def executor(request: pytest.FixtureRequest) -> Executor:
    made: Executor = request.param()
    return made


@pytest.mark.parametrize("label", ["f32", "bf16", "q8_0"])
@pytest.mark.parametrize("rank", [16, 40, 64])
def test_linear_rows(executor: Executor, label: str, rank: int) -> None:
    type = QuantType.from_label(label)
    if rank % type.block_size:
        pytest.skip("not a whole number of quant blocks")
    rng = np.random.default_rng(0)
    tensor = QuantTensor(
        "table", type, (50, rank), quantise(type, rng.normal(size=(50, rank)).astype(np.float32)).reshape(-1)
    )
    x, ids = rng.normal(size=(4, rank)).astype(np.float32), rng.integers(0, 50, (4, 7)).astype(np.int32)
    before = rng.normal(size=(4, 7)).astype(np.float32)
    out, x_rows = executor.buffer(4, 7, Extent.TOKENS), executor.buffer(4, rank, Extent.TOKENS)
    id_rows = executor.buffer(4, 7, Extent.TOKENS, np.int32)
    table = executor.weight(tensor)
    x_rows.data.copy_(torch.from_numpy(x))
    id_rows.data.copy_(torch.from_numpy(ids))
    program = executor.compile(lambda ops: ops.linear_rows(out, x_rows, table, id_rows))
    whole = None
    for n_rows in (4, 2):
        out.data.copy_(torch.from_numpy(before))
        program.run(n_rows)
        expected = before + np.einsum("tr,tjr->tj", x, tensor.dequantise()[ids])
        np.testing.assert_allclose(out.data[:n_rows], expected[:n_rows], rtol=0, atol=1e-5)
        assert np.array_equal(out.data[n_rows:], before[n_rows:])
        whole = out.data.clone() if whole is None else whole
        assert torch.equal(out.data[:n_rows], whole[:n_rows])  # whatever else the call has


@pytest.mark.parametrize("n_taps", [1, 3, 9])
@pytest.mark.parametrize(("n_rows", "block"), [(1, 6), (2, 6), (6, 6), (6, 3), (4, 2)])
def test_convolve(executor: Executor, n_taps: int, n_rows: int, block: int) -> None:
    """Written out by the definition, in float64: a block sees nothing of the one before."""
    width, group = 12, 4
    rng = np.random.default_rng(n_taps)
    x, weights = rng.normal(size=(6, width)), rng.normal(size=(6, n_taps * width // group))
    kernel = rng.normal(size=(n_taps, width))
    out, x_rows = (executor.buffer(6, width, Extent.TOKENS) for _ in range(2))
    weight_rows = executor.buffer(6, weights.shape[1], Extent.TOKENS)
    x_rows.data.copy_(torch.from_numpy(x))
    weight_rows.data.copy_(torch.from_numpy(weights))
    taps = torch.from_numpy(kernel).float()

    def trace(ops: Ops) -> None:
        ops.convolve(out, x_rows, taps, weight_rows, group=group, block=block)

    executor.compile(trace).run(n_rows)
    for t in range(n_rows):
        for c in range(width):
            factors = [
                kernel[j, c] + weights[t, j * width // group + c // group] for j in range(min(n_taps, t % block + 1))
            ]
            expected = sum(factor * x[t - j, c] for j, factor in enumerate(factors))
            assert out.data[t, c] == pytest.approx(expected, abs=1e-5)


def test_scatter_take_and_increment(executor: Executor) -> None:
    """By hand, for two of three sequences; other rows stay."""
    x, out = executor.buffer(3, 2, Extent.SEQUENCES), executor.buffer(5, 2, Extent.TOKENS)
    rows = executor.buffer(3, 1, Extent.SEQUENCES, np.int32)
    table, places = (executor.buffer(3, width, Extent.SEQUENCES, np.int32) for width in (4, 2))
    x.data.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    rows.fill(np.array([4, 1, 0], np.int32))
    table.data.copy_(torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]))
    places.data.copy_(torch.tensor([[3, 0], [1, 1], [2, 2]]))

    def trace(ops: Ops) -> None:
        ops.scatter(out, x, rows)
        ops.take(places, table, places)
        ops.increment(rows)

    executor.compile(trace).run(sequences=2)
    assert out.data.tolist() == [[0, 0], [3, 4], [0, 0], [0, 0], [1, 2]]
    assert places.data.tolist() == [[13, 10], [21, 21], [2, 2]]
    assert rows.data.tolist() == [[5], [2], [0]]


@pytest.mark.parametrize("has_rest", [True, False], ids=["with a rest", "alone"])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_part_is_repeated_as_often_as_a_run_says(executor: Executor, has_rest: bool, steps: int) -> None:
    """What stands before it and behind it runs once. x ← x + 1, (x ← 3x + 1)ⁿ, x ← x / 2, for two sequences."""
    x, seen = executor.buffer(2, 1, Extent.SEQUENCES), executor.buffer(14, 1, Extent.TOKENS)
    rows = executor.buffer(2, 1, Extent.SEQUENCES, np.int32)
    one = executor.array(np.ones(1, np.float32))

    def body(ops: Ops) -> None:
        ops.scale(x, 3.0)
        ops.add_row(x, one)
        ops.scatter(seen, x, rows)
        ops.increment(rows)

    def trace(ops: Ops) -> None:
        if has_rest:
            ops.add_row(x, one)
        ops.repeat(lambda: body(ops))
        if has_rest:
            ops.scale(x, 0.5)

    program = executor.compile(trace)
    for start in (0.0, 5.0):
        x.data.copy_(torch.tensor([[start], [start + 1]]))
        rows.fill(np.array([0, 7], np.int32))
        seen.data.zero_()
        program.run(sequences=2, steps=steps)
        for sequence in range(2):
            value, expected = start + sequence + has_rest, []
            for _ in range(steps):
                value = 3 * value + 1
                expected.append(value)
            assert x.data[sequence, 0] == (value / 2 if has_rest else value)
            assert seen.data[7 * sequence : 7 * sequence + 7, 0].tolist() == expected + [0.0] * (7 - steps)
