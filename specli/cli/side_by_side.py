"""The prompts of a file, answered side by side: by several requests in one engine, or by several workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.batch import Results, Task
from specli.cli.board import Board, board
from specli.cli.console import TRACE, Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.show import NO_TEMPLATE, show_tokens
from specli.errors import SpecliError, UsageError

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.engine.sequence import Sequence as Request
    from specli.workers.pool import Answer, Failure, Ready


def answer_with_workers(invocation: Invocation, setup: RunConfig, tasks: list[Task]) -> None:
    """Answers the prompts of a file.

    Raises:
        typer.Exit: With 130 after an interrupt; what was finished is kept. With 1 if prompts failed.
        SpecliError: The models cannot be loaded, workers differ, or all of them are dead; what was finished is kept.
    """
    from specli.workers.dispatch import Dispatcher
    from specli.workers.pool import Job
    from specli.workers.worker import Question

    config, where = invocation.config, invocation.config.batch.workers
    assert where is not None
    with (
        invocation.console() as console,
        InterruptFlag() as interrupt,
        closing(Results(config, console, tasks)) as results,
        closing(opener.open_pool(opener.answering(setup, where), setup, where)) as pool,
    ):
        todo = results.open(setup, opener.file_identities(setup))
        desk = Desk(invocation, console, results, todo, pool.n_workers)
        jobs = [Job(task.index, task.name, Question(task.prompt.text, task.request)) for task in todo]
        work = Dispatcher(pool, desk.greet, desk.take, console.warn, config.batch.retries)
        with board(console, len(tasks), len(tasks) - len(todo), work.states) as desk.board:
            work.on_tick = desk.board.tick
            work.run(jobs, lambda: interrupt.is_set)
        results.finish(is_interrupted=interrupt.is_set)
        desk.conclude()
    if interrupt.is_set:
        raise typer.Exit(130)
    if results.n_failed:
        raise typer.Exit(1)


def answer_together(
    run: Run, setup: RunConfig, tasks: list[Task], invocation: Invocation, console: Console, interrupt: InterruptFlag
) -> tuple[int, list[tuple[Task, Request]]]:
    """Answers the prompts of a file in one engine, several at once.

    Returns:
        How many failed, and the answers in the order in which they ended.

    Raises:
        UsageError: An option is wrong for all of them.
        ResourceError: The file cannot be written.
    """
    from specli.engine.scheduler import Scheduler

    config = invocation.config
    open_tasks: dict[Request, Task] = {}
    answers: list[tuple[Task, Request]] = []
    with closing(Results(config, console, tasks)) as results:
        todo = results.open(setup, run.files)
        shelf = Shelf(invocation, console, results, todo)

        def requests() -> Iterator[Request]:
            for task in todo:
                try:
                    ids = run.encode(task.prompt.text)
                    if config.prompt.verbose:
                        show_tokens(run.tokenizer, ids, console)
                    request = run.sequence(ids, task.request, text=task.prompt.text)
                except UsageError:
                    raise  # it is the same for all prompts
                except SpecliError as error:
                    shelf.put(task, results.failure(task, error), None)
                    continue
                request.reuses = False
                open_tasks[request] = task
                yield request

        run.renew()
        for request in Scheduler(run.engine).run(requests(), lambda: interrupt.is_set):
            request.events.clear()
            if not request.is_done:
                continue
            task = open_tasks.pop(request)
            if request.error is not None:
                if not isinstance(request.error, SpecliError):
                    raise request.error
                shelf.put(task, results.failure(task, request.error), None)
                continue
            answers.append((task, request))
            result = run.result(request)
            record = {**result.to_dict(), "settings": invocation.settings.effective(result.sampling)}
            shelf.put(task, record, request.text, result.lines(details=config.log.verbosity >= TRACE))
        results.finish(is_interrupted=interrupt.is_set)
        shelf.conclude()
        return results.n_failed, answers


class Shelf:
    """Results that come in any order: the file has them at once, stdout in the order of the prompts.

    Args:
        invocation: The command.
        console: The streams.
        results: The file.
        tasks: The prompts to be answered.
    """

    def __init__(self, invocation: Invocation, console: Console, results: Results, tasks: Sequence[Task]) -> None:
        self._config = invocation.config
        self._console = console
        self._results = results
        self._order = [task.index for task in tasks]
        self._waiting: dict[int, tuple[Task, str, str | None, Sequence[str]]] = {}
        self._n_shown = 0

    def put(self, task: Task, record: dict[str, Any], text: str | None, lines: Sequence[str] = ()) -> None:
        """Keeps what became of a prompt, and shows what is next on stdout.

        Args:
            task: The prompt.
            record: Its JSON record.
            text: Its text; None if it failed.
            lines: Its statistics.
        """
        line = self._results.keep(task, record)
        if self._config.batch.unordered:
            self._show(task, line, text, lines)
            return
        self._waiting[task.index] = task, line, text, lines
        while self._n_shown < len(self._order) and self._order[self._n_shown] in self._waiting:
            index = self._order[self._n_shown]
            self._n_shown += 1
            self._show(*self._waiting.pop(index))

    def conclude(self) -> None:
        """Shows what still waited for a prompt before it."""
        for index in sorted(self._waiting):
            self._show(*self._waiting.pop(index))

    def _show(self, task: Task, line: str, text: str | None, lines: Sequence[str]) -> None:
        config = self._config
        if config.output.json:
            self._console.write(line)
        elif text is not None:
            shown = task.prompt.text if config.prompt.display else ""
            self._console.write(f"{shown}{text}\n")
        if config.output.perf:
            for each in lines:
                self._console.info(each)


class Desk:
    """Takes what workers bring.

    Args:
        invocation: The command.
        console: The streams.
        results: The file.
        tasks: The prompts to be answered.
        n_workers: How many answer.

    Attributes:
        board: Where progress is counted.
    """

    def __init__(
        self, invocation: Invocation, console: Console, results: Results, tasks: list[Task], n_workers: int
    ) -> None:
        self.board: Board | None = None
        self._n_workers = n_workers
        self._invocation = invocation
        self._console = console
        self._results = results
        self._tasks = {task.index: task for task in tasks}
        self._shelf = Shelf(invocation, console, results, tasks)
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
        where = self._invocation.config.batch.workers
        kind = "processes" if where is None or where.ray is None else "Ray actors"
        self._console.info(f"workers: {self._n_workers} {kind}, each as above")
        if ready.has_template:
            self._console.info(NO_TEMPLATE)

    def take(self, worker: int, result: Answer | Failure) -> None:
        """Keeps and shows what became of a prompt."""
        from specli.workers.pool import Answer

        assert result.index is not None
        task = self._tasks[result.index]
        if self.board is not None:
            self.board.count(result.result.record["timings"]["predicted_n"] if isinstance(result, Answer) else 0)
        if not isinstance(result, Answer):
            self._shelf.put(task, self._results.failure(task, result.error), None)
            return
        self._n_by_worker[worker] += 1
        settings = self._invocation.settings.effective(result.result.sampling)
        for notice in result.notices:
            self._console.warn(notice)
        generated = result.result
        record = {**generated.record, "settings": settings, "worker": worker + 1}
        self._shelf.put(task, record, generated.record["text"], generated.lines)

    def conclude(self) -> None:
        """Shows what still waited for a prompt before it, and says who did how much."""
        self._shelf.conclude()
        shares = (f"{n} by worker {worker + 1}" for worker, n in sorted(self._n_by_worker.items()))
        if self._n_by_worker:
            self._console.info(f"workers: prompts answered: {', '.join(shares)}; speeds of one are not those of all")
