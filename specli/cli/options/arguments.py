"""From argv, environment and config files to assignments: which option, which value text, from where.

llama.cpp's grammar (`common/arg.cpp`) is not the usual one, so it has its own reader: multi-letter short options
(`-ngld 99`) are never bundles, the value is the next argument whatever it looks like, and `_` reads as `-` in long
options. On top of it `--option=value` works, and a value that is itself an option of the command is an error instead
of being swallowed (`-fa --temp 0`).
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specli.cli.options import OPTIONS, options_of, spellings_of
from specli.cli.options.help import words_text
from specli.cli.options.kinds import parse_boolean
from specli.cli.options.option import Option
from specli.cli.options.refused import OTHER_VARIABLES
from specli.errors import UsageError, did_you_mean, nearest

HELP = ("-h", "--help", "--usage")
VARIABLE_PREFIX = "LLAMA_ARG_"

Source = Literal["default", "file", "environment", "flag"]


@dataclass(frozen=True)
class Origin:
    """Where a setting came from.

    Attributes:
        source: Layer, weakest first: default, file, environment, flag.
        name: Spelling, variable or `file: key`.
    """

    source: Source
    name: str

    def error(self, text: str, option: Option, value: str | None = None) -> UsageError:
        """The error of an option that was given here, with that value."""
        what = {"flag": "argument", "environment": "environment variable", "file": "setting"}[self.source]
        metavar = f" {option.kind.metavar}" if option.kind.takes_value else ""
        words = words_text(option)
        hint = f"{option.name}{metavar}: {option.help}{f' [one of: {words}]' if words else ''}"
        wrong = next((part for part in (value or "").split(",") if part not in option.kind.values), "")
        near = did_you_mean(wrong, option.kind.values)
        hints = [hint for hint in (near, hint if option.is_listed else None) if hint]
        return UsageError(f'error while handling {what} "{self.name}": {text}', hint=" ".join(hints) or None)


@dataclass(frozen=True)
class Assignment:
    """One option as it was given.

    Attributes:
        option: The row.
        text: The value; None for a flag.
        is_positive: False for a negative spelling.
        origin: Where it was given.
    """

    option: Option
    text: str | None
    is_positive: bool
    origin: Origin


@dataclass(frozen=True)
class CommandLine:
    """A command line taken apart.

    Attributes:
        assignments: Options in order.
        operands: Arguments that are not options.
        wants_help: Whether help was asked for.
    """

    assignments: tuple[Assignment, ...]
    operands: tuple[str, ...]
    wants_help: bool


def split_spelling(argument: str) -> tuple[str, str | None]:
    """The option name in canonical form, and the value after `=` if there is one."""
    name, equals, value = argument.partition("=")
    if name.startswith("--"):
        name = name.replace("_", "-")
    return name, value if equals else None


def is_option(argument: str) -> bool:
    """Whether an argument is written like an option (`-` alone and negative numbers are not)."""
    return argument.startswith("-") and argument != "-" and not re.fullmatch(r"-\.?[0-9].*", argument)


def read_command_line(command: str, arguments: Sequence[str], *, max_operands: int = 0) -> CommandLine:
    """Takes the arguments of a command apart.

    Raises:
        UsageError: An unknown option, a missing value, or more operands than the command takes.
    """
    known = spellings_of(command)
    assignments: list[Assignment] = []
    operands: list[str] = []
    wants_help = False
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            operands += rest
            break
        name, value = split_spelling(argument)
        if name in HELP:
            wants_help = True
        elif name in known:
            option = known[name]
            origin = Origin("flag", name)
            values = [] if value is None else [value]
            if values and not option.kind.takes_value:
                raise origin.error("takes no value", option)
            while len(values) < option.kind.n_values:
                if not rest or (following := split_spelling(rest[0])[0]) in known or following in HELP:
                    raise origin.error("expected value for argument", option)
                values.append(rest.pop(0))
            assignments.append(Assignment(option, " ".join(values) if values else None, name in option.names, origin))
        elif is_option(argument):
            raise unknown_option(command, name)
        else:
            operands.append(argument)
    if len(operands) > max_operands:
        raise UsageError(f"invalid argument: {operands[max_operands]}", hint=f"see specli {command} --help")
    return CommandLine(tuple(assignments), tuple(operands), wants_help)


def unknown_option(command: str, name: str) -> UsageError:
    """The error of an option that a command does not have, with the nearest one it has."""
    owners = [owner for option in OPTIONS if name in option.spellings for owner in option.commands]
    listed = [spelling for option in options_of(command) if option.is_listed for spelling in option.spellings]
    if owners:
        hint: str | None = f"{name} is an option of specli {' and '.join(dict.fromkeys(owners))}"
    else:
        hint = did_you_mean(name, listed, f"see specli {command} --help")
    return UsageError(f"invalid argument: {name}", hint=hint)


def read_environment(command: str, environ: Mapping[str, str]) -> Iterator[Assignment]:
    """Options set by environment variables. An empty variable counts as unset.

    For an option with negative spellings `LLAMA_ARG_NO_…` comes first: with any value it switches the option off.
    """
    for option in options_of(command):
        if option.negative_env and environ.get(option.negative_env):
            yield Assignment(option, None, False, Origin("environment", option.negative_env))
        elif option.env and (value := environ.get(option.env)):
            yield from from_word(option, value, Origin("environment", option.env))


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Warnings about variables that are written like llama.cpp's and are none, with the name that was probably meant.

    Variables of llama.cpp's other programs are left alone.
    """
    known = {name for option in OPTIONS for name in (option.env, option.negative_env) if name} | set(OTHER_VARIABLES)
    tails = {name.removeprefix(VARIABLE_PREFIX): name for name in sorted(known) if name.startswith(VARIABLE_PREFIX)}
    warnings = []
    for name in sorted(environ):
        if name.startswith("LLAMA_ARG") and environ[name] and name not in known:
            near = nearest(name.removeprefix(VARIABLE_PREFIX), tails)
            meant = f" (did you mean {tails[near]}?)" if near else ""
            warnings.append(f"{name} has no effect: there is no such environment variable{meant}")
    return warnings


