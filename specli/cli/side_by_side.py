"""The prompts of a file, answered by several workers."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.batch import Results, Task
from specli.cli.console import Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.show import NO_TEMPLATE

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.workers.pool import Answer, Failure, Ready


def answer_with_workers(invocation: Invocation, setup: RunConfig, tasks: list[Task]) -> None:
    """Answers the prompts of a file.

    Raises:
        typer.Exit: With 130 after an interrupt; what was finished is kept. With 1 if prompts failed.
        SpecliError: The models cannot be loaded, workers differ, or all of them are dead; what was finished is kept.
    """
    from specli.workers.dispatch import Dispatcher
    from specli.workers.pool import Job

    config = invocation.config
    with (
        invocation.console() as console,
        InterruptFlag() as interrupt,
        closing(Results(config, console, tasks)) as results,
        closing(opener.open_pool(setup, config.batch.workers or 1)) as pool,
    ):
        todo = results.open(setup, opener.file_identities(setup))
        desk = Desk(invocation, console, results, todo)
        jobs = [Job(task.index, task.prompt.text, task.request) for task in todo]
        work = Dispatcher(pool, desk.greet, desk.take, console.warn, config.batch.retries)
        work.run(jobs, lambda: interrupt.is_set)
        results.finish(is_interrupted=interrupt.is_set)
        desk.conclude()
    if interrupt.is_set:
        raise typer.Exit(130)
    if results.n_failed:
        raise typer.Exit(1)


class Desk:
    """Takes what workers bring: the file has it at once, stdout in the order of the prompts.

    Args:
        invocation: The command.
        console: The streams.
        results: The file.
        tasks: The prompts to be answered.
    """

    def __init__(self, invocation: Invocation, console: Console, results: Results, tasks: list[Task]) -> None:
        self._invocation = invocation
        self._console = console
        self._results = results
        self._tasks = {task.index: task for task in tasks}
        self._order = [task.index for task in tasks]
        self._waiting: dict[int, tuple[str, Answer | None]] = {}
        self._n_shown = 0
        self._n_by_worker: Counter[int] = Counter()

    def greet(self, ready: Ready) -> None:
        """Says what runs where, as the first worker tells it."""
        for notice in ready.notices:
            self._console.warn(notice)
        for line in ready.lines:
            self._console.info(line)
        drafting = self._invocation.settings.describe(ready.drafters)
        if drafting:
            self._console.info(drafting)
        self._console.info(f"workers: {self._invocation.config.batch.workers} processes, each as above")
        if ready.has_template:
            self._console.info(NO_TEMPLATE)

    def take(self, worker: int, result: Answer | Failure) -> None:
        """Keeps what became of a prompt, and shows what is next on stdout."""
        from specli.workers.pool import Answer

        assert result.index is not None
        task = self._tasks[result.index]
        record: dict[str, Any]
        if isinstance(result, Answer):
            self._n_by_worker[worker] += 1
            settings = self._invocation.settings.effective(result.sampling)
            record = {**result.record, "settings": settings, "worker": worker + 1}
            for notice in result.notices:
                self._console.warn(notice)
        else:
            record = self._results.failure(task, result.error)
        line = self._results.keep(task, record)
        if self._invocation.config.batch.unordered:
            self._show(task, line, result if isinstance(result, Answer) else None)
            return
        self._waiting[task.index] = line, result if isinstance(result, Answer) else None
        while self._n_shown < len(self._order) and self._order[self._n_shown] in self._waiting:
            index = self._order[self._n_shown]
            self._n_shown += 1
            self._show(self._tasks[index], *self._waiting.pop(index))

    def conclude(self) -> None:
        """Shows what still waited for a prompt before it, and says who did how much."""
        for index in sorted(self._waiting):
            self._show(self._tasks[index], *self._waiting.pop(index))
        shares = (f"{n} by worker {worker + 1}" for worker, n in sorted(self._n_by_worker.items()))
        if self._n_by_worker:
            self._console.info(f"workers: prompts answered: {', '.join(shares)}; speeds of one are not those of all")

    def _show(self, task: Task, line: str, answer: Answer | None) -> None:
        config = self._invocation.config
        if config.output.json:
            self._console.write(line)
        elif answer is not None:
            shown = task.prompt.text if config.prompt.display else ""
            self._console.write(f"{shown}{answer.record['text']}\n")
        if answer is not None and config.output.perf:
            for text in answer.lines:
                self._console.info(text)
