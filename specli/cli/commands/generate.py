"""`specli generate`: prompts to text on stdout, statistics to stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.console import ERROR, TRACE, Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.prepare import request_config, run_config
from specli.cli.prompts import Prompt, read_prompts
from specli.cli.record import dump, write_lines
from specli.cli.show import show_instead, show_start, show_tokens
from specli.errors import UsageError
from specli.files import check_writable

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.engine.loop import Generation
    from specli.engine.result import RunResult

NO_TEMPLATE = "the prompt is used as it is; specli chat --single-turn applies the model's chat template"


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
    prompts = read_prompts(config)
    setup = run_config(invocation.settings, config)
    if config.output.stats_json:
        check_writable(config.output.stats_json)
    records = []
    n_different = 0
    with invocation.console() as console, opener.open_run(setup, console.trace) as engine, InterruptFlag() as interrupt:
        show_start(engine, invocation.settings, console)
        if engine.has_template:
            console.info(NO_TEMPLATE)
        answers: list[Generation] = []
        for prompt in prompts:
            with _framed(console, invocation, is_only=len(prompts) == 1):
                answers.append(_generate(engine, prompt, invocation, console, interrupt))
            result = engine.result()
            if config.output.perf:
                for line in result.lines(details=config.log.verbosity >= TRACE):
                    console.info(line)
            records.append(dump(_record(result, prompt, invocation)))
            if config.output.json:
                console.write(records[-1])
            if interrupt.is_set:
                break
        if config.verify_lossless and not interrupt.is_set:
            n_different = verify_lossless(engine, replace(setup, draft=None), prompts, answers, console)
    if config.output.stats_json:
        write_lines(config.output.stats_json, records)
    if interrupt.is_set:
        raise typer.Exit(130)
    if n_different:
        raise typer.Exit(1)


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


def verify_lossless(
    engine: Run, setup: RunConfig, prompts: Sequence[Prompt], answers: Sequence[Generation], console: Console
) -> int:
    """Generates again without drafters and says where tokens differ; the number of prompts where they do."""
    from specli.study.lossless import first_difference

    engine.change_drafters(replace(setup, speculation=replace(setup.speculation, types=("none",))))
    n_different = 0
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), 1):
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
            f"error: prompt {number if prompt.id is None else prompt.id}: token {found.position} is {drafted} with "
            f"drafting, {plain} without{gap}",
        )
    if not n_different:
        n_tokens = sum(len(answer.tokens) for answer in answers)
        console.info(f"lossless: all {n_tokens} tokens are those of plain decoding")
    return n_different


@contextmanager
def _framed(console: Console, invocation: Invocation, *, is_only: bool) -> Iterator[None]:
    """Ends the text with a line feed on a terminal and between prompts; a pipe gets the text and nothing else."""
    yield
    if not invocation.config.output.json and (console.out.isatty() or not is_only):
        console.write("\n")


def _generate(
    engine: Run, prompt: Prompt, invocation: Invocation, console: Console, interrupt: InterruptFlag
) -> Generation:
    """Streams one prompt's text."""
    config = invocation.config
    ids = engine.encode(prompt.text)
    if config.prompt.verbose:
        show_tokens(engine.tokenizer, ids, console)
    is_streamed = not config.output.json
    if config.prompt.display and is_streamed:
        console.write(prompt.text)
    events = engine.generate(ids, request_config(config), text=prompt.text)
    try:
        for event in events:
            if is_streamed and event.text:
                console.write(event.text)
            if interrupt.is_set and event.ends_round:
                break
    finally:
        events.close()
    return events


def _record(result: RunResult, prompt: Prompt, invocation: Invocation) -> dict[str, Any]:
    """The JSON object of one prompt: the engine's, with the settings and the prompt's name."""
    named = {} if prompt.id is None else {"id": prompt.id}
    return {**named, **result.to_dict(), "settings": invocation.settings.effective(result.sampling)}
