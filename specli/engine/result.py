"""What a request left behind: statistics lines and the JSON record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specli._version import __version__
from specli.drafters import DRAFTERS
from specli.engine.advice import drafting_line
from specli.engine.config import RunConfig
from specli.engine.sequence import Sequence, TokenLogprob
from specli.engine.stats import Statistics, run_record
from specli.sampling.settings import SamplingSettings


@dataclass(frozen=True)
class RunResult:
    """What one request left behind.

    Attributes:
        sequence: Tokens, text, stop reason, timings.
        statistics: The same timings, and every drafter's totals.
        config: The settings of target and drafters, with the context in force.
        target_record: The parts of the JSON record that do not change between requests.
        prompt_text: The prompt as text.
        plain_step_ns: What a token costs without drafting; 0 if nothing was drafted, or if it is not known.
    """

    sequence: Sequence
    statistics: Statistics
    config: RunConfig
    target_record: Mapping[str, Any]
    prompt_text: str
    plain_step_ns: float

    @property
    def sampling(self) -> SamplingSettings:
        """The sampling that was in force."""
        return self.sequence.request.sampling.settings()

    def lines(self, *, details: bool = False) -> list[str]:
        """llama.cpp's statistics lines, and one that says what drafting brought."""
        lines = self.statistics.lines(details=details)
        busiest = max(self.statistics.drafters, key=lambda stats: stats.gen_tokens, default=None)
        if busiest is None or (busiest.gen_tokens and not self.plain_step_ns):
            return lines
        length = DRAFTERS[busiest.name].length
        done, option = self.sequence, length.option if length else None
        brought = drafting_line(done.timings, done.plain_steps, self.plain_step_ns, option)
        return [*lines, *([brought] if brought else [])]

    def settings(self) -> dict[str, Any]:
        """The settings in force as JSON: the fields of `RunConfig`, and those of the request under `request`."""
        sequence = self.sequence
        sampling = {**asdict(self.sampling), "seed": sequence.sampler.seed}
        request = {**asdict(sequence.request), "sampling": sampling}
        return {name: _plain(value) for name, value in {**asdict(self.config), "request": request}.items()}

    def to_dict(self) -> dict[str, Any]:
        """The JSON record, schema `specli.run/1`."""
        done = self.sequence
        return run_record(
            version=__version__,
            target=self.target_record,
            settings=self.settings(),
            prompt={
                "text": self.prompt_text,
                "n_tokens": len(done.prompt),
                "ids": done.prompt,
                "logprobs": [_logprob_record(item) for item in done.prompt_logprobs],
            },
            tokens=done.tokens,
            text=done.text,
            logprobs=[_logprob_record(item) for item in done.logprobs],
            stop=done.stop,
            statistics=self.statistics,
        )


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _logprob_record(item: TokenLogprob) -> dict[str, Any]:
    return {"id": item.id, "logprob": item.logprob, "top": [list(pair) for pair in item.top]}
