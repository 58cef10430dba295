"""Tables of rotary angles with every scaling rule already applied (target-models.md §2.3)."""

from __future__ import annotations

import math

import torch

from specli.kernels.ops import RopeTable
from specli.models.config import RopeConfig

_YARN_BETA_FAST = 32.0  # the betas stored in files are ignored, as upstream does for these architectures
_YARN_BETA_SLOW = 1.0


def rope_table(
    config: RopeConfig, capacity: int, device: torch.device, *, factors: torch.Tensor | None = None
) -> RopeTable:
    """The cosines and sines of every position, computed in float64.

    Args:
        config: Base, scaling, pairing.
        capacity: Positions 0 … capacity-1.
        device: Where the table is wanted.
        factors: `[n_rot/2]` float32 divisors of the angles (`rope_freqs.weight` and the like), or None.
    """
    pair = torch.arange(config.n_rot // 2, dtype=torch.float64, device=device)
    frequency = config.base ** (-2 * pair / config.n_rot)  # radians per position
    if factors is not None:
        frequency = frequency / factors.double()
    magnitude = config.attention_factor
    if config.scaling == "yarn":
        low, high = _correction_range(config)
        ramp = 1 - ((pair - low) / max(0.001, high - low)).clamp(0, 1)  # 1: extrapolate, 0: interpolate
        frequency = frequency / config.factor * (1 - ramp) + frequency * ramp
        magnitude *= 1 + 0.1 * math.log(max(1.0, config.factor))
    else:
        frequency = frequency / config.factor
    positions = torch.arange(capacity, dtype=torch.float64, device=device)
    angle = positions[:, None] * frequency  # [capacity, n_rot/2]
    return RopeTable((magnitude * angle.cos()).float(), (magnitude * angle.sin()).float(), config.interleaved)


def _correction_range(config: RopeConfig) -> tuple[float, float]:
    """Pair indices between which YaRN goes from extrapolation to interpolation; always rounded outwards."""

    def pair_with(rotations: float) -> float:
        turns = math.log(config.n_ctx_original / (2 * math.pi * rotations))
        return config.n_rot * turns / (2 * math.log(config.base))

    low = max(0, math.floor(pair_with(_YARN_BETA_FAST)))
    high = min(config.n_rot - 1, math.ceil(pair_with(_YARN_BETA_SLOW)))
    return low, high
