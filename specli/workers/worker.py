"""What a worker is, wherever it runs, and the role of those that answer prompts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from specli.engine.config import RequestConfig, RunConfig
from specli.engine.load import Run, open_engine
from specli.errors import SpecliError
from specli.sampling.settings import SamplingSettings
from specli.workers.pool import Answer, Failure, Job, Ready, Role, share


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


class Worker:
    """A role with its models loaded.

    Args:
        role: What it does.
        run: The models.
        notices: What loggers said so far.
    """

    def __init__(self, role: Role, run: Run, notices: _Notices) -> None:
        self._role = role
        self._run = run
        self._notices = notices

    @classmethod
    @contextmanager
    def open(cls, role: Role) -> Iterator[Worker]:
        """Loads the models.

        Raises:
            SpecliError: They cannot be.
        """
        notices = _Notices()
        logger = logging.getLogger("specli")
        logger.addHandler(notices)
        try:
            with role.open() as run:
                yield cls(role, run, notices)
        finally:
            logger.removeHandler(notices)

    def ready(self) -> Ready:
        """What it has loaded."""
        run = self._run
        return Ready(
            run.files,
            run.engine.target.executor.describe(),
            run.engine.n_ctx,
            tuple(self._role.lines(run)),
            run.drafter_names,
            run.has_template,
            self._notices.take(),
        )

    def answer(self, job: Job) -> Answer | Failure:
        """Does a job."""
        try:
            return Answer(job.index, self._role.answer(self._run, job.task), self._notices.take())
        except SpecliError as error:
            return Failure(job.index, error)


@dataclass(frozen=True)
class Question:
    """A prompt and what is asked for."""

    text: str
    request: RequestConfig


@dataclass(frozen=True)
class Generated:
    """What became of a prompt.

    Attributes:
        record: The JSON record.
        sampling: The sampling that was in force.
        lines: Statistics lines.
    """

    record: Mapping[str, Any]
    sampling: SamplingSettings
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Answering:
    """Workers that answer prompts; a task is a `Question`, a result `Generated`.

    Attributes:
        config: What the engine is made of.
    """

    config: RunConfig

    def divided(self, worker: int, n_workers: int) -> Answering:
        """With a share of the threads."""
        return replace(self, config=share(self.config, worker, n_workers))

    def open(self) -> AbstractContextManager[Run]:
        """Loads target and drafters."""
        return open_engine(self.config)

    def lines(self, run: Run) -> list[str]:
        """The start lines."""
        return run.start_lines()

    def answer(self, run: Run, task: Question) -> Generated:
        """Answers a prompt; nothing of earlier ones has a say."""
        run.renew()
        for _ in run.generate(run.encode(task.text), task.request, text=task.text):
            pass
        result = run.result()
        return Generated(result.to_dict(), result.sampling, tuple(result.lines()))
