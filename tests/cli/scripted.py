"""An engine that repeats the last line of its prompt word by word; every second word comes from a drafter."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from specli.engine.config import RequestConfig, RunConfig
from specli.engine.sequence import TokenEvent
from specli.engine.session import Session
from specli.errors import IncompatibleError
from specli.sampling.settings import SamplingSettings

DRAFTER = "ngram-mod"
INTERRUPT = "INTERRUPT"
"""A word that stands for Ctrl-C while it is generated."""

TOO_LONG = "TOOLONG"
"""A word that no context has room for."""


class BytesTokenizer:
    """Token = byte; enough of a tokenizer for the commands."""

    def encode_chat(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return bytes(ids).decode(errors="replace")


class PlainTemplate:
    """`role: content` lines, and `bot:` at the end; a variable `think` opens a thought."""

    reasoning = None

    def render(
        self, messages: list[dict[str, Any]], *, add_generation_prompt: bool, variables: Mapping[str, Any]
    ) -> str:
        lines = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return lines + ("<think>\n" if variables.get("think") else "")


class Words:
    """One request: the words of a text as events."""

    def __init__(self, words: list[str]) -> None:
        self.text = ""
        self.stop = "interrupt"
        self._words = words
        self._events = self._run()

    def __iter__(self) -> Iterator[TokenEvent]:
        return self

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def close(self) -> None:
        self._events.close()

    def _run(self) -> Iterator[TokenEvent]:
        for i, word in enumerate(self._words):
            if word.strip() == INTERRUPT:
                os.kill(os.getpid(), signal.SIGINT)
            self.text += word
            is_last = i == len(self._words) - 1
            self.stop = "eos" if is_last else "interrupt"
            yield TokenEvent(i, word, DRAFTER if i % 2 else None, i, "eos" if is_last else None)


@dataclass
class ScriptedResult:
    words: Words
    prompt: str
    sampling: SamplingSettings = field(default_factory=lambda: SamplingSettings(top_p=0.75))

    def lines(self, *, details: bool = False) -> list[str]:
        return ["draft acceptance = 0.50000 (    1 accepted /     2 generated), mean len =  1.50"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "specli.run/1",
            "prompt": {"text": self.prompt},
            "text": self.words.text,
            "stop": self.words.stop,
            "timings": {"prompt_per_second": 100.0, "predicted_per_second": 50.0},
        }


@dataclass
class ScriptedRun:
    opener: ScriptedOpener
    config: RunConfig
    requests: list[RequestConfig]
    changes: list[RunConfig]
    tokenizer: BytesTokenizer = field(default_factory=BytesTokenizer)
    has_template: bool = True
    prompt: str = ""

    @property
    def drafter_names(self) -> tuple[str, ...]:
        return self.config.speculation.types

    def change_drafters(self, config: RunConfig) -> None:
        self.changes.append(config)
        if "draft-mtp" in config.speculation.types:
            raise IncompatibleError("d.gguf: does not fit")
        self.config = config

    def start_lines(self) -> list[str]:
        return [f"drafting: {','.join(self.config.speculation.types) or 'off'}"]

    files = ()

    def renew(self) -> None:
        self.opener.n_renewed += 1

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def generate(self, prompt: Sequence[int], request: RequestConfig, *, text: str | None = None) -> Words:
        self.requests.append(request)
        self.prompt = bytes(prompt).decode()
        if TOO_LONG in self.prompt:
            raise IncompatibleError("the prompt is too long")
        last = self.prompt.removesuffix("<think>\n").rstrip("\n").split("\n")[-1].removeprefix("user: ")
        words = [f"{word} " for word in last.split(" ")]
        self.words = Words(words[: request.n_predict] if request.n_predict >= 0 else words)
        return self.words

    def session(self, *, system: str | None = None, variables: Mapping[str, Any] | None = None) -> Session:
        return Session(self.generate, self.tokenizer, PlainTemplate(), system, variables or {})  # type: ignore[arg-type]

    def result(self) -> ScriptedResult:
        return ScriptedResult(self.words, self.prompt)


@dataclass
class ScriptedOpener:
    """Stands in for `specli.cli.opener.open_run` and keeps what it was given.

    Attributes:
        configs: Settings of every engine opened.
        changes: Settings of drafters put in place of others.
        requests: Requests of all of them.
        n_open: Engines open now.
        n_renewed: How often one was told to forget earlier requests.
    """

    configs: list[RunConfig] = field(default_factory=list)
    requests: list[RequestConfig] = field(default_factory=list)
    changes: list[RunConfig] = field(default_factory=list)
    n_open: int = 0
    n_renewed: int = 0

    @contextmanager
    def __call__(self, config: RunConfig, report: Callable[[str], None]) -> Iterator[ScriptedRun]:
        self.configs.append(config)
        self.n_open += 1
        report("loading")
        try:
            yield ScriptedRun(self, config, self.requests, self.changes)
        finally:
            self.n_open -= 1
