"""What workers are asked and what they answer; everything here travels between processes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from specli.engine.config import ModelLoadConfig, RunConfig
from specli.errors import SpecliError
from specli.files import FileIdentity
from specli.kernels.threads import ThreadConfig

if TYPE_CHECKING:
    from specli.engine.load import Run


@dataclass(frozen=True)
class Job:
    """A piece of work.

    Attributes:
        index: Its number.
        name: What messages call it.
        task: What the role takes.
    """

    index: int
    name: str
    task: Any


@dataclass(frozen=True)
class Ready:
    """A worker has loaded its models.

    Attributes:
        files: The models' files, by content.
        kernels: What computes.
        n_ctx: Context size, tokens.
        lines: What runs where and why.
        drafters: Types of the drafters at work.
        has_template: Whether the model has a chat template.
        notices: Warnings.
    """

    files: tuple[FileIdentity, ...]
    kernels: str
    n_ctx: int
    lines: tuple[str, ...]
    drafters: tuple[str, ...]
    has_template: bool
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What became of a job.

    Attributes:
        index: The job's number.
        result: What the role made of it.
        notices: Warnings.
    """

    index: int
    result: Any
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An error that a worker names; it lives on if the error is that of a job.

    Attributes:
        index: The job's number; None if the models could not be loaded.
        error: What is wrong.
    """

    index: int | None
    error: SpecliError


@dataclass(frozen=True)
class Death:
    """A worker has ended without a word.

    Attributes:
        how: In words: `signal 9`, `exit status 1`.
    """

    how: str


Event = Ready | Answer | Failure | Death


class Role(Protocol):
    """What workers do; it travels to them, and may keep there what it likes."""

    def divided(self, worker: int, n_workers: int) -> Role:
        """The role of one of several workers of a machine, with its share of the threads."""

    def open(self) -> AbstractContextManager[Run]:
        """Loads the models."""

    def lines(self, run: Run) -> list[str]:
        """What runs where and why."""

    def answer(self, run: Run, task: Any) -> Any:
        """Does a job from scratch: what it gives does not depend on earlier ones.

        Raises:
            SpecliError: It cannot be done.
        """


class WorkerPool(Protocol):
    """Workers, numbered from 0, each of which answers one job at a time.

    Attributes:
        n_workers: How many there are.
    """

    n_workers: int

    def start(self, worker: int) -> None:
        """Starts a worker, or starts it again after its death; `Ready` or `Failure` follows."""

    def submit(self, worker: int, job: Job) -> None:
        """Gives a job to a worker that has none; `Answer` or `Failure` follows, or `Death`."""

    def events(self, timeout: float) -> list[tuple[int, Event]]:
        """What workers said, in order; waits for at most `timeout` seconds if there is nothing."""

    def close(self) -> None:
        """Ends all workers at once."""


def share(config: RunConfig, worker: int, n_workers: int) -> RunConfig:
    """The settings of one of several workers: threads, and the CPUs that they are pinned to, are divided."""

    def divided(load: ModelLoadConfig) -> ModelLoadConfig:
        return replace(load, threads=divided_threads(load.threads, worker, n_workers))

    draft = None if config.draft is None else divided(config.draft)
    return replace(config, target=divided(config.target), draft=draft)


def divided_threads(threads: ThreadConfig, worker: int, n_workers: int) -> ThreadConfig:
    """The threads of one of several workers; at least one."""
    from specli.kernels.cpu.library import thread_counts

    plain, batch = (max(1, count // n_workers) for count in thread_counts(threads))
    mask = threads.cpu_mask
    if mask is not None and threads.strict and len(mask) >= n_workers:
        mask = frozenset(sorted(mask)[worker::n_workers])
    return replace(threads, n_threads=plain, n_threads_batch=batch, cpu_mask=mask)
