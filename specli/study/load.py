"""What many requests at once got: one record per request, sums and quantiles of them, and the file they are saved in.

The same for an engine of our own (`stats -np`) and for a server (`stats --server`). Times are those that the one who
asked has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from specli._version import __version__
from specli.drafters.stats import ratio
from specli.errors import FormatError
from specli.study.comparison import PLAIN

SCHEMA = "specli.load/1"
QUANTILES = (50, 95, 99)


@dataclass(frozen=True)
class DraftCount:
    """What one drafter got in one request.

    Attributes:
        type: Its name.
        draft_n: Tokens it proposed.
        draft_n_accepted: Those that stood.
    """

    type: str
    draft_n: int
    draft_n_accepted: int


@dataclass(frozen=True)
class Reply:
    """What became of one request.

    Attributes:
        prompt: Name of the prompt.
        category: What kind of text it asks for.
        turn: Which turn of the conversation, from 0.
        begun_ms: When it was sent, from the beginning of the measurement.
        latency_ms: From then to its end, waiting for a busy server included.
        first_ms: From then to the first token; None if the answer came as a whole, or has no token.
        gaps_ms: Between one token and the next. Tokens of one round come together, so many of these are about 0.
        prompt_n: Tokens of the prompt.
        predicted_n: Tokens of the answer.
        draft_n: Draft tokens verified.
        draft_n_accepted: Those that stood.
        drafters: The same for each drafter, where it is known.
        prompt_ms: Time of the prompt as the server has it; None if it does not say.
        predicted_ms: Time of the answer, likewise.
        prompt_per_second: Tokens of the prompt per second, likewise.
        predicted_per_second: Tokens of the answer per second, likewise.
        finish: Why it ended.
        n_retries: How often a busy server was asked again.
        error: What went wrong; None if nothing did.
    """

    prompt: str
    category: str
    turn: int = 0
    begun_ms: float = 0.0
    latency_ms: float = 0.0
    first_ms: float | None = None
    gaps_ms: tuple[float, ...] = ()
    prompt_n: int = 0
    predicted_n: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    drafters: tuple[DraftCount, ...] = ()
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    prompt_per_second: float | None = None
    predicted_per_second: float | None = None
    finish: str | None = None
    n_retries: int = 0
    error: str | None = None

    @property
    def per_token_ms(self) -> float | None:
        """Mean time of a token after the first; None without one."""
        n_steps = self.predicted_n - 1
        return None if self.first_ms is None or n_steps < 1 else (self.latency_ms - self.first_ms) / n_steps


def quantiles(values: Iterable[float | None]) -> dict[str, float] | None:
    """`p50`, `p95` and `p99` by linear interpolation between the values; None of no values."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = np.percentile(np.array(known), QUANTILES)
    return {f"p{q}": float(value) for q, value in zip(QUANTILES, found, strict=True)}


