"""Jobs reach every worker and survive the deaths of some: the dispatcher with scripted workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from specli.engine.config import ModelLoadConfig, RunConfig
from specli.errors import IncompatibleError, ResourceError, SpecliError, UsageError
from specli.files import FileIdentity
from specli.kernels.threads import ThreadConfig
from specli.workers.dispatch import Dispatcher
from specli.workers.pool import Answer, Death, Event, Failure, Job, Ready, divided_threads

FILES = (FileIdentity("t.gguf", 3, "ab"),)


def ready(**changes: object) -> Ready:
    return Ready(**{"files": FILES, "kernels": "cpu", "n_ctx": 64, "lines": (), "drafters": (), "has_template": False,
                    "notices": ()} | changes)  # type: ignore[arg-type]  # fmt: skip


@dataclass
class ScriptedPool:
    """Workers that do what a function says.

    Attributes:
        n_workers: How many.
        loads: What a worker says when it is started, by its number and how often it was started before.
        answers: What a worker says to a job.
        started: Numbers of workers in the order in which they were started.
        given: Worker and job, in order.
    """

    n_workers: int
    loads: Callable[[int, int], Event] = lambda worker, n: ready()
    answers: Callable[[int, Job], Event] = lambda worker, job: answer(job)
    started: list[int] = field(default_factory=list)
    given: list[tuple[int, int]] = field(default_factory=list)
    _said: list[tuple[int, Event]] = field(default_factory=list)

    def start(self, worker: int) -> None:
        self._said.append((worker, self.loads(worker, self.started.count(worker))))
        self.started.append(worker)

    def submit(self, worker: int, job: Job) -> None:
        self.given.append((worker, job.index))
        self._said.append((worker, self.answers(worker, job)))

    def events(self, timeout: float) -> list[tuple[int, Event]]:
        said, self._said = self._said, []
        return said

    def close(self) -> None:
        pass


def answer(job: Job) -> Answer:
    return Answer(job.index, {"text": job.task})


def run(
    pool: ScriptedPool, n_jobs: int, *, retries: int = 1, n_stop: int = 1000
) -> tuple[dict[int, Answer | Failure], list[str]]:
    """What became of each job, and the lines about deaths."""
    results: dict[int, Answer | Failure] = {}
    lines: list[str] = []

    def take(worker: int, result: Answer | Failure) -> None:
        assert result.index is not None
        assert result.index not in results
        results[result.index] = result

    jobs = [Job(index, f"prompt {index + 1}", f"text {index}") for index in range(n_jobs)]
    Dispatcher(pool, lambda first: None, take, lines.append, retries, pause=0).run(jobs, lambda: len(results) >= n_stop)
    return results, lines


@pytest.mark.parametrize("n_workers", [1, 2, 4, 9])
def test_every_job_is_answered_once(n_workers: int) -> None:
    pool = ScriptedPool(n_workers)
    results, lines = run(pool, 7)
    assert sorted(results) == list(range(7))
    assert all(isinstance(result, Answer) for result in results.values())
    assert not lines
    assert len(pool.started) == min(n_workers, 7)


def test_job_of_a_dead_worker_goes_to_another() -> None:
    deaths = iter([Death("signal 9")])
    pool = ScriptedPool(
        2, answers=lambda worker, job: next(deaths, None) or answer(job) if job.index == 1 else answer(job)
    )
    results, lines = run(pool, 5)
    assert all(isinstance(result, Answer) for result in results.values())
    assert len(results) == 5
    first, second = [worker for worker, index in pool.given if index == 1]
    assert first != second
    assert lines == [f"worker {first + 1} died (signal 9) at prompt 2, which is tried again"]


@pytest.mark.parametrize("n_workers", [1, 3])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_job_that_kills_workers_is_set_aside(n_workers: int, retries: int) -> None:
    pool = ScriptedPool(n_workers, answers=lambda worker, job: Death("signal 11") if job.index == 2 else answer(job))
    results, lines = run(pool, 6, retries=retries)
    assert len(results) == 6
    assert [index for index, result in results.items() if isinstance(result, Failure)] == [2]
    who = "its worker" if retries == 0 else f"{retries + 1} workers"
    failed = results[2]
    assert isinstance(failed, Failure)
    assert str(failed.error) == f"{who} died at it (signal 11)"
    assert sum(index == 2 for _, index in pool.given) == retries + 1
    assert len(lines) == retries + 1
    assert lines[-1].endswith("at prompt 3, which is set aside")


def test_one_worker_that_cannot_start_does_not_end_the_run() -> None:
    pool = ScriptedPool(2, loads=lambda worker, n: Death("signal 9") if worker == 0 else ready())
    results, _ = run(pool, 4)
    assert len(results) == 4
    assert pool.started.count(0) == 2


def test_all_workers_dead_is_an_error() -> None:
    pool = ScriptedPool(2, loads=lambda worker, n: Death("signal 9"))
    with pytest.raises(ResourceError, match="all workers died"):
        run(pool, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": (FileIdentity("t.gguf", 3, "cd"),)}, "worker 2 has other files than worker 1"),
        ({"kernels": "reference"}, "worker 2 has other kernels than worker 1: reference, there cpu"),
        ({"n_ctx": 32}, "worker 2 has other context than worker 1: 32, there 64"),
    ],
)
def test_a_mix_of_workers_is_refused(change: dict[str, object], message: str) -> None:
    pool = ScriptedPool(2, loads=lambda worker, n: ready(**change) if worker else ready())
    with pytest.raises(ResourceError, match=message):
        run(pool, 4)


def test_errors_of_one_prompt_are_results_and_those_of_all_end_the_run() -> None:
    def answers(error: SpecliError) -> Callable[[int, Job], Event]:
        return lambda worker, job: Failure(job.index, error) if job.index == 1 else answer(job)

    results, _ = run(ScriptedPool(2, answers=answers(IncompatibleError("too long"))), 3)
    assert [type(results[index]) for index in range(3)] == [Answer, Failure, Answer]
    with pytest.raises(UsageError, match="out of range"):
        run(ScriptedPool(2, answers=answers(UsageError("out of range"))), 3)
    with pytest.raises(ResourceError, match="memory"):
        run(ScriptedPool(2, loads=lambda worker, n: Failure(None, ResourceError("no memory"))), 3)


def test_no_job_is_given_out_after_a_stop() -> None:
    pool = ScriptedPool(2)
    results, _ = run(pool, 50, n_stop=4)
    assert 4 <= len(results) <= 6
    assert len(pool.given) <= 8


def test_threads_are_divided() -> None:
    assert divided_threads(ThreadConfig(n_threads=6), 0, 4).n_threads == 1
    assert divided_threads(ThreadConfig(n_threads=9, n_threads_batch=4), 1, 2) == ThreadConfig(4, 2)
    cpus = frozenset({0, 1, 2, 3, 4})
    shares = [divided_threads(ThreadConfig(4, cpu_mask=cpus, strict=True), i, 2).cpu_mask for i in range(2)]
    assert shares == [frozenset({0, 2, 4}), frozenset({1, 3})]
    assert divided_threads(ThreadConfig(4, cpu_mask=cpus), 1, 2).cpu_mask == cpus


def test_errors_travel_with_their_hints() -> None:
    failure = pickle.loads(pickle.dumps(Failure(None, UsageError("wrong", hint="do better"))))
    assert (str(failure.error), failure.error.hint) == ("wrong", "do better")
    config = RunConfig(ModelLoadConfig("t.gguf"))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(config)) == config
