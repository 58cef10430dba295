"""From the settings of a command to the records the engine takes; the checks that span several options."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TypeVar

from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings
from specli.cli.sources import resolve_draft, resolve_target
from specli.drafters.settings import AUTO_LENGTH
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.errors import UsageError
from specli.sampling.settings import MODEL_CHOICES, SamplingConfig

Value = TypeVar("Value")

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}

INHERITED = (
    "device", "n_gpu_layers", "threads.n_threads", "threads.n_threads_batch", "threads.cpu_mask", "threads.strict",
    "threads.poll",
)  # fmt: skip
"""Draft settings that follow the target's unless set. Each on its own: llama.cpp drops `-Cd` when `-td` is missing."""


def unescape(text: str) -> str:
    r"""Replaces `\n \r \t \' \" \\ \xHH`; other backslashes stay (llama.cpp `string_process_escapes`).

    `\xHH` is one byte; bytes of one character may follow each other, as in `\xc3\xa9` for é.
    """

    def replace_one(match: re.Match[bytes]) -> bytes:
        body = match[1].decode()
        return bytes([int(body[1:], 16)]) if body[0] == "x" else ESCAPES[body].encode()

    raw = re.sub(rb"\\(x[0-9a-fA-F]{1,2}|[nrt'\"\\])", replace_one, text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")


def run_config(settings: Settings, config: CommandConfig) -> RunConfig:
    """What the engine is made of.

    Raises:
        UsageError: No model, or options that contradict each other.
    """
    check(config)
    target = placed(replace(config.target, path=resolve_target(config.source)))
    draft = resolve_draft(config.source, config.speculation.types)
    return RunConfig(
        target=target,
        draft=None if draft is None else placed(replace(draft_load(settings, config), path=draft)),
        speculation=config.speculation,
        n_ctx=config.n_ctx,
        n_batch=min(config.n_batch, config.n_ubatch),
        chat_template=config.chat.template,
    )


def placed(load: ModelLoadConfig) -> ModelLoadConfig:
    """`-ngl 0` moves a model whose device is automatic to the CPU."""
    return replace(load, device="cpu") if load.n_gpu_layers == 0 and load.device == "auto" else load


def check(config: CommandConfig) -> None:
    """Refuses options that contradict each other, before any file is opened.

    Raises:
        UsageError: They do.
    """
    draft, synth = config.speculation.draft, config.speculation.synth
    if draft.n_min > draft.n_max != AUTO_LENGTH:
        raise UsageError(
            f"--spec-draft-n-min {draft.n_min} is larger than --spec-draft-n-max {draft.n_max}",
            hint="no draft would ever be long enough",
        )
    if synth.length is not None and synth.rates:
        raise UsageError("--spec-synth-len and --spec-synth-rates exclude each other")


def draft_load(settings: Settings, config: CommandConfig) -> ModelLoadConfig:
    """How the draft model is loaded: its own settings, and the target's where it has none."""
    draft, target = config.draft, config.target
    own = {path for path in INHERITED if f"draft.{path}" in settings.values}
    threads = {name: getattr(target.threads, name) for name in thread_fields(own)}
    return replace(
        draft,
        device=draft.device if "device" in own else target.device,
        n_gpu_layers=draft.n_gpu_layers if "n_gpu_layers" in own else target.n_gpu_layers,
        kernels=target.kernels,
        exact=target.exact,
        metadata=target.metadata,
        threads=replace(draft.threads, **threads),
    )


def thread_fields(own: set[str]) -> list[str]:
    """Thread settings that the draft model takes from the target."""
    return [path.removeprefix("threads.") for path in INHERITED if path.startswith("threads.") and path not in own]


def request_config(config: CommandConfig) -> RequestConfig:
    """One generation, escapes processed; what was not set of the sampling is left to the model."""
    request = config.request
    open_fields = [name for name in MODEL_CHOICES if name not in config.chosen]
    asked = {item.name: getattr(request.sampling, item.name) for item in fields(SamplingConfig)}
    sampling, stop = SamplingConfig(**{**asked, **dict.fromkeys(open_fields)}), request.stop
    if config.prompt.escape:
        breakers = tuple(map(unescape, sampling.dry_sequence_breakers))
        sampling, stop = replace(sampling, dry_sequence_breakers=breakers), tuple(map(unescape, stop))
    return replace(request, sampling=sampling, stop=stop, n_predict=max(request.n_predict, -1))


def prompt_text(config: CommandConfig) -> str | None:
    """The prompt of `-p` or `-f`, escapes processed; None without one."""
    text = config.prompt.text
    return unescape(text) if text is not None and config.prompt.escape else text
