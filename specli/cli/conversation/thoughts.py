"""Thoughts in an answer: `<think> … </think>` told apart from the text while it streams."""

from __future__ import annotations

from collections.abc import Iterator

OPEN, CLOSE = "<think>", "</think>"


def held_back(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-n:])), 0)


class ThoughtSplitter:
    """Splits a stream into (text, is_thought) parts; tags are dropped.

    Args:
        is_thinking: The prompt ended inside a thought, as some templates do.

    Worked example: the pieces `a<thi`, `nk>b</think>`, `c` give `("a", False)`, `("b", True)`, `("c", False)`.
    """

    def __init__(self, *, is_thinking: bool = False) -> None:
        self._is_thinking = is_thinking
        self._text = ""

    def push(self, piece: str) -> Iterator[tuple[str, bool]]:
        """Takes a piece and gives what is certain by now."""
        self._text += piece
        while True:
            tag = CLOSE if self._is_thinking else OPEN
            before, found, after = self._text.partition(tag)
            if not found:
                keep = len(self._text) - held_back(self._text, tag)
                ready, self._text = self._text[:keep], self._text[keep:]
                if ready:
                    yield ready, self._is_thinking
                return
            if before:
                yield before, self._is_thinking
            self._text, self._is_thinking = after, not self._is_thinking

    def flush(self) -> Iterator[tuple[str, bool]]:
        """Gives what was held back."""
        if self._text:
            yield self._text, self._is_thinking
        self._text = ""


def split_thoughts(text: str, *, is_thinking: bool = False) -> tuple[str, str]:
    """The answer without its thoughts, and the thoughts, both without white space around them."""
    splitter = ThoughtSplitter(is_thinking=is_thinking)
    parts = [*splitter.push(text), *splitter.flush()]
    answer = "".join(part for part, is_thought in parts if not is_thought)
    thought = "".join(part for part, is_thought in parts if is_thought)
    return (answer.strip() if thought else answer), thought.strip()
