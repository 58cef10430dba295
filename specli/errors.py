"""Errors a user may see. Only `specli.cli` turns them into text; nothing here imports from specli.

Messages are one line, lower case, without a final stop: subject, what was found, what was expected.
"""

from collections.abc import Iterable, Sequence

_LISTED = 8
_SHOWN = 500  # characters of each


class SpecliError(Exception):
    """An error with a message for the user.

    Args:
        message: One line; names the file, key or flag, what was found and what was expected.
        hint: What the user can do about it, or None. Printed on a line of its own after `hint: `.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class FormatError(SpecliError):
    """A file is broken: truncated, inconsistent, or not in the format it should be."""


class UnsupportedError(SpecliError):
    """A file or option is valid but not handled: architecture, quant type, pre-tokenizer."""


class IncompatibleError(SpecliError):
    """Target and drafter do not fit together, or an option does not fit the model."""


class ResourceError(SpecliError):
    """A device, memory, disk or network resource is missing or too small."""


class UsageError(SpecliError):
    """Options are wrong or contradict each other. Exit code 2."""


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """The first few of many things for a message, and how many there are besides."""
    rest = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    shown = (item if item.isprintable() else repr(item)[1:-1] for item in items[:_LISTED])
    return separator.join(item if len(item) <= _SHOWN else f"{item[:_SHOWN]}…" for item in shown) + rest


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None if none is near.

    Case and `_` for `-` do not count, and neither does the part of a name before its first dash (`dflsh` is near
    `draft-dflash`).
    """
    from difflib import get_close_matches

    forms: dict[str, str] = {}
    for name in names:
        plain = name.lower().replace("_", "-")
        for form in filter(None, (plain, plain.partition("-")[2])):
            forms.setdefault(form, name)
    close = get_close_matches(word.lower().replace("_", "-"), forms, n=1)
    return forms[close[0]] if close else None


def did_you_mean(word: str, names: Iterable[str], otherwise: str | None = None) -> str | None:
    """A hint that asks for the nearest name; something else if none is near."""
    near = nearest(word, names)
    return f"did you mean {near}?" if near else otherwise
