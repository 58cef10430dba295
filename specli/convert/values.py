"""Typed access to config.json and its like: a wrong value is an error that names file, key and both types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specli.errors import FormatError
from specli.files import SNIFFED, content_of, file_size, read_text
from specli.gguf.metadata import show

MAX_JSON_BYTES = 512 << 20
MAX_FLOAT = 3.4e38  # numbers end up as float32

_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers"), 10_000),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 100_000),
    **dict.fromkeys(("vocab_size", "draft_vocab_size", "vocab_size_per_layer_input"), 10_000_000),
    **dict.fromkeys(("hidden_size", "head_dim", "global_head_dim"), 1_000_000),
}
"""Largest values of what lists are made from: far above any model, small enough that a wrong one costs nothing."""


def load_json(path: Path) -> Any:
    """The value that a JSON file holds.

    Raises:
        FormatError: The file is not JSON, or larger than any config or tokenizer can be.
    """
    size = file_size(path)
    if size > MAX_JSON_BYTES:
        raise FormatError(f"{path}: {size} bytes is above the limit of {MAX_JSON_BYTES}")
    return parse_json(path, read_text(path, encoding="utf-8-sig"))


def parse_json(path: Path, text: str, what: str = "", *, unique: bool = False) -> Any:
    """The value that a JSON text holds.

    Args:
        path: For messages.
        text: JSON.
        what: Which part of the file it is, with a blank after it.
        unique: Refuse objects with a key twice, instead of taking the last.

    Raises:
        FormatError: `text` is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except (ValueError, RecursionError) as error:
        other = content_of(text[:SNIFFED].encode("utf-8", "replace"))
        if other is not None and other.what != "JSON":
            raise FormatError(f"{path}: not JSON, but {other.what}", hint=other.hint) from None
        # ValueError also for integers of more digits than Python reads
        raise FormatError(f"{path}: {what}not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for key, value in pairs:
        if key in items:
            raise ValueError(f"key {show(key)} is there twice")
        items[key] = value
    return items


def load_object(path: Path) -> dict[str, Any]:
    """The parsed file, which must hold a JSON object."""
    value = load_json(path)
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a JSON {type(value).__name__}, expected an object")
    return value


def _short(value: Any) -> str:
    """JSON of a value, cut after 80 characters."""
    return json.dumps(value)[:80]


class Values:
    """A JSON object with typed access. Names are tried in order; the first one *present* counts, null as absent.

    Args:
        path: File named in errors.
        items: The object.
    """

    def __init__(self, path: Path, items: Mapping[str, Any]) -> None:
        self.path = path
        self.items = items

    def __contains__(self, name: str) -> bool:
        return self.items.get(name) is not None

    def raw(self, *names: str) -> Any:
        """The value as it stands, or None."""
        return next((self.items[name] for name in names if name in self.items), None)

    def _typed(self, names: tuple[str, ...], kinds: tuple[type, ...], expected: str) -> Any:
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            name = next(name for name in names if name in self.items)
            raise FormatError(f"{self.path}: {name} is {_short(value)}, expected {expected}")
        return value

    def integer(self, *names: str) -> int | None:
        """A non-negative integer below 2^32, for some names far below, or None."""
        value: int | None = self._typed(names, (int,), "an integer")
        most = _LIMITS.get(names[0], 2**32 - 1)
        if value is not None and not 0 <= value <= most:
            raise FormatError(f"{self.path}: {names[0]} is {_short(value)}, expected 0 to {most}")
        return value

    def number(self, *names: str) -> float | None:
        """A finite number, or None."""
        value: float | None = self._typed(names, (int, float), "a number")
        if value is not None and not -MAX_FLOAT <= value <= MAX_FLOAT:
            raise FormatError(f"{self.path}: {names[0]} is {_short(value)}, expected a finite number")
        return value

    def fraction(self, name: str) -> float | None:
        """A number from 0 to 1, or None."""
        value = self.number(name)
        if value is not None and not 0 <= value <= 1:
            raise FormatError(f"{self.path}: {name} is {_short(value)}, expected 0 to 1")
        return value

    def flag(self, *names: str) -> bool | None:
        """The boolean under a key; None where the key is absent."""
        value: bool | None = self._typed(names, (bool,), "true or false")
        return value

    def text(self, *names: str) -> str | None:
        """The string under a key; None where the key is absent."""
        value: str | None = self._typed(names, (str,), "a string")
        return value

    def integers(self, *names: str) -> list[int] | None:
        """A list of integers (negative ones allowed), or None."""
        value = self._typed(names, (list,), "a list of integers")
        if value is not None and not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            raise FormatError(f"{self.path}: {names[0]} is {_short(value)}, expected a list of integers")
        return value  # type: ignore[no-any-return]

    def texts(self, *names: str) -> list[str] | None:
        """A list of strings, or None."""
        value = self._typed(names, (list,), "a list of strings")
        if value is not None and not all(isinstance(v, str) for v in value):
            raise FormatError(f"{self.path}: {names[0]} is {_short(value)}, expected a list of strings")
        return value  # type: ignore[no-any-return]

    def section(self, name: str) -> Values:
        """A nested object; an absent one is empty."""
        return Values(self.path, self._typed((name,), (dict,), "an object") or {})

    def need(self, *names: str) -> int:
        """A positive integer that must be there, under the first of its names that is used.

        Raises:
            FormatError: No name is used, or the value is not positive.
        """
        value = self.integer(*names)
        if not value:
            found = "missing" if value is None else value
            raise FormatError(f"{self.path}: {' or '.join(names)} is {found}, expected a positive integer")
        return value

    def merged(self, items: Mapping[str, Any]) -> Values:
        """These values with `items` over them."""
        return Values(self.path, {**self.items, **items})
