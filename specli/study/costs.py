"""What a round costs, measured, and what drafting can bring at that cost.

A round with k draft tokens costs one verification of k + 1 rows, one draft, and sampling; it brings 1 + the accepted
tokens. Everything is put in relation to a plain step, a forward of one row with sampling.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from specli.drafters.costs import RowCosts
from specli.engine.loop import Engine, Part

REPEATS = 5
_HALVINGS = 40


def verification_costs(engine: Engine, rows: Iterable[int], *, repeats: int = REPEATS) -> dict[int, float]:
    """Nanoseconds of a target forward of n rows behind the engine's latest history: rows → median of `repeats`.

    The history must not be empty. Sizes the target has no room for are left out. Sizes take turns, so that a busy
    moment of the machine does not hit one of them only.
    """
    target, slot = engine.target, engine.latest
    start = len(slot.history)
    assert start
    options = target.options
    most = min(options.max_outputs, options.max_tokens, engine.n_ctx - start, target.cache.max_rewind)
    sizes = sorted({1, *(n for n in rows if n <= most)})
    times: dict[int, list[int]] = {n: [] for n in sizes}
    for repeat in range(repeats + 1):
        for n in sizes:
            begun = time.perf_counter_ns()
            engine.evaluate([Part(slot, [slot.history[-1]] * n)])
            elapsed = time.perf_counter_ns() - begun
            engine.truncate(slot, start)
            if repeat:  # the first turn warms up
                times[n].append(elapsed)
    return {n: float(median(found)) for n, found in times.items()}


@dataclass(frozen=True)
class CostModel:
    """Costs in nanoseconds.

    Attributes:
        verify: Rows → target forward; has 1.
        sample: Sampling one token.
        draft: One draft, and keeping the drafters up to date for a round.
    """

    verify: Mapping[int, float]
    sample: float = 0.0
    draft: float = 0.0

    def verification(self, rows: int) -> float:
        """A target forward of `rows` rows, as where draft lengths are chosen while running."""
        return self._rows(rows)

    @cached_property
    def _rows(self) -> RowCosts:
        return RowCosts(self.verify)

    @property
    def plain(self) -> float:
        """A token without drafting."""
        return self.verify[1] + self.sample

    def round(self, n_draft: int, length: float) -> float:
        """A round with `n_draft` draft tokens that brings `length` tokens."""
        return self.verification(n_draft + 1) + self.draft + self.sample * length

    def speed_up(self, n_draft: int, length: float) -> float:
        """Tokens per time against plain decoding, when rounds bring `length` tokens on average."""
        return length * self.plain / self.round(n_draft, length)

    def break_even_length(self, n_draft: int) -> float:
        """Mean tokens per round, the target's own included, at which drafting costs as much as it brings."""
        return (self.verification(n_draft + 1) + self.draft) / self.verify[1]

    def break_even(self, n_draft: int) -> float | None:
        """Acceptance per token, the same at every position, that breaks even; None if not even 1 does.

        Solves 1 + p + … + p^k = break-even length. Example: k = 4, length 2.5: p = 0.656.
        """
        wanted = self.break_even_length(n_draft)
        if wanted > n_draft + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if expected_length(middle, n_draft) < wanted else (low, middle)
        return high

    def to_dict(self) -> dict[str, Any]:
        """For JSON: times in milliseconds."""
        return {
            "verify_ms": {str(n): ns / 1e6 for n, ns in sorted(self.verify.items())},
            "sample_ms": self.sample / 1e6,
            "draft_ms": self.draft / 1e6,
        }


def expected_length(p: float, n_draft: int) -> float:
    """Mean tokens per round when every draft token stands with chance `p` if those before it do."""
    return sum(p**i for i in range(n_draft + 1))
