"""Where text goes: data to stdout, messages to stderr, both plain unless they go to a terminal."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from specli.cli.options.request import LogConfig
from specli.errors import ResourceError, SpecliError

OUTPUT, ERROR, WARNING, INFO, TRACE, DEBUG = range(6)
LETTERS = {ERROR: "E", WARNING: "W", INFO: "I", TRACE: "I", DEBUG: "D"}
COLORS = {ERROR: "31", WARNING: "33", TRACE: "2", DEBUG: "2"}
"""ANSI colours of message levels; info has none."""


def wants_color(mode: str, *streams: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether to colour, by `on`, `off` or `auto`.

    Automatic: no if NO_COLOR is non-empty or TERM is `dumb`, else yes if any of the streams is a terminal.
    """
    if mode != "auto":
        return mode == "on"
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return any(stream.isatty() for stream in streams)


def paint(text: str, code: str, *, is_on: bool) -> str:
    """Text in an ANSI colour, or as it is."""
    return f"\x1b[{code}m{text}\x1b[0m" if is_on and text else text


def one_line(text: str) -> str:
    """Text with line feeds and other control characters written as escapes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def error_lines(error: Exception) -> list[str]:
    """An error and its hint, a line each. llama.cpp's texts begin with `error` themselves."""
    message = one_line(str(error))
    hint = error.hint if isinstance(error, SpecliError) else None
    is_marked = message.startswith(("error: ", "error while "))
    lines = [message if is_marked else f"error: {message}"]
    return [*lines, f"hint: {one_line(hint)}"] if hint else lines


class NoticeHandler(logging.Handler):
    """Turns what the packages below log into messages of a console, each said once.

    Args:
        console: Where they go.

    Attributes:
        is_muted: Nothing is passed on.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.is_muted = False
        self._console = console
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Passes a record on; drafters that are built again and again repeat themselves."""
        message = record.getMessage()
        if self.is_muted or message in self._said:
            return
        self._said.add(message)
        (self._console.warn if record.levelno >= logging.WARNING else self._console.info)(message)


@dataclass
class Console:
    """The two streams of a command. While entered, it shows what `specli`'s loggers say.

    Attributes:
        out: Data.
        err: Messages.
        config: Which messages are shown, and how.
    """

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    config: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._is_colored = wants_color(self.config.colors, self.err)
        self._copy = open_log(self.config.file) if self.config.file else None

        self._notices = NoticeHandler(self)
        self._aside: Callable[[], AbstractContextManager[None]] = nullcontext

    def __enter__(self) -> Console:
        logger = logging.getLogger("specli")
        logger.addHandler(self._notices)
        logger.setLevel(logging.INFO)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("specli").removeHandler(self._notices)
        if self._copy:
            self._copy.close()

    @contextmanager
    def without_notices(self) -> Iterator[None]:
        """While entered, loggers are not heard: what is built is only tried."""
        self._notices.is_muted = True
        try:
            yield
        finally:
            self._notices.is_muted = False

    @contextmanager
    def interrupted_by(self, aside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """While entered, each write stands in the block that `aside` gives, where a drawing makes room."""
        before, self._aside = self._aside, aside
        try:
            yield
        finally:
            self._aside = before

    @property
    def width(self) -> int:
        """Columns of the terminal; 80 without one."""
        return shutil.get_terminal_size().columns

    def write(self, text: str) -> None:
        """Data to stdout, at once."""
        with self._aside():
            self.out.write(text)
            self.out.flush()

    def log(self, level: int, message: str) -> None:
        """A message to stderr, and to the log file, if its level is shown."""
        if level > self.config.verbosity:
            return
        line = f"{self._prefix(level)}{message}"
        with self._aside():
            self.err.write(f"{paint(line, COLORS.get(level, ''), is_on=self._is_colored and level in COLORS)}\n")
            self.err.flush()
        if self._copy:
            self._copy.write(f"{line}\n")
            self._copy.flush()

    def info(self, message: str) -> None:
        """A message at the default level."""
        self.log(INFO, message)

    def warn(self, message: str) -> None:
        """A warning."""
        self.log(WARNING, f"warn: {message}")

    def trace(self, message: str) -> None:
        """A message shown with `-lv 4`."""
        self.log(TRACE, message)

    def _prefix(self, level: int) -> str:
        """llama.cpp's `M.SS.mmm.uuu L `: time since start in minutes, seconds, milli- and microseconds."""
        if not self.config.prefix:
            return ""
        letter = f"{LETTERS.get(level, 'I')} "
        if not self.config.timestamps:
            return letter
        micros = int((time.monotonic() - self._start) * 1e6)
        seconds, micros = divmod(micros, 1_000_000)
        return f"{seconds // 60}.{seconds % 60:02d}.{micros // 1000:03d}.{micros % 1000:03d} {letter}"


def open_log(path: Path) -> TextIO:
    """Opens the copy of the messages for appending."""
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror}") from None
