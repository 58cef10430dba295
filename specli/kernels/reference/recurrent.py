"""Gated delta nets: operations that remember rows."""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

import torch

from specli.kernels.ops import Array, Buffer, RecurrentLayer, tensor_of
from specli.kernels.reference.frame import Frame, unless_empty
from specli.kernels.reference.rows import silu, softplus


class RecurrentOps(Frame):
    """Gated delta nets."""

    @unless_empty
    def causal_convolve(
        self, out: Buffer, x: Buffer, layer: RecurrentLayer, positions: Buffer, slots: Buffer, kernel: Array
    ) -> None:
        rows, slot, position = self._kept(x), self._kept(slots), self._kept(positions)  # [n, ·], [n, 1], [n, 1]
        ring = tensor_of(layer.inputs).flatten(0, 1)  # [n_slots · n_inputs, width]
        number = torch.arange(len(rows), device=rows.device)
        total = kernel[:, -1] * rows
        for back in range(1, kernel.shape[1]):
            # The input so far back is that of a row of this call, or one the ring remembers, or none.
            earlier = position - back
            match = (slot == slot.t()) & (earlier == position.t())  # [n, n]
            source = torch.where(match, number, -1).amax(dim=1)
            remembered = ring.index_select(0, _cell(slot, earlier, layer.n_inputs))
            tap = torch.where((source >= 0)[:, None], rows.index_select(0, source.clamp(min=0)), remembered)
            total = total + kernel[:, -1 - back] * torch.where(earlier >= 0, tap, 0)
        self._live(out).copy_(silu(total))
        # Of rows that share a cell of the ring the last one's input is kept: all of them write that.
        cell = _cell(slot, position, layer.n_inputs)
        last = torch.where(cell[:, None] == cell, self._place(x.extent, rows), -1).amax(dim=1)
        ring.index_copy_(0, cell, rows.index_select(0, last))

    def decay(self, out: Buffer, rates: Array) -> None:
        self._live(out).copy_(torch.exp(rates * softplus(self._live(out))))

    @unless_empty
    def delta_scan(
        self,
        out: Buffer,
        q: Buffer,
        k: Buffer,
        v: Buffer,
        beta: Buffer,
        decay: Buffer,
        layer: RecurrentLayer,
        positions: Buffer,
        slots: Buffer,
        *,
        is_grouped: bool = False,
    ) -> None:
        size, n_heads = layer.head_size, layer.n_heads
        slot, position, to = self._live(slots), self._live(positions), self._live(out)
        n, n_repeats = len(to), n_heads * size // k.width
        ring = tensor_of(layer.states).flatten(0, 1)  # [n_slots · n_states, n_heads, S, S]
        before, after = (_cell(slot, position + i, layer.n_states) for i in range(2))
        repeated = 2 if is_grouped else 1  # the axis, beside that of the key heads
        keys, queries = (self._live(x).view(n, -1, size).unsqueeze(repeated) for x in (k, q))
        shape = [n, -1, -1, size]
        shape[repeated] = n_repeats
        keys, queries = (x.expand(shape).reshape(n, n_heads, 1, size) for x in (keys, queries))
        values = self._live(v).view(n, n_heads, 1, size)
        strength, kept = (self._live(x).view(n, n_heads, 1, 1) for x in (beta, decay))
        is_live = self._is_live(out.extent, to)
        for t in range(n):  # each row reads the state that the one before it left
            state = torch.where(position[t] > 0, ring.index_select(0, before[t : t + 1])[0], 0) * kept[t]
            error = values[t] - torch.bmm(keys[t], state)
            state = state + keys[t].transpose(1, 2) * (strength[t] * error)
            written = after[t : t + 1]
            ring.index_copy_(0, written, torch.where(is_live[t], state, ring.index_select(0, written)))
            to[t].copy_(torch.bmm(queries[t], state).view(-1))


def _cell(slot: torch.Tensor, position: torch.Tensor, n: int) -> torch.Tensor:
    """The places of `[·, 1]` positions in rings of n, all slots' rings one after the other: `[·]` int64."""
    return (slot * n + position % n)[:, 0].long()
