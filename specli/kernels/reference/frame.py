"""Which rows a run has, and how they are cut into tiles of one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F

from specli.kernels.ops import Buffer, Extent, Ops

TILE = 16  # rows that are summed over together


class Frame(Ops):
    """What all groups of operations share.

    Attributes:
        counts: Rows that a run computes, per extent. All of them are live unless the run is captured.
        steps: How often it repeats what is to be repeated.
        places: Of a run that is captured, per extent, `[n]` int32: the number of each row, 0 for a row behind the live
            ones.
        is_captured: The calls will be replayed with other values: nothing may be read on the host.
    """

    def __init__(self) -> None:
        self.counts: Mapping[Extent, int] = dict.fromkeys(Extent, 0)
        self.steps = 0
        self.places: Mapping[Extent, torch.Tensor] = {}
        self.is_captured = False

    def repeat(self, body: Callable[[], None]) -> None:
        """Runs the part as often as the run says."""
        for _ in range(self.steps):
            body()

    def _live(self, buffer: Buffer) -> torch.Tensor:
        """The rows of a buffer that the run computes."""
        return buffer.data[: self.counts[buffer.extent]]

    def _column(self, buffer: Buffer) -> torch.Tensor:
        """The numbers in the only column of a buffer."""
        return self._live(buffer)[:, 0]

    def _place(self, extent: Extent, rows: torch.Tensor) -> torch.Tensor:
        """`places` of these rows, where they lie; all are live unless the run is captured."""
        if self.is_captured:
            return self.places[extent][: len(rows)]
        return torch.arange(len(rows), dtype=torch.int32, device=rows.device)

    def _kept(self, buffer: Buffer) -> torch.Tensor:
        """The rows of a buffer whose effects outlast the run: those behind the live ones are row 0 again."""
        rows = self._live(buffer)
        return rows.index_select(0, self._place(buffer.extent, rows))

    def _is_live(self, extent: Extent, rows: torch.Tensor) -> torch.Tensor:
        """`[n]` bool."""
        return self._place(extent, rows) == torch.arange(len(rows), dtype=torch.int32, device=rows.device)


def unless_empty(operation: Callable[..., None]) -> Callable[..., None]:
    """Makes an operation do nothing where the first buffer it is given has no rows to compute."""

    @wraps(operation)
    def checked(self: Frame, *args: Any, **more: Any) -> None:
        buffers = (arg[0] if isinstance(arg, list) else arg for arg in args)
        first = next(buffer for buffer in buffers if isinstance(buffer, Buffer))
        if self.counts[first.extent]:
            operation(self, *args, **more)

    return checked


def places_of(n: int, n_live: torch.Tensor | int, device: torch.device) -> torch.Tensor:
    """`Frame.places` of one extent for `n` computed rows."""
    numbers = torch.arange(n, dtype=torch.int32, device=device)
    return torch.where(numbers < n_live, numbers, 0)


def by_tiles(function: Callable[..., torch.Tensor], *rows: torch.Tensor) -> torch.Tensor:
    """Applies a function of rows to `TILE` rows at a time; what is missing is filled up with zeros.

    Args:
        function: Takes a tensor `[TILE, ·]` for each of `rows` and gives `[TILE, ·]`.
        rows: Tensors of n ≥ 1 rows.

    Returns:
        `[n, ·]`.
    """
    n = len(rows[0])
    missing = -n % TILE
    if missing:
        rows = tuple(F.pad(each, (0, 0) * (each.dim() - 1) + (0, missing)) for each in rows)
    if len(rows[0]) == TILE:
        return function(*rows)[:n]
    tiles = zip(*(torch.split(each, TILE) for each in rows), strict=True)
    return torch.cat([function(*tile) for tile in tiles])[:n]
