"""Blocks of a report for the terminal, drawn with Rich: tables where they fit, lists where they do not, bars.

Rich leaves colours out when the output is no terminal or NO_COLOR is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specli.cli.console import Console

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

NARROW = 72
"""Columns below which a wide table becomes a list per row."""
LABEL = 18
"""Columns of a bar's label at most."""
GAP = 2
"""Blank columns between those of a table."""
UNKNOWN = "n/a"


def rich_console(console: Console) -> RichConsole:
    """A Rich console on stdout."""
    from rich.console import Console as RichConsole

    return RichConsole(file=console.out, width=console.width, highlight=False, soft_wrap=False)


def figure(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """A number, or `n/a`."""
    return UNKNOWN if value is None else f"{value:{form}}{unit}"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def heading(out: RichConsole, text: str) -> None:
    """A line above a block."""
    out.print()
    out.print(text, style="bold", markup=False)


def table(out: RichConsole, columns: Sequence[str], rows: Iterable[Sequence[str]], *, best: int | None = None) -> None:
    """A table, first column left-aligned, the others right-aligned; on a narrow terminal a list per row.

    Args:
        out: Where to.
        columns: Headings.
        rows: Cells.
        best: Row that is marked.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    if not _fits(out, columns, rows):
        rows = [[row[0].replace("+", "+\n"), *row[1:]] for row in rows]  # combinations take several lines
    if not _fits(out, columns, rows):
        for number, row in enumerate(rows):
            first = f"{columns[0]} {row[0]}".replace("\n", "")
            out.print(Text(first, style="bold green" if number == best else "bold"))
            for name, cell in zip(columns[1:], row[1:], strict=True):
                out.print(Text(f"  {name:<{max(map(len, columns))}} {cell}", overflow="fold"))
        return
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        drawn.add_column(name, justify="right" if number else "left", no_wrap=True)
    for number, row in enumerate(rows):
        drawn.add_row(*map(Text, row), style="green" if number == best else None)
    out.print(drawn)


def _fits(out: RichConsole, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table of that many columns fits; a cell may have several lines."""
    cells = [columns, *rows]
    widths = [max(len(line) for row in cells for line in row[i].split("\n")) for i in range(len(columns))]
    return sum(widths) + GAP * len(widths) <= out.width


def bars(out: RichConsole, rows: Sequence[tuple[str, float | None, str]], *, mark: float | None = None) -> None:
    """Horizontal bars from 0: label, value, text behind the bar.

    Args:
        out: Where to.
        rows: What to draw.
        mark: A value whose place is marked in every row, for example 1 for "no gain".
    """
    from rich.text import Text

    known = [value for _, value, _ in rows if value is not None]
    if not known or max(known) <= 0:
        return
    label = min(max(len(name) for name, _, _ in rows), LABEL if out.width < NARROW else out.width // 2)
    room = max(8, out.width - label - max(len(text) for _, _, text in rows) - 3)
    most = max([*known, mark or 0.0])
    for name, value, text in rows:
        filled = round(room * (value or 0.0) / most)
        cells = ["█"] * filled + [" "] * (room - filled)
        if mark is not None:
            at = min(room - 1, round(room * mark / most))
            cells[at] = "│" if at >= filled else "▏"
        style = "green" if mark is not None and (value or 0.0) > mark else "cyan"
        short = name if len(name) <= label else f"{name[: label - 1]}…"
        out.print(
            Text.assemble(f"{short:<{label}} ", ("".join(cells), style), f" {text}"), no_wrap=True, overflow="crop"
        )


def shares(out: RichConsole, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> None:
    """Stacked bars of parts that add up to 1, with a legend."""
    from rich.text import Text

    if not rows:
        return
    label = min(max(len(name) for name, _ in rows), LABEL if out.width < NARROW else out.width // 2)
    room = out.width - label - 2
    styles, marks = ("cyan", "green", "yellow", "magenta"), "█▓▒░"
    for name, parts in rows:
        short = name if len(name) <= label else f"{name[: label - 1]}…"
        line = Text(f"{short:<{label}} ")
        done = 0.0
        for (_, share), style, mark in zip(parts, styles, marks, strict=False):
            begin, done = round(room * done), done + share
            line.append(mark * (round(room * done) - begin), style=style)
        out.print(line, no_wrap=True, overflow="crop")
    legend = Text(" " * (label + 1))
    for (name, _), style, mark in zip(rows[0][1], styles, marks, strict=False):
        legend.append(f"{mark} {name}  ", style=style)
    out.print(legend)


def notes(out: RichConsole, lines: Iterable[str]) -> None:
    """Small print."""
    from rich.text import Text

    for line in lines:
        out.print(Text(line, style="dim"))
