"""What a comparison of drafters found: samples, their sums and rates, and the file they are saved in.

Everything is derived from samples, one per prompt, repeat and contender, whose counters are integers and nanoseconds.
So totals are sums of what is saved, and a saved comparison is shown exactly as it was at first. Rates are given twice:
pooled over all tokens, which long answers dominate, and as the mean of the prompts' own rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from specli._version import __version__
from specli.drafters.stats import DrafterStats, ratio
from specli.engine.stats import Timings
from specli.errors import FormatError
from specli.study.counts import Spread, Totals, read_counts

SCHEMA = "specli.stats/1"
PLAIN = "plain"
"""Name of the contender without drafters."""


@dataclass(frozen=True)
class PromptRecord:
    """One prompt of the set.

    Attributes:
        id: Its name.
        category: What kind of text it asks for.
        n_tokens: Its length.
    """

    id: str
    category: str
    n_tokens: int


@dataclass(frozen=True)
class Sample:
    """One request of one contender.

    Attributes:
        prompt: Which prompt.
        repeat: Which repeat, from 0.
        timings: Its times and counts.
        drafters: Counters of each drafter for this request alone.
        is_same: Whether the tokens were those of plain decoding; None where they need not be.
        worker: Number of the worker that ran it, from 1; None = this process.
    """

    prompt: str
    repeat: int
    timings: Timings
    drafters: tuple[DrafterStats, ...]
    is_same: bool | None
    worker: int | None = None


@dataclass
class Contender:
    """One row of a comparison: a choice of drafters and what it did.

    Attributes:
        name: `plain`, or the types joined by `+`.
        types: Drafter types, in priority order.
        settings: Effective draft settings: `{"option", "value", "origin"}`.
        samples: All requests.
    """

    name: str
    types: tuple[str, ...]
    settings: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def workers(self) -> list[int]:
        """Numbers of the workers that ran samples; times of several are not comparable, so they are never added up."""
        return sorted({sample.worker for sample in self.samples if sample.worker is not None})

    def totals(self, *, prompt: str | None = None, repeat: int | None = None, worker: int | None = None) -> Totals:
        """Sums over all samples, or over those of a prompt, a repeat or a worker; of several workers without times."""
        totals = Totals()
        for sample in self.samples:
            if prompt in (None, sample.prompt) and repeat in (None, sample.repeat) and worker in (None, sample.worker):
                totals.count(sample.timings, sample.drafters)
        if worker is None and self.workers:
            totals.drop_times()
        return totals

    def speed(self) -> Spread | None:
        """Tokens per second of the whole set, one value per repeat."""
        return self._over_repeats(lambda totals: totals.tokens_per_second)

    def answer_speed(self) -> Spread | None:
        """Tokens per second of prompt and generation together, one value per repeat."""
        return self._over_repeats(lambda totals: totals.answer_per_second)

    def prompt_ms(self) -> Spread | None:
        """Milliseconds from a request to its first token, drafters included: a mean, one value per repeat."""
        if self.workers:
            return None
        return self._over_repeats(lambda totals: ratio(totals.timings.prompt_ns / 1e6, totals.n_requests))

    def _over_repeats(self, rate: Callable[[Totals], float | None]) -> Spread | None:
        repeats = sorted({sample.repeat for sample in self.samples})
        values = (rate(self.totals(repeat=repeat)) for repeat in repeats)
        return Spread.of(value for value in values if value is not None)

    def prompt_speed(self, prompt: str) -> float | None:
        """Median over the repeats of a prompt's tokens per second."""
        if self.workers:
            return None
        samples = (sample.timings.predicted_per_second for sample in self.samples if sample.prompt == prompt)
        spread = Spread.of(value for value in samples if value is not None)
        return spread.median if spread else None

    @property
    def n_different(self) -> int:
        """Requests whose tokens were not those of plain decoding although they should."""
        return sum(sample.is_same is False for sample in self.samples)


