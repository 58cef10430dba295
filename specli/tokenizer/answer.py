"""An answer in its parts: thoughts, content and tool calls, while it streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specli.tokenizer.calls import CallForm, CallReader, Piece, Style
from specli.tokenizer.reasoning import Reasoning
from specli.tokenizer.thoughts import ThoughtSplitter, held_back


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


class _Unwrapper:
    """Takes away what stands around an answer that comes in pieces.

    Args:
        marks: What begins it, and then one after the other what ends it; an answer without the first has no others.
    """

    def __init__(self, marks: Sequence[str]) -> None:
        self._start, *self._ends = marks
        self._is_begun = False
        self._text = ""

    def push(self, text: str) -> str:
        """Takes a text and gives what is certain by now."""
        self._text += text
        if not self._is_begun:
            begun = self._text.lstrip()
            if len(begun) < len(self._start) and self._start.startswith(begun):
                return ""
            self._is_begun = True
            if begun.startswith(self._start):
                self._text = begun[len(self._start) :]
            else:
                self._ends = []
        given = ""
        while self._ends and self._ends[0] in self._text:
            before, _, self._text = self._text.partition(self._ends.pop(0))
            given += before
        n_ready = len(self._text) - (held_back(self._text, self._ends[:1]) if self._ends else 0)
        given += self._text[:n_ready]
        self._text = self._text[n_ready:]
        return given

    def flush(self) -> str:
        """Gives what was held back."""
        return self._text


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
        marks = form.reasoning.answer if form.reasoning else ()
        self._unwrapper = _Unwrapper(marks) if marks else None
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
        if self._unwrapper is not None:
            yield from self._tell(self._unwrapper.flush())
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
        yield from self._tell(text if self._unwrapper is None else self._unwrapper.push(text))

    def _tell(self, text: str) -> Iterator[Piece]:
        if self._splitter.has_thought and not self._has_content:
            text = text.lstrip()
        if not text:
            return
        self._has_content = True
        if self._calls is None:
            yield Piece(text)
        else:
            yield from self._calls.push(text)
