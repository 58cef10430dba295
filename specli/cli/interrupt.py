"""Ctrl-C that leaves the engine consistent: the first one is noticed between tokens, the second one acts at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


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

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True
