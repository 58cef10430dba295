"""`specli stats -np` and `specli stats --server`: many requests at once, in one engine or at a server."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from specli.cli import opener
from specli.cli.console import Console
from specli.cli.conversation.repl import template_variables
from specli.cli.interrupt import InterruptFlag
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import SAMPLING, Settings
from specli.cli.prepare import request_config
from specli.cli.record import dump, write_lines
from specli.cli.studies.report import rich_console
from specli.cli.studies.study import (
    adaptive,
    base_config,
    combination,
    draft_entries,
    study_plan,
    study_progress,
    study_prompts,
)
from specli.engine.config import shared_context
from specli.errors import ResourceError, UsageError
from specli.files import check_writable

if TYPE_CHECKING:
    from specli.study.load import LoadStudy

SENT = ("temperature", "seed", "top_k", "top_p", "min_p")
"""Settings of sampling that a request to a server can carry."""

AT_SERVER = ("client.", "study.", "prompt.", "output.", "log.", "chat.", "request.n_predict")
"""Fields, or beginnings of fields, that have a meaning at a server."""


def measure_parallel(console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag) -> None:
    """Compares drafters at several numbers of requests at once, and reports."""
    from specli.study.compare import Entry, group_by_draft_file
    from specli.study.comparison import PLAIN
    from specli.study.concurrency import measure_levels

    levels, plain = config.study.levels, base_config(settings, config)
    n_slots = max(levels)
    n_ctx = plain.n_ctx if config.study.is_unified else shared_context(plain.n_ctx, n_slots)
    plain = replace(plain, n_slots=n_slots, n_ctx=n_ctx)
    alone = draft_entries(settings, config)
    entries = [Entry(PLAIN, plain), *alone, *filter(None, (combination(alone), adaptive(config, alone)))]
    prompts = study_prompts(config)
    with ExitStack() as stack:
        run = stack.enter_context(opener.open_target(plain, console.trace))
        run.loader.fit([entry.config for entry in group] for group in group_by_draft_file(entries))
        console.info(run.loader.line())
        with study_progress(console) as on_progress:
            study = measure_levels(run, entries, prompts, levels, study_plan(run, config, on_progress, interrupt))
    report_load(console, config, study)


def measure_at_server(console: Console, settings: Settings, config: CommandConfig, interrupt: InterruptFlag) -> None:
    """Puts load on a server, and reports.

    Raises:
        ResourceError: httpx is missing, the server cannot be reached, or it answers nothing.
    """
    if find_spec("httpx") is None:
        raise ResourceError("--server needs httpx, which is not installed", hint="pip install 'specli[client]'")
    from specli.study.client import ClientPlan, Load, ServerConfig, measure_server

    client = config.client
    server = ServerConfig(
        url=client.server or "",
        api_key=client.api_key,
        model=client.model,
        timeout=client.timeout,
        streams=client.streams,
        chats=config.study.template is not False,
        fields=request_fields(config),
    )
    loads = [Load(concurrency=n) for n in client.concurrency] if not client.rates else []
    loads += [Load(rate=rate) for rate in client.rates]
    with study_progress(console) as on_progress:
        plan = ClientPlan(
            loads, config.study.repeat, request_config(config).sampling.seed, on_progress, lambda: interrupt.is_set
        )
        study = measure_server(server, study_prompts(config), plan)
    if client.speed_bench is not None and study.levels:
        from specli.study.speed_bench import speed_bench_record

        about = {
            "url": client.server,
            "model": client.model,
            "bench": "own" if config.prompt.file is None else config.prompt.file.name,
            "category": "all",
            "osl": config.request.n_predict,
            "concurrency": client.concurrency[0] if not client.rates else None,
            "extra_inputs": request_fields(config),
        }
        record = speed_bench_record(study.levels[0], about)
        write_lines(client.speed_bench, [json.dumps(record, indent=2, sort_keys=True), "\n"])
    report_load(console, config, study)
    failed = next((level for level in study.levels if level.errors and not level.done), None)
    if failed is not None:
        why = next(iter(failed.errors))
        raise ResourceError(f"{client.server}: not one of {len(failed.replies)} requests was answered: {why}")


def request_fields(config: CommandConfig) -> dict[str, Any]:
    """Members of every request to a server; those of `--extra-inputs` count before the others."""
    request = request_config(config)
    fields: dict[str, Any] = {"max_tokens": request.n_predict} if request.n_predict >= 0 else {}
    fields |= {name: getattr(request.sampling, name) for name in SENT if name in config.chosen}
    variables = template_variables(config)
    if variables:
        fields["chat_template_kwargs"] = variables
    return {**fields, **config.client.extra}


def check_load(settings: Settings, config: CommandConfig) -> None:
    """Refuses what contradicts itself, before anything is opened.

    Raises:
        UsageError: It does.
    """
    client, study = config.client, config.study
    modes = [
        ("--server", client.server is not None),
        ("--parallel", bool(study.levels)),
        ("--replay", study.replay is not None),
        ("--tune", study.tune),
        ("show", bool(settings.operands)),
    ]
    given = [name for name, is_given in modes if is_given]
    if len(given) > 1 and given[0] in ("--server", "--parallel"):
        raise UsageError(f"{given[1]} and {given[0]} exclude each other")
    if client.server is None:
        return
    for path, setting in settings.values.items():
        name = path.removeprefix(SAMPLING) if path.startswith(SAMPLING) else None
        if setting.origin.source != "flag" or (name in SENT if name else path.startswith(AT_SERVER)):
            continue
        hint = "--extra-inputs puts anything into the requests" if name else "the server has settings of its own"
        raise UsageError(f"{setting.origin.name} does not go with --server", hint=hint)
    n_levels = len(client.rates or client.concurrency)
    if client.speed_bench is not None:
        if n_levels > 1:
            raise UsageError(f"--speed-bench-json takes one level, there are {n_levels}")
        check_writable(client.speed_bench)


def report_load(console: Console, config: CommandConfig, study: LoadStudy) -> None:
    """Writes what was asked for: files, then JSON or the report."""
    from specli.cli.studies.load_view import csv_text, show_load

    output = config.output
    if output.save:
        write_lines(output.save, [dump(study.to_dict())])
    if output.csv:
        write_lines(output.csv, [csv_text(study)])
    if output.plot:
        from specli.cli.studies.plot import plot_load

        plot_load(study, output.plot)
    if output.json:
        console.write(dump(study.to_dict()))
        return
    show_load(rich_console(console), study)
