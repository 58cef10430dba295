"""Layers with memory on every executor: formulas, any division into calls, interleaved slots, going back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from specli.kernels.ops import Buffer, Executor, Extent, Ops, Program, RecurrentLayer
from tests.kernels.test_expert_ops import open_kernels
from tests.support.runs import executors

N_KEYS, N_HEADS, SIZE, TAPS, WIDTH = 2, 4, 24, 4, 72
LENGTH, MAX_REWIND = 40, 5


@dataclass
class Memory:
    """A convolution and a delta net with buffers of their own, fed row by row."""

    layer: RecurrentLayer
    program: Program
    inputs: dict[str, Buffer]
    at: tuple[Buffer, Buffer]
    outputs: tuple[Buffer, Buffer]
    kernel: torch.Tensor

    @classmethod
    def open(cls, executor: Executor) -> Memory:
        def new(width: int) -> Buffer:
            return executor.buffer(2 * LENGTH, width, Extent.TOKENS)

        keys, values = N_KEYS * SIZE, N_HEADS * SIZE
        inputs = {
            "x": new(WIDTH),
            "q": new(keys),
            "k": new(keys),
            "v": new(values),
            "b": new(N_HEADS),
            "d": new(N_HEADS),
        }
        positions, slots = (executor.buffer(2 * LENGTH, 1, Extent.TOKENS, np.int32) for _ in range(2))
        mixed, out = new(WIDTH), new(values)
        layer = executor.recurrent_layer(2, 1 + MAX_REWIND, MAX_REWIND + TAPS, WIDTH, N_HEADS, SIZE)
        kernel = torch.randn(WIDTH, TAPS, generator=torch.Generator().manual_seed(1))

        def trace(ops: Ops) -> None:
            ops.causal_convolve(mixed, inputs["x"], layer, positions, slots, kernel)
            ops.delta_scan(out, *(inputs[name] for name in "qkvbd"), layer, positions, slots)

        return cls(layer, executor.compile(trace), inputs, (positions, slots), (mixed, out), kernel)

    def feed(self, rows: dict[str, np.ndarray], start: int, stop: int, slot: int = 0) -> list[torch.Tensor]:
        """Rows start … stop-1 of a sequence at their own positions."""
        return self.feed_at(rows, np.arange(start, stop), np.arange(start, stop), np.full(stop - start, slot))

    def feed_at(
        self, rows: dict[str, np.ndarray], which: np.ndarray, positions: np.ndarray, slots: np.ndarray
    ) -> list[torch.Tensor]:
        n = len(which)
        for name, buffer in self.inputs.items():
            buffer.data[:n] = torch.from_numpy(rows[name][which]).float()
        self.at[0].data[:n, 0], self.at[1].data[:n, 0] = torch.from_numpy(positions), torch.from_numpy(slots)
        self.program.run(n)
        return [buffer.data[:n].clone() for buffer in self.outputs]


def sequence(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = {"x": rng.normal(size=(LENGTH, WIDTH)), "v": rng.normal(size=(LENGTH, N_HEADS * SIZE))}
    for name in "qk":
        heads = rng.normal(size=(LENGTH, N_KEYS, SIZE))
        rows[name] = (heads / np.linalg.norm(heads, axis=2, keepdims=True)).reshape(LENGTH, -1)
    rows["b"], rows["d"] = rng.uniform(0, 1, (LENGTH, N_HEADS)), rng.uniform(0.5, 1, (LENGTH, N_HEADS))
    return rows


@pytest.fixture(params=executors())
def executor(request: pytest.FixtureRequest) -> Executor:
    return open_kernels(request.param)


def test_both_follow_their_formulas(executor: Executor) -> None:
    memory, rows = Memory.open(executor), sequence()
    mixed, out = memory.feed(rows, 0, LENGTH)
    padded = np.concatenate([np.zeros((TAPS - 1, WIDTH)), rows["x"]])
    total = sum(padded[j : j + LENGTH] * memory.kernel.numpy()[:, j] for j in range(TAPS))
    np.testing.assert_allclose(mixed.numpy(), total / (1 + np.exp(-total)), rtol=1e-4, atol=1e-5)
    for head in range(N_HEADS):
        state = np.zeros((SIZE, SIZE))
        at, key_at = head * SIZE, head % N_KEYS * SIZE
        for t in range(LENGTH):
            k, q = (rows[name][t, key_at : key_at + SIZE] for name in "kq")
            state = rows["d"][t, head] * state
            state = state + np.outer(k, rows["b"][t, head] * (rows["v"][t, at : at + SIZE] - state.T @ k))
            np.testing.assert_allclose(out[t, at : at + SIZE].numpy(), state.T @ q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_any_division_into_calls_gives_the_same_bits(executor: Executor, size: int) -> None:
    rows = sequence()
    whole = Memory.open(executor).feed(rows, 0, LENGTH)
    memory = Memory.open(executor)
    parts = [memory.feed(rows, start, min(LENGTH, start + size)) for start in range(0, LENGTH, size)]
    for expected, *found in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat(found), expected)


def test_slots_mixed_row_by_row_do_not_meet(executor: Executor) -> None:
    first, second = sequence(1), sequence(2)
    alone = [Memory.open(executor).feed(rows, 0, LENGTH) for rows in (first, second)]
    both = {name: np.stack([first[name], second[name]], 1).reshape(2 * LENGTH, -1) for name in first}
    positions, slots = np.repeat(np.arange(LENGTH), 2), np.tile([0, 1], LENGTH)
    found = Memory.open(executor).feed_at(both, np.arange(2 * LENGTH), positions, slots)
    for i, mixed in enumerate(found):
        assert torch.equal(mixed[0::2], alone[0][i])
        assert torch.equal(mixed[1::2], alone[1][i])


@pytest.mark.parametrize("n_wrong", range(1, MAX_REWIND + 1))
@pytest.mark.parametrize("together", [True, False])
def test_rows_taken_back_leave_no_trace(executor: Executor, n_wrong: int, together: bool) -> None:
    """Other rows after position 20, in one call or one by one; then the true ones at the same positions."""
    rows, wrong = sequence(1), sequence(2)
    expected = Memory.open(executor).feed(rows, 0, LENGTH)
    memory = Memory.open(executor)
    memory.feed(rows, 0, 20)
    for start in range(20, 20 + n_wrong, n_wrong if together else 1):
        memory.feed(wrong, start, 20 + n_wrong if together else start + 1)
    for whole, found in zip(expected, memory.feed(rows, 20, LENGTH), strict=True):
        assert torch.equal(found, whole[20:])


def test_a_sequence_from_position_0_starts_anew(executor: Executor) -> None:
    memory, rows = Memory.open(executor), sequence()
    first = memory.feed(rows, 0, LENGTH)
    for again, expected in zip(memory.feed(rows, 0, LENGTH), first, strict=True):
        assert torch.equal(again, expected)


def test_decay_is_between_nothing_and_all(executor: Executor) -> None:
    out = Buffer(torch.linspace(-30, 30, 64).repeat(4, 1), Extent.TOKENS)
    rates = -torch.logspace(-2, 1, 64)
    expected = torch.exp(rates.double() * torch.log1p(torch.exp(out.data.double())))
    executor.compile(lambda ops: ops.decay(out, rates)).run(4)
    torch.testing.assert_close(out.data, expected.float(), rtol=1e-4, atol=1e-30)
