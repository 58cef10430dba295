"""`specli generate`: prompts to text on stdout, statistics to stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.batch import Results, Task, check_batch, check_stats_file, is_apart, tasks_of, with_slots
from specli.cli.console import ERROR, TRACE, Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.prepare import run_config
from specli.cli.prompts import read_prompts
from specli.cli.record import dump, write_lines
from specli.cli.show import NO_TEMPLATE, show_instead, show_start, show_tokens
from specli.cli.side_by_side import answer_together, answer_with_workers
from specli.errors import SpecliError, UsageError

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.engine.loop import Generation
    from specli.engine.sequence import Sequence as Request


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        typer.Exit: With 130, after an interrupt; text, statistics and files are complete up to there. With 1, if
            `--verify-lossless` found that drafting changed a text.
    """
    if show_instead(invocation):
        return
    invocation = comparable(invocation)
    config = invocation.config
    tasks = tasks_of(config, read_prompts(config))
    setup = with_slots(config, run_config(invocation.settings, config))
    check_batch(config, setup)
    check_stats_file(config)
    if config.batch.is_shared:
        answer_with_workers(invocation, setup, tasks)
        return
    n_different = 0
    answers: list[tuple[Task, Request]]
    with invocation.console() as console, opener.open_run(setup, console.trace) as engine, InterruptFlag() as interrupt:
        show_start(engine, invocation.settings, console)
        if engine.has_template:
            console.info(NO_TEMPLATE)
        if config.prompt.file is None:
            n_failed, answers = 0, [_answer_one(engine, tasks[0], invocation, console, interrupt)]
        elif config.batch.n_parallel > 1:
            console.info(f"parallel: {setup.n_slots} prompts at once, {engine.engine.n_ctx} tokens of context each")
            n_failed, answers = answer_together(engine, setup, tasks, invocation, console, interrupt)
        else:
            n_failed, answers = _answer_all(engine, setup, tasks, invocation, console, interrupt)
        if config.verify_lossless and not interrupt.is_set:
            n_different = verify_lossless(engine, replace(setup, draft=None), answers, console)
    if interrupt.is_set:
        raise typer.Exit(130)
    if n_different or n_failed:
        raise typer.Exit(1)


def _answer_one(
    engine: Run, task: Task, invocation: Invocation, console: Console, interrupt: InterruptFlag
) -> tuple[Task, Request]:
    """The prompt of the command line; what there is of it is written after an interrupt, too."""
    output = invocation.config.output
    with _framed(console, invocation, is_only=True):
        generation = _generate(engine, task, invocation, console, interrupt)
    line = dump(_record(engine, invocation, console))
    if output.json:
        console.write(line)
    if output.stats_json:
        write_lines(output.stats_json, [line])
    return task, generation


def _answer_all(
    engine: Run,
    setup: RunConfig,
    tasks: Sequence[Task],
    invocation: Invocation,
    console: Console,
    interrupt: InterruptFlag,
) -> tuple[int, list[tuple[Task, Request]]]:
    """The prompts of a file one after another; how many failed, and the answers."""
    config = invocation.config
    answers: list[tuple[Task, Request]] = []
    with closing(Results(config, console, tasks)) as results:
        for task in results.open(setup, engine.files if is_apart(config) else ()):
            if is_apart(config):
                engine.renew()
            try:
                with _framed(console, invocation, is_only=len(tasks) == 1):
                    generation = _generate(engine, task, invocation, console, interrupt)
            except UsageError:
                raise  # it is the same for all prompts
            except SpecliError as error:
                results.add(task, results.failure(task, error))
            else:
                answers.append((task, generation))
                results.add(task, _record(engine, invocation, console))
            if interrupt.is_set:
                break
        results.finish(is_interrupted=interrupt.is_set)
        return results.n_failed, answers


def comparable(invocation: Invocation) -> Invocation:
    """With `--verify-lossless` a run that can be repeated: its random seed is drawn now.

    Raises:
        UsageError: Tokens need not be those of plain decoding.
    """
    config = invocation.config
    if not config.verify_lossless:
        return invocation
    speculation, sampling = config.speculation, config.request.sampling.settings()
    if speculation.draft.probabilistic and sampling.temperature > 0:
        raise UsageError(
            "--verify-lossless compares tokens, rejection sampling keeps their distribution only",
            hint="use --temp 0, or --spec-draft-sampling greedy",
        )
    if speculation.synth.length is not None or speculation.synth.rates:
        raise UsageError("--verify-lossless cannot be combined with synthetic acceptance")
    from specli.rng import resolve_seed

    seeded = replace(sampling, seed=resolve_seed(sampling.seed))
    return replace(invocation, config=replace(config, request=replace(config.request, sampling=seeded)))


def verify_lossless(engine: Run, setup: RunConfig, answers: Sequence[tuple[Task, Request]], console: Console) -> int:
    """Generates again without drafters and says where tokens differ; the number of prompts where they do."""
    from specli.study.lossless import first_difference

    engine.change_drafters(replace(setup, speculation=replace(setup.speculation, types=("none",))))
    n_different = 0
    for task, answer in answers:
        found = first_difference(engine, answer.prompt, answer.request, answer.tokens)
        if found is None:
            continue
        n_different += 1
        drafted, plain = (
            "the end" if token is None else f"{token} {engine.tokenizer.decode([token], special=True)!r}"
            for token in (found.drafted, found.plain)
        )
        gap = "" if found.gap is None else f"; its best two tokens differ by {found.gap:.3g} in log-probability"
        console.log(
            ERROR,
            f"error: {task.name}: token {found.position} is {drafted} with drafting, {plain} without{gap}",
        )
    if not n_different:
        n_tokens = sum(len(answer.tokens) for _, answer in answers)
        console.info(f"lossless: all {n_tokens} tokens are those of plain decoding")
    return n_different


@contextmanager
def _framed(console: Console, invocation: Invocation, *, is_only: bool) -> Iterator[None]:
    """Ends the text with a line feed on a terminal and between prompts; a pipe gets the text and nothing else."""
    yield
    if not invocation.config.output.json and (console.out.isatty() or not is_only):
        console.write("\n")


def _generate(
    engine: Run, task: Task, invocation: Invocation, console: Console, interrupt: InterruptFlag
) -> Generation:
    """Streams one prompt's text."""
    config, prompt = invocation.config, task.prompt
    ids = engine.encode(prompt.text)
    if config.prompt.verbose:
        show_tokens(engine.tokenizer, ids, console)
    is_streamed = not config.output.json
    if config.prompt.display and is_streamed:
        console.write(prompt.text)
    events = engine.generate(ids, task.request, text=prompt.text)
    try:
        for event in events:
            if is_streamed and event.text:
                console.write(event.text)
            if interrupt.is_set and event.ends_round:
                break
    finally:
        events.close()
    return events


def _record(engine: Run, invocation: Invocation, console: Console) -> dict[str, Any]:
    """The JSON object of the latest prompt: the engine's, with the settings; the statistics lines are shown."""
    result, config = engine.result(), invocation.config
    if config.output.perf:
        for line in result.lines(details=config.log.verbosity >= TRACE):
            console.info(line)
    return {**result.to_dict(), "settings": invocation.settings.effective(result.sampling)}
