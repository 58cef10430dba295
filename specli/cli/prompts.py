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
        turns: Further messages of the user.
    """

    text: str
    id: Any = None
    category: str = "own"
    turns: tuple[str, ...] = ()


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


def read_prompt_file(path: Path, *, has_turns: bool = False) -> list[Prompt]:
    """Prompts of a JSON Lines file: each line a string, or an object with `prompt`, optionally `id` and `category`.

    Args:
        path: The file.
        has_turns: A line may be a conversation, as SPEED-Bench has them: `turns`, `question_id` and `category`.
    """
    lines = read_text(path, encoding="utf-8-sig").split("\n")  # other line ends may stand inside JSON strings
    prompts = [
        parse_prompt(path, number, line, has_turns=has_turns) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not prompts:
        raise FormatError(f"{path}: no prompts in it")
    return prompts


def parse_prompt(path: Path, number: int, line: str, *, has_turns: bool = False) -> Prompt:
    """One line of a prompt file."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: line {number}: not valid JSON: {error}") from None
    record = {"prompt": value} if isinstance(value, str) else value
    if isinstance(record, dict) and "turns" in record and "prompt" not in record:
        if not has_turns:
            raise FormatError(
                f"{path}: line {number}: a conversation of several turns",
                hint="specli stats --server holds conversations, prompts have a text in prompt",
            )
        return _conversation(path, number, record)
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise FormatError(f"{path}: line {number}: expected a string or an object with a string prompt")
    if isinstance(record.get("id"), dict | list):  # it is written with the result, however deep it is
        raise FormatError(f"{path}: line {number}: id is not a text or a number")
    return Prompt(record["prompt"], record.get("id"), str(record.get("category") or "own"))


def _conversation(path: Path, number: int, record: dict[str, Any]) -> Prompt:
    """A line with `turns`; blank ones are left out, as llama.cpp's client does."""
    turns = record["turns"]
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise FormatError(f"{path}: line {number}: turns is not a list of texts")
    spoken = [turn.strip() for turn in turns if turn.strip()]
    name = record.get("question_id", record.get("id"))
    if not spoken:
        raise FormatError(f"{path}: line {number}: there is no text in turns")
    if isinstance(name, dict | list):
        raise FormatError(f"{path}: line {number}: id is not a text or a number")
    return Prompt(spoken[0], name, str(record.get("category") or "own"), tuple(spoken[1:]))
