"""Operations that treat each row by itself, and those that move rows."""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from specli.kernels.ops import Activation, Array, Buffer, RopeTable, Weight
from specli.kernels.reference.frame import Frame, by_tiles, unless_empty
from specli.kernels.reference.weights import matrix_of, times, times_own


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """`1 / (1 + e^-x)`."""
    return 1 / (1 + torch.exp(-x))


def silu(x: torch.Tensor) -> torch.Tensor:
    """`x · σ(x)`."""
    return x / (1 + torch.exp(-x))


def softplus(x: torch.Tensor) -> torch.Tensor:
    """`ln(1 + e^x)`, for large x too."""
    return x.clamp(min=0) + torch.log(1 + torch.exp(-x.abs()))


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))


def _swiglu_oai(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    g = g.clamp(max=7)
    return g * sigmoid(1.702 * g) * (u.clamp(min=-7, max=7) + 1)


ACTIVATIONS: dict[Activation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Activation.SILU: lambda g, u: silu(g) * u,
    Activation.GELU: lambda g, u: _gelu(g) * u,
    Activation.SWIGLU_OAI: _swiglu_oai,
}


def _normalised(rows: torch.Tensor, group: int, weight: Array | None, eps: float) -> torch.Tensor:
    """Each run of `group` elements divided by its root mean square (in float64: llama.cpp sums so)."""

    def tile(rows: torch.Tensor) -> torch.Tensor:
        runs = F.rms_norm(rows.double().view(len(rows), -1, group), (group,), eps=eps)
        return (runs if weight is None else runs * weight).flatten(1)

    return by_tiles(tile, rows)


class RowOps(Frame):
    """Norms, products, rope, movers, formulas of single elements."""

    def embed(self, out: Buffer, table: Weight, ids: Buffer, *, scale: float = 1.0) -> None:
        matrix = matrix_of(table)
        self._live(out).copy_(matrix.rows(self._column(ids).to(matrix.device)) * scale)

    @unless_empty
    def rms_norm(self, out: Buffer, x: Buffer, weight: Array | None, *, eps: float) -> None:
        group = x.width if weight is None else weight.shape[0]
        self._live(out).copy_(_normalised(self._live(x), group, weight, eps))

    @unless_empty
    def rms_norm_heads(self, out: Buffer, x: Buffer, *, head_size: int, eps: float) -> None:
        self._live(out).copy_(_normalised(self._live(x), head_size, None, eps))

    @unless_empty
    def linear(
        self,
        outs: Sequence[Buffer],
        x: Buffer,
        weights: Sequence[Weight],
        *,
        biases: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> None:
        for out, weight, bias in zip(outs, weights, biases or [None] * len(outs), strict=True):
            product, to = times(weight, self._live(x), bias), self._live(out)
            if accumulate:
                to.add_(product)
            else:
                to.copy_(product)

    @unless_empty
    def gated_linear(
        self,
        out: Buffer,
        x: Buffer,
        gate: Weight,
        up: Weight,
        activation: Activation,
        *,
        gate_bias: Array | None = None,
        up_bias: Array | None = None,
    ) -> None:
        rows = self._live(x)
        self._live(out).copy_(ACTIVATIONS[activation](times(gate, rows, gate_bias), times(up, rows, up_bias)))

    @unless_empty
    def linear_rows(self, out: Buffer, x: Buffer, table: Weight, ids: Buffer) -> None:
        matrix = matrix_of(table)

        def tile(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            chosen = matrix.rows(ids.flatten().to(matrix.device))
            return times_own(chosen.view(*ids.shape, -1), rows)

        self._live(out).add_(by_tiles(tile, self._live(x), self._live(ids)))

    @unless_empty
    def convolve(self, out: Buffer, x: Buffer, kernel: Array, weights: Buffer, *, group: int, block: int) -> None:
        rows = self._live(x)
        n, width = rows.shape
        factors = self._live(weights).reshape(n, len(kernel), width // group)
        place = torch.arange(n, device=rows.device)[:, None] % block  # in its block
        total = torch.zeros_like(rows)
        for j in range(min(len(kernel), block, n)):
            taps = kernel[j] + factors[:, j].repeat_interleave(group, dim=1)  # [n, width]
            total = total + torch.where(place >= j, taps * rows.roll(j, 0), 0)
        self._live(out).copy_(total)

    @unless_empty
    def rope(self, x: Buffer, positions: Buffer, table: RopeTable, *, head_size: int) -> None:
        rows, at = self._live(x), self._column(positions)
        cos, sin = (part.index_select(0, at)[:, None] for part in (table.cos, table.sin))  # [n, 1, n_rot/2]
        heads = rows.view(len(rows), -1, head_size)[..., : table.n_rot]  # [n, n_heads, n_rot]
        half = table.n_rot // 2
        a, b = (heads[..., 0::2], heads[..., 1::2]) if table.interleaved else (heads[..., :half], heads[..., half:])
        products = a * cos, b * sin, a * sin, b * cos
        torch.sub(products[0], products[1], out=a)
        torch.add(products[2], products[3], out=b)

    @unless_empty
    def rotate(self, x: Buffer, *, block: int) -> None:
        rows = self._live(x)
        values = rows
        half = 1
        while half < block:  # butterflies of the fast transform, Sylvester order
            a, b = values.reshape(len(rows), -1, 2, half).unbind(2)
            values = torch.stack([a + b, a - b], dim=2)
            half *= 2
        rows.copy_(values.view(len(rows), -1) * block**-0.5)

    @unless_empty
    def join_heads(self, out: Buffer, a: Buffer, b: Buffer, *, n_heads: int) -> None:
        parts = (self._live(part) for part in (a, b))
        joined = torch.cat([part.reshape(len(part), n_heads, -1) for part in parts], dim=2)
        self._live(out).copy_(joined.flatten(1))

    def add(self, out: Buffer, x: Buffer) -> None:
        self._live(out).add_(self._live(x))

    def add_row(self, out: Buffer, row: Array) -> None:
        self._live(out).add_(row)

    def multiply(self, out: Buffer, x: Buffer) -> None:
        self._live(out).mul_(self._live(x))

    def scale(self, out: Buffer, factor: float) -> None:
        self._live(out).mul_(factor)

    def sigmoid(self, out: Buffer) -> None:
        self._live(out).copy_(sigmoid(self._live(out)))

    @unless_empty
    def centre(self, out: Buffer) -> None:
        rows = self._live(out)
        rows.sub_(by_tiles(lambda tile: tile.mean(dim=1, keepdim=True), rows))

    def gelu(self, out: Buffer) -> None:
        self._live(out).copy_(F.gelu(self._live(out), approximate="tanh"))

    def softcap(self, out: Buffer, cap: float) -> None:
        self._live(out).copy_(cap * torch.tanh(self._live(out) / cap))

    def join(self, out: Buffer, x: Buffer, activation: Activation) -> None:
        self._live(out).copy_(ACTIVATIONS[activation](self._live(out), self._live(x)))

    def copy(self, out: Buffer, x: Buffer) -> None:
        self._live(out).copy_(self._live(x))

    def gather(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        self._live(out).copy_(x.data.index_select(0, self._column(rows)))

    def scatter(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        out.data.index_copy_(0, self._kept(rows)[:, 0].long(), self._kept(x))

    def increment(self, out: Buffer) -> None:
        rows = self._live(out)
        rows.add_(self._is_live(out.extent, rows)[:, None])

    def top_k(self, values: Buffer, ids: Buffer, x: Buffer) -> None:
        best = torch.sort(self._live(x), dim=1, descending=True, stable=True)
        self._live(values).copy_(best.values[:, : ids.width])
        self._live(ids).copy_(best.indices[:, : ids.width])

    @unless_empty
    def log_softmax(self, values: Buffer, x: Buffer) -> None:
        total = by_tiles(lambda tile: torch.logsumexp(tile, dim=1, keepdim=True), self._live(x))
        self._live(values).sub_(total)

    def map_ids(self, out: Buffer, ids: Buffer, table: Array) -> None:
        self._live(out).copy_(table[self._live(ids)])

    def take(self, out: Buffer, x: Buffer, places: Buffer) -> None:
        self._live(out).copy_(self._live(x).gather(1, self._live(places).long()))
