"""`specli stats --tune`: searches for the draft settings that pay most and prints them as flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specli.cli import opener
from specli.cli.console import Console
from specli.cli.interrupt import InterruptFlag
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.record import dump, write_lines
from specli.cli.studies.report import figure, heading, notes, rich_console, table
from specli.cli.studies.study import base_config, draft_entries, study_plan, study_progress, study_prompts

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.study.tune import Tuning


def tune_drafters(console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag) -> None:
    """Tunes each type alone and reports; the flag line is the last line."""
    from specli.study.tune import tune

    plain = base_config(settings, config)
    drafts = [(entry.name, entry.config) for entry in draft_entries(settings, config)]
    prompts = study_prompts(config)
    with opener.open_target(plain, console.trace) as engine, study_progress(console) as on_progress:
        engine.loader.fit([draft] for _, draft in drafts)
        plan = study_plan(engine, config, on_progress, interrupt)
        with console.without_notices():
            tuning = tune(engine, plain, drafts, prompts, plan, seconds=config.study.tune_seconds)
    if config.output.save:
        write_lines(config.output.save, [dump(tuning.to_dict())])
    if config.output.json:
        console.write(dump(tuning.to_dict()))
    else:
        show_tuning(rich_console(console), tuning)


def show_tuning(out: RichConsole, tuning: Tuning) -> None:
    """The report: per type the setting in force and the best one found."""
    heading(out, f"Tuned against plain decoding at {tuning.plain_per_second:.1f} tokens/s")
    rows = [
        (
            result.name,
            figure(result.trials[0].speed_up, unit="×"),
            figure(result.best.speed_up, unit="×"),
            figure(result.best.tokens_per_round),
            str(len(result.trials)),
            "replayed" if result.is_replayed else "measured",
        )
        for result in tuning.types
    ]
    best = tuning.types.index(tuning.best) if tuning.best else None
    out.print()
    table(out, ("drafter", "as given", "best", "tok/round", "settings", "how"), rows, best=best)
    lines = ["replayed: speed-up computed from replays of the model's answers and the measured cost of verifications"]
    lines += [
        f"{result.name}: the time ran out before the search ended" for result in tuning.types if not result.is_complete
    ]
    if tuning.best is None:
        lines.append("no setting is faster than plain decoding on these prompts")
    notes(out, lines)
    for result in tuning.types:
        out.print(f"{result.name}: {result.best.flags(result.name)}", markup=False, soft_wrap=True)
    out.print()
    out.print(tuning.flags, style="bold", markup=False, soft_wrap=True)
