"""Option rows as text: for `--help` and for man pages."""

from __future__ import annotations

from collections.abc import Iterator

from specli.cli.options import PANELS, options_of
from specli.cli.options.option import Option
from specli.cli.options.request import DEFAULTS, read_field


def help_groups(command: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Option groups of a command: name, and (spellings, help) of each option that can be used."""
    rows = [option for option in options_of(command) if option.is_listed]
    for panel in PANELS:
        records = [(spelling_text(option), help_text(option)) for option in rows if option.panel == panel]
        if panel == "Messages":
            records.append(("-h, --help, --usage", "show this text"))
        if records:
            yield panel, records


def spelling_text(option: Option) -> str:
    """All spellings and the value's name."""
    text = ", ".join(option.names)
    if option.negative:
        text += f" / {', '.join(option.negative)}"
    return f"{text} {option.kind.metavar}" if option.kind.takes_value else text


def help_text(option: Option) -> str:
    """A row's help with its words, default and environment variable."""
    notes = {"one of": words_text(option), "default": default_text(option), "env": option.env}
    given = [f"{label}: {text}" for label, text in notes.items() if text is not None]
    return f"{option.help} [{'; '.join(given)}]" if given else option.help


def words_text(option: Option) -> str | None:
    """The accepted words, unless there are none or the metavar has them already."""
    words = option.kind.values
    return None if not words or words[0] in option.kind.metavar.split("|") else " ".join(words)


def default_text(option: Option) -> str | None:
    """The default as help shows it; None where it is nothing, or off for a plain flag."""
    if option.default_text is not None:
        return option.default_text
    if option.field is None or option.const is not True:
        return None
    value = read_field(DEFAULTS, option.field)
    if isinstance(value, bool):
        return "on" if value else ("off" if option.negative else None)
    if value is None or value == () or value == {}:
        return None
    return ";".join(map(str, value)) if isinstance(value, tuple) else str(value)
