"""Result files: written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specli.errors import ResourceError


def dump(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON; numbers that are not finite become null."""
    from specli.engine.stats import dump_record

    return f"{dump_record(record)}\n"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text file; an existing one is replaced only when everything was written.

    Raises:
        ResourceError: The file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.writelines(lines)
        temporary.replace(path)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
