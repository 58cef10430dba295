"""Signals: Ctrl-C that leaves the engine consistent, and requests to end that leave no incomplete files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(BaseException):
    """The process was asked to end.

    Args:
        signum: By which signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def terminable() -> Iterator[None]:
    """Lets the first SIGTERM or SIGHUP raise `Terminated` while the block runs, so that it cleans up.

    The next one ends the process at once. A signal that is ignored (`nohup`) or has a handler stays as it is.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        raise Terminated(signum)

    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in ENDINGS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


class InterruptFlag:
    """While entered, the first SIGINT sets `is_set` and the next one raises KeyboardInterrupt.

    Attributes:
        is_set: Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._previous: Any = None

    def __enter__(self) -> InterruptFlag:
        self.is_set = False
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """While entered, where nothing has to be left consistent, Ctrl-C raises KeyboardInterrupt at once.

        One that came before, and was not answered by clearing `is_set`, does so at the beginning.
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self.is_set:
                self.is_set = False
                raise KeyboardInterrupt
            yield
        finally:
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True
