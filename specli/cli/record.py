"""Result files: written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specli.files import write_file


def dump(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON; numbers that are not finite become null."""
    from specli.engine.stats import dump_record

    return f"{dump_record(record)}\n"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file; an existing one is replaced only when everything was written.

    Raises:
        ResourceError: The file cannot be written.
    """
    write_file(path, "".join(lines).encode())
