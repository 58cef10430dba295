"""Prompts of a run: one from the command line, or many from a JSON Lines file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specli.cli.options.request import CommandConfig
from specli.cli.prepare import prompt_text
from specli.errors import FormatError, UsageError
from specli.files import read_text


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        text: What the model is given.
        id: Its name in the file, if it has one.
        category: What kind of text it asks for; `own` if the file does not say.
    """

    text: str
    id: Any = None
    category: str = "own"


def read_prompts(config: CommandConfig) -> list[Prompt]:
    """The prompts of `-p`, `-f` or `--prompts`.

    Raises:
        UsageError: None or two of them were given.
        FormatError: The file is not JSON Lines of prompts.
    """
    text, path = prompt_text(config), config.prompt.file
    if text is not None and path is not None:
        raise UsageError("--prompt and --prompts exclude each other")
    if path is not None:
        return read_prompt_file(path)
    if text is None:
        raise UsageError("no prompt was given", hint="use -p TEXT, -f FILE or --prompts FILE.jsonl")
    return [Prompt(text)]


def read_prompt_file(path: Path) -> list[Prompt]:
    """Prompts of a JSON Lines file: each line a string, or an object with `prompt`, optionally `id` and `category`."""
    lines = read_text(path, encoding="utf-8-sig").split("\n")  # other line ends may stand inside JSON strings
    prompts = [parse_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise FormatError(f"{path}: no prompts in it")
    return prompts


def parse_prompt(path: Path, number: int, line: str) -> Prompt:
    """One line of a prompt file."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: line {number}: not valid JSON: {error}") from None
    record = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise FormatError(f"{path}: line {number}: expected a string or an object with a string prompt")
    if isinstance(record.get("id"), dict | list):  # it is written with the result, however deep it is
        raise FormatError(f"{path}: line {number}: id is not a text or a number")
    return Prompt(record["prompt"], record.get("id"), str(record.get("category") or "own"))
