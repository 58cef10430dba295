"""What a target forward costs by its number of rows: measured once, then kept current by the rounds themselves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

OWN_WEIGHT = 0.2  # how far one observation moves the cost of its own row count
DRIFT_WEIGHT = 0.1  # and those of all others: a machine that slows down slows every size
TOLERANCE = 0.02  # a cost must have moved so far before the table between the sizes is drawn anew
SURPRISE = 2.0  # an observation counts as at most this factor off, so that one pause of the machine decides nothing


class RowCosts:
    """Nanoseconds of a target forward by rows: straight lines between the sizes, the last one goes on beyond them.

    Example: 2 rows take 10, 4 rows 14: 3 rows take 12, 6 rows 18. Fewer rows never cost more.

    Args:
        measured: Rows → nanoseconds; has 1.

    Attributes:
        n_drawn: How often the costs between the sizes were drawn.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self.n_drawn = 0
        self._shape = dict(measured)
        self._scale = 1.0  # how much slower than measured the machine is now
        self._is_stale = False
        self._between: list[float] = []  # entry r: `_shape` between its sizes, never falling

    def __call__(self, rows: int) -> float:
        """The expected time of a forward of `rows` rows; never less than that of one row."""
        if rows >= len(self._between):
            self._extend(rows)
        return self._scale * self._between[rows]

    def observe(self, rows: int, ns: float) -> None:
        """Takes in a forward of `rows` rows that took `ns`."""
        ratio = min(max(ns / self(rows), 1 / SURPRISE), SURPRISE) - 1
        self._scale *= 1 + DRIFT_WEIGHT * ratio
        expected = self._between[rows]
        own = self._shape[rows] = self._shape.get(rows, expected) * (1 + (OWN_WEIGHT - DRIFT_WEIGHT) * ratio)
        self._is_stale |= abs(own - expected) > TOLERANCE * expected

    def refresh(self) -> None:
        """Draws the costs between the sizes anew if they have moved; until then they stay as they were."""
        if self._is_stale:
            self._extend(len(self._between) // 2)

    def _extend(self, rows: int) -> None:
        """Draws the costs between the sizes for up to `rows` rows and twice as many."""
        self._is_stale = False
        self.n_drawn += 1
        sizes = sorted(self._shape)
        costs = [self._shape[size] for size in sizes]
        for place in range(len(costs) - 1, 0, -1):  # fewer rows cost no more: if they seem to, they were held up
            costs[place - 1] = min(costs[place - 1], costs[place])
        most = 2 * rows
        if len(sizes) > 1 and most > sizes[-1]:  # on along the last line
            slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
            costs.append(costs[-1] + slope * (most - sizes[-1]))
            sizes.append(most)
        self._between = np.interp(np.arange(most + 1), sizes, costs).tolist()
