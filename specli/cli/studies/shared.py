"""`specli stats --workers`: acceptance over a prompt set, found by several workers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from specli.cli import opener
from specli.cli.board import board
from specli.cli.console import Console
from specli.cli.conversation.repl import template_variables
from specli.cli.interrupt import InterruptFlag
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.prepare import request_config
from specli.cli.studies.study import base_config, combination, draft_entries, study_prompts

if TYPE_CHECKING:
    from specli.study.comparison import Comparison
    from specli.workers.comparing import Compared
    from specli.workers.pool import Answer, Failure, Ready


def compare_with_workers(
    console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag
) -> Comparison:
    """Compares drafters; what there is after an interrupt counts.

    Raises:
        SpecliError: The models cannot be loaded, a prompt cannot be answered, workers differ, or all of them are dead.
        typer.Exit: With 130, if nothing was finished before an interrupt.
    """
    from specli.study.compare import Entry, group_by_draft_file
    from specli.study.comparison import PLAIN
    from specli.workers.comparing import Comparing, together
    from specli.workers.dispatch import Dispatcher
    from specli.workers.pool import Job

    where = config.batch.workers
    assert where is not None
    plain = base_config(settings, config)
    alone = draft_entries(settings, config)
    entries = [Entry(PLAIN, plain), *alone, *filter(None, (combination(alone),))]
    if where.ray is not None:
        plain = opener.on_cluster(plain)
        entries = [replace(entry, config=opener.on_cluster(entry.config)) for entry in entries]
    groups, prompts = group_by_draft_file(entries), study_prompts(config)
    request = request_config(config)
    role = Comparing(plain, groups, request, config.study.repeat, config.study.template, template_variables(config))
    tasks = [(number, prompt) for number in range(len(groups)) for prompt in prompts]
    jobs = [Job(index, f"prompt {task[1].id}", task) for index, task in enumerate(tasks)]
    found: dict[int, tuple[int, Compared]] = {}

    def greet(ready: Ready) -> None:
        for notice in ready.notices:
            console.warn(notice)
        for line in ready.lines:
            console.info(line)
        if config.speculation.adaptive and alone:
            console.info("workers: lengths as configured; adaptive ones follow measured times, so there is no such row")

    with closing(opener.open_pool(role, plain, where)) as pool:

        def take(worker: int, result: Answer | Failure) -> None:
            from specli.workers.pool import Failure

            if isinstance(result, Failure):
                assert result.index is not None
                raise type(result.error)(f"{jobs[result.index].name}: {result.error}", hint=result.error.hint)
            for notice in result.notices:
                console.warn(notice)
            found[result.index] = worker, result.result
            samples = (sample for row in result.result.samples.values() for sample in row)
            progress.count(sum(sample.timings.predicted_n for sample in samples))

        work = Dispatcher(pool, greet, take, console.warn, config.batch.retries)
        with board(console, len(jobs), 0, work.states) as progress:
            work.on_tick = progress.tick
            work.run(jobs, lambda: interrupt.is_set)
    if not found:
        raise typer.Exit(130)
    return together(entries, prompts, [found[index] for index in sorted(found)])
