"""`specli synth`: measures with synthetic acceptance, and what costs predict."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import typer

from specli.cli import opener
from specli.cli.console import Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.prepare import check, run_config
from specli.cli.record import dump, write_lines
from specli.cli.show import show_instead
from specli.cli.studies.report import bars, figure, heading, notes, percent, rich_console, table
from specli.cli.studies.study import (
    base_config,
    check_outputs,
    study_plan,
    study_progress,
    study_prompts,
    study_settings,
)

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.study.synth import Synthesis, SynthPoint

N_PROMPTS = 8
"""Prompts of the set that are used unless told otherwise: one per category."""
NOT_VALID = "output is not valid model output"


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        typer.Exit: With 130 after an interrupt; what was measured until then is reported.
    """
    if show_instead(invocation):
        return
    invocation.settings.default("--n-prompts", str(N_PROMPTS))
    settings, config = study_settings(invocation)
    check(config)
    check_outputs(config.output)
    with invocation.console() as console, InterruptFlag() as interrupt:
        console.warn(f"synthetic acceptance: {NOT_VALID}")
        study = _measure(console, settings, config, interrupt)
        _report(console, config, study)
    if interrupt.is_set:
        raise typer.Exit(130)


def _measure(console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag) -> Synthesis:
    from specli.study.synth import synthesise

    setup = run_config(settings, config)
    with (
        opener.open_target(base_config(settings, config), console.trace) as engine,
        study_progress(console) as on_progress,
    ):
        engine.loader.fit([[setup]])
        console.info(engine.loader.line())
        plan = study_plan(engine, config, on_progress, interrupt)
        with console.without_notices():
            return synthesise(engine, setup, study_prompts(config), plan, sweeps=config.study.sweep)


def _report(console: Console, config: CommandConfig, study: Synthesis) -> None:
    if config.output.csv:
        write_lines(config.output.csv, [csv_text(study)])
    if config.output.plot:
        from specli.cli.studies.plot import plot_synthesis

        plot_synthesis(study, config.output.plot)
    if config.output.json:
        console.write(dump(study.to_dict()))
    else:
        show_synthesis(rich_console(console), study)


def show_synthesis(out: RichConsole, study: Synthesis) -> None:
    """The whole report."""
    from specli.study.synth import ACCEPTANCES

    heading(out, f"Synthetic acceptance: {study.target['path'].rpartition('/')[2]}, {' '.join(study.types)}")
    notes(out, [f"kernels: {study.kernels}", NOT_VALID])
    heading(out, "Cost of a verification")
    plain = study.costs.verify[1]
    rows = [
        (str(n), f"{ns / 1e6:.2f}", f"{ns / plain:.2f}", f"{ns / plain / n:.2f}")
        for n, ns in sorted(study.costs.verify.items())
    ]
    table(out, ("rows", "ms", "plain steps", "per row"), rows)
    heading(out, "Speed-up, predicted from costs and measured")
    columns = (
        "n-max", "asked", "length", "drafted", "draft ms", "predicted", "measured", "even p", "even len"
    )  # fmt: skip
    table(out, columns, [_cells(point) for point in study.points])
    if len(study.by_length) > 1:
        heading(out, "Break-even: acceptance per draft token at which drafting costs what it brings")
        curve = [(f"n-max {k}", costs.break_even(k)) for k, costs in study.by_length.items()]
        bars(out, [(label, 1.0 if p is None else p, "never" if p is None else figure(p)) for label, p in curve])
        best = ", ".join(f"{p:.1f}: {study.best_length(p) or 'none'}" for p in ACCEPTANCES)
        notes(out, [f"n-max that pays most by acceptance per token: {best}"])
    for point in study.points[:1] if len(study.points) == 1 else ():
        for stats in point.drafters:
            rates = ", ".join(f"{rate:.3f}" for rate in stats.acceptance_per_pos)
            notes(
                out,
                [f"{stats.name}: {stats.gen_tokens} tokens proposed, {stats.acc_tokens} accepted, by position {rates}"],
            )
    notes(
        out,
        [
            "n-max: effective maximum K of the drafters; asked, length: mean tokens per round that were asked for, and "
            "those that came; drafted: share of the rounds that had a draft",
            "even: acceptance per token, and mean tokens per round, at which drafting K tokens costs what it brings",
        ],
    )


def _cells(point: SynthPoint) -> list[str]:
    timings, k = point.totals.timings, point.n_max
    break_even = point.costs.break_even(k)
    return [
        str(k),
        figure(point.length),
        figure(timings.mean_acc_len),
        percent(timings.n_rounds_drafted / timings.n_rounds if timings.n_rounds else None),
        figure(point.costs.draft / 1e6, ".3f"),
        figure(point.predicted, unit="×"),
        figure(point.measured, unit="×"),
        "never" if break_even is None else figure(break_even),
        figure(point.costs.break_even_length(k)),
    ]


def csv_text(study: Synthesis) -> str:
    """One row per setting."""
    out = io.StringIO()
    rows: list[dict[str, Any]] = [
        {name: value for name, value in point.to_dict().items() if not isinstance(value, (list, dict))}
        for point in study.points
    ]
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
