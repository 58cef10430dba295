"""`specli check`: whether and how well a drafter fits a target, before any weight is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from specli.cli.console import Console
from specli.cli.invocation import Invocation
from specli.cli.record import dump
from specli.cli.show import show_instead
from specli.cli.sources import resolve_draft, resolve_target
from specli.cli.studies.report import heading, notes, percent, rich_console, table
from specli.drafters import DRAFTERS, NetworkSpec
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.study.check import Fit

MARKS = {True: "fits", False: "DIFFERS", None: ""}
DOUBTFUL = "doubtful"


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        UsageError: No drafter was named.
        typer.Exit: With 1, if the pair does not fit.
    """
    if show_instead(invocation):
        return
    config = invocation.config
    target = resolve_target(config.source)
    types = config.speculation.types
    draft = resolve_draft(config.source, types)
    own = [row.name for row in DRAFTERS.values() if isinstance(row, NetworkSpec) and row.serves_itself]
    if draft is None and not set(own) & set(types):
        raise UsageError(
            "check needs a drafter", hint=f"give one with -md, or --spec-type {' or '.join(own)} for the target's own"
        )
    from specli.study.check import check_fit

    metadata = config.target.metadata
    setup = RunConfig(
        ModelLoadConfig(target, metadata=metadata),
        draft=ModelLoadConfig(draft, metadata=metadata) if draft else None,
        speculation=config.speculation,
    )
    with invocation.console() as console:
        fit = check_fit(setup, config.check_text)
        if config.output.json:
            console.write(dump(fit.to_dict()))
        else:
            _show(rich_console(console), fit, console)
    if fit.error:
        raise typer.Exit(1)


def _show(out: RichConsole, fit: Fit, console: Console) -> None:
    """The verdict last, as it decides the exit status."""
    heading(out, f"{fit.draft.rpartition('/')[2]} for {fit.target.rpartition('/')[2]}")
    out.print()
    table(
        out,
        ("compared", "target", "drafter", "verdict"),
        [
            (fact.what, fact.target or "–", fact.draft, DOUBTFUL if fact.is_doubtful else MARKS[fact.is_match])
            for fact in fit.facts
        ],
    )
    if fit.coverage:
        covered = fit.coverage.n_covered / max(1, fit.coverage.n_tokens)
        heading(out, f"Text: {percent(covered)} of {fit.coverage.n_tokens} tokens are in the draft vocabulary")
        missing = ", ".join(f"{text!r} × {count}" for text, count in fit.coverage.missing)
        notes(out, [f"missing: {missing}"] if missing else [])
    notes(out, fit.notes)
    out.print()
    for doubt in fit.doubts:
        out.print(f"doubtful: {doubt}", style="yellow", markup=False, soft_wrap=True)
    if fit.error is None:
        out.print(f"The drafter fits{', with doubts' if fit.doubts else ''}.", style="bold green")
        return
    out.print(f"The drafter does not fit: {fit.error}", style="bold red", markup=False, soft_wrap=True)
    if fit.hint:
        out.print(f"hint: {fit.hint}", markup=False, soft_wrap=True)
