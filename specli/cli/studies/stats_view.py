"""A comparison of drafters on the terminal and as CSV. Nothing is computed here but what stands on the screen."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specli.cli.studies.report import bars, figure, heading, notes, percent, shares, table

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.drafters.stats import DrafterStats
    from specli.engine.stats import Timings
    from specli.study.comparison import Comparison, Contender

MAX_POSITIONS = 16
"""Draft positions shown; longer drafts are rare, and the JSON has all of them."""

DEFINITIONS = (
    "speed: tokens after the first of each answer / time of generation; median (least–greatest) of the repeats",
    "speed-up: of the whole set; prompts: mean of the prompts' own speed-ups, so that long answers do not dominate",
    "prompt ms: mean time to the first token of an answer, drafters included; no part of the speed",
    "length: 1 + accepted draft tokens / rounds with a draft, so the target's own token counts",
    "accept: accepted / proposed draft tokens; cover: share of all tokens that came from drafts",
)


def show_comparison(out: RichConsole, comparison: Comparison) -> None:
    """The whole report of one comparison."""
    head(out, comparison)
    drafted = [row for row in comparison.contenders if row.types]
    summary(out, comparison)
    by_worker(out, comparison)
    if drafted and not comparison.is_shared:
        heading(out, "Speed-up over plain decoding (mark: 1×)")
        bars(out, [(row.name, up, f"{figure(up)}×") for row in drafted for up in [comparison.speed_up(row)]], mark=1.0)
    for row in drafted:
        details(out, row)
    split(out, comparison)
    categories(out, comparison, drafted)
    heading(out, "Notes")
    notes(out, [*DEFINITIONS, *verdicts(comparison)])


def head(out: RichConsole, comparison: Comparison) -> None:
    """What was measured, on what, and how."""
    request = comparison.request
    template = "chat template applied" if request.get("chat_template") else "prompts as they are, no chat template"
    variables = request.get("template_variables") or {}
    if variables:
        template += f" with {', '.join(f'{name} {json.dumps(value)}' for name, value in variables.items())}"
    heading(out, f"{comparison.title or 'Drafters compared'}: {comparison.target['path'].rpartition('/')[2]}")
    notes(
        out,
        [
            f"{comparison.target['arch']}, {comparison.target['quant']}; kernels: {comparison.kernels}",
            f"{len(comparison.prompts)} prompts × {request.get('repeats')} repeats, up to {request.get('n_predict')} "
            f"tokens each, temperature {request.get('temperature')}, seed {request.get('seed')}, {template}",
        ],
    )


def summary(out: RichConsole, comparison: Comparison) -> None:
    """One row per contender; the fastest is marked."""
    columns = ("drafter", "tok/s", "spread", "speed-up", "prompts", "length", "accept", "cover")
    rows = [summary_row(comparison, row) for row in comparison.contenders]
    speeds = [speed.median if (speed := row.speed()) else 0.0 for row in comparison.contenders]
    out.print()
    table(out, columns, rows, best=speeds.index(max(speeds)) if speeds else None)


def by_worker(out: RichConsole, comparison: Comparison) -> None:
    """What each worker did, which shared its machine: speeds side by side, never added up; nothing without workers."""
    workers = sorted({number for row in comparison.contenders for number in row.workers})
    if not workers:
        return
    heading(out, "Tokens per second of each worker, on a machine that it shares")
    rows = [
        (row.name, *(figure(row.totals(worker=number).tokens_per_second, ".1f") for number in workers))
        for row in comparison.contenders
    ]
    table(out, ("drafter", *(f"worker {number}" for number in workers)), rows)


def summary_row(comparison: Comparison, row: Contender) -> list[str]:
    """The cells of one contender."""
    speed, timings = row.speed(), row.totals().timings
    return [
        row.name,
        figure(speed.median if speed else None, ".1f"),
        f"{speed.low:.1f}–{speed.high:.1f}" if speed else "n/a",
        figure(comparison.speed_up(row), unit="×"),
        figure(comparison.mean_speed_up(row), unit="×"),
        figure(timings.mean_acc_len),
        percent(timings.acceptance),
        percent(timings.coverage) if row.types else "n/a",
    ]


def details(out: RichConsole, row: Contender) -> None:
    """Proposed and accepted tokens, acceptance by position, and lengths, per drafter of a contender."""
    for stats in row.totals().drafters:
        per_draft = (stats.draft_ns + stats.process_ns) / 1e6 / max(1, stats.n_draft)
        pace = "" if row.workers else f"; {per_draft:.3f} ms per draft"
        name = stats.name if row.name == stats.name else f"{row.name}: {stats.name}"
        heading(out, name)
        notes(
            out,
            [
                f"asked {stats.n_draft} times, {stats.gen_drafts} drafts, {stats.gen_tokens} tokens proposed, "
                f"{stats.acc_tokens} accepted{pace}"
            ],
        )
        if stats.acc_per_pos:
            positions(out, stats)
        lengths(out, stats)
    if row.settings:
        notes(out, [settings_line(row.settings)])


def settings_line(settings: Sequence[Mapping[str, Any]]) -> str:
    """Effective settings with their origins."""
    unique = {item["option"]: item for item in settings}
    return "settings: " + ", ".join(f"{i['option']} {i['value']} ({i['origin']})" for i in unique.values())


def positions(out: RichConsole, stats: DrafterStats) -> None:
    """Acceptance per position: of all rounds, and of those that got so far."""
    n = min(len(stats.acc_per_pos), MAX_POSITIONS)
    per_line = max(1, (out.width - 14) // 6)
    for start in range(0, n, per_line):
        chosen = range(start, min(start + per_line, n))
        lines = (
            ("position", [str(i + 1) for i in chosen]),
            ("of all", [f"{stats.acceptance_per_pos[i]:.2f}" for i in chosen]),
            ("of reached", [f"{stats.conditional_per_pos[i]:.2f}" for i in chosen]),
        )
        for label, cells in lines:
            out.print(f"  {label:<11}{''.join(f'{cell:>6}' for cell in cells)}", markup=False)
    if len(stats.acc_per_pos) > n:
        notes(out, [f"  and {len(stats.acc_per_pos) - n} more positions"])


def lengths(out: RichConsole, stats: DrafterStats) -> None:
    """How many rounds accepted how many tokens."""
    counts = stats.acc_len_histogram
    if not any(counts):
        return
    shown = [(str(i), n) for i, n in enumerate(counts[: MAX_POSITIONS + 1]) if n]
    rest = sum(counts[MAX_POSITIONS + 1 :])
    if rest:
        shown.append((f">{MAX_POSITIONS}", rest))
    notes(out, ["  rounds by accepted tokens"])
    bars(out, [(f"{label:>6}", float(n), f"{n}") for label, n in shown])


def split(out: RichConsole, comparison: Comparison) -> None:
    """Where the time of generation went, and what the prompts took beside it."""
    found = [(row, row.totals().timings) for row in comparison.contenders]
    rows = [(row, time_shares(timings)) for row, timings in found if timings.predicted_ns]
    if not rows:
        return
    heading(out, "Time of generation, and of a prompt")
    shares(out, [(row.name, parts) for row, parts in rows])
    cells = [
        (row.name, *(percent(share) for _, share in parts), figure(time.median if time else None, ".1f"))
        for row, parts in rows
        for time in [row.prompt_ms()]
    ]
    table(out, ("drafter", "draft", "verify", "sample", "other", "prompt ms"), cells)


def time_shares(timings: Timings) -> list[tuple[str, float]]:
    """Parts of the time of generation."""
    return [
        ("draft", timings.draft_ns / timings.predicted_ns),
        ("verify", timings.verify_ns / timings.predicted_ns),
        ("sample", timings.sample_ns / timings.predicted_ns),
        ("other", timings.other_ns / timings.predicted_ns),
    ]


def categories(out: RichConsole, comparison: Comparison, drafted: Sequence[Contender]) -> None:
    """Speed-up by kind of prompt."""
    if not drafted or len(comparison.categories) < 2 or comparison.is_shared:
        return
    heading(out, "Speed-up by kind of prompt (mean of the prompts)")
    rows = [
        (category, *(figure(comparison.mean_speed_up(row, category), unit="×") for row in drafted))
        for category in comparison.categories
    ]
    table(out, ("prompts", *(row.name for row in drafted)), rows)


def verdicts(comparison: Comparison) -> list[str]:
    """Whether the tokens were those of plain decoding, and whether drafting paid."""
    lines = []
    checked = sum(sample.is_same is not None for row in comparison.contenders if row.types for sample in row.samples)
    different = {row.name: row.n_different for row in comparison.contenders if row.n_different}
    if different:
        lines.append(f"WARNING: tokens differ from plain decoding: {different}")
    elif checked:
        lines.append(f"all {checked} drafted answers have exactly the tokens of plain decoding")
    if comparison.is_shared:
        return [*lines, "workers compare acceptance; leave out --workers to compare speeds"]
    drafted = [row for row in comparison.contenders if row.types]
    answers = [(comparison.answer_speed_up(row) or 0.0, row.name) for row in drafted]
    if answers:
        lines.append(f"with the prompts' time: {', '.join(f'{name} {figure(up)}×' for up, name in answers)}")
    if drafted and max(comparison.speed_up(row) or 0.0 for row in drafted) <= 1:
        lines.append("no drafter is faster than plain decoding here; --tune searches for better settings")
    elif answers and max(answers)[0] <= 1:
        lines.append("drafting makes up for its share of the prompts' time in longer answers only")
    return lines


def show_several(out: RichConsole, comparisons: Sequence[Comparison]) -> None:
    """Saved comparisons side by side: each contender of each file, against the same contender of the first file."""
    first = comparisons[0]
    speeds = {row.name: speed.median for row in first.contenders if (speed := row.speed())}
    rows = []
    for comparison in comparisons:
        for row in comparison.contenders:
            cells = summary_row(comparison, row)
            speed, base = row.speed(), speeds.get(row.name)
            change = "" if comparison is first else "n/a"
            if comparison is not first and speed and base:
                change = f"{100 * (speed.median / base - 1):+.1f} %"
            rows.append([f"{comparison.title}: {cells[0]}", *cells[1:4], *cells[5:], change])
    heading(out, "Saved comparisons")
    columns = ("run: drafter", "tok/s", "spread", "speed-up", "length", "accept", "cover", "vs first")
    table(out, columns, rows)
    if any(other.request != first.request or other.prompts != first.prompts for other in comparisons[1:]):
        notes(out, ["note: the runs differ in prompts or request, so their speeds are not strictly comparable"])


CSV_FIELDS = (
    "drafter", "prompt", "category", "n_samples", "predicted_n", "tokens_per_second", "speed_up", "mean_acc_len",
    "acceptance", "coverage", "draft_n", "draft_n_accepted", "draft_ms", "verify_ms", "sample_ms", "other_ms",
    "prompt_n", "prompt_ms",
)  # fmt: skip


def csv_text(comparison: Comparison) -> str:
    """One row per contender and prompt, then one per contender with an empty prompt: the whole set."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    plain = comparison.plain
    for row in comparison.contenders:
        for prompt in comparison.prompts:
            mine = row.prompt_speed(prompt.id)
            base = plain.prompt_speed(prompt.id) if plain else None
            ratio = mine / base if mine and base else None
            writer.writerow(_csv_row(row, prompt.id, prompt.category, mine, ratio))
        speed = row.speed()
        writer.writerow(_csv_row(row, None, "", speed.median if speed else None, comparison.speed_up(row)))
    return out.getvalue()


def _csv_row(
    row: Contender, prompt: str | None, category: str, speed: float | None, speed_up: float | None
) -> list[Any]:
    timings = row.totals(prompt=prompt).timings
    count = sum(prompt in (None, sample.prompt) for sample in row.samples)
    return [
        row.name, prompt or "", category, count, timings.predicted_n, speed, speed_up, timings.mean_acc_len,
        timings.acceptance, timings.coverage, timings.draft_n, timings.draft_n_accepted, timings.draft_ns / 1e6,
        timings.verify_ns / 1e6, timings.sample_ns / 1e6, timings.other_ns / 1e6, timings.prompt_n,
        timings.prompt_ns / 1e6,
    ]  # fmt: skip
