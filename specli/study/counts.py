"""Counters that add up: of requests, of drafters, of repeats; and back from JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, TypeVar

from specli.drafters.stats import DrafterStats, add, ratio
from specli.engine.stats import Timings
from specli.errors import FormatError

Record = TypeVar("Record", Timings, DrafterStats)


def read_counts(kind: type[Record], record: Any, where: str) -> Record:
    """Counters as `dataclasses.asdict` wrote them.

    Raises:
        FormatError: A counter is missing or is none.
    """
    values: dict[str, Any] = {}
    for item in fields(kind):
        value = record.get(item.name) if isinstance(record, Mapping) else None
        is_right = (
            isinstance(value, str)
            if item.name == "name"
            else isinstance(value, list) and all(isinstance(n, int) for n in value)
            if item.type == "list[int]"
            else isinstance(value, int)
        )
        if not is_right:
            raise FormatError(f"{where}: {item.name} is missing or of the wrong type")
        values[item.name] = value
    return kind(**values)


@dataclass
class Totals:
    """Sums over requests.

    Attributes:
        timings: Of all of them.
        drafters: One record per drafter, in priority order.
        n_steps: Tokens that cost a target forward: all but the first of each request.
        n_requests: How many requests.
    """

    timings: Timings = field(default_factory=Timings)
    drafters: list[DrafterStats] = field(default_factory=list)
    n_steps: int = 0
    n_requests: int = 0

    def count(self, timings: Timings, drafters: Sequence[DrafterStats]) -> None:
        """Adds one request."""
        add(self.timings, timings)
        self.n_steps += timings.n_steps
        self.n_requests += 1
        for stats in drafters:
            mine = next((known for known in self.drafters if known.name == stats.name), None)
            if mine is None:
                mine = DrafterStats(stats.name)
                self.drafters.append(mine)
            add(mine, stats)

    def drop_times(self) -> None:
        """Leaves counts only."""
        for record in (self.timings, *self.drafters):
            for name in vars(record):
                if name.endswith("_ns"):
                    setattr(record, name, 0)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first of each request / second of generation; None without time."""
        return ratio(self.n_steps * 1e9, self.timings.predicted_ns)

    @property
    def answer_per_second(self) -> float | None:
        """All tokens / second of prompt and generation; None without time."""
        return ratio(self.timings.predicted_n * 1e9, self.timings.prompt_ns + self.timings.predicted_ns)

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens per target forward of generation, rounds without a draft included; None without rounds."""
        return ratio(self.n_steps, self.timings.n_rounds)


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of repeated measurements.

    Attributes:
        median: The middle one, or the mean of the two in the middle.
        low: The least.
        high: The greatest.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """The spread of some values; None of none."""
        found = list(values)
        return cls(median(found), min(found), max(found)) if found else None
