"""Which target layers a drafter reads: units, defaults, checks (docs/checkpoints.md §§1.1-1.2).

Everything here and in GGUF files counts boundaries: boundary b is the residual stream after b layers, the input of
layer b. Lists of "layer outputs" become boundaries by adding one.
"""

from __future__ import annotations

from collections.abc import Sequence

from specli.convert.job import Job
from specli.convert.target import Target
from specli.errors import FormatError, IncompatibleError


def default_eagle3(n_layers: int) -> list[int]:
    """Low, middle and high: 2, N/2, N-3."""
    return [2, n_layers // 2, n_layers - 3]


def default_block(n_layers: int, n_taps: int) -> list[int]:
    """Evenly from output 1 to output N-3; one tap: output N/2. Python's rounding, halves to even, as trained."""
    if n_taps == 1:
        return [n_layers // 2 + 1]
    return [round(1 + k * (n_layers - 4) / (n_taps - 1)) + 1 for k in range(n_taps)]


def choose(
    job: Job, target: Target, found: Sequence[int] | None, origin: str, default: list[int], layout: str
) -> list[int]:
    """The boundaries to write, with a note that says where they come from.

    Args:
        job: For `--target-layers` and notes.
        target: For its layer count.
        found: Boundaries from the checkpoint, None when it has no list.
        origin: Where they were found, with the unit.
        default: Used when there is no list.
        layout: For messages.

    Raises:
        FormatError: A boundary is outside the target, or occurs twice.
    """
    if job.request.target_layers is not None:
        taps, origin = list(job.request.target_layers), "--target-layers"
    elif found:
        taps = list(found)
    else:
        taps, origin = default, f"default for {target.n_layers} layers, the checkpoint lists none"
    bad = [tap for tap in taps if not 0 <= tap <= target.n_layers]
    if bad or len(set(taps)) < len(taps):
        fault = f"{bad[0]} is outside 0 to {target.n_layers}" if bad else "one layer occurs twice"
        raise FormatError(
            f"{job.config.path}: {layout} target layers {taps} ({origin}): {fault}",
            hint="give the right ones with --target-layers",
        )
    if job.request.target_layers is not None and found and len(taps) != len(found):
        raise IncompatibleError(f"--target-layers has {len(taps)} layers, the checkpoint was trained with {len(found)}")
    job.notes.append(f"target layers {', '.join(map(str, taps))} (inputs of these layers; {origin})")
    return taps
