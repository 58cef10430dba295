"""Workers that are processes on this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType

from specli.engine.config import RunConfig
from specli.engine.load import Run, open_engine
from specli.errors import SpecliError
from specli.workers.pool import Answer, Death, Event, Failure, Job, Ready, share


class ProcessPool:
    """One process per worker, started afresh (not forked: threads and locks would be torn).

    Args:
        config: What the engine is made of; threads are divided among the workers.
        n_workers: How many.

    Attributes:
        n_workers: As given.
    """

    def __init__(self, config: RunConfig, n_workers: int) -> None:
        self.n_workers = n_workers
        self._config = config
        self._context = get_context("spawn")
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def start(self, worker: int) -> None:
        """Starts a worker, or starts it again after its death."""
        ours, theirs = self._context.Pipe()
        config = share(self._config, worker, self.n_workers)
        process = self._context.Process(target=work, args=(theirs, config), name=f"worker {worker + 1}", daemon=True)
        with _without_interrupts(), _without_main():
            process.start()
        theirs.close()
        self._running[worker] = process, ours

    def submit(self, worker: int, job: Job) -> None:
        """Gives a job to a worker that has none."""
        with suppress(OSError):  # it is dead, as the next event says
            self._running[worker][1].send(job)

    def events(self, timeout: float) -> list[tuple[int, Event]]:
        """What workers said; waits for at most `timeout` seconds if there is nothing."""
        sources = [source for process, pipe in self._running.values() for source in (pipe, process.sentinel)]
        found = set(connection.wait(sources, timeout))
        events: list[tuple[int, Event]] = []
        for worker, (process, pipe) in list(self._running.items()):
            is_dead = process.sentinel in found
            try:
                while pipe in found or is_dead:  # what a dead one said before counts
                    events.append((worker, pipe.recv()))
                    if not pipe.poll():
                        break
            except (EOFError, OSError):
                is_dead = True
            if is_dead:
                process.join()
                code = process.exitcode or 0
                events.append((worker, Death(f"signal {-code}" if code < 0 else f"exit status {code}")))
                self._drop(worker)
        return events

    def close(self) -> None:
        """Ends all workers at once."""
        for process, _ in self._running.values():
            process.kill()
        for worker in list(self._running):
            self._drop(worker)

    def _drop(self, worker: int) -> None:
        process, pipe = self._running.pop(worker)
        pipe.close()
        process.join()
        process.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in the block get no SIGINT, which Ctrl-C sends to all; this one gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it with the first process would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes started in the block do not import the program's main module again, of which they need nothing."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Notices(logging.Handler):
    """Keeps what the packages log until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record.getMessage())

    def take(self) -> tuple[str, ...]:
        """What was said since it was asked last."""
        kept, self._kept = tuple(self._kept), []
        return kept


def work(pipe: Connection, config: RunConfig) -> None:
    """What a worker does: loads the models, then answers jobs until its parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    notices = _Notices()
    logging.getLogger("specli").addHandler(notices)
    try:
        with open_engine(config) as run:
            pipe.send(
                Ready(
                    run.files,
                    run.engine.target.executor.describe(),
                    run.engine.n_ctx,
                    tuple(run.start_lines()),
                    run.drafter_names,
                    run.has_template,
                    notices.take(),
                )
            )
            while True:
                pipe.send(answer(run, pipe.recv(), notices))
    except SpecliError as error:
        pipe.send(Failure(None, error))
    except (EOFError, BrokenPipeError):
        pass


def answer(run: Run, job: Job, notices: _Notices) -> Answer | Failure:
    """Answers a job from scratch: nothing of earlier ones has a say."""
    run.renew()
    try:
        for _ in run.generate(run.encode(job.text), job.request, text=job.text):
            pass
    except SpecliError as error:
        return Failure(job.index, error)
    result = run.result()
    return Answer(job.index, result.to_dict(), result.sampling, tuple(result.lines()), notices.take())


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that came about."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
