"""Cache writes and attention."""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from specli.gguf.quant import QuantType
from specli.kernels.ops import Array, AttentionSpec, Buffer, KVLayer, tensor_of
from specli.kernels.reference.blocks import decode, encode
from specli.kernels.reference.frame import Frame, by_tiles, unless_empty

PIECE = 256  # cells that are summed over together


class AttentionOps(Frame):
    """Cache writes and attention."""

    @unless_empty
    def store(self, layer: KVLayer, k: Buffer, v: Buffer | None, positions: Buffer, slots: Buffer) -> None:
        slot, position = self._kept(slots)[:, 0], self._kept(positions)[:, 0]
        for cells, type, rows in ((layer.k, layer.type_k, k), (layer.v, layer.type_v, v)):
            if rows is not None:
                heads = self._kept(rows).view(len(slot), layer.n_kv_heads, -1)
                tensor_of(cells)[slot, :, position] = encode(type, heads)

    @unless_empty
    def attention(
        self,
        out: Buffer,
        q: Buffer,
        layer: KVLayer,
        positions: Buffer,
        slots: Buffer,
        spec: AttentionSpec,
        *,
        ends: Buffer | None = None,
        paths: Buffer | None = None,
    ) -> None:
        where = tensor_of(layer.k).device  # another one than that of the rows if the cells are another layer's
        position, slot = self._live(positions).to(where), self._live(slots).to(where)
        begin = position - position % spec.chunk if spec.chunk else position - (spec.window - 1)
        end = position + 1 if ends is None else self._live(ends).to(where)
        n_slots, n_cells = len(layer.k), layer.capacity
        in_use = range(n_slots)
        if not self.is_captured:  # only saves work: further cells are hidden, and rows of other slots not wanted
            n_cells = max(int(end.max()), 1) if paths is None else n_cells
            in_use = sorted(set(slot[:, 0].tolist()))  # type: ignore[assignment]
        rows = self._live(q).to(where)
        result: torch.Tensor | None = None
        for number in in_use:
            keys = _pieces(layer.type_k, layer.k, number, n_cells)
            values = _pieces(layer.type_v, layer.v, number, n_cells)[..., : layer.head_size_v].contiguous()

            def tile(
                q: torch.Tensor,
                begin: torch.Tensor,
                end: torch.Tensor,
                keys: torch.Tensor = keys,
                values: torch.Tensor = values,
            ) -> torch.Tensor:
                return _attend(q, keys, values, begin, end, spec)

            attended = by_tiles(tile, rows, begin, end)
            result = attended if result is None else torch.where(slot == number, attended, result)
            if paths is None:
                continue
            for row, path in enumerate(self._live(paths).to(where)):  # each sees cells in an order of its own
                if not self.is_captured and (int(slot[row]) != number or int(path[0]) >= int(end[row])):
                    continue
                order = _order(path, keys.shape[1] * PIECE)
                ordered = [part.flatten(1, 2)[:, order].view(part.shape) for part in (keys, values)]
                one = slice(row, row + 1)
                in_order = partial(tile, keys=ordered[0], values=ordered[1])
                attended = by_tiles(in_order, rows[one], begin[one], end[one])
                result[one] = attended if len(in_use) == 1 else torch.where(slot[one] == number, attended, result[one])
        if result is not None:
            self._live(out).copy_(result)


def _order(path: torch.Tensor, n: int) -> torch.Tensor:
    """The cells of positions 0 … n - 1, `[n]`, of a row of `paths`."""
    position = torch.arange(n, device=path.device)
    place = position - path[0]
    is_scattered = (place >= 0) & (place < len(path) - 1)
    return torch.where(is_scattered, path[1:][place.clamp(0, len(path) - 2)], position).long()


def _pieces(type: QuantType, cells: Array, slot: int, n: int) -> torch.Tensor:
    """The first `n` cells of a slot, filled up to whole pieces: `[n_kv_heads, n_pieces, PIECE, head_size]` float32."""
    rows = decode(type, tensor_of(cells)[slot, :, : -(-n // PIECE) * PIECE])
    missing = -rows.shape[1] % PIECE
    if missing:
        rows = F.pad(rows, (0, 0, 0, missing))
    return rows.view(len(rows), -1, PIECE, rows.shape[2])


def _attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    begin: torch.Tensor,
    end: torch.Tensor,
    spec: AttentionSpec,
) -> torch.Tensor:
    """Attention of one tile of rows over the cells `begin … end - 1` of one slot.

    The softmax of each piece of cells is taken by itself, and the pieces are added in order. So hidden pieces behind
    the last visible one change nothing, however many there are.

    Args:
        q: `[n, n_heads · head_size_k]`.
        keys: `[n_kv_heads, n_pieces, PIECE, head_size_k]`.
        values: `[n_kv_heads, n_pieces, PIECE, head_size_v]`.
        begin: `[n, 1]` int32; asked for only with a window or chunks.
        end: `[n, 1]` int32.
        spec: The rest.

    Returns:
        `[n, n_heads · head_size_v]`.
    """
    n_kv_heads, n_pieces, _, head_size = keys.shape
    n, group = len(q), spec.n_heads // n_kv_heads
    heads = q.view(n, n_kv_heads, group, head_size).permute(1, 0, 2, 3).reshape(n_kv_heads, 1, n * group, head_size)
    scores = torch.matmul(heads, keys.transpose(2, 3)) * spec.scale  # [n_kv_heads, n_pieces, n · group, PIECE]
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    cell = torch.arange(n_pieces * PIECE, dtype=torch.int32, device=q.device).view(n_pieces, 1, 1, PIECE)
    is_hidden = cell >= end[:, None]  # [n_pieces, n, 1, PIECE]
    if spec.window or spec.chunk:
        is_hidden = is_hidden | (cell < begin[:, None])
    scores = scores.view(n_kv_heads, n_pieces, n, group, PIECE).masked_fill(is_hidden, -torch.inf).flatten(2, 3)

    peak = scores.amax(dim=3, keepdim=True).clamp(min=torch.finfo().min)  # finite also where all cells are hidden
    weights = torch.exp(scores - peak)
    highest = peak.amax(dim=1)  # [n_kv_heads, n · group, 1]
    if spec.sinks is not None:
        sinks = spec.sinks.view(n_kv_heads, 1, group).expand(-1, n, -1).reshape(n_kv_heads, n * group, 1)
        highest = torch.maximum(highest, sinks)
    share = torch.exp(peak - highest[:, None])
    total = (share * weights.sum(dim=3, keepdim=True)).cumsum(1)[:, -1]
    if spec.sinks is not None:
        total = total + torch.exp(sinks - highest)
    attended = (share * torch.matmul(weights, values)).cumsum(1)[:, -1] / total  # [n_kv_heads, n · group, head_size_v]
    return attended.view(n_kv_heads, n, -1).transpose(0, 1).flatten(1)
