"""Reports as lines of text; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specli.convert.records import ConvertReport

SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size_text(n_bytes: int) -> str:
    """Bytes in the unit that leaves at least one before the point: `1.5 MiB`."""
    for unit, name in SIZES:
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes} B"


def table(rows: Iterable[Sequence[str]], width: int, *, right: frozenset[int] = frozenset()) -> list[str]:
    """Rows in columns two blanks apart, cut at `width` characters; columns in `right` are right-aligned."""
    cells = [list(row) for row in rows]
    if not cells:
        return []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return [line if len(line) <= width else f"{line[: max(1, width - 1)]}…" for line in lines]


def tensor_lines(report: ConvertReport, width: int) -> list[str]:
    """The plan of a conversion: every tensor with its sources, then what is borrowed and what is unused."""
    rows = [
        (
            row.name,
            "×".join(map(str, row.shape)),
            row.type,
            size_text(row.n_bytes),
            " + ".join(row.sources) or "computed",
        )
        for row in report.tensors
    ]
    lines = table(rows, width, right=frozenset({1, 3}))
    lines += [f"borrowed from the target: {name}" for name in report.borrowed]
    lines += [f"unused: {name}: {reason}" for name, reason in report.unused.items()]
    return lines


def summary_lines(report: ConvertReport) -> list[str]:
    """What a conversion did, in two lines."""
    return [
        f"{report.layout} → {report.architecture}",
        f"{len(report.tensors)} tensors, {size_text(report.n_bytes)}, {report.seconds:.1f} s",
    ]
