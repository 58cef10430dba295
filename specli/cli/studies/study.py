"""What `specli stats` and `specli synth` share: settings of a study, prompt sets, contenders, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specli.cli.console import Console
from specli.cli.conversation.repl import template_variables
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.options.request import CommandConfig, OutputConfig
from specli.cli.options.settings import Settings
from specli.cli.prepare import prompt_text, request_config, run_config
from specli.cli.prompts import read_prompt_file
from specli.cli.sources import resolve_draft
from specli.drafters import networks_of
from specli.errors import UsageError
from specli.files import check_writable

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.study.compare import Entry, Plan, StudyPrompt

DEFAULTS = (("-n", "64"), ("--temp", "0"), ("--seed", "1"))
"""Options of a study that nobody set: short, greedy answers with a fixed seed, so that runs can be compared."""

LOAD_DEFAULTS = (("--repeat", "1"),)
"""The same for many requests at once, which are many anyway."""

SHARED_DEFAULTS = (("--repeat", "1"), ("--warmup-runs", "0"))
"""The same with workers, whose figures are counts and no times."""

OnProgress = Callable[[int, int, str], None]


def study_settings(invocation: Invocation) -> tuple[Settings, CommandConfig]:
    """The settings with a study's defaults."""
    settings = invocation.settings
    is_load = bool({"study.levels", "client.server"} & settings.values.keys())
    is_shared = "batch.workers" in settings.values
    more = LOAD_DEFAULTS if is_load else SHARED_DEFAULTS if is_shared else ()
    for spelling, text in (*DEFAULTS, *more):
        settings.default(spelling, text)
    return settings, settings.config()


def check_outputs(output: OutputConfig) -> None:
    """Raises now what would keep result files from being written after the work.

    Raises:
        SpecliError: One of them cannot be written.
    """
    for path in filter(None, (output.save, output.csv)):
        check_writable(path)
    if output.plot:
        from specli.cli.studies.plot import check_plot

        check_plot(output.plot)


def base_config(settings: Settings, config: CommandConfig) -> RunConfig:
    """The run without drafters."""
    source = replace(config.source, draft_model=None, draft_hf_repo=None)
    speculation = replace(config.speculation, types=("none",))
    return run_config(settings, replace(config, source=source, speculation=speculation))


def draft_entries(settings: Settings, config: CommandConfig) -> list[Entry]:
    """Each drafter type alone, with drafts as long as configured: its name, its run, its settings with their origins.

    Without `--spec-type` the type is read off the draft file. `-md demo` stands for the shipped drafter of each type.
    """
    from specli.study.compare import Entry

    types = tuple(name for name in config.speculation.types if name != "none")
    if not config.speculation.types and (path := resolve_draft(config.source, ())):
        types = (type_of(path),)
    entries = []
    for name in types:
        speculation = replace(config.speculation, types=(name,), adaptive=False)
        source = config.source if networks_of([name]) else replace(config.source, draft_model=None, draft_hf_repo=None)
        run = run_config(settings, replace(config, source=source, speculation=speculation))
        entries.append(Entry(name, run, tuple(settings.drafting([name]))))
    return entries


def type_of(path: Path) -> str:
    """The type of drafter that a draft file is.

    Raises:
        UsageError: It is of no known kind.
    """
    from contextlib import closing

    from specli.drafters import DRAFTERS, detect_type
    from specli.gguf.file import GGUFFile

    with closing(GGUFFile.open(path)) as file:
        name = detect_type(file)
    if name is None:
        raise UsageError(f"{path}: no known kind of drafter", hint=f"name one with --spec-type: {', '.join(DRAFTERS)}")
    return name


def combination(alone: Sequence[Entry]) -> Entry | None:
    """All types together, as one run would have them; None if there is one type, or if their draft files differ."""
    from specli.study.compare import Entry

    drafts = {entry.config.draft.path: entry.config for entry in alone if entry.config.draft}
    if len(alone) < 2 or len(drafts) > 1:
        return None
    config = next(iter(drafts.values()), alone[0].config)
    types = tuple(entry.name for entry in alone)
    settings = tuple(item for entry in alone for item in entry.settings)
    return Entry("+".join(types), replace(config, speculation=replace(config.speculation, types=types)), settings)


def adaptive(config: CommandConfig, entries: Sequence[Entry]) -> Entry | None:
    """All types together with lengths and order chosen while running; None if that is off or their files differ."""
    from specli.study.compare import ADAPTIVE, Entry

    if not config.speculation.adaptive or not entries:
        return None
    whole = entries[0] if len(entries) == 1 else combination(entries)
    if whole is None:
        return None
    speculation = replace(whole.config.speculation, adaptive=True)
    return Entry(ADAPTIVE, replace(whole.config, speculation=speculation), whole.settings)


def study_prompts(config: CommandConfig) -> list[StudyPrompt]:
    """The prompts of `-p`, `-f` or `--prompts`, or the built-in set."""
    from specli.study.compare import StudyPrompt
    from specli.study.prompts import spread_over_categories

    text, path = prompt_text(config), config.prompt.file
    if text is not None and path is not None:
        raise UsageError("--prompt and --prompts exclude each other")
    if text is not None:
        prompts = [StudyPrompt("prompt", "own", text)]
    elif path is not None:
        prompts = [
            StudyPrompt(str(number if prompt.id is None else prompt.id), prompt.category, prompt.text, prompt.turns)
            for number, prompt in enumerate(read_prompt_file(path, has_turns=config.client.server is not None), 1)
        ]
    else:
        prompts = list(spread_over_categories())
    names = [prompt.id for prompt in prompts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: two prompts have the id {twice}")
    return prompts[: config.study.n_prompts or None]


def study_plan(run: Run, config: CommandConfig, on_progress: OnProgress, interrupt: InterruptFlag) -> Plan:
    """How the prompts are answered."""
    from specli.study.compare import Plan

    return Plan(
        request=request_config(config),
        repeats=config.study.repeat,
        warmup=config.study.warmup,
        applies_template=run.has_template if config.study.template is None else config.study.template,
        variables=template_variables(config),
        on_progress=on_progress,
        is_stopped=lambda: interrupt.is_set,
    )


@contextmanager
def study_progress(console: Console) -> Iterator[OnProgress]:
    """A progress bar on stderr while the block runs; nothing unless stderr is a terminal."""
    if not console.err.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.completed:.0f} {task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=RichConsole(file=console.err), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total or None, description=what)
