"""Workers that are processes on this machine."""

from __future__ import annotations

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

from specli.errors import SpecliError
from specli.workers.pool import Death, Event, Failure, Job, Role
from specli.workers.worker import Worker


class ProcessPool:
    """One process per worker, started afresh (not forked: threads and locks would be torn).

    Args:
        role: What they do; threads are divided among them.
        n_workers: How many.

    Attributes:
        n_workers: As given.
    """

    def __init__(self, role: Role, n_workers: int) -> None:
        self.n_workers = n_workers
        self._role = role
        self._context = get_context("spawn")
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def start(self, worker: int) -> None:
        """Starts a worker, or starts it again after its death."""
        ours, theirs = self._context.Pipe()
        role = self._role.divided(worker, self.n_workers)
        process = self._context.Process(target=work, args=(theirs, role), name=f"worker {worker + 1}", daemon=True)
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


def work(pipe: Connection, role: Role) -> None:
    """What a worker does: loads the models, then answers jobs until its parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with Worker.open(role) as worker:
            pipe.send(worker.ready())
            while True:
                pipe.send(worker.answer(pipe.recv()))
    except SpecliError as error:
        pipe.send(Failure(None, error))
    except (EOFError, BrokenPipeError):
        pass


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, however that came about."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
