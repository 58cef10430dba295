"""Thoughts in an answer, told apart from its text while it streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specli.tokenizer.reasoning import Reasoning

_BODY = "<|message|>"  # ends a header of gpt-oss
_HEADER_STARTS = ("<|channel|>", "<|start|>", "<|end|>", "<|call|>", " to=", _BODY)
_BODY_ENDS = ("<|end|>", "<|start|>", "<|channel|>", "<|call|>")
_FUNCTION = re.compile(r"to=functions\.([^\s<]+)")


def held_back(text: str, tags: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of one of the tags."""
    longest = max(map(len, tags)) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(tag.startswith(text[-n:]) for tag in tags)), 0)


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


class ThoughtSplitter:
    """Splits a stream into (text, is_thought) parts; tags are dropped, and what stands around the answer.

    As in llama.cpp (common/chat-auto-parser-generator.cpp, b11434) an answer has one thought, at its beginning: tags
    that come later are text. Messages of gpt-oss are told apart wherever they stand.

    Args:
        reasoning: How thoughts are written.
        is_thinking: The prompt ended inside a thought, as some templates do.

    Attributes:
        function: The function that the message under way calls (gpt-oss); "" outside calls.
        n_messages: Messages begun so far (gpt-oss).
        has_thought: A thought has begun, be it an empty one.

    Worked example: the pieces `<thi`, `nk>b</think>`, `c<think>` give `("b", True)`, `("c", False)`,
    `("<think>", False)`.
    """

    def __init__(self, reasoning: Reasoning, *, is_thinking: bool = False) -> None:
        self.function = ""
        self.n_messages = 0
        self.has_thought = is_thinking
        self._reasoning = reasoning
        self._is_thinking = is_thinking
        self._is_open = not is_thinking  # a thought may still begin
        self._in_header = reasoning.has_channels and not is_thinking
        self._text = ""
        self._unwrapper = _Unwrapper(reasoning.answer) if reasoning.answer else None

    def push(self, piece: str) -> Iterator[tuple[str, bool]]:
        """Takes a piece and gives what is certain by now."""
        self._text += piece
        yield from self._unwrapped(self._split())

    def _unwrapped(self, parts: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
        for text, is_thought in parts:
            given = text if is_thought or self._unwrapper is None else self._unwrapper.push(text)
            if given:
                yield given, is_thought

    def _split(self) -> Iterator[tuple[str, bool]]:
        if self._reasoning.has_channels:
            yield from self._split_channels()
            return
        if self._is_open:
            begun = self._text.lstrip()
            start = self._reasoning.start
            if not start or not start.startswith(begun[: len(start)]):
                self._is_open = False
            elif begun.startswith(start):
                self._text, self._is_open, self._is_thinking = begun[len(start) :], False, True
                self.has_thought = True
            else:
                return
        if self._is_thinking:
            thought, found, after = self._text.partition(self._reasoning.end)
            if not found:
                yield from self._give(len(self._text) - held_back(self._text, [self._reasoning.end]))
                return
            if thought:
                yield thought, True
            self._text, self._is_thinking = after, False
        yield from self._give(len(self._text))

    def _split_channels(self) -> Iterator[tuple[str, bool]]:
        """Messages of gpt-oss: a header that names the channel, the text, and an end or the next header."""
        while self._text:
            if self._in_header:
                header, found, after = self._text.partition(_BODY)
                if not self._text.startswith(_HEADER_STARTS):
                    if any(start.startswith(self._text) for start in _HEADER_STARTS):
                        return
                    self._in_header = self._is_thinking = False  # a model that does without headers
                elif found:
                    self._text, self._in_header = after, False
                    self._is_thinking = "final" not in header and "analysis" in header
                    called = _FUNCTION.search(header)
                    self.function = called[1] if called else ""
                    self.n_messages += 1
                else:
                    return
                continue
            end = min((at for tag in _BODY_ENDS if (at := self._text.find(tag)) >= 0), default=-1)
            yield from self._give(end if end >= 0 else len(self._text) - held_back(self._text, _BODY_ENDS))
            if end < 0:
                return
            self._in_header = True

    def _give(self, length: int) -> Iterator[tuple[str, bool]]:
        ready, self._text = self._text[:length], self._text[length:]
        if ready:
            yield ready, self._is_thinking

    def flush(self) -> Iterator[tuple[str, bool]]:
        """Gives what was held back, without the header of a message that did not begin."""
        if not (self._in_header and self._text.startswith(_HEADER_STARTS)):
            yield from self._unwrapped(self._give(len(self._text)))
        self._text = ""
        if self._unwrapper is not None and (rest := self._unwrapper.flush()):
            yield rest, False


def split_thoughts(text: str, reasoning: Reasoning, *, is_thinking: bool = False) -> tuple[str, str]:
    """The answer without its thoughts, and the thoughts, both without white space around them."""
    splitter = ThoughtSplitter(reasoning, is_thinking=is_thinking)
    parts = [*splitter.push(text), *splitter.flush()]
    answer = "".join(part for part, is_thought in parts if not is_thought)
    thought = "".join(part for part, is_thought in parts if is_thought)
    return (answer.strip() if thought else answer), thought.strip()
