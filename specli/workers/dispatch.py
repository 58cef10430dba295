"""Giving jobs to workers, over the deaths of some of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from specli.errors import ResourceError, UsageError
from specli.workers.pool import Answer, Death, Event, Failure, Job, Ready, WorkerPool

TICK = 0.2  # seconds between looks at what is due


@dataclass
class Dispatcher:
    """Gives jobs to workers until all are answered.

    Attributes:
        pool: The workers, not started yet.
        on_ready: Takes what the first worker says of itself.
        on_result: Takes a worker's number and what became of a job; each job once.
        on_death: Takes a line about a worker that died.
        retries: How often a job is given out again after its worker died; with one more death it is set aside.
        pause: Seconds before a dead worker is started again.
        on_tick: Called again and again, a few times per second at least.
    """

    pool: WorkerPool
    on_ready: Callable[[Ready], None]
    on_result: Callable[[int, Answer | Failure], None]
    on_death: Callable[[str], None]
    retries: int = 1
    pause: float = 1.0
    on_tick: Callable[[], None] = lambda: None
    _queue: deque[Job] = field(default_factory=deque)
    _busy: dict[int, Job] = field(default_factory=dict)
    _idle: set[int] = field(default_factory=set)
    _due: dict[int, float] = field(default_factory=dict)
    _n_deaths: Counter[int] = field(default_factory=Counter)
    _last_worker: dict[int, int] = field(default_factory=dict)
    _n_vain: Counter[int] = field(default_factory=Counter)
    _lost: set[int] = field(default_factory=set)
    _n_started: int = 0
    _first: tuple[int, Ready] | None = None

    def run(self, jobs: Iterable[Job], is_stopped: Callable[[], bool]) -> None:
        """Has all jobs answered; stops giving them out when `is_stopped` says so, and leaves what is under way.

        Raises:
            SpecliError: The models cannot be loaded, workers differ, or all of them are dead.
        """
        self._queue.extend(jobs)
        self._n_started = min(self.pool.n_workers, len(self._queue))
        for worker in range(self._n_started):
            self.pool.start(worker)
        while (self._queue or self._busy) and not is_stopped():
            for worker, event in self.pool.events(TICK):
                self._take(worker, event)
            now = time.monotonic()
            for worker in [worker for worker, at in self._due.items() if at <= now]:
                del self._due[worker]
                self.pool.start(worker)
            self._give()
            self.on_tick()

    def states(self) -> list[str]:
        """What each worker is doing, in a few words."""
        return [self._state(worker) for worker in range(self._n_started)]

    def _state(self, worker: int) -> str:
        if worker in self._busy:
            return self._busy[worker].name
        if worker in self._lost:
            return "dead"
        if worker in self._due:
            return "died, starts again"
        return "idle" if worker in self._idle else "loading"

    def _take(self, worker: int, event: Event) -> None:
        if isinstance(event, Ready):
            self._compare(worker, event)
            self._idle.add(worker)
        elif isinstance(event, Death):
            self._bury(worker, event)
        elif isinstance(event, Failure) and (event.index is None or isinstance(event.error, UsageError)):
            raise event.error  # it is the same for all
        else:
            self._n_vain[worker] = 0
            del self._busy[worker]
            self._idle.add(worker)
            self.on_result(worker, event)

    def _compare(self, worker: int, ready: Ready) -> None:
        """Refuses a worker whose results could be others than the first one's."""
        if self._first is None:
            self._first = worker, ready
            self.on_ready(ready)
            return
        number, first = self._first
        for what, theirs, ours in (
            ("files", ready.files, first.files),
            ("kernels", ready.kernels, first.kernels),
            ("context", ready.n_ctx, first.n_ctx),
        ):
            if theirs != ours:
                raise ResourceError(
                    f"worker {worker + 1} has other {what} than worker {number + 1}: {theirs}, there {ours}",
                    hint="choose a size with -c" if what == "context" else None,
                )

    def _bury(self, worker: int, death: Death) -> None:
        """Sees to the job of a dead worker, and to another worker in its place."""
        self._idle.discard(worker)
        job = self._busy.pop(worker, None)
        line = f"worker {worker + 1} died ({death.how})"
        if job is None:
            self._n_vain[worker] += 1
        else:
            self._n_deaths[job.index] += 1
            self._last_worker[job.index] = worker
            if self._n_deaths[job.index] <= self.retries:
                self._queue.appendleft(job)
                line += f" at {job.name}, which is tried again"
            else:
                n = self._n_deaths[job.index]
                line += f" at {job.name}, which is set aside"
                error = ResourceError(f"{'its worker' if n == 1 else f'{n} workers'} died at it ({death.how})")
                self.on_result(worker, Failure(job.index, error))
        self.on_death(line)
        if self._n_vain[worker] <= self.retries:
            self._due[worker] = time.monotonic() + self.pause
            return
        self._lost.add(worker)
        if len(self._lost) == self._n_started:
            raise ResourceError(
                "all workers died", hint="with more memory, fewer --workers or a smaller -c, --resume does the rest"
            )

    def _give(self) -> None:
        """Gives jobs to workers that have none; one whose worker died goes to another, if there is any."""
        for worker in sorted(self._idle):
            others = self._n_started - len(self._lost) > 1
            job = next(
                (job for job in self._queue if not (others and self._last_worker.get(job.index) == worker)), None
            )
            if job is None:
                continue
            self._queue.remove(job)
            self._idle.discard(worker)
            self._busy[worker] = job
            self.pool.submit(worker, job)
