"""`specli convert`: options → `specli.convert`, the paths written to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from specli.cli.console import Console
from specli.cli.invocation import Invocation
from specli.cli.record import dump
from specli.cli.render import summary_lines, tensor_lines
from specli.cli.show import show_instead
from specli.errors import UsageError

if TYPE_CHECKING:
    from specli.convert.records import OnProgress


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        UsageError: No source was given.
    """
    if show_instead(invocation):
        return
    if not invocation.settings.operands:
        raise UsageError("SRC is required", hint="specli convert SRC, a checkpoint directory or hub id")
    from specli.convert import convert

    config = replace(invocation.config.convert, source=invocation.settings.operands[0])
    with invocation.console() as console:
        with progress(console) as on_progress:
            report = convert(config, on_progress)
        for warning in report.warnings:
            console.warn(warning)
        for line in (*report.notes, *report.fit, *summary_lines(report)):
            console.info(line)
        if invocation.config.output.json:
            console.write(dump(report.to_dict()))
        elif config.dry_run:
            console.write("".join(f"{line}\n" for line in tensor_lines(report, console.width)))
        else:
            console.write("".join(f"{path}\n" for path in report.paths))


@contextmanager
def progress(console: Console) -> Iterator[OnProgress | None]:
    """A progress bar on stderr while the block runs; nothing unless stderr is a terminal."""
    if not console.err.isatty():
        yield None
        return
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=RichConsole(file=console.err), transient=True) as bar:
        task = bar.add_task("convert", total=None)
        yield lambda state: bar.update(
            task, completed=state.bytes_done, total=state.n_bytes, description=f"{state.n_done}/{state.n_tensors}"
        )
