"""The engine's thread: it loads the model, then runs steps for whatever requests there are.

Other threads append to a deque, set flags and wake it; results go back to the event loop with `call_soon_threadsafe`,
one call per step. Nothing else is shared, so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from specli.engine.load import Run
from specli.engine.loop import Engine
from specli.engine.scheduler import Scheduler
from specli.engine.sequence import Sequence, Slot, TokenEvent
from specli.serve.errors import RequestError
from specli.serve.metrics import Metrics

STOPPING = "the server is shutting down"


class Progress(NamedTuple):
    """How far a prompt has been read.

    Attributes:
        n_read: Tokens in the cache, those found there included.
        ns: Time since the first of the others, nanoseconds.
    """

    n_read: int
    ns: int


@dataclass(frozen=True)
class Batch:
    """What a step brought one sequence.

    Attributes:
        index: Its number in the client's request.
        events: New tokens; may be empty.
        is_last: Nothing more will come.
        error: What ended it, if an error did.
        progress: How much of its prompt has been taken in, if that was asked for and is news.
    """

    index: int
    events: list[TokenEvent]
    is_last: bool
    error: RequestError | None = None
    progress: Progress | None = None


class Ticket:
    """A sequence on its way through the engine.

    Args:
        sequence: What is to be generated.
        index: Its number in the client's request.
        deliver: Takes batches on the event loop.
        streams: A batch comes with every step; else one comes at the end.
        tells_progress: A batch comes for every piece of the prompt.

    Attributes:
        is_cancelled: Nobody waits for it any more; may be set by any thread.
        n_told: Prompt tokens that batches have told of.
    """

    def __init__(
        self,
        sequence: Sequence,
        index: int,
        deliver: Callable[[Batch], None],
        *,
        streams: bool,
        tells_progress: bool = False,
    ) -> None:
        self.sequence = sequence
        self.index = index
        self.deliver = deliver
        self.streams = streams
        self.tells_progress = tells_progress
        self.is_cancelled = False
        self.n_told = 0


@dataclass(frozen=True)
class _Job:
    """Something to do with an idle slot."""

    slot: int
    work: Callable[[Engine, Slot], Any]
    result: Future[Any]


class Worker(threading.Thread):
    """Owns the engine from loading to closing.

    Args:
        open_run: Opens the model; called in this thread.
        loop: The event loop that gets results.
        on_end: Called on the event loop when the thread has ended.

    Attributes:
        metrics: What has been counted since the start.
        error: Why loading or the thread failed.
    """

    def __init__(
        self,
        open_run: Callable[[], AbstractContextManager[Run]],
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(name="specli-engine", daemon=True)
        self.metrics = Metrics()
        self.error: BaseException | None = None
        self._open_run = open_run
        self._loop = loop
        self._on_end = on_end
        self._inbox: deque[Ticket] = deque()
        self._tickets: list[Ticket] = []
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Event()
        self._is_stopping = False

    # -- for other threads -----------------------------------------------------------------------------------------

    def submit(self, tickets: list[Ticket]) -> None:
        """Takes requests, in order of arrival."""
        self._inbox.extend(tickets)
        self._wake.set()

    def cancel(self, tickets: list[Ticket]) -> None:
        """Ends requests at the next step, wherever they are."""
        for ticket in tickets:
            ticket.is_cancelled = True
        self._wake.set()

    def call(self, slot: int, work: Callable[[Engine, Slot], Any]) -> Future[Any]:
        """Does something with a slot between steps, as soon as it is idle."""
        result: Future[Any] = Future()
        self._jobs.append(_Job(slot, work, result))
        self._wake.set()
        return result

    def stop(self) -> None:
        """Ends the thread at the next step; requests under way end with an error."""
        self._is_stopping = True
        self._wake.set()

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Loads, serves, closes."""
        try:
            with self._open_run() as opened:
                self._serve(Scheduler(opened.engine))
        except BaseException as error:  # the main thread raises it
            self.error = error
        finally:
            self._abandon()
            self._tell(self._on_end)

    def _serve(self, scheduler: Scheduler) -> None:
        while not self._is_stopping:
            self._wake.clear()
            while self._inbox:
                self._tickets.append(self._inbox.popleft())
                scheduler.add(self._tickets[-1].sequence)
            for _ in range(len(self._jobs)):
                self._do(scheduler.engine, self._jobs.popleft())
            if self._tickets:
                self._step(scheduler)
            else:
                self._wake.wait()

    def _do(self, engine: Engine, job: _Job) -> None:
        slot = engine.slots[job.slot]
        if slot.sequence is not None:
            self._jobs.append(job)
        elif job.result.set_running_or_notify_cancel():
            try:
                job.result.set_result(job.work(engine, slot))
            except Exception as error:  # whoever waits for the result gets it
                job.result.set_exception(error)

    def _step(self, scheduler: Scheduler) -> None:
        for ticket in self._tickets:
            if ticket.is_cancelled and not ticket.sequence.is_done:
                ticket.sequence.end()
        failure: RequestError | None = None
        try:
            n_stepped = scheduler.step()
        except Exception as error:
            failure = RequestError(f"{type(error).__name__}: {error}", "server_error")
            n_stepped = 0
        if n_stepped:
            self.metrics.count_step(n_stepped)
        batches = [(each, batch) for each in self._tickets if (batch := _batch(each, failure)) is not None]
        for each, batch in batches:
            if batch.is_last:
                self.metrics.count_request(each.sequence)
        self._tickets = [each for each in self._tickets if not each.sequence.is_done]
        if batches:
            self._tell(lambda: _deliver(batches))

    def _abandon(self) -> None:
        """Tells everybody who still waits that nothing will come."""
        tickets = [*self._tickets, *self._inbox]
        self._tickets, self._inbox = [], deque()
        error = RequestError(STOPPING, "unavailable_error")
        batches = [(each, Batch(each.index, [], is_last=True, error=error)) for each in tickets]
        self._tell(lambda: _deliver(batches))
        while self._jobs:
            job = self._jobs.popleft()
            if job.result.set_running_or_notify_cancel():
                job.result.set_exception(error)

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has been closed: nobody listens
            return


def _batch(ticket: Ticket, failure: RequestError | None) -> Batch | None:
    """What there is to deliver; None if nothing."""
    sequence = ticket.sequence
    progress = None
    if ticket.tells_progress and ticket.n_told < sequence.n_read:
        ticket.n_told = sequence.n_read
        progress = Progress(sequence.n_read, sequence.timings.prompt_ns)
    if not sequence.is_done and progress is None and not (ticket.streams and sequence.events):
        return None
    events = list(sequence.events)
    sequence.events.clear()
    error = None
    if sequence.error is not None:
        error = RequestError.of(sequence.error)
    elif sequence.is_done and sequence.stop == "interrupt" and not ticket.is_cancelled:
        error = failure
    return Batch(ticket.index, events, sequence.is_done, error, progress)


def _deliver(batches: list[tuple[Ticket, Batch]]) -> None:
    for ticket, batch in batches:
        ticket.deliver(batch)
