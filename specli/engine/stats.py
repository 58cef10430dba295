"""What a run brought: times and counts of a request, llama.cpp's lines about them, and the JSON record.

The lines are llama.cpp's, character for character (server `print_timings` and `common_speculative_print_stats`, b11434;
docs/statistics.md §1), so that scripts read them. The record is `specli.run/1` (docs/statistics.md §2): field names are
a contract, a rate without a denominator is null, nothing is ever NaN.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specli.drafters.stats import DrafterStats, count_prefix, ratio

SCHEMA = "specli.run/1"
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_ENDS = re.compile("[\u0085\u2028\u2029]")


@dataclass
class Timings:
    """Where the time of one request went, and what became of its drafts.

    Attributes:
        load_ns: Loading the models; 0 if they were there.
        cache_n: Prompt tokens reused from the cache.
        prompt_n: Prompt tokens evaluated.
        prompt_ns: Evaluating them, drafters included, and sampling the first token.
        predicted_n: Tokens generated, end token included.
        predicted_ns: From the first sampled token to the last.
        draft_ns: Proposing, and keeping drafters up to date during generation.
        verify_ns: Target forwards of generation.
        sample_ns: Sampling and acceptance after the first token.
        draft_n: Draft tokens verified.
        draft_n_cut: Draft tokens that were not verified, because that was not worth its time.
        draft_n_accepted: Draft tokens that stood and were taken: none behind a token that ended the request.
        n_rounds_drafted: Rounds that had a draft.
        n_rounds: All rounds.
        n_rounds_skipped: Rounds in which no drafter was asked, because no draft was worth its time.
        undrafted_ns: Time of the rounds without a draft.
        accepted_per_position: Entry i: rounds in which the first i + 1 draft tokens were taken.
        accepted_length_histogram: Entry i: rounds with a draft of which exactly i tokens were taken.
    """

    load_ns: int = 0
    cache_n: int = 0
    prompt_n: int = 0
    prompt_ns: int = 0
    predicted_n: int = 0
    predicted_ns: int = 0
    draft_ns: int = 0
    verify_ns: int = 0
    sample_ns: int = 0
    draft_n: int = 0
    draft_n_cut: int = 0
    draft_n_accepted: int = 0
    n_rounds_drafted: int = 0
    n_rounds: int = 0
    n_rounds_skipped: int = 0
    undrafted_ns: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    accepted_length_histogram: list[int] = field(default_factory=list)

    def count_round(self, n_draft: int, n_accepted: int, ns: int) -> None:
        """A round of `ns` ended: `n_accepted` of `n_draft` draft tokens were taken; no draft, no acceptance counts."""
        self.n_rounds += 1
        if not n_draft:
            self.undrafted_ns += ns
            return
        self.n_rounds_drafted += 1
        self.draft_n += n_draft
        self.draft_n_accepted += n_accepted
        count_prefix(self.accepted_per_position, n_accepted)
        histogram = self.accepted_length_histogram
        histogram.extend([0] * (n_accepted + 1 - len(histogram)))
        histogram[n_accepted] += 1

    @property
    def n_steps(self) -> int:
        """Tokens that cost a target forward: the first comes from the prompt's logits."""
        return max(0, self.predicted_n - 1)

    @property
    def other_ns(self) -> int:
        """Time of generation that is neither drafting, verifying nor sampling."""
        return max(0, self.predicted_ns - self.draft_ns - self.verify_ns - self.sample_ns)

    @property
    def prompt_per_second(self) -> float | None:
        """Evaluated prompt tokens / second; None without time."""
        return ratio(self.prompt_n * 1e9, self.prompt_ns)

    @property
    def predicted_per_second(self) -> float | None:
        """Tokens after the first / second; None without time."""
        return ratio(self.n_steps * 1e9, self.predicted_ns)

    @property
    def prompt_per_token_ms(self) -> float | None:
        """Milliseconds per evaluated prompt token; None without tokens."""
        return ratio(self.prompt_ns / 1e6, self.prompt_n)

    @property
    def predicted_per_token_ms(self) -> float | None:
        """Milliseconds per token after the first; None without such tokens."""
        return ratio(self.predicted_ns / 1e6, self.n_steps)

    @property
    def acceptance(self) -> float | None:
        """Accepted / verified draft tokens; None without drafts."""
        return ratio(self.draft_n_accepted, self.draft_n)

    @property
    def mean_acc_len(self) -> float | None:
        """1 + accepted tokens / rounds with a draft; None without such rounds."""
        return 1.0 + self.draft_n_accepted / self.n_rounds_drafted if self.n_rounds_drafted else None

    @property
    def coverage(self) -> float | None:
        """Share of the generated tokens that came from drafts; None without tokens."""
        return ratio(self.draft_n_accepted, self.predicted_n)


