"""A comparison as a picture: speed, acceptance by position, time, kinds of prompts. Needs matplotlib."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specli.cli.studies.stats_view import MAX_POSITIONS, time_shares
from specli.errors import ResourceError, UsageError
from specli.files import check_writable, writing

if TYPE_CHECKING:
    from specli.study.comparison import Comparison, Contender
    from specli.study.load import LoadStudy
    from specli.study.synth import Synthesis

COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d", "#ff9da6", "#bab0ac")
PLAIN_COLOR = "#8c8c8c"
PART_COLORS = ("#e45756", "#9ecae9", "#88d27a", "#d6d6d6")
MAX_NAME = 22
PLAIN = "plain"
SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raises now what would keep a picture from being drawn after the work.

    Raises:
        UsageError: No kind of picture has that suffix.
        ResourceError: matplotlib is not installed, or the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: expected a file name that ends in {', '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise ResourceError("--plot needs matplotlib, which is not installed", hint="pip install 'specli[plot]'")
    check_writable(path)


def new_figure(columns: int, rows: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes, drawn without any display."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=size, layout="constrained")
    return picture, picture.subplots(rows, columns, squeeze=False)


def save(picture: Any, path: Path) -> None:
    """Writes a picture; an existing file is replaced only when everything was written.

    Raises:
        ResourceError: The file cannot be written.
    """
    with writing(path) as file:
        picture.savefig(file, dpi=150, format=path.suffix.lower().removeprefix("."))


def plot_comparison(comparison: Comparison, path: Path) -> None:
    """Four panels about a comparison."""
    rows = comparison.contenders
    picture, axes = new_figure(2, 2, (12, 4.5 + 0.35 * len(rows)))
    (speed, positions), (time, kinds) = axes
    request = comparison.request
    picture.suptitle(
        f"{Path(comparison.target['path']).name}: {len(comparison.prompts)} prompts × {request['repeats']} repeats, "
        f"up to {request['n_predict']} tokens, temperature {request['temperature']}",
        fontsize=11,
    )
    plot_speed(speed, comparison)
    plot_positions(positions, rows)
    plot_time(time, rows)
    plot_kinds(kinds, comparison)
    for axis in (speed, positions, time, kinds):
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
    save(picture, path)


def color_of(rows: list[Contender], row: Contender) -> str:
    """The colour of a contender in all panels."""
    drafted = [other.name for other in rows if other.types]
    return COLORS[drafted.index(row.name) % len(COLORS)] if row.types else PLAIN_COLOR


def short(name: str) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= MAX_NAME else name.replace("+", "+\n")


def plot_speed(axis: Any, comparison: Comparison) -> None:
    """Tokens per second with spread; the speed-up stands behind the bar."""
    rows = comparison.contenders
    most = max((speed.high for row in rows if (speed := row.speed())), default=1.0)
    for y, row in enumerate(rows):
        speed = row.speed()
        if speed is None:
            continue
        spread = [[speed.median - speed.low], [speed.high - speed.median]]
        axis.barh(y, speed.median, color=color_of(rows, row), xerr=spread, capsize=3, ecolor="#333333")
        up = comparison.speed_up(row)
        axis.text(
            speed.high + 0.02 * most,
            y,
            f"{speed.median:.1f}" + (f"  ({up:.2f}×)" if up and row.types else ""),
            va="center",
            fontsize=9,
        )
    axis.set_yticks(range(len(rows)), [short(row.name) for row in rows], fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, most * 1.25)
    axis.set_xlabel("tokens per second, median, least and greatest")
    axis.set_title("Speed")


def plot_positions(axis: Any, rows: list[Contender]) -> None:
    """Acceptance by draft position: of all rounds, and of those that got so far."""
    for row in rows:
        for stats in row.totals().drafters if row.types else ():
            if len(row.types) > 1 or not stats.acc_per_pos:
                continue
            all_rounds = stats.acceptance_per_pos[:MAX_POSITIONS]
            reached = stats.conditional_per_pos[:MAX_POSITIONS]
            color = color_of(rows, row)
            axis.plot(range(1, len(all_rounds) + 1), all_rounds, "o-", color=color, label=stats.name, markersize=4)
            axis.plot(range(1, len(reached) + 1), reached, "s--", color=color, alpha=0.5, markersize=3)
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("position in the draft")
    axis.set_ylabel("share of rounds")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_title("Acceptance: of all rounds (solid), of those that got so far (dashed)")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)


def plot_time(axis: Any, rows: list[Contender]) -> None:
    """Milliseconds per token by what they were spent on."""
    for y, row in enumerate(rows):
        totals = row.totals()
        if not totals.timings.predicted_ns or not totals.n_steps:
            continue
        per_token, left = totals.timings.predicted_ns / 1e6 / totals.n_steps, 0.0
        for (name, share), color in zip(time_shares(totals.timings), PART_COLORS, strict=True):
            axis.barh(y, share * per_token, left=left, color=color, label=name if y == 0 else None)
            left += share * per_token
    axis.set_yticks(range(len(rows)), [short(row.name) for row in rows], fontsize=9)
    axis.invert_yaxis()
    axis.set_xlabel("milliseconds per token")
    axis.set_title("Time of generation")
    axis.legend(fontsize=8, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.22))


def plot_kinds(axis: Any, comparison: Comparison) -> None:
    """Speed-up by kind of prompt."""
    drafted = [row for row in comparison.contenders if row.types]
    kinds = comparison.categories
    width = 0.8 / max(1, len(drafted))
    for number, row in enumerate(drafted):
        values = [comparison.mean_speed_up(row, kind) or 0.0 for kind in kinds]
        places = [i + (number - (len(drafted) - 1) / 2) * width for i in range(len(kinds))]
        axis.bar(places, values, width, color=color_of(comparison.contenders, row), label=short(row.name))
    axis.axhline(1.0, color="#333333", linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(kinds)), kinds, rotation=30, ha="right", fontsize=9)
    axis.set_ylabel("speed-up")
    axis.set_title("Speed-up by kind of prompt")
    if drafted:
        axis.legend(fontsize=8, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.25))


def plot_synthesis(study: Synthesis, path: Path) -> None:
    """Speed-up over mean tokens per round, measured and predicted; what verification costs; where drafting pays."""
    picture, [[gain, cost, even]] = new_figure(3, 1, (15, 4.5))
    lengths = sorted({point.n_max for point in study.points})
    for k, color in zip(lengths, COLORS, strict=False):
        points = sorted((p for p in study.points if p.n_max == k), key=lambda point: point.length)
        known = [p for p in points if p.measured is not None and p.predicted is not None]
        places = [p.length for p in known]
        gain.plot(places, [p.measured for p in known], "o-", color=color, label=f"n-max {k}")
        gain.plot(places, [p.predicted for p in known], "x--", color=color, alpha=0.6)
    gain.axhline(1.0, color="#333333", linewidth=0.8, linestyle=":")
    gain.set_xlabel("mean tokens per round")
    gain.set_ylabel("speed-up")
    gain.set_title("Measured (solid) and predicted (dashed)", fontsize=10)
    gain.legend(fontsize=8, frameon=False)
    rows = sorted(study.costs.verify)
    cost.plot(rows, [study.costs.verify[n] / study.costs.verify[1] for n in rows], "o-", color=COLORS[0])
    cost.set_xlabel("rows of a verification")
    cost.set_ylabel("plain forwards")
    cost.set_ylim(bottom=0)
    cost.set_title("Cost of a verification", fontsize=10)
    curve = [(k, p) for k, costs in study.by_length.items() if (p := costs.break_even(k)) is not None]
    even.plot([k for k, _ in curve], [p for _, p in curve], "o-", color=COLORS[0])
    even.fill_between([k for k, _ in curve], [p for _, p in curve], 1.0, color=COLORS[2], alpha=0.15)
    even.set_ylim(0, 1)
    even.set_xlabel("draft tokens per round")
    even.set_ylabel("acceptance per token")
    even.set_title("Break-even: above the line drafting pays", fontsize=10)
    for axis in (gain, cost, even):
        axis.spines[["top", "right"]].set_visible(False)
    save(picture, path)


def plot_load(study: LoadStudy, path: Path) -> None:
    """Throughput, time to the first token and time between tokens over the load."""
    picture, [axes] = new_figure(3, 1, (15, 4.8))
    panels = (
        ("Throughput", "tokens per second"),
        ("Time to the first token, 95 % are below", "milliseconds"),
        ("Time between tokens, 95 % are below", "milliseconds"),
    )
    is_rate = any(level.rate is not None for level in study.levels)
    names = list(dict.fromkeys(level.name for level in study.levels))
    for number, name in enumerate(names):
        levels = sorted(
            (level for level in study.levels if level.name == name),
            key=lambda level: level.concurrency or level.rate or 0.0,
        )
        color = PLAIN_COLOR if name == PLAIN else COLORS[(number - (PLAIN in names)) % len(COLORS)]
        places = [level.concurrency or level.rate for level in levels]
        speeds = [level.tokens_per_second for level in levels]
        firsts = [(level.first_ms or {}).get("p95") for level in levels]
        gaps = [(level.between_ms or {}).get("p95") for level in levels]
        for axis, values in zip(axes, (speeds, firsts, gaps), strict=True):
            known = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
            axis.plot(*zip(*known, strict=True) if known else ((), ()), "o-", color=color, label=short(name))
    for axis, (title, unit) in zip(axes, panels, strict=True):
        axis.set_ylim(bottom=0)
        axis.set_xlabel("requests per second" if is_rate else "requests at once")
        axis.set_ylabel(unit)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    save(picture, path)
