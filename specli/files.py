"""Text files read whole; result files written whole or not at all, known to be writable before the work starts."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from specli.errors import FormatError, ResourceError, UsageError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_PART = re.compile(r"\..+\.([0-9]{1,20})\.part", re.DOTALL)
_PART_STEM = 60  # characters of a name, at most 240 of the 255 bytes that file systems allow
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISSOCK, "socket"),
)


SNIFFED = 256  # bytes of a file by which its kind is seen
_CONVERT = "specli convert makes a GGUF file of a checkpoint's folder"
_UNPACK = "unpack it and give the file inside"
_CONTENTS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a git-LFS pointer", "fetch the file itself: git lfs pull"),
    (b"<!doctype html", "an HTML page", "download the file itself, not the page that shows it"),
    (b"<html", "an HTML page", "download the file itself, not the page that shows it"),
    (b"{", "JSON", "give the file of the weights; specli convert makes one of a checkpoint's folder"),
    (b"[", "JSON", "give the file of the weights; specli convert makes one of a checkpoint's folder"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint", _CONVERT),
    (b"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint", _CONVERT),
    (b"\x1f\x8b", "a gzip archive", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", _UNPACK),
    (b"\xfd7zXZ", "an xz archive", _UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", _UNPACK),
    *(
        (magic, "a model in the format before GGUF", "get the model as GGUF, or convert its checkpoint again")
        for magic in (b"lmgg", b"tjgg", b"fmgg", b"algg", b"ggml", b"ggjt", b"ggmf", b"ggla")
    ),
)
"""How files begin that are found in place of models and checkpoints, what they are, and a hint."""


@dataclass(frozen=True)
class Content:
    """What a file holds, in words.

    Attributes:
        what: With its article.
        hint: What to do about it where something else was expected.
    """

    what: str
    hint: str


def content_of(head: bytes) -> Content | None:
    """What a file holds by its first `SNIFFED` bytes; None if it is nothing that is known here."""
    if int.from_bytes(head[:8], "little") < 1 << 32 and head[8:9] == b"{":
        return Content("a safetensors file", _CONVERT)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    found = (Content(what, hint) for mark, what, hint in _CONTENTS if head.startswith(mark) or text.startswith(mark))
    return next(found, None)


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


def user_path(text: str | Path) -> Path:
    """The path that a user named: `~` and `~user` are expanded, and it can be looked at, whether it exists or not.

    Raises:
        UsageError: It is no path, there is no such user, or the path cannot be looked at: a folder is closed, a name
            too long.
    """
    if not str(text) or "\0" in str(text):
        raise UsageError(f"{str(text)!r} is not a file name")
    try:
        path = Path(text).expanduser()
        path.stat()
    except RuntimeError:
        raise UsageError(f"{text}: no such user, or a user without home folder") from None
    except OSError as error:
        if error.errno not in _ABSENT:
            raise UsageError(f"{path}: cannot be looked at: {error.strerror}") from None
    except ValueError as error:  # characters that file names cannot have
        raise UsageError(f"{str(text)!r} is not a file name: {error}") from None
    return path


def is_there(path: Path) -> bool:
    """Whether a regular file has that name; links are followed.

    Raises:
        FormatError: Something else has it, such as a directory, a pipe (opening which could wait forever) or a link to
            a file that is gone, or the path cannot be looked at.
    """
    try:
        path.lstat()
    except OSError as error:
        if error.errno in _ABSENT:
            return False
    except ValueError:
        pass
    return file_size(path) >= 0


def file_size(path: Path) -> int:
    """The size of a regular file, bytes.

    Raises:
        FormatError: The path leads to no file, to something other than a regular file, or cannot be looked at.
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


@dataclass(frozen=True)
class FileIdentity:
    """What a file is, wherever it lies.

    Attributes:
        name: Without its folder.
        n_bytes: Size.
        sha256: Of its content, hexadecimal.
    """

    name: str
    n_bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileIdentity:
        """Reads a file whole.

        Raises:
            FormatError: It cannot be read.
        """
        digest, n_bytes = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
                    n_bytes += len(block)
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
        return cls(path.name, n_bytes, digest.hexdigest())


