"""Tables of rotary angles with every scaling rule already applied (docs/targets.md §2.3)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Array, Executor, RopeTable, host
from specli.models.architecture import RopeConfig, Temperature

_FINE = 64  # positions that share a coarse angle


def rope_table(config: RopeConfig, capacity: int, executor: Executor, *, factors: Array | None = None) -> RopeTable:
    """The cosines and sines of every position, computed in float64.

    Args:
        config: Base, scaling, pairing.
        capacity: Positions 0 … capacity-1.
        executor: Whose kernels read the table.
        factors: `[n_rot/2]` float32 divisors of the angles (`rope_freqs.weight` and the like), or None.
    """
    pair = np.arange(config.n_rot // 2, dtype=np.float64)
    frequency = config.base ** (-2 * pair / config.n_rot)  # radians per position
    if factors is not None:
        frequency = frequency / host(factors).astype(np.float64)
    magnitude = config.attention_factor
    if config.scaling == "yarn":
        low, high = _correction_range(config)
        ramp = 1 - ((pair - low) / max(0.001, high - low)).clip(0, 1)  # 1: extrapolate, 0: interpolate
        frequency = frequency / config.factor * (1 - ramp) + frequency * ramp
        magnitude *= 1 + 0.1 * math.log(max(1.0, config.factor))
    else:
        frequency = frequency / config.factor
    cos, sin = _turns(frequency, capacity, magnitude)
    queries = None
    if config.temperature is not None:
        grown = temperatures(config.temperature, capacity)[:, None]
        queries = RopeTable(executor.array(cos * grown), executor.array(sin * grown), config.interleaved)
    return RopeTable(executor.array(cos), executor.array(sin), config.interleaved, queries)


def temperatures(config: Temperature, capacity: int) -> npt.NDArray[np.float32]:
    """`[capacity]`, the factor on queries of every position."""
    steps = (np.arange(capacity) + config.offset) // config.length
    return (1 + config.scale * np.log1p(steps)).astype(np.float32)


def _turns(
    frequency: npt.NDArray[np.float64], capacity: int, magnitude: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """`m·cos(p·f)` and `m·sin(p·f)` of every position p, `[capacity, n_rot/2]`.

    By the sum of two angles, p = 64·i + j: far fewer cosines, and float64 keeps more digits than float32 shows.
    """
    cos, sin = (np.empty((capacity, len(frequency)), np.float32) for _ in range(2))
    fine = np.arange(_FINE)[:, None] * frequency  # [64, n_rot/2]
    cos_fine, sin_fine = np.cos(fine), np.sin(fine)
    for start in range(0, capacity, _FINE):
        n = min(_FINE, capacity - start)
        cos_start, sin_start = magnitude * np.cos(start * frequency), magnitude * np.sin(start * frequency)
        cos[start : start + n] = (cos_start * cos_fine - sin_start * sin_fine)[:n]
        sin[start : start + n] = (sin_start * cos_fine + cos_start * sin_fine)[:n]
    return cos, sin


def _correction_range(config: RopeConfig) -> tuple[float, float]:
    """Pair indices between which YaRN goes from extrapolation to interpolation; always rounded outwards."""

    def pair_with(rotations: float) -> float:
        turns = math.log(config.n_ctx_original / (2 * math.pi * rotations))
        return config.n_rot * turns / (2 * math.log(config.base))

    low = max(0, math.floor(pair_with(config.beta_fast)))
    high = min(config.n_rot - 1, math.ceil(pair_with(config.beta_slow)))
    return low, high
