"""What forwards of a loaded target cost on this machine, measured before the first request."""

from __future__ import annotations

import time

import numpy as np

from specli.models.base import Model

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PASSES = 3
BUDGET_NS = 300_000_000


def measure_rows(target: Model, most: int, *, budget_ns: int = BUDGET_NS) -> dict[int, float]:
    """Nanoseconds of a forward by its number of rows, the least of up to three passes.

    The first slot must be empty and is empty again afterwards. Sizes take turns, so that a busy moment of the machine
    does not hit one of them only. A target too slow for all sizes is measured at one row and at the largest.

    Args:
        target: A loaded model.
        most: The largest number of rows of interest, ≥ 1; less if the target has no room for as many.
        budget_ns: About the time that this may take.
    """
    assert target.cache.length(0) == 0, "the first slot is in use"
    options = target.options
    most = max(1, min(most, options.max_tokens, options.max_outputs, options.capacity))
    sizes = sorted({1, most, *(size for size in SIZES if size < most)})
    begun = time.perf_counter_ns()
    _forward_ns(target, 1)  # warms up
    found = {1: float(_forward_ns(target, 1))}
    if 2 * sum(sizes) * found[1] > budget_ns:  # at worst a row costs as much as a forward
        sizes = sorted({1, most})
    for number in range(PASSES):
        for size in sizes:
            ns = _forward_ns(target, size)
            found[size] = min(found.get(size, ns), float(ns))
        elapsed = time.perf_counter_ns() - begun
        if elapsed + elapsed / (number + 1) > budget_ns:
            break
    return found


def _forward_ns(target: Model, n_rows: int) -> int:
    """Time of one forward from position 0 on, which is forgotten at once."""
    tokens = np.zeros(n_rows, dtype=np.int32)
    numbers = np.arange(n_rows, dtype=np.int32)
    begun = time.perf_counter_ns()
    target.forward(tokens, numbers, tokens, numbers)
    elapsed = time.perf_counter_ns() - begun
    target.cache.truncate(0, 0)
    return elapsed
