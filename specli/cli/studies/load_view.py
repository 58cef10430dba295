"""Measurements of many requests at once on the terminal and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specli.cli.studies.report import bars, figure, heading, notes, percent, table

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.study.load import Level, LoadStudy

MAX_ERRORS = 5

DEFINITIONS = (
    "tok/s: tokens of all answers / time from the first request to the end of the last; req/s: finished requests",
    "first: time from sending a request to its first token; between: from one token to the next, all tokens",
    "tokens of one round come together, so with drafting many gaps are about 0; per token: median request's own mean",
    "accept: accepted / verified draft tokens; it says nothing about speed by itself",
)


def show_load(out: RichConsole, study: LoadStudy) -> None:
    """The whole report."""
    head(out, study)
    several = len({level.name for level in study.levels}) > 1
    who = "drafter" if "target" in study.source else "server"
    first = (who, load_title(study))
    out.print()
    columns = (*first, "tok/s", *(("speed-up",) if several else ()), "req/s", "accept", "failed")
    table(out, columns, [throughput(study, level, several=several) for level in study.levels])
    heading(out, "Times in milliseconds: first token, between tokens, per token")
    columns = (*first, "first p50", "p95", "between p50", "p95", "p99", "per token")
    table(out, columns, [times(level) for level in study.levels])
    known = [level for level in study.levels if level.tokens_per_second is not None]
    if len(known) > 1:
        heading(out, "Tokens per second")
        bars(
            out,
            [
                (f"{load_text(level):>6} {level.name}", level.tokens_per_second, figure(level.tokens_per_second, ".1f"))
                for level in sorted(known, key=lambda level: (level.concurrency or 0, level.rate or 0.0))
            ],
        )
    by_drafter(out, study)
    heading(out, "Notes")
    notes(out, [*DEFINITIONS, *verdicts(study)])


def head(out: RichConsole, study: LoadStudy) -> None:
    """What was measured, and how."""
    source, request = study.source, study.request
    if "target" in source:
        heading(out, f"{study.title or 'Many requests at once'}: {source['target']['path'].rpartition('/')[2]}")
        notes(
            out,
            [
                f"{source['target']['arch']}, {source['target']['quant']}; kernels: {source['kernels']}; "
                f"{request.get('n_ctx')} tokens of context each",
                f"{request.get('n_prompts')} prompts × {request.get('repeats')} repeats, up to "
                f"{request.get('n_predict')} tokens each, temperature {request.get('temperature')}, "
                f"seed {request.get('seed')}, a prompt is asked again where there are too few",
            ],
        )
        return
    heading(out, f"{study.title or 'Load on a server'}: {source.get('server')}")
    about = [f"model {source.get('model') or 'unknown'}"]
    about += [f"{name} {value}" for name in ("build", "n_slots", "n_ctx") if (value := source.get(name)) is not None]
    if source.get("drafters"):
        about.append(f"drafters: {', '.join(source['drafters'])}")
    notes(
        out,
        [
            "; ".join(about),
            f"{request.get('n_prompts')} prompts × {request.get('repeats')} repeats, up to "
            f"{request.get('max_tokens', 'any number of')} tokens each, "
            f"{'streamed' if request.get('stream') else 'not streamed'}",
        ],
    )


def load_title(study: LoadStudy) -> str:
    """Heading of the loads."""
    return "per s" if any(level.rate is not None for level in study.levels) else "at once"


def load_text(level: Level) -> str:
    """A load in the table."""
    return f"{level.concurrency}" if level.rate is None else f"{level.rate:g}/s"


def throughput(study: LoadStudy, level: Level, *, several: bool) -> list[str]:
    """The cells of one level in the first table."""
    return [
        level.name,
        load_text(level),
        figure(level.tokens_per_second, ".1f"),
        *([figure(study.speed_up(level), unit="×")] if several else []),
        figure(level.requests_per_second),
        percent(level.acceptance),
        f"{len(level.replies) - len(level.done)}",
    ]


def times(level: Level) -> list[str]:
    """The cells of one level in the second table."""
    return [
        level.name,
        load_text(level),
        *(milliseconds(level.first_ms, name) for name in ("p50", "p95")),
        *(milliseconds(level.between_ms, name) for name in ("p50", "p95", "p99")),
        milliseconds(level.per_token_ms, "p50"),
    ]


def milliseconds(quantiles: Mapping[str, float] | None, name: str) -> str:
    """A quantile of times."""
    return figure(quantiles[name] if quantiles else None, ".1f")


def by_drafter(out: RichConsole, study: LoadStudy) -> None:
    """Proposed and accepted tokens of each drafter where several took part."""
    rows = [
        (level.name, load_text(level), count.type, f"{count.draft_n}", f"{count.draft_n_accepted}",
         percent(count.draft_n_accepted / count.draft_n if count.draft_n else None))
        for level in study.levels
        for count in level.drafters
        if count.draft_n
    ]  # fmt: skip
    if rows and any(kind != name for name, _, kind, *_ in rows):
        heading(out, "Drafters")
        table(out, ("", load_title(study), "type", "drafted", "accepted", "accept"), rows)


def verdicts(study: LoadStudy) -> list[str]:
    """What else has to be said: errors, what was cut off, and whether texts were those of plain decoding."""
    lines = []
    for level in study.levels:
        where = f"{level.name}, {load_text(level)}"
        errors = level.errors
        lines += [f"{where}: {n} × {error}" for error, n in list(errors.items())[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            lines.append(f"{where}: and {len(errors) - MAX_ERRORS} other errors")
        n_retries = sum(reply.n_retries for reply in level.replies)
        if n_retries:
            lines.append(f"{where}: the server was too busy {n_retries} times and was asked again")
        if level.n_cut:
            lines.append(f"{where}: {level.n_cut} requests were cut off and do not count")
        if level.n_different:
            lines.append(f"WARNING: {where}: tokens of {level.n_different} requests differ from plain decoding")
    n_slots = study.source.get("n_slots")
    most = max((level.concurrency or 0 for level in study.levels), default=0)
    if n_slots and most > n_slots:
        lines.append(f"the server runs {n_slots} requests at once, further ones wait")
    n_done = sum(len(level.done) for level in study.levels)
    if "target" in study.source and not any(level.n_different for level in study.levels):
        lines.append(f"all {n_done} answers have the tokens that they have alone, where they have to")
    return lines


CSV_FIELDS = (
    "name", "concurrency", "rate", "seconds", "n_requests", "n_failed", "tokens_per_second", "requests_per_second",
    "speed_up", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted", "acceptance",
)  # fmt: skip
CSV_QUANTILES = ("first_ms", "between_ms", "per_token_ms", "latency_ms")


def csv_text(study: LoadStudy) -> str:
    """One row per level."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("p50", "p95", "p99")
    writer.writerow([*CSV_FIELDS, *(f"{field}_{name}" for field in CSV_QUANTILES for name in names)])
    for level in study.levels:
        record: dict[str, Any] = {**level.to_dict(), "speed_up": study.speed_up(level)}
        cells = [record[field] for field in CSV_FIELDS]
        cells += [(record[field] or {}).get(name) for field in CSV_QUANTILES for name in names]
        writer.writerow(cells)
    return out.getvalue()