@dataclass
class Comparison:
    """A whole comparison.

    Attributes:
        target: path, arch, quant, n_params, bytes.
        kernels: What ran the target.
        request: What was asked for: n_predict, temperature, seed, template and its variables.
        prompts: The prompt set.
        contenders: `plain` first.
        title: File it was read from, or nothing.
    """

    target: dict[str, Any]
    kernels: str
    request: dict[str, Any]
    prompts: list[PromptRecord]
    contenders: list[Contender]
    title: str = ""

    @property
    def plain(self) -> Contender | None:
        """The contender without drafters."""
        return next((row for row in self.contenders if row.name == PLAIN), None)

    @property
    def is_shared(self) -> bool:
        """Whether workers ran it, so that there are no speeds of the whole."""
        return any(row.workers for row in self.contenders)

    @property
    def categories(self) -> list[str]:
        """Kinds of prompts, in the order of the set."""
        return list(dict.fromkeys(prompt.category for prompt in self.prompts))

    def speed_up(self, contender: Contender) -> float | None:
        """Median speed / median speed of plain decoding; None if either is unknown."""
        mine, plain = contender.speed(), self.plain.speed() if self.plain else None
        return ratio(mine.median, plain.median) if mine and plain else None

    def answer_speed_up(self, contender: Contender) -> float | None:
        """The same with the time of prompts counted, too."""
        mine, plain = contender.answer_speed(), self.plain.answer_speed() if self.plain else None
        return ratio(mine.median, plain.median) if mine and plain else None

    def mean_speed_up(self, contender: Contender, category: str | None = None) -> float | None:
        """Mean over the prompts (of a category) of their own speed-up."""
        ratios = []
        for prompt in self.prompts:
            mine = contender.prompt_speed(prompt.id)
            plain = self.plain.prompt_speed(prompt.id) if self.plain else None
            if mine and plain and category in (None, prompt.category):
                ratios.append(mine / plain)
        return fmean(ratios) if ratios else None

    def mean_acc_len(self, contender: Contender) -> float | None:
        """Mean over the prompts of their own mean accepted length; prompts without a draft do not count."""
        lengths = (contender.totals(prompt=prompt.id).timings.mean_acc_len for prompt in self.prompts)
        known = [length for length in lengths if length is not None]
        return fmean(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """The JSON record, schema `specli.stats/1`."""
        return {
            "schema": SCHEMA,
            "specli": __version__,
            "target": self.target,
            "kernels": self.kernels,
            "request": self.request,
            "prompts": [asdict(prompt) for prompt in self.prompts],
            "contenders": [self._row(contender) for contender in self.contenders],
        }

    def _row(self, contender: Contender) -> dict[str, Any]:
        totals = contender.totals()
        speed, prompt_ms = contender.speed(), contender.prompt_ms()
        by_worker = ((number, contender.totals(worker=number)) for number in contender.workers)
        workers = [
            {"worker": number, "n_requests": of.n_requests, "tokens_per_second": of.tokens_per_second}
            for number, of in by_worker
        ]
        return {
            "name": contender.name,
            "types": list(contender.types),
            "settings": contender.settings,
            **({"workers": workers} if workers else {}),
            "speed": asdict(speed) if speed else None,
            "speed_up": self.speed_up(contender),
            "speed_up_prompt_mean": self.mean_speed_up(contender),
            "speed_up_with_prompt": self.answer_speed_up(contender),
            "prompt_ms": asdict(prompt_ms) if prompt_ms else None,
            "mean_acc_len": totals.timings.mean_acc_len,
            "mean_acc_len_prompt_mean": self.mean_acc_len(contender),
            "acceptance": totals.timings.acceptance,
            "coverage": totals.timings.coverage,
            "tokens_per_round": totals.tokens_per_round,
            "n_different": contender.n_different,
            "totals": {
                "timings": asdict(totals.timings),
                "drafters": [_drafter_record(stats) for stats in totals.drafters],
            },
            "samples": [
                {
                    "prompt": sample.prompt,
                    "repeat": sample.repeat,
                    "is_same": sample.is_same,
                    "timings": asdict(sample.timings),
                    "drafters": [asdict(stats) for stats in sample.drafters],
                    **({} if sample.worker is None else {"worker": sample.worker}),
                }
                for sample in contender.samples
            ],
        }

    @classmethod
    def from_dict(cls, record: Any, title: str) -> Comparison:
        """Reads a saved comparison.

        Raises:
            FormatError: It is none.
        """
        if not isinstance(record, Mapping) or record.get("schema") != SCHEMA:
            raise FormatError(f"{title}: not a comparison saved by specli stats (schema {SCHEMA})")
        try:
            return cls(
                target=dict(record["target"]),
                kernels=str(record["kernels"]),
                request=dict(record["request"]),
                prompts=[PromptRecord(**prompt) for prompt in record["prompts"]],
                contenders=[_read_contender(row, title) for row in record["contenders"]],
                title=title,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{title}: broken comparison: {error!r}") from None


def _drafter_record(stats: DrafterStats) -> dict[str, Any]:
    return {
        **asdict(stats),
        "acceptance": stats.acceptance,
        "mean_acc_len": stats.mean_acc_len,
        "acceptance_per_pos": stats.acceptance_per_pos,
        "conditional_per_pos": stats.conditional_per_pos,
    }


def _read_contender(row: Mapping[str, Any], title: str) -> Contender:
    samples: Sequence[Mapping[str, Any]] = row["samples"]
    return Contender(
        str(row["name"]),
        tuple(row["types"]),
        list(row["settings"]),
        [
            Sample(
                str(sample["prompt"]),
                int(sample["repeat"]),
                read_counts(Timings, sample["timings"], title),
                tuple(read_counts(DrafterStats, stats, title) for stats in sample["drafters"]),
                sample["is_same"],
                None if sample.get("worker") is None else int(sample["worker"]),
            )
            for sample in samples
        ],
    )
