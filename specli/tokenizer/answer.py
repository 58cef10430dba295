"""An answer in its parts: thoughts, content and tool calls, while it streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specli.tokenizer.calls import CallForm, CallReader, Piece, Style
from specli.tokenizer.reasoning import Reasoning
from specli.tokenizer.thoughts import ThoughtSplitter


@dataclass(frozen=True)
class AnswerForm:
    """What is told apart in an answer.

    Attributes:
        reasoning: How thoughts are written; None: they stay in the content.
        is_thinking: The prompt ended inside a thought.
        calls: How tool calls are written; None: they stay in the content.
        tools: Name of a function → JSON schema of its arguments.
    """

    reasoning: Reasoning | None = None
    is_thinking: bool = False
    calls: CallForm | None = None
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class AnswerReader:
    """Reads the parts of an answer that comes in pieces.

    What all pieces say, joined, does not depend on how the text was cut. White space around a thought is dropped.

    Args:
        form: What is told apart.
    """

    def __init__(self, form: AnswerForm) -> None:
        reads = form.calls is not None and form.calls.style is not Style.CHANNELS
        self._tools = form.tools
        self._has_channels = form.calls is not None and form.calls.style is Style.CHANNELS
        self._splitter = ThoughtSplitter(form.reasoning or Reasoning(), is_thinking=form.is_thinking)
        self._calls = CallReader(form.calls, form.tools) if reads and form.calls else None
        self._space = ""  # within a thought, if it goes on
        self._has_thought = self._has_content = False
        self._n_calls = 0
        self._n_messages = 0

    def push(self, text: str) -> Iterator[Piece]:
        """Takes a text and gives what is certain by now."""
        for part, is_thought in self._splitter.push(text):
            yield from self._take(part, is_thought=is_thought)

    def flush(self) -> Iterator[Piece]:
        """Gives what was held back."""
        for part, is_thought in self._splitter.flush():
            yield from self._take(part, is_thought=is_thought)
        if self._calls is not None:
            yield from self._calls.flush()

    def _take(self, text: str, *, is_thought: bool) -> Iterator[Piece]:
        if self._has_channels and self._splitter.function in self._tools:
            if self._n_messages != self._splitter.n_messages:
                self._n_messages = self._splitter.n_messages
                self._n_calls += 1
                yield Piece(text, self._n_calls - 1, self._splitter.function)
            else:
                yield Piece(text, self._n_calls - 1)
            return
        if is_thought:
            text = self._space + text if self._has_thought else text.lstrip()
            self._space = text[len(text.rstrip()) :]
            text = text.rstrip()
            if text:
                self._has_thought = True
                yield Piece(text, is_thought=True)
            else:
                self._space = self._space if self._has_thought else ""
            return
        yield from self._content(text)

    def _content(self, text: str) -> Iterator[Piece]:
        if self._splitter.has_thought and not self._has_content:
            text = text.lstrip()
        if not text:
            return
        self._has_content = True
        if self._calls is None:
            yield Piece(text)
        else:
            yield from self._calls.push(text)
