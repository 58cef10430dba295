"""Float helpers of the encoders."""

from __future__ import annotations

import numpy as np

from specli.gguf.decode import Bytes, Floats


def half_bytes(values: Floats) -> Bytes:
    """`[n, k]` float32 to `[n, 2k]` bytes of float16."""
    return values.astype("<f2").view(np.uint8)


def reciprocal(values: Floats) -> Floats:
    """1/x, and 0 where x is 0."""
    inverse: Floats = np.divide(np.float32(1), values, out=np.zeros(values.shape, np.float32), where=values != 0)
    return inverse


def extreme(x: Floats) -> Floats:
    """The signed value of largest magnitude of each block, the first one on a tie: `[n, 1]`."""
    values: Floats = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)
    return values
