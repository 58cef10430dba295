"""A time limit for what is awaited in a block."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Within:
    """Lets the block run for so many seconds; then what it awaits is cancelled, and asyncio.TimeoutError is raised.

    `asyncio.wait_for` makes a task for each call, which costs as much as all else that is done for a token;
    `asyncio.timeout` does not exist in Python 3.10.

    Args:
        seconds: The limit; 0 or None = none.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._has_expired = False

    async def __aenter__(self) -> None:
        if self._seconds:
            self._task = asyncio.current_task()
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._has_expired and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError from error

    def _expire(self) -> None:
        assert self._task is not None
        self._has_expired = True
        self._task.cancel()
