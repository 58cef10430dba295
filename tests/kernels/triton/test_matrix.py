"""Triton's kernels in its interpreter, against the dequantised matrices of `specli.gguf`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.triton.matrix import TYPES, look_up, project
from tests.support.blocks import random_rows

N_OUT, N_IN = 70, 512  # more than a tile, and not a whole number of them


def matrix(type: QuantType, n_in: int = N_IN) -> tuple[torch.Tensor, torch.Tensor]:
    """A random matrix as stored, and its numbers."""
    data = random_rows(type, N_OUT, n_in, np.random.default_rng(int(type)))
    values = QuantTensor("w", type, (N_OUT, n_in), data.reshape(-1)).dequantise()
    return torch.from_numpy(data.reshape(N_OUT, -1).copy()), torch.from_numpy(values)


def rows(n: int, n_in: int = N_IN) -> torch.Tensor:
    return torch.randn(n, n_in, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("type", sorted(TYPES), ids=lambda type: type.label)
def test_rows_are_unpacked_exactly(type: QuantType) -> None:
    data, values = matrix(type)
    ids = torch.tensor([69, 0, 33, 0], dtype=torch.int32)
    assert torch.equal(look_up(data, type, N_IN, ids), values[ids.long()])


@pytest.mark.parametrize("type", sorted(TYPES), ids=lambda type: type.label)
def test_products(type: QuantType) -> None:
    data, values = matrix(type)
    x = rows(3)
    expected = (x.double() @ values.double().T).float()
    torch.testing.assert_close(project(data, type, x), expected, rtol=1e-5, atol=1e-4 * float(expected.abs().max()))


def test_a_width_that_is_no_whole_number_of_steps() -> None:
    data, values = matrix(QuantType.Q8_0, 160)
    x = rows(17, 200)[:, 7:167]  # strided, and more than a tile
    expected = (x.double() @ values.double().T).float()
    torch.testing.assert_close(project(data, QuantType.Q8_0, x), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.slow  # the interpreter takes its time
@pytest.mark.parametrize("type", [QuantType.F16, QuantType.Q4_K], ids=lambda type: type.label)
def test_rows_do_not_depend_on_their_number_or_company(type: QuantType) -> None:
    data, _ = matrix(type)
    x = rows(16)
    expected = project(data, type, x)
    for n in (1, 2, 5, 8):
        assert torch.equal(project(data, type, x[:n].contiguous()), expected[:n])
    other = x * 50
    other[3] = x[3]
    assert torch.equal(project(data, type, other)[3], expected[3])


@pytest.mark.slow  # the interpreter takes its time
def test_no_kernel_multiplies_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter would multiply their bit patterns and say nothing."""
    seen: list[Any] = []
    plain = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *args: Any) -> Any:
        seen.extend((a.dtype, b.dtype))
        return plain(self, a, b, *args)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    for type in sorted(TYPES):
        project(matrix(type)[0], type, rows(1))
    assert set(seen) == {tl.float32}
