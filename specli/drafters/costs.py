"""What a target forward costs by its number of rows: measured once, then kept current by the rounds themselves."""

from __future__ import annotations

from collections.abc import Mapping

OWN_WEIGHT = 0.2  # how far one observation moves the cost of its own row count
DRIFT_WEIGHT = 0.1  # and those of all others: a machine that slows down slows every size
TOLERANCE = 0.01  # a cost must have moved so far before the table between the sizes is drawn anew
SURPRISE = 2.0  # an observation counts as at most this factor off, so that one pause of the machine decides nothing


def interpolate(costs: Mapping[int, float], rows: int) -> float:
    """The cost of `rows` rows: between measured sizes on a straight line, beyond them on the nearest one.

    Example: 2 rows take 10, 4 rows 14: 3 rows take 12, 6 rows 18.

    Args:
        costs: Rows → time; not empty.
        rows: At least 1.
    """
    sizes = sorted(costs)
    if rows in costs or len(sizes) == 1:
        return costs.get(rows, costs[sizes[0]])
    upper = next((i for i, size in enumerate(sizes) if size > rows), len(sizes) - 1)
    low, high = sizes[max(0, upper - 1)], sizes[max(1, upper)]
    slope = (costs[high] - costs[low]) / (high - low)
    return costs[low] + slope * (rows - low)


class RowCosts:
    """Nanoseconds of a target forward by rows.

    Args:
        measured: Rows → nanoseconds; has 1.
    """

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._shape = dict(measured)
        self._scale = 1.0  # how much slower than measured the machine is now
        self._dense: list[float] = []  # entry r: `_shape` between its sizes, at least that of one row

    def __call__(self, rows: int) -> float:
        """The expected time of a forward of `rows` rows; never less than that of one row."""
        while rows >= len(self._dense):
            self._dense.append(max(self._shape[1], interpolate(self._shape, max(1, len(self._dense)))))
        return self._scale * self._dense[rows]

    def observe(self, rows: int, ns: float) -> None:
        """Takes in a forward of `rows` rows that took `ns`."""
        expected = self(rows)
        ratio = min(max(ns / expected, 1 / SURPRISE), SURPRISE)
        self._scale *= ratio**DRIFT_WEIGHT
        self._shape[rows] = self._shape.get(rows, self._dense[rows]) * ratio ** (OWN_WEIGHT - DRIFT_WEIGHT)
        if abs(self._shape[rows] - self._dense[rows]) > TOLERANCE * self._dense[rows]:
            self._dense.clear()