@dataclass
class Level:
    """One measurement: a choice of drafters, or a server, under one load.

    Attributes:
        name: The drafters, or the server.
        concurrency: Requests at once; None if they arrive at a rate.
        rate: Requests that arrive per second on average; None if so many are kept under way.
        seconds: From the first request to the end of the last one, over all repeats.
        replies: All requests that came to an end.
        n_cut: Requests that an interrupt cut off.
        n_different: Requests whose tokens were not those of plain decoding although they should be.
    """

    name: str
    concurrency: int | None
    rate: float | None = None
    seconds: float = 0.0
    replies: list[Reply] = field(default_factory=list)
    n_cut: int = 0
    n_different: int = 0

    @property
    def done(self) -> list[Reply]:
        """Requests without an error."""
        return [reply for reply in self.replies if reply.error is None]

    @property
    def errors(self) -> dict[str, int]:
        """Errors with how often each came, the most frequent first."""
        return dict(Counter(reply.error for reply in self.replies if reply.error is not None).most_common())

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all answers / second."""
        return ratio(sum(reply.predicted_n for reply in self.done), self.seconds)

    @property
    def requests_per_second(self) -> float | None:
        """Finished requests / second."""
        return ratio(len(self.done), self.seconds)

    @property
    def acceptance(self) -> float | None:
        """Accepted / verified draft tokens; None without drafts."""
        done = self.done
        return ratio(sum(reply.draft_n_accepted for reply in done), sum(reply.draft_n for reply in done))

    @property
    def drafters(self) -> list[DraftCount]:
        """What each drafter got, over all requests."""
        totals: dict[str, tuple[int, int]] = {}
        for count in (count for reply in self.done for count in reply.drafters):
            n, accepted = totals.get(count.type, (0, 0))
            totals[count.type] = n + count.draft_n, accepted + count.draft_n_accepted
        return [DraftCount(name, *counts) for name, counts in totals.items()]

    @property
    def first_ms(self) -> dict[str, float] | None:
        """Quantiles of the time to the first token."""
        return quantiles(reply.first_ms for reply in self.done)

    @property
    def between_ms(self) -> dict[str, float] | None:
        """Quantiles of the time between tokens, over all tokens."""
        return quantiles(gap for reply in self.done for gap in reply.gaps_ms)

    @property
    def per_token_ms(self) -> dict[str, float] | None:
        """Quantiles over the requests of the mean time of a token after the first."""
        return quantiles(reply.per_token_ms for reply in self.done)

    @property
    def latency_ms(self) -> dict[str, float] | None:
        """Quantiles of the time of whole requests."""
        return quantiles(reply.latency_ms for reply in self.done)

    def to_dict(self) -> dict[str, Any]:
        """The JSON record."""
        done = self.done
        return {
            "name": self.name,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "seconds": self.seconds,
            "n_requests": len(done),
            "n_failed": len(self.replies) - len(done),
            "n_cut": self.n_cut,
            "n_retries": sum(reply.n_retries for reply in self.replies),
            "n_different": self.n_different,
            "errors": self.errors,
            "tokens_per_second": self.tokens_per_second,
            "requests_per_second": self.requests_per_second,
            "first_ms": self.first_ms,
            "between_ms": self.between_ms,
            "per_token_ms": self.per_token_ms,
            "latency_ms": self.latency_ms,
            "prompt_n": sum(reply.prompt_n for reply in done),
            "predicted_n": sum(reply.predicted_n for reply in done),
            "draft_n": sum(reply.draft_n for reply in done),
            "draft_n_accepted": sum(reply.draft_n_accepted for reply in done),
            "acceptance": self.acceptance,
            "drafters": [asdict(count) for count in self.drafters],
            "replies": [asdict(reply) for reply in self.replies],
        }


@dataclass
class LoadStudy:
    """All measurements of a run.

    Attributes:
        source: What was measured: `server`, `model` and `build` of a server, or `target` and `kernels` of an engine.
        request: What was asked for.
        levels: The measurements.
        title: File it was read from, or nothing.
    """

    source: dict[str, Any]
    request: dict[str, Any]
    levels: list[Level] = field(default_factory=list)
    title: str = ""

    def speed_up(self, level: Level) -> float | None:
        """Tokens per second against plain decoding under the same load; None if there is no such measurement."""
        plain = next((row for row in self.levels if row.name == PLAIN and row.concurrency == level.concurrency), None)
        if plain is None or plain.tokens_per_second is None or level.tokens_per_second is None:
            return None
        return ratio(level.tokens_per_second, plain.tokens_per_second)

    def to_dict(self) -> dict[str, Any]:
        """The JSON record, schema `specli.load/1`."""
        return {
            "schema": SCHEMA,
            "specli": __version__,
            "source": self.source,
            "request": self.request,
            "levels": [{**level.to_dict(), "speed_up": self.speed_up(level)} for level in self.levels],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], title: str) -> LoadStudy:
        """Reads a saved study.

        Raises:
            FormatError: It is broken.
        """
        try:
            return cls(
                dict(record["source"]), dict(record["request"]), [_read_level(row) for row in record["levels"]], title
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{title}: broken measurements of load: {error!r}") from None


def _read_level(row: Mapping[str, Any]) -> Level:
    replies: Sequence[Mapping[str, Any]] = row["replies"]
    return Level(
        str(row["name"]),
        row["concurrency"],
        row["rate"],
        float(row["seconds"]),
        [
            Reply(
                **{
                    **reply,
                    "gaps_ms": tuple(map(float, reply["gaps_ms"])),
                    "drafters": tuple(DraftCount(**count) for count in reply["drafters"]),
                }
            )
            for reply in replies
        ],
        int(row["n_cut"]),
        int(row["n_different"]),
    )
