"""Text files read whole; result files written whole or not at all, known to be writable before the work starts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from specli.errors import FormatError, ResourceError

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISSOCK, "socket"),
)


def read_text(path: Path, what: str = "cannot be read", *, encoding: str = "utf-8") -> str:
    """The text of a file.

    Args:
        path: Which.
        what: What failed, for the error.
        encoding: A form of UTF-8.

    Raises:
        FormatError: The file cannot be read, or is no such text.
    """
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise FormatError(f"{path}: {what}: {error.strerror}") from None
    except ValueError as error:  # the encoding; a null byte in the path
        is_utf16 = isinstance(error, UnicodeDecodeError) and error.object.startswith(UTF16_MARKS)
        raise FormatError(f"{path}: {what}: {'UTF-16 text, expected UTF-8' if is_utf16 else error}") from None


def is_there(path: Path) -> bool:
    """Whether a regular file has that name; links are followed.

    Raises:
        FormatError: Something else has it, such as a directory, a pipe (opening which could wait forever) or a link to
            a file that is gone, or the path cannot be looked at.
    """
    return os.path.lexists(path) and file_size(path) >= 0


def file_size(path: Path) -> int:
    """The size of a regular file, bytes.

    Raises:
        FormatError: It is not there, is something else, or cannot be looked at.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{path}: cannot be read: {reason}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "special file")
        raise FormatError(f"{path}: is a {kind}, expected a file")
    return status.st_size


def write_file(path: Path, data: bytes, what: str = "cannot be written") -> None:
    """Writes a file; an existing one is replaced only when everything was written.

    Links are followed. A pipe or a device, /dev/stdout among them, is written to and stays.

    Args:
        path: Where to.
        data: The whole content.
        what: What failed, for the error.

    Raises:
        ResourceError: The file cannot be written.
    """
    try:
        if _is_special(path):
            with path.open("ab") as file:
                file.write(data)
            return
        real = Path(os.path.realpath(path))
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
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_special(path):
            temporary = _beside(Path(os.path.realpath(path)))
            temporary.touch()
            temporary.unlink()
    except OSError as error:
        raise ResourceError(f"{path}: {what}: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    return path.exists() and (not path.is_file() or str(path).startswith("/dev/"))  # /dev/stdout may be a file


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.tmp")