def from_word(option: Option, value: str, origin: Origin) -> Iterator[Assignment]:
    """An option set by a word: flags take a boolean, and a false one leaves a flag without negative spelling unset."""
    if option.kind.takes_value:
        yield Assignment(option, value, True, origin)
        return
    try:
        is_on = parse_boolean(value)
    except ValueError as error:
        if option.idle is None:
            raise origin.error(str(error), option, value) from None
        is_on = True
    if is_on or option.negative:
        yield Assignment(option, None, is_on, origin)


def config_paths(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Config files, weakest first: llama.cpp's two, then specli's own two."""
    home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config")
    return tuple(root / name / "config.ini" for name in ("llama.cpp", "specli") for root in (Path("/etc"), home))


def read_config_file(command: str, path: Path) -> tuple[list[Assignment], list[str]]:
    """Options of one INI file, section `[*]` before `[default]`, and warnings about keys nobody knows.

    Keys are option names without leading dashes, or environment names; keys before any section count as `[default]`.
    llama.cpp switches a flag on whatever its value; here the value is a boolean word, or nothing for true.

    Raises:
        UsageError: The file is not INI.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read: {reason}") from None
    parser = configparser.ConfigParser(
        default_section="", interpolation=None, delimiters=("=",), comment_prefixes=(";", "#"),
        allow_no_value=True, strict=False,
    )  # fmt: skip
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys are case sensitive
    try:
        lines = (line.strip() for line in text.splitlines())  # an indented line is not a continuation here
        parser.read_string("\n".join(("[default]", *lines)), source=str(path))
    except configparser.Error as error:
        raise UsageError(f"{path}: not an INI file: {str(error).splitlines()[0]}") from None

    known = {spelling.lstrip("-"): option for spelling, option in spellings_of(command).items()}
    negative = {spelling.lstrip("-") for option in options_of(command) for spelling in option.negative}
    everywhere = {spelling.lstrip("-") for option in OPTIONS for spelling in option.spellings}
    variables = {option.env: option for option in options_of(command) if option.env}
    assignments, warnings = [], []
    for section in ("*", "default"):
        for key, value in parser[section].items() if parser.has_section(section) else ():
            name = key.lstrip("-").replace("_", "-") if key not in variables else key
            option = variables.get(name) or known.get(name)
            origin = Origin("file", f"{path}: {key}")
            if option is None:
                if name not in everywhere:
                    near = did_you_mean(name, known)
                    warnings.append(f"{path}: unknown key {key}{f' ({near})' if near else ''}")
            elif name in negative:
                try:
                    is_on = not parse_boolean(value or "1")
                except ValueError as error:
                    raise origin.error(str(error), option) from None
                assignments.append(Assignment(option, None, is_on, origin))
            elif option.kind.takes_value and not value:
                raise origin.error("expected value for argument", option)
            else:
                assignments += from_word(option, value or "1", origin)
    return assignments, warnings
