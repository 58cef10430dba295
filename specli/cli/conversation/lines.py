"""Where chat reads its lines: an editor with history and completion on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.document import Document

ReadLine = Callable[[str], str]
"""Shows a prompt and returns a line without its end; EOFError at the end of input."""


def read_message(read_line: ReadLine, *, is_multiline: bool) -> str:
    r"""Reads one message.

    A `\` at the end of a line means the opposite of a plain line feed: the message goes on, or, in multi-line mode,
    ends. In multi-line mode `/` at the end of a line ends the message, too.

    Raises:
        EOFError: Input ended before any line.
    """
    lines: list[str] = []
    while True:
        try:
            line = read_line(". " if lines else "> ")
        except EOFError:
            if not lines:
                raise
            return "\n".join(lines)
        goes_on = is_multiline
        if line.endswith("\\"):
            line, goes_on = line[:-1], not goes_on
        elif is_multiline and line.endswith("/"):
            line, goes_on = line[:-1], False
        lines.append(line)
        if not goes_on:
            return "\n".join(lines)


def plain_reader() -> ReadLine:
    """Lines of stdin; the prompt is shown on a terminal only."""
    wait = input_waiter(sys.stdin) if sys.stdin.isatty() else None

    def read(prompt: str) -> str:
        if wait:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            wait()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    return read


def input_waiter(terminal: TextIO) -> Callable[[], None]:
    """What waits until a line can be read, or the handler of a signal raises.

    A signal that arrives just before `read` blocks would be noticed only when a line has come. Here it leaves a byte
    that ends the wait, whenever it comes.
    """
    receiver, sender = os.pipe()  # as long as the program: a signal may still write when a wait is over
    os.set_blocking(sender, False)

    def wait() -> None:
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        try:
            while terminal.fileno() not in select.select([terminal.fileno(), receiver], [], [])[0]:
                os.read(receiver, 64)
        finally:
            signal.set_wakeup_fd(-1)

    return wait


def open_reader(commands: Iterable[str], *, is_simple: bool) -> ReadLine:
    """The line editor on a terminal that can move its cursor, else plain lines."""
    can_edit = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return plain_reader() if is_simple or not can_edit else editing_reader(tuple(commands), os.environ)


def editing_reader(commands: tuple[str, ...], environ: Mapping[str, str]) -> ReadLine:
    """A prompt_toolkit editor; its history lies in the user's state directory, if that can be written."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, PathCompleter
    from prompt_toolkit.completion import Completion as Candidate
    from prompt_toolkit.document import Document as Line
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class CommandCompleter(Completer):
        """Completes commands, and paths after a command."""

        def get_completions(self, document: Document, event: Any) -> Iterable[Completion]:
            text = document.text_before_cursor
            if not text.startswith("/"):
                return
            command, blank, rest = text.partition(" ")
            if blank:
                yield from PathCompleter(expanduser=True).get_completions(Line(rest, len(rest)), event)
            else:
                yield from (Candidate(name, -len(text)) for name in commands if name.startswith(command))

    path = history_path(environ)
    history = FileHistory(str(path)) if path else InMemoryHistory()
    session: PromptSession[str] = PromptSession(
        history=history, completer=CommandCompleter(), complete_while_typing=False
    )
    return session.prompt


def history_path(environ: Mapping[str, str]) -> Path | None:
    """The history file, its directory made; None where that is not possible."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "/") / ".local" / "state"
    directory = Path(state) / "specli"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory / "history" if os.access(directory, os.W_OK) else None
