"""The command line: `specli COMMAND`. Commands are imported when they run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from specli._version import __version__
from specli.cli.command import TableCommand
from specli.cli.streams import discard_output
from specli.cli.tree import COMMANDS, SUMMARY
from specli.errors import ResourceError, SpecliError, UsageError

INTERRUPTED = 130


class RootGroup(TyperGroup):
    """The root command; an unknown command is answered with the nearest one."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name.

        Raises:
            UsageError: There is none.
        """
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(cmd_name, COMMANDS, n=1)
            raise UsageError(
                f"unknown command: {cmd_name}",
                hint=f"did you mean {close[0]}?" if close else f"commands are {', '.join(COMMANDS)}",
            )
        return command


app = typer.Typer(
    cls=RootGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True, help=SUMMARY)
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="print the version"),
    list_devices: bool = typer.Option(False, "--list-devices", help="print the devices"),
    list_models: bool = typer.Option(False, "--list-models", help="print the models that ship with specli"),
    verbose: bool = typer.Option(
        False, "-v", "--verbose", help="with --list-devices: kernels and why they were chosen"
    ),
) -> None:
    """The options before any command."""
    if version:
        typer.echo(f"specli {__version__}")
    elif list_devices:
        from specli.cli.show import device_list

        typer.echo(device_list(is_verbose=verbose), nl=False)
    elif list_models:
        from specli.cli.show import model_list

        typer.echo(model_list(), nl=False)
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)
    else:
        return
    raise typer.Exit


def _run_command(ctx: typer.Context) -> None:
    """Runs the module of the command."""
    import_module(f"specli.cli.{ctx.info_name}").run(ctx.obj)


for _name, _summary in COMMANDS.items():
    app.command(_name, cls=TableCommand, help=_summary)(_run_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; None = those of the process.

    Returns:
        Exit code: 0 done, 1 error, 2 usage, 130 interrupted.
    """
    try:
        code = app(args=arguments, prog_name="specli", standalone_mode=False)
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
