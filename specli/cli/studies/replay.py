"""`specli stats --replay`: what drafters would have got on a given text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specli.cli import opener
from specli.cli.console import Console
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.record import dump, write_lines
from specli.cli.studies.report import bars, figure, heading, notes, percent, rich_console, table
from specli.cli.studies.stats_view import settings_line
from specli.cli.studies.study import base_config, combination, draft_entries, study_progress
from specli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from specli.study.compare import Entry
    from specli.study.replay import Replay


def replay_text(console: Console, settings: Settings, config: CommandConfig) -> None:
    """Replays each type alone and all together. Tables of n-grams take the model's tokenizer only, no weights.

    Raises:
        UsageError: No drafter was named.
    """
    from specli.study.replay import SCHEMA, read_replay, replay_texts

    path = config.study.replay
    assert path is not None
    texts = read_replay(path)
    alone = draft_entries(settings, config)
    if not alone:
        raise UsageError("--replay needs a drafter", hint="name some with --spec-type, or give one with -md")
    together = combination(alone)
    entries = [*alone, *([together] if together else [])]
    results = []
    with (
        opener.open_target(base_config(settings, config), console.trace) as engine,
        study_progress(console) as on_progress,
    ):
        engine.loader.fit([entry.config] for entry in entries)
        for number, entry in enumerate(entries):
            on_progress(number, len(entries), entry.name)
            results.append(replay_texts(engine, entry.config, texts, entry.name))
    record = dump({"schema": SCHEMA, "text": str(path), "replays": [result.to_dict() for result in results]})
    if config.output.save:
        write_lines(config.output.save, [record])
    if config.output.json:
        console.write(record)
    else:
        show_replays(rich_console(console), path, results, alone)


def show_replays(out: RichConsole, path: Path, results: Sequence[Replay], alone: Sequence[Entry]) -> None:
    """The report."""
    from specli.study.replay import RECORD_SUFFIXES

    heading(out, f"Replay of {path.name}: {results[0].n_tokens} tokens")
    notes(out, ["what would have been accepted if the model had written this text; no speeds"])
    rows = []
    for result in results:
        proposed = sum(stats.gen_tokens for stats in result.drafters)
        accepted = sum(stats.acc_tokens for stats in result.drafters)
        rounds = sum(stats.n_accept for stats in result.drafters)
        rows.append(
            (
                result.name,
                figure(result.tokens_per_round),
                figure(1 + accepted / rounds if rounds else None),
                str(proposed),
                str(accepted),
                percent(accepted / proposed if proposed else None),
                percent(result.coverage),
            )
        )
    best = max(range(len(results)), key=lambda i: results[i].tokens_per_round or 0.0)
    out.print()
    columns = ("drafter", "tok/round", "length", "proposed", "accepted", "accept", "cover")
    table(out, columns, rows, best=best)
    heading(out, "Tokens per target forward (mark: 1, plain decoding)")
    bars(out, [(r.name, r.tokens_per_round, figure(r.tokens_per_round)) for r in results], mark=1.0)
    heading(out, "Notes")
    lines = [f"{entry.name}: {settings_line(entry.settings)}" for entry in alone if entry.settings]
    if path.suffix not in RECORD_SUFFIXES and any(entry.name == "ngram-cache" for entry in alone):
        lines.append("ngram-cache learns from prompts and accepted drafts; a plain text has no prompt, records have")
    notes(
        out,
        [
            "length: 1 + accepted draft tokens / rounds with a draft; cover: share of the tokens that came from drafts",
            *lines,
        ],
    )
