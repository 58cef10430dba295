"""Man pages (roff, man(7) macros) of the root command and of each command."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping

from specli._version import __version__
from specli.cli.options import PANELS, options_of
from specli.cli.options.help import help_text
from specli.cli.options.option import Option
from specli.cli.tree import OPERANDS, ROOT_OPTIONS, SUMMARY

GRAMMAR = """\
A value is the next argument, or follows a = sign (--option=value). Short options have several letters and are not
bundled: -ngld 99. In long options _ may stand for -. An option's value comes from, strongest first: the command line,
the environment variable shown with it, a config file, the default. Empty variables count as unset; LLAMA_ARG_NO_X
switches off an option with variable LLAMA_ARG_X that has a negative spelling."""

FILES = (
    ("/etc/llama.cpp/config.ini, ~/.config/llama.cpp/config.ini", "options as KEY = VALUE, without leading dashes"),
    ("/etc/specli/config.ini, ~/.config/specli/config.ini", "the same, read after them; XDG_CONFIG_HOME is respected"),
)

EXIT_STATUS = (
    ("0", "done"),
    ("1", "a file, a model or the machine is at fault"),
    ("2", "the command line is wrong"),
    ("129, 143", "asked to end by SIGHUP or SIGTERM"),
    ("130", "interrupted"),
)


def roff(text: str) -> str:
    """Text as roff input: no character of it is a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", escaped)
    lines = textwrap.wrap(escaped, 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{line}" if line[0] in ".'" else line for line in lines)


def head(name: str, summary: str) -> list[str]:
    """Title and NAME section."""
    title = f'.TH {name.upper()} 1 "" "specli {__version__}" "specli manual"'
    return [title, ".SH NAME", f"{roff(name)} \\- {roff(summary)}"]


def entries(items: Mapping[str, str] | tuple[tuple[str, str], ...]) -> list[str]:
    """Tagged paragraphs: tag in bold, text."""
    pairs = items.items() if isinstance(items, Mapping) else items
    return [line for tag, text in pairs for line in (".TP", f"\\fB{roff(tag)}\\fR", roff(text))]


def option_tag(option: Option) -> str:
    """Spellings in bold, the value's name in italics."""
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names)
    if option.negative:
        names += " / " + ", ".join(f"\\fB{roff(name)}\\fR" for name in option.negative)
    return f"{names} \\fI{roff(option.kind.metavar)}\\fR" if option.kind.takes_value else names


def command_page(command: str, summary: str) -> str:
    """The page of one command."""
    operand, _ = OPERANDS.get(command, ("", 0))
    rows = options_of(command)
    lines = [*head(f"specli-{command}", summary), ".SH SYNOPSIS", f"\\fBspecli {command}\\fR [\\fIOPTIONS\\fR]"]
    if operand:
        lines[-1] += f" {roff(operand)}"
    lines += [".SH DESCRIPTION", roff(f"{summary}."), ".PP", roff(GRAMMAR), ".SH OPTIONS"]
    for panel in PANELS:
        listed = [option for option in rows if option.panel == panel and option.is_listed]
        if listed:
            lines.append(f".SS {roff(panel)}")
        for option in listed:
            lines += [".TP", option_tag(option), roff(f"{help_text(option)}.")]
    rows = tuple(option for option in rows if not option.is_listed)
    idle = [option for option in rows if option.idle]
    if idle:
        lines += [".SH OPTIONS WITHOUT EFFECT", roff("llama.cpp has these too; a warning says that they do nothing.")]
        lines += reasons(idle, "No warning with")
    refused = [option for option in rows if not option.idle]
    if refused:
        lines += [".SH OPTIONS NOT AVAILABLE", roff("llama.cpp has these too; specli refuses them and says why.")]
        lines += reasons(refused, "Accepted with")
    lines += [".SH FILES", *entries(FILES), ".SH EXIT STATUS", *entries(EXIT_STATUS)]
    lines += [".SH SEE ALSO", "\\fBspecli\\fR(1)"]
    return "\n".join(lines) + "\n"


def reasons(options: Iterable[Option], exceptions: str) -> list[str]:
    """Tagged paragraphs: an option, why it does nothing, and the values that are right all the same."""
    lines = []
    for option in options:
        values = f" {exceptions}: {' '.join(option.satisfied)}." if option.satisfied else ""
        lines += [".TP", option_tag(option), roff(f"{option.idle or option.refused or option.removed}.{values}")]
    return lines


def root_page(commands: Mapping[str, str]) -> str:
    """The page of `specli` itself."""
    lines = [*head("specli", SUMMARY), ".SH SYNOPSIS", "\\fBspecli\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"]
    lines += [".SH DESCRIPTION", roff(f"{SUMMARY}."), ".PP", roff(GRAMMAR)]
    lines += [".SH COMMANDS", *entries({name: f"{summary}." for name, summary in commands.items()})]
    lines += [".SH OPTIONS", *entries(tuple((", ".join(names), f"{text}.") for names, text in ROOT_OPTIONS))]
    lines += [".SH FILES", *entries(FILES), ".SH EXIT STATUS", *entries(EXIT_STATUS)]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fBspecli\\-{name}\\fR(1)" for name in commands)]
    return "\n".join(lines) + "\n"
