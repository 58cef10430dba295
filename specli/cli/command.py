"""Typer commands whose options are the rows of the option table.

Typer keeps the command tree, usage lines and exit handling. Reading arguments is the job of
`specli.cli.options.arguments`, because llama.cpp's grammar is not Click's, and help groups come from the table.
Everything is imported when a command needs it, so that `specli --help` starts at once.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import typer
from typer.core import TyperCommand

from specli.cli.tree import OPERANDS

MAX_COLUMNS = 100
"""Help lines are not longer, however wide the terminal is."""


def fit_help(ctx: Any) -> None:
    """Sets the width of help to the terminal's; Typer's own lines never get shorter than 50 columns."""
    ctx.terminal_width = max(20, min(shutil.get_terminal_size().columns, MAX_COLUMNS) - 2)


def name_columns(width: int) -> int:
    """Columns of option names beside their help; longer names have a line of their own."""
    return 28 if width >= 60 else 12


class TableCommand(TyperCommand):
    """A command whose options come from the option table; its function finds an `Invocation` in `ctx.obj`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads arguments, environment and config files; with a help option shows help instead."""
        from specli.cli.invocation import Invocation
        from specli.cli.options.arguments import read_command_line
        from specli.cli.options.settings import resolve

        fit_help(ctx)
        assert self.name is not None
        _, n_operands = OPERANDS.get(self.name, ("", 0))
        line = read_command_line(self.name, args, max_operands=n_operands)
        settings = resolve(self.name, line, os.environ)
        if line.wants_help:
            typer.echo(ctx.get_help())
            raise typer.Exit
        ctx.obj = Invocation(settings, settings.config())
        return []

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in the usage line."""
        operand, _ = OPERANDS.get(self.name or "", ("", 0))
        return [*super().collect_usage_pieces(ctx), *filter(None, (operand,))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the option groups, in the same order for every command."""
        from specli.cli.options.help import help_groups

        assert self.name is not None
        for panel, records in help_groups(self.name):
            with formatter.section(panel):
                formatter.write_dl(records, col_max=name_columns(formatter.width))
