"""The option table: every option of every command, one row each.

Parsing, environment, config files, help, man pages and completion all read this table and nothing else.
"""

from __future__ import annotations

from functools import cache

from specli.cli.options import compute, conversion, drafting, load, model, output, prompt, refused, sampling, serving
from specli.cli.options.option import Option

OPTIONS: tuple[Option, ...] = (
    *prompt.OPTIONS,
    *model.OPTIONS,
    *drafting.OPTIONS,
    *sampling.OPTIONS,
    *compute.OPTIONS,
    *output.OPTIONS,
    *load.OPTIONS,
    *conversion.OPTIONS,
    *serving.OPTIONS,
    *refused.OPTIONS,
)

PANELS = (
    "Prompt",
    "Many prompts",
    "Conversation",
    "Conversion",
    "Server",
    "Overrides",
    "Study",
    "Many requests at once",
    "Target model",
    "Drafting",
    "Draft model",
    "n-gram drafters",
    "Sampling",
    "Context and memory",
    "Device and threads",
    "Chat template",
    "Output",
    "Messages",
    "Without effect",
    "Not available",
    "Removed by llama.cpp",
)
"""Option groups in the order of help and man pages."""


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """The rows of one command in help order."""
    rows = (option for option in OPTIONS if command in option.commands)
    return tuple(sorted(rows, key=lambda option: PANELS.index(option.panel)))


@cache
def spellings_of(command: str) -> dict[str, Option]:
    """Every spelling a command knows, with its row."""
    return {spelling: option for option in options_of(command) for spelling in option.spellings}
