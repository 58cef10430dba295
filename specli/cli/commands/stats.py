"""`specli stats`: compares drafters, replays them on a text, tunes them, shows saved comparisons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.batch import check_cluster
from specli.cli.console import Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.record import dump, write_lines
from specli.cli.show import show_instead
from specli.cli.studies.load import check_load, report_load
from specli.cli.studies.report import rich_console
from specli.cli.studies.study import (
    adaptive,
    base_config,
    check_outputs,
    combination,
    draft_entries,
    study_plan,
    study_progress,
    study_prompts,
    study_settings,
)
from specli.errors import FormatError, UsageError
from specli.files import read_text, user_path

if TYPE_CHECKING:
    from specli.study.comparison import Comparison
    from specli.study.load import LoadStudy


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        typer.Exit: With 130 after an interrupt; what was measured until then is reported.
    """
    if show_instead(invocation):
        return
    settings, config = study_settings(invocation)
    check(settings, config)
    with invocation.console() as console, InterruptFlag() as interrupt:
        if settings.operands:
            show_saved(console, config, settings.operands[1:])
        elif config.client.server is not None:
            from specli.cli.studies.load import measure_at_server

            measure_at_server(console, settings, config, interrupt)
        elif config.study.levels:
            from specli.cli.studies.load import measure_parallel

            measure_parallel(console, settings, config, interrupt)
        elif config.study.replay is not None:
            from specli.cli.studies.replay import replay_text

            replay_text(console, settings, config)
        elif config.study.tune:
            from specli.cli.studies.tune import tune_drafters

            tune_drafters(console, settings, config, interrupt)
        elif config.batch.workers is not None:
            from specli.cli.studies.shared import compare_with_workers

            report(console, config, [compare_with_workers(console, settings, config, interrupt)])
        else:
            _compare(console, settings, config, interrupt)
    if interrupt.is_set:
        raise typer.Exit(130)


def check(settings: Settings, config: CommandConfig) -> None:
    """Refuses what contradicts itself, before anything is opened.

    Raises:
        UsageError: It does.
    """
    operands, output = settings.operands, config.output
    if operands and operands[0] != "show":
        raise UsageError(f"invalid argument: {operands[0]}", hint="specli stats show RUN.json… shows saved runs")
    if operands and len(operands) < 2:
        raise UsageError("show needs a file", hint="specli stats --save RUN.json writes one")
    if config.study.replay is not None and config.study.tune:
        raise UsageError("--replay and --tune exclude each other")
    check_combination(operands, config)
    check_load(settings, config)
    check_shared(operands, config)
    check_outputs(output)
    if config.speculation.synth.length is not None or config.speculation.synth.rates:
        raise UsageError("stats compares real acceptance", hint="specli synth measures synthetic acceptance")


def check_shared(operands: Sequence[str], config: CommandConfig) -> None:
    """Refuses what workers do not do.

    Raises:
        UsageError: It was asked for.
    """
    if config.batch.workers is None:
        return
    for option, is_given in (
        ("show", bool(operands)),
        ("--server", config.client.server is not None),
        ("--parallel", bool(config.study.levels)),
        ("--replay", config.study.replay is not None),
        ("--tune", config.study.tune),
        ("--plot", config.output.plot is not None),
    ):
        if is_given:
            raise UsageError(f"--workers does not go with {option}", hint="workers compare acceptance")
    if config.study.warmup:
        raise UsageError("--warmup-runs is for speeds, --workers compares acceptance")
    check_cluster(config.batch.workers, (config.target, config.draft))


def check_combination(operands: Sequence[str], config: CommandConfig) -> None:
    """Refuses result files that the chosen kind of report does not write.

    Raises:
        UsageError: One was asked for.
    """
    output = config.output
    other = "--replay" if config.study.replay is not None else "--tune" if config.study.tune else None
    for option, path in (("--csv", output.csv), ("--plot", output.plot), ("--save", output.save)):
        if path and other and option != "--save":
            raise UsageError(f"{option} does not go with {other}", hint="--save and --json do")
        if path and len(operands) > 2:
            raise UsageError(f"{option} takes one run, show was given {len(operands) - 1}")


def _compare(console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag) -> None:
    """Measures and reports."""
    from specli.study.compare import Entry, compare, group_by_draft_file
    from specli.study.comparison import PLAIN

    plain = base_config(settings, config)
    alone = draft_entries(settings, config)
    entries = [Entry(PLAIN, plain), *alone, *filter(None, (combination(alone), adaptive(config, alone)))]
    prompts = study_prompts(config)
    with ExitStack() as stack:
        engine = stack.enter_context(opener.open_target(plain, console.trace))
        engine.loader.fit([entry.config for entry in group] for group in group_by_draft_file(entries))
        console.info(engine.loader.line())
        with study_progress(console) as on_progress:
            comparison = compare(engine, entries, prompts, study_plan(engine, config, on_progress, interrupt))
    report(console, config, [comparison])


def show_saved(console: Console, config: CommandConfig, names: tuple[str, ...]) -> None:
    """Shows one saved comparison whole, or several side by side."""
    from specli.study.load import LoadStudy

    found = [read_saved(user_path(name)) for name in names]
    if isinstance(found[0], LoadStudy):
        if len(found) > 1:
            raise UsageError("measurements of many requests at once are shown one by one")
        report_load(console, config, found[0])
        return
    other = next((study for study in found if isinstance(study, LoadStudy)), None)
    if other is not None:
        raise UsageError(f"{other.title}: measurements of many requests at once are shown by themselves")
    report(console, config, [study for study in found if not isinstance(study, LoadStudy)])


def read_saved(path: Path) -> Comparison | LoadStudy:
    """What `--save` or `--json` wrote.

    Raises:
        FormatError: The file is no such record.
    """
    from specli.study.comparison import Comparison
    from specli.study.load import SCHEMA, LoadStudy

    what = "cannot be read as a comparison"
    try:
        record: Any = json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {what}: {error}") from None
    if isinstance(record, dict) and record.get("schema") == SCHEMA:
        return LoadStudy.from_dict(record, path.stem)
    return Comparison.from_dict(record, path.stem)


def report(console: Console, config: CommandConfig, comparisons: list[Comparison]) -> None:
    """Writes what was asked for: files, then JSON or the report."""
    from specli.cli.studies.stats_view import csv_text, show_comparison, show_several

    output, first = config.output, comparisons[0]
    if output.save:
        write_lines(output.save, [dump(first.to_dict())])
    if output.csv:
        write_lines(output.csv, [csv_text(first)])
    if output.plot:
        from specli.cli.studies.plot import plot_comparison

        plot_comparison(first, output.plot)
    if output.json:
        console.write("".join(dump(comparison.to_dict()) for comparison in comparisons))
        return
    out = rich_console(console)
    if len(comparisons) > 1:
        show_several(out, comparisons)
    else:
        show_comparison(out, replace(first))