def request_lines(timings: Timings) -> list[str]:
    """The lines at the end of a request, as llama.cpp has them: a rate without a denominator is 0.

    Scripts expect its count of reused graphs, which has no counterpart here.
    """
    t = timings
    prompt_ms, predicted_ms = t.prompt_ns / 1e6, t.predicted_ns / 1e6
    lines = [
        f"prompt eval time = {_rate(prompt_ms, t.prompt_n, t.prompt_per_token_ms, t.prompt_per_second)}",
        f"       eval time = {_rate(predicted_ms, t.predicted_n, t.predicted_per_token_ms, t.predicted_per_second)}",
        f"      total time = {prompt_ms + predicted_ms:10.2f} ms / {t.prompt_n + t.predicted_n:5d} tokens",
        f"   graphs reused = {0:10d}",
    ]
    if t.draft_n:
        lines.append(
            f"draft acceptance = {np.float32(t.acceptance):0.5f} "
            f"({t.draft_n_accepted:5d} accepted / {t.draft_n:5d} generated), mean len = {t.mean_acc_len or 1.0:5.2f}"
        )
    return lines


def _rate(ms: float, n: int, per_token: float | None, per_second: float | None) -> str:
    return (
        f"{ms:10.2f} ms / {n:5d} tokens "
        f"({per_token or 0.0:8.2f} ms per token, {per_second or 0.0:8.2f} tokens per second)"
    )


def position_line(timings: Timings, max_draft: int) -> str:
    """Acceptance per position up to the longest possible draft; a detail line (`-lv 4`)."""
    counts = timings.accepted_per_position
    counts = counts + [0] * (max_draft - len(counts))
    rounds = timings.n_rounds_drafted
    return f"     acc per pos = ({', '.join(f'{count / rounds:.3f}' for count in counts) if rounds else ''})"


def drafter_line(stats: DrafterStats) -> str:
    """One drafter's totals since the program started."""
    line = (
        f"statistics {stats.name:>16}: #calls(b,g,a) = {stats.n_begin:4d} {stats.n_draft:6d} {stats.n_accept:6d}, "
        f"#gen drafts = {stats.gen_drafts:6d}, #acc drafts = {stats.acc_drafts:5d}, "
        f"#gen tokens = {stats.gen_tokens:6d}, #acc tokens = {stats.acc_tokens:5d}"
    )
    if stats.mean_acc_len is not None:
        rates = ", ".join(f"{rate:.3f}" for rate in stats.acceptance_per_pos)
        line += f", #mean acc len = {stats.mean_acc_len:.2f}, #acc rate/pos = ({rates})"
    times = ", ".join(f"{ns / 1e6:.3f}" for ns in (stats.begin_ns, stats.draft_ns, stats.accept_ns))
    return f"{line}, dur(b,g,a) = {times} ms"


def timings_record(timings: Timings) -> dict[str, Any]:
    """The `timings` object of the JSON record."""
    t = timings
    return {
        "cache_n": t.cache_n,
        "prompt_n": t.prompt_n,
        "prompt_ms": t.prompt_ns / 1e6,
        "prompt_per_token_ms": t.prompt_per_token_ms,
        "prompt_per_second": t.prompt_per_second,
        "predicted_n": t.predicted_n,
        "predicted_ms": t.predicted_ns / 1e6,
        "predicted_per_token_ms": t.predicted_per_token_ms,
        "predicted_per_second": t.predicted_per_second,
        "draft_n": t.draft_n,
        "draft_n_accepted": t.draft_n_accepted,
        "draft_n_cut": t.draft_n_cut,
        "load_ms": t.load_ns / 1e6,
        "draft_ms": t.draft_ns / 1e6,
        "verify_ms": t.verify_ns / 1e6,
        "sample_ms": t.sample_ns / 1e6,
        "other_ms": t.other_ns / 1e6,
        "n_rounds": t.n_rounds,
        "n_rounds_drafted": t.n_rounds_drafted,
        "n_rounds_skipped": t.n_rounds_skipped,
        "acceptance": t.acceptance,
        "mean_acc_len": t.mean_acc_len,
        "coverage": t.coverage,
        "acc_per_pos": [count / t.n_rounds_drafted for count in t.accepted_per_position],
        "acc_len_histogram": list(t.accepted_length_histogram),
    }


