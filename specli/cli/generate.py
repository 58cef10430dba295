"""`specli generate`: prompts to text on stdout, statistics to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.console import TRACE, Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.prepare import request_config, run_config
from specli.cli.prompts import Prompt, read_prompts
from specli.cli.record import dump, write_lines
from specli.cli.show import show_instead, show_start
from specli.files import check_writable

if TYPE_CHECKING:
    from specli.engine.load import Run

NO_TEMPLATE = "the prompt is used as it is; specli chat --single-turn applies the model's chat template"


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        typer.Exit: With 130, after an interrupt; text, statistics and files are complete up to there.
    """
    if show_instead(invocation):
        return
    config = invocation.config
    prompts = read_prompts(config)
    setup = run_config(invocation.settings, config)
    if config.output.stats_json:
        check_writable(config.output.stats_json)
    records = []
    with invocation.console() as console, opener.open_run(setup, console.trace) as engine, InterruptFlag() as interrupt:
        show_start(engine, invocation.settings, console)
        if engine.has_template:
            console.info(NO_TEMPLATE)
        for prompt in prompts:
            with _framed(console, invocation, is_only=len(prompts) == 1):
                _generate(engine, prompt, invocation, console, interrupt)
            result = engine.result()
            if config.output.perf:
                for line in result.lines(details=config.log.verbosity >= TRACE):
                    console.info(line)
            records.append(dump(_record(result.to_dict(), prompt, invocation)))
            if config.output.json:
                console.write(records[-1])
            if interrupt.is_set:
                break
    if config.output.stats_json:
        write_lines(config.output.stats_json, records)
    if interrupt.is_set:
        raise typer.Exit(130)


@contextmanager
def _framed(console: Console, invocation: Invocation, *, is_only: bool) -> Iterator[None]:
    """Ends the text with a line feed on a terminal and between prompts; a pipe gets the text and nothing else."""
    yield
    if not invocation.config.output.json and (console.out.isatty() or not is_only):
        console.write("\n")


def _generate(engine: Run, prompt: Prompt, invocation: Invocation, console: Console, interrupt: InterruptFlag) -> None:
    """Streams one prompt's text."""
    config = invocation.config
    ids = engine.encode(prompt.text)
    if config.prompt.verbose:
        for token in ids:
            console.info(f"{token:6d} -> {engine.tokenizer.decode([token], special=True)!r}")
    is_streamed = not config.output.json
    if config.prompt.display and is_streamed:
        console.write(prompt.text)
    events = engine.generate(ids, request_config(config))
    try:
        for event in events:
            if is_streamed and event.text:
                console.write(event.text)
            if interrupt.is_set:
                break
    finally:
        events.close()


def _record(record: dict[str, Any], prompt: Prompt, invocation: Invocation) -> dict[str, Any]:
    """The JSON object of one prompt: the engine's, with the settings and the prompt's name."""
    named = {} if prompt.id is None else {"id": prompt.id}
    return {**named, **record, "settings": invocation.settings.effective()}
