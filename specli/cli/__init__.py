"""The command line: `specli COMMAND`. Commands are imported when they run."""

from __future__ import annotations

from collections.abc import Container, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperGroup

from specli._version import __version__
from specli.cli.command import TableCommand, fit_help, name_columns
from specli.cli.interrupt import Terminated, terminable
from specli.cli.streams import discard_output
from specli.cli.tree import COMMANDS, ROOT_OPTIONS, SUMMARY
from specli.errors import ResourceError, SpecliError, UsageError, did_you_mean

INTERRUPTED = 130


class RootGroup(TyperGroup):
    """The root command. It reads its own options: Typer would import pydantic for them with every command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Serves the options before the command; what follows them is the command's.

        Raises:
            UsageError: There is no such option.
            typer.Exit: Options were served, or there is no command.
        """
        fit_help(ctx)
        known = {spelling: names[-1] for names, _ in ROOT_OPTIONS for spelling in names}
        options = list(takewhile(lambda argument: argument.startswith("-"), args))
        for spelling in options:
            if spelling.replace("_", "-") not in known:
                raise UsageError(
                    f"invalid argument: {spelling}", hint=did_you_mean(spelling, known, "see specli --help")
                )
        given = {known[spelling.replace("_", "-")] for spelling in options}
        text = None if "--help" in given else root_answer(given)
        if text is None and "--help" not in given and len(args) > len(options):
            return super().parse_args(ctx, args[len(options) :])
        typer.echo(ctx.get_help() if text is None else text, nl=text is None)
        raise typer.Exit(0 if text or "--help" in given else 2)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes options and commands."""
        rows = {"Options": [(", ".join(names), text) for names, text in ROOT_OPTIONS], "Commands": [*COMMANDS.items()]}
        for title, records in rows.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=name_columns(formatter.width))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name.

        Raises:
            UsageError: There is none.
        """
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing:
            hint = did_you_mean(cmd_name, COMMANDS, f"commands are {', '.join(COMMANDS)}")
            raise UsageError(f"unknown command: {cmd_name}", hint=hint)
        return command


def root_answer(options: Container[str]) -> str | None:
    """What root options ask for; None if they ask for nothing."""
    if "--version" in options:
        return f"specli {__version__}\n"
    if "--list-devices" in options:
        from specli.cli.show import device_list

        return device_list(is_verbose="--verbose" in options)
    if "--list-models" in options:
        from specli.cli.show import model_list

        return model_list()
    return None


app = typer.Typer(
    cls=RootGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(help=SUMMARY, add_help_option=False)
def root() -> None:
    """Nothing is left to do: the group reads the options before any command."""


def _run_command(ctx: typer.Context) -> None:
    """Runs the module of the command."""
    import_module(f"specli.cli.commands.{ctx.info_name}").run(ctx.obj)


for _name, _summary in COMMANDS.items():
    app.command(_name, cls=TableCommand, help=_summary)(_run_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; None = those of the process.

    Returns:
        Exit code: 0 done, 1 error, 2 usage, 130 interrupted, 128 and the signal's number if asked to end by one.
    """
    try:
        with terminable():
            code = app(args=arguments, prog_name="specli", standalone_mode=False)
    except Terminated as error:
        return 128 + error.signum
    except SpecliError as error:
        complain(error)
        return 2 if isinstance(error, UsageError) else 1
    except typer.TyperException as error:
        complain(UsageError(error.format_message()))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone
        discard_output()
        return 1
    except OSError as error:
        if error.filename is not None:
            raise  # files are the commands' business; this leaves streams, where a disk may be full
        discard_output()
        complain(ResourceError(f"the output cannot be written: {error.strerror}"))
        return 1
    return code if isinstance(code, int) else 0


def complain(error: SpecliError) -> None:
    """Writes an error and its hint to stderr."""
    from specli.cli.console import error_lines

    for line in error_lines(error):
        typer.echo(line, err=True)
