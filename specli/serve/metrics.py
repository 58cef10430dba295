"""What the server has counted, as Prometheus text with llama.cpp's names (`tools/server`, b11434)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from specli.drafters.stats import DrafterStats, add
from specli.engine.sequence import Sequence

PREFIX = "llamacpp:"


@dataclass
class Metrics:
    """Counters since the start; a request's are added when it ends. Written by the engine's thread only.

    Attributes:
        prompt_n: Prompt tokens evaluated.
        cache_n: Prompt tokens reused.
        prompt_ns: Evaluating them.
        predicted_n: Tokens generated.
        predicted_ns: Generating them.
        n_steps: Steps of the engine.
        n_busy: Slots at work, summed over steps.
        n_tokens_max: Most tokens any request had in its slot.
        draft_n: Draft tokens verified.
        draft_n_accepted: Those that stood.
        n_drafts: Rounds with a draft.
        accepted_per_position: Entry i: rounds in which the first i + 1 draft tokens stood.
        drafters: The same per drafter.
        started: Time of the start, seconds since 1970.
    """

    prompt_n: int = 0
    cache_n: int = 0
    prompt_ns: int = 0
    predicted_n: int = 0
    predicted_ns: int = 0
    n_steps: int = 0
    n_busy: int = 0
    n_tokens_max: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    n_drafts: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafters: dict[str, DrafterStats] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    _scraped: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)

    def count_step(self, n_busy: int) -> None:
        """The engine ran a step for so many requests."""
        self.n_steps += 1
        self.n_busy += n_busy

    def count_request(self, sequence: Sequence) -> None:
        """A request ended."""
        t = sequence.timings
        self.prompt_n += t.prompt_n
        self.cache_n += t.cache_n
        self.prompt_ns += t.prompt_ns
        self.predicted_n += t.predicted_n
        self.predicted_ns += t.predicted_ns
        self.n_tokens_max = max(self.n_tokens_max, t.cache_n + t.prompt_n + t.predicted_n)
        self.draft_n += t.draft_n
        self.draft_n_accepted += t.draft_n_accepted
        self.n_drafts += t.n_rounds_drafted
        for position, count in enumerate(t.accepted_per_position):
            if position == len(self.accepted_per_position):
                self.accepted_per_position.append(0)
            self.accepted_per_position[position] += count
        for stats in sequence.drafters:
            add(self.drafters.setdefault(stats.name, DrafterStats(stats.name)), stats)

    def text(self, n_processing: int, n_deferred: int) -> str:
        """Prometheus text 0.0.4. Rates are averages since the text was made last."""
        now = (self.prompt_n, self.prompt_ns, self.predicted_n, self.predicted_ns, self.n_busy, self.n_steps)
        prompt_n, prompt_ns, predicted_n, predicted_ns, n_busy, n_steps = (
            new - old for new, old in zip(now, self._scraped, strict=True)
        )
        self._scraped = now
        rows: list[tuple[str, str, str, float]] = [
            ("prompt_tokens_total", "counter", "Prompt tokens evaluated", self.prompt_n),
            ("prompt_tokens_cached_total", "counter", "Prompt tokens found in a slot", self.cache_n),
            ("prompt_seconds_total", "counter", "Time of prompts, seconds", self.prompt_ns / 1e9),
            ("tokens_predicted_total", "counter", "Tokens generated", self.predicted_n),
            ("tokens_predicted_seconds_total", "counter", "Time of generating, seconds", self.predicted_ns / 1e9),
            ("n_decode_total", "counter", "Forwards of the target", self.n_steps),
            ("n_tokens_max", "counter", "Most tokens that a request had", self.n_tokens_max),
            ("spec_decode_num_draft_tokens_total", "counter", "Draft tokens verified", self.draft_n),
            ("spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted", self.draft_n_accepted),
            ("spec_decode_num_drafts_total", "counter", "Rounds with a draft", self.n_drafts),
            ("prompt_tokens_seconds", "gauge", "Prompt tokens per second", _rate(prompt_n * 1e9, prompt_ns)),
            ("predicted_tokens_seconds", "gauge", "Tokens per second", _rate(predicted_n * 1e9, predicted_ns)),
            ("requests_processing", "gauge", "Requests that have a slot", n_processing),
            ("requests_deferred", "gauge", "Requests that wait for a slot", n_deferred),
            ("n_busy_slots_per_decode", "gauge", "Slots at work per forward", _rate(n_busy, n_steps)),
        ]
        lines = []
        for name, kind, summary, value in rows:
            lines += [f"# HELP {PREFIX}{name} {summary}.", f"# TYPE {PREFIX}{name} {kind}"]
            lines.append(f"{PREFIX}{name} {value:g}")
        if self.accepted_per_position:
            name = f"{PREFIX}spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f"# HELP {name} Draft tokens accepted at each position.", f"# TYPE {name} counter"]
            lines += [f'{name}{{position="{i}"}} {count:g}' for i, count in enumerate(self.accepted_per_position)]
        for suffix, summary in (("gen", "Draft tokens of each drafter"), ("acc", "Those of them accepted")):
            if self.drafters:
                name = f"specli:drafter_{suffix}_tokens_total"
                lines += [f"# HELP {name} {summary}.", f"# TYPE {name} counter"]
                for drafter, stats in self.drafters.items():
                    lines.append(f'{name}{{drafter="{drafter}"}} {getattr(stats, f"{suffix}_tokens"):g}')
        return "\n".join(lines) + "\n"


def _rate(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
