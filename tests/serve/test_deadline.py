"""A time limit without a task of its own."""

from __future__ import annotations

import asyncio

import pytest

from specli.serve.deadline import Within


async def inside(seconds: float | None, work: float) -> str:
    async with Within(seconds):
        await asyncio.sleep(work)
    await asyncio.sleep(0)  # nothing is cancelled afterwards
    return "done"


def test_work_in_time_and_without_a_limit() -> None:
    assert asyncio.run(inside(10, 0)) == "done"
    assert asyncio.run(inside(None, 0.01)) == "done"
    assert asyncio.run(inside(0, 0.01)) == "done"


def test_late_work_is_cancelled() -> None:
    ended = []

    async def late() -> None:
        try:
            async with Within(0.01):
                try:
                    await asyncio.sleep(10)
                finally:
                    ended.append("cancelled")
        except asyncio.TimeoutError:
            await asyncio.sleep(0)  # the task goes on
            ended.append("went on")

    asyncio.run(late())
    assert ended == ["cancelled", "went on"]


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(inside(10, 10))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())


def test_errors_pass() -> None:
    async def fail() -> None:
        async with Within(10):
            raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(fail())
