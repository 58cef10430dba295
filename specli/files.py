"""Result files: written whole or not at all, and known to be writable before the work starts."""

from __future__ import annotations

import os
from pathlib import Path

from specli.errors import ResourceError


def write_file(path: Path, data: bytes, what: str = "cannot be written") -> None:
    """Writes a file; an existing one is replaced only when everything was written.

    Links are followed. What is not a regular file, such as /dev/stdout or a named pipe, is written to and stays.

    Args:
        path: Where to.
        data: The whole content.
        what: What failed, for the error.

    Raises:
        ResourceError: The file cannot be written.
    """
    real = Path(os.path.realpath(path))
    try:
        if _is_special(real):
            real.write_bytes(data)
            return
        temporary = _beside(real)
        try:
            temporary.write_bytes(data)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(f"{path}: {what}: {error.strerror}") from None


def check_writable(path: Path, what: str = "cannot be written") -> None:
    """Raises now what `write_file` would raise after the work, as far as that can be known.

    Raises:
        ResourceError: The folder is missing or closed, or the path is a folder.
    """
    real = Path(os.path.realpath(path))
    try:
        if _is_special(real):
            os.close(os.open(real, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
        else:
            temporary = _beside(real)
            temporary.touch()
            temporary.unlink()
    except OSError as error:
        raise ResourceError(f"{path}: {what}: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.tmp")
