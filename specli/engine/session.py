"""A conversation: messages, the model's chat template, and cache reuse between turns.

Every turn renders the whole conversation; the engine keeps the longest common token prefix of its cache, so only new
tokens are evaluated (docs/tokenizers.md §8.5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specli.engine.config import RequestConfig
from specli.engine.loop import Generation
from specli.engine.sequence import TokenEvent
from specli.errors import FormatError
from specli.files import read_text, write_file
from specli.tokenizer import ChatTemplate, Tokenizer

SCHEMA = "specli.chat/1"


@dataclass
class Session:
    """A conversation.

    Attributes:
        generate: Starts a request (`Run.generate`).
        tokenizer: The target's.
        template: Turns messages into text.
        system: System prompt, or None; no prompt is ever added on its own.
        variables: Extra template variables (`--chat-template-kwargs`, `enable_thinking`).
        messages: `{"role", "content"}` records, system message excluded.
        last: The generation of the latest turn, for its statistics.
        rendered: The prompt of the latest turn as text.
    """

    generate: Callable[..., Generation]
    tokenizer: Tokenizer
    template: ChatTemplate
    system: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: Generation | None = None
    rendered: str = ""

    def render(self, messages: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The conversation, or other messages, as the template writes it, ready for the assistant's answer."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        wanted = self.messages if messages is None else messages
        return self.template.render([*head, *map(dict, wanted)], add_generation_prompt=True, variables=self.variables)

    def ask(self, content: str, request: RequestConfig) -> Iterator[TokenEvent]:
        """Adds a user message and streams the answer; also a cut-short answer joins the conversation.

        Raises:
            SpecliError: There is no answer, for instance because the context is full; the conversation stays as it was.
        """
        yield from self._answer([*self.messages, {"role": "user", "content": content}], request)

    def regenerate(self, request: RequestConfig) -> Iterator[TokenEvent]:
        """Drops the last answer and streams a new one.

        Raises:
            ValueError: There is no answer yet.
            SpecliError: As `ask`.
        """
        if len(self.messages) < 2:
            raise ValueError("No message to regenerate.")
        yield from self._answer(self.messages[:-1], request)

    def clear(self) -> None:
        """Back to the system prompt."""
        self.messages.clear()

    def save(self, path: Path) -> None:
        """Writes the conversation as JSON; an existing file is replaced only when writing succeeded.

        Raises:
            ResourceError: The file cannot be written.
        """
        document = {"schema": SCHEMA, "system": self.system, "messages": self.messages}
        write_file(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "surrogatepass"))

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one.

        Raises:
            FormatError: The file is not a saved conversation.
        """
        what = "cannot be read as a conversation"
        try:
            document = json.loads(read_text(path, what))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}: {what}: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise FormatError(f"{path}: not a conversation saved by specli (schema {SCHEMA})")
        system: Any = document.get("system")
        messages: Any = document.get("messages")
        texts = isinstance(messages, list) and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in messages
        )
        if not texts or not (system is None or isinstance(system, str)):
            raise FormatError(f"{path}: messages must be records with role and content")
        self.system, self.messages = system, messages

    def _answer(self, messages: list[dict[str, Any]], request: RequestConfig) -> Iterator[TokenEvent]:
        rendered = self.render(messages)
        reasoning = self.template.reasoning
        if reasoning:  # what tells thoughts from the answer has to be in its text
            request = replace(request, visible=reasoning.markers)
        self.last = self.generate(self.tokenizer.encode_chat(rendered), request, text=rendered)
        self.rendered, self.messages = rendered, messages
        try:
            yield from self.last
        finally:
            self.last.close()
            self.messages.append({"role": "assistant", "content": self.last.text})