class Output:
    """A result file in the making: it has its name only when it is complete.

    Links are followed. A pipe or a device, /dev/stdout among them, is written to and stays. An existing file keeps its
    permissions, and its content until `commit`.

    Args:
        path: Where to.
        what: What failed, for errors.

    Attributes:
        path: Where to.
        is_special: Whether it is a pipe, a device or an open stream.
    """

    def __init__(self, path: Path, what: str = "cannot be written") -> None:
        self.path = path
        self._what = what
        with self._errors():
            self.is_special = is_special(path)
            self._real = path if self.is_special else Path(os.path.realpath(path))
        self._part = part_of(self._real)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file to write to, while the block runs.

        Raises:
            ResourceError: The file cannot be made or written.
        """
        with self._errors(), self._real.open("ab") if self.is_special else self._part.open("wb") as file:
            yield file

    def commit(self) -> None:
        """Gives the file its name.

        Raises:
            ResourceError: That is not possible.
        """
        if not self.is_special:
            with self._errors():
                if self._real.exists():
                    shutil.copymode(self._real, self._part)
                self._part.replace(self._real)

    def discard(self) -> None:
        """Removes what was not committed."""
        self._part.unlink(missing_ok=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"{self.path}: {self._what}: {error.strerror or error}") from None
        except ValueError as error:  # a null byte in the path
            if "null byte" not in str(error):
                raise
            raise ResourceError(f"{self.path}: {self._what}: {error}") from None


@contextmanager
def writing(path: Path, what: str = "cannot be written") -> Iterator[BinaryIO]:
    """A file to write to; it has its name when the block has ended well, and is gone otherwise.

    Args:
        path: Where to, as `Output` has it.
        what: What failed, for the error.

    Raises:
        ResourceError: The file cannot be written.
    """
    output = Output(path, what)
    try:
        with output.open() as file:
            yield file
        output.commit()
    finally:
        output.discard()


def write_file(path: Path, data: bytes, what: str = "cannot be written") -> None:
    """Writes a whole file as `writing` does.

    Raises:
        ResourceError: The file cannot be written.
    """
    with writing(path, what) as file:
        file.write(data)


def check_writable(path: Path, what: str = "cannot be written") -> None:
    """Raises now what `writing` would raise after the work, as far as that can be known.

    Raises:
        ResourceError: The folder is missing or closed, or the path is a folder.
    """
    output = Output(path, what)
    if not output.is_special:  # opening a pipe would wait for its reader
        try:
            with output.open():
                pass
        finally:
            output.discard()


class Journal:
    """A result file of numbered lines that outlives its process.

    Each line is appended to `NAME.part` and safe on the disk when `append` returns. `finish` makes the file itself.
    Whatever ends the process before that, the next one goes on with the lines that are there.

    Args:
        path: Where to; links are followed. No pipe or device.

    Attributes:
        path: As given.
        part: The file with the lines so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))
        self.part = self._real.with_name(f"{self._real.name}.part")
        self._file: BinaryIO | None = None
        self._places: dict[int, tuple[int, int]] = {}  # number of a line → its offset and length, in order of writing

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the lines that are there."""
        return frozenset(self._places)

    def check_unused(self) -> None:
        """Refuses to begin anew where lines of an earlier run are left.

        Raises:
            UsageError: They are.
        """
        if self.part.exists():
            raise UsageError(
                f"{self.part}: holds results of a run that did not end", hint="go on with --resume, or remove the file"
            )

    def open(self, number_of: Callable[[bytes], int | None] | None = None) -> None:
        """Begins to write, or goes on.

        Args:
            number_of: The number under which a line that is there already is kept, None to drop it. Lines are those of
                `NAME.part`, or of the finished file if there is no such part. Without this function, none is kept.

        Raises:
            UsageError: Lines are there and `number_of` is not given.
            ResourceError: The file cannot be read or written, or another process is writing it.
        """
        if number_of is None:
            self.check_unused()
        with self._errors():
            takes_over = number_of is not None and not self.part.exists() and self._real.exists()
            file = self.part.open("a+b")
            if not _locked(file):
                file.close()
                raise ResourceError(f"{self.part}: another process is writing it")
            self._file = file
            if takes_over:
                with self._real.open("rb") as finished:
                    shutil.copyfileobj(finished, file)
            if number_of is not None:
                self._take_over(file, number_of)

    def append(self, number: int, line: bytes) -> None:
        """Writes a line, with its line feed; one whose number is there already is dropped.

        Raises:
            ResourceError: It could not be written; the lines before it are there.
        """
        assert self._file is not None
        if number in self._places:
            return
        with self._errors():
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        self._places[number] = offset, len(line)

    def finish(self, *, ordered: bool) -> None:
        """Gives the file its name, its lines by number or as they were written, and removes the part.

        Raises:
            ResourceError: That is not possible; the part is left.
        """
        assert self._file is not None
        with writing(self.path) as output, self._errors():
            for _, (offset, length) in sorted(self._places.items()) if ordered else self._places.items():
                self._file.seek(offset)
                output.write(self._file.read(length))
            output.flush()
            os.fsync(output.fileno())
        self.part.unlink()
        self.close()

    def close(self) -> None:
        """Lets go of the part, which stays if there is something in it."""
        file, self._file = self._file, None
        if file is None:
            return
        with suppress(OSError):  # what could not be written is known
            if not self.part.stat().st_size:
                self.part.unlink()
        with suppress(OSError):
            file.close()

    def _take_over(self, file: BinaryIO, number_of: Callable[[bytes], int | None]) -> None:
        """Finds the lines that are there; one that was being written is cut off."""
        offset = file.seek(0)
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(offset)
                break
            number = number_of(line)
            if number is not None:
                self._places.setdefault(number, (offset, len(line)))
            offset += len(line)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"{self.part}: cannot be written: {error.strerror or error}") from None


def _locked(file: BinaryIO) -> bool:
    """Makes a file this process's own as long as it is open; False if another one has it."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_special(path: Path) -> bool:
    """Whether something has the name that a new file must not take the place of: a pipe, a device, an open stream.

    Raises:
        OSError: The path cannot be looked at, or is a directory.
    """
    if str(path.absolute()).startswith(_STREAMS):  # may be a regular file, opened by somebody else
        return True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return not stat.S_ISREG(mode)


def part_of(path: Path) -> Path:
    """The name of a file that is not complete yet, beside it; the end of a long name, of which parts differ there."""
    return path.with_name(f".{path.name[-_PART_STEM:]}.{os.getpid()}.part")


def stale_parts(folder: Path) -> list[Path]:
    """Incomplete files in a folder whose process is gone: it was killed before it could remove them."""
    found = ((path, _PART.fullmatch(path.name)) for path in folder.glob(".*.part"))
    return sorted(path for path, match in found if match is not None and not _is_running(int(match[1])))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True