def drafter_record(stats: DrafterStats) -> dict[str, Any]:
    """One entry of `statistics` in the JSON record."""
    return {
        "type": stats.name,
        "calls": {"begin": stats.n_begin, "draft": stats.n_draft, "accept": stats.n_accept},
        "gen_drafts": stats.gen_drafts,
        "acc_drafts": stats.acc_drafts,
        "gen_tokens": stats.gen_tokens,
        "acc_tokens": stats.acc_tokens,
        "acceptance": stats.acceptance,
        "mean_acc_len": stats.mean_acc_len,
        "acc_per_pos": stats.acceptance_per_pos,
        "acc_per_pos_conditional": stats.conditional_per_pos,
        "acc_len_histogram": list(stats.acc_len_histogram),
        "dur_ms": {
            "begin": stats.begin_ns / 1e6,
            "draft": stats.draft_ns / 1e6,
            "accept": stats.accept_ns / 1e6,
            "process": stats.process_ns / 1e6,
        },
    }


@dataclass(frozen=True)
class Round:
    """One round as `--trace` records it.

    Attributes:
        drafter: Whose draft it was; None without one.
        position: Of the round's first token.
        draft: The draft tokens.
        tokens: What the request took of it.
        n_accepted: Draft tokens among them; one more token is the target's own, and is missing where a draft token
            ended the request or the target had none.
        draft_ns: Proposing it.
        verify_ns: The target's forward.
    """

    drafter: str | None
    position: int
    draft: tuple[int, ...]
    tokens: tuple[int, ...]
    n_accepted: int
    draft_ns: int
    verify_ns: int

    def record(self) -> dict[str, Any]:
        """One entry of `rounds` in the JSON record."""
        return {
            "drafter": self.drafter,
            "position": self.position,
            "n_draft": len(self.draft),
            "n_accepted": self.n_accepted,
            "draft": list(self.draft),
            "target_token": self.tokens[-1] if len(self.tokens) > self.n_accepted else None,
            "draft_ms": self.draft_ns / 1e6,
            "verify_ms": self.verify_ns / 1e6,
        }


@dataclass
class Statistics:
    """All of a run that is not text: one request's timings and every drafter's totals.

    Attributes:
        timings: Of the request.
        drafters: In priority order; their counts run since the program started.
        rounds: With `--trace`, every round.
        max_draft: Longest draft any of the drafters makes.
    """

    timings: Timings = field(default_factory=Timings)
    drafters: Sequence[DrafterStats] = ()
    rounds: list[Round] | None = None
    max_draft: int = 0

    def lines(self, *, details: bool = False) -> list[str]:
        """The lines of the end of a run.

        Args:
            details: With acceptance per position.
        """
        lines = request_lines(self.timings)
        if details and self.timings.draft_n:
            lines.append(position_line(self.timings, self.max_draft))
        return lines + [drafter_line(stats) for stats in self.drafters]

    def record(self) -> dict[str, Any]:
        """The parts of the JSON record that statistics fill."""
        record: dict[str, Any] = {
            "timings": timings_record(self.timings),
            "statistics": [drafter_record(stats) for stats in self.drafters],
        }
        if self.rounds is not None:
            record["rounds"] = [r.record() for r in self.rounds]
        return record


def run_record(
    *,
    version: str,
    target: Mapping[str, Any],
    settings: Mapping[str, Any],
    prompt: Mapping[str, Any],
    tokens: Sequence[int],
    text: str,
    logprobs: Sequence[Mapping[str, Any]],
    stop: str,
    statistics: Statistics,
) -> dict[str, Any]:
    """The whole JSON record of a run, schema `specli.run/1`.

    Args:
        version: Of specli.
        target: path, arch, quant, n_params, bytes.
        settings: Effective flags.
        prompt: text, n_tokens, ids, logprobs.
        tokens: Generated ids.
        text: Generated text.
        logprobs: One `{"id", "logprob", "top"}` per token where asked for.
        stop: eos, limit, stop, context or interrupt.
        statistics: Of the run.
    """
    return {
        "schema": SCHEMA,
        "specli": version,
        "target": dict(target),
        "drafters": [stats.name for stats in statistics.drafters],
        "settings": dict(settings),
        "prompt": dict(prompt),
        "tokens": list(tokens),
        "text": text,
        "logprobs": list(logprobs),
        "stop": stop,
        **statistics.record(),
    }


def dump_record(record: Mapping[str, Any], *, indent: int | None = None) -> str:
    """JSON text of a record, fit for UTF-8.

    A number that is not finite (a log-probability of -inf) becomes null, a lone surrogate (a byte of the command line
    that is no UTF-8) becomes U+FFFD, as for the tokenizer. Characters that end a line for some readers are escaped.
    """
    text = json.dumps(_finite(record), indent=indent, ensure_ascii=False, allow_nan=False)
    text = _SURROGATE.sub("\ufffd", text)
    return _LINE_ENDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
