"""How an answer looks: accepted draft tokens coloured by drafter, thoughts dimmed between two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specli.cli.console import Console, paint, wants_color
from specli.cli.options.request import ChatConfig
from specli.tokenizer.reasoning import TAGS, Reasoning
from specli.tokenizer.thoughts import ThoughtSplitter

if TYPE_CHECKING:
    from specli.engine.sequence import TokenEvent

DIM = "2"
DRAFTER_COLORS = ("32", "36", "35", "34", "33", "92", "96", "95", "94", "93")
"""ANSI colours handed out to drafters in the order in which they first contribute."""


class AnswerView:
    """Writes one answer to stdout.

    Args:
        config: Chat settings.
        console: Where it goes.
    """

    def __init__(self, config: ChatConfig, console: Console) -> None:
        self._config = config
        self._console = console
        self._is_colored = not config.simple_io and wants_color(config.color, console.out)
        self._is_split = config.reasoning_format != "none" and not config.skip_parsing
        self._splitter = ThoughtSplitter(TAGS)
        self._is_thinking = False
        self._colors: dict[str, str] = {}
        self._wrote_newline = True

    def begin(self, reasoning: Reasoning, *, is_thinking: bool) -> None:
        """How the answer to come writes its thoughts, and whether the prompt ended inside one."""
        self._splitter = ThoughtSplitter(reasoning, is_thinking=is_thinking)

    def show(self, event: TokenEvent) -> None:
        """Writes the text of one token."""
        color = self._color(event.from_draft) if event.from_draft else ""
        parts = self._splitter.push(event.text) if self._is_split else [(event.text, False)]
        for text, is_thought in parts:
            self._write(text, color, is_thought=is_thought)

    def finish(self) -> None:
        """Writes what was held back, ends the line, and explains the colours used."""
        for text, is_thought in self._splitter.flush():
            self._write(text, "", is_thought=is_thought)
        self._frame(is_thought=False)
        self._console.write("\n" if self._wrote_newline else "\n\n" if self._console.out.isatty() else "\n")
        if self._colors:
            is_on = wants_color(self._config.color, self._console.err)
            legend = "  ".join(paint(name, color, is_on=is_on) for name, color in self._colors.items())
            self._console.info(f"drafted by: {legend}")

    def _write(self, text: str, color: str, *, is_thought: bool) -> None:
        if not text:
            return
        self._frame(is_thought=is_thought)
        code = ";".join(filter(None, (DIM if is_thought else "", color)))
        self._console.write(paint(text, code, is_on=self._is_colored and bool(code)))
        self._wrote_newline = text.endswith("\n")

    def _frame(self, *, is_thought: bool) -> None:
        """The lines around a thought."""
        if is_thought != self._is_thinking:
            line = "[Start thinking]\n" if is_thought else "\n[End thinking]\n\n"
            self._console.write(paint(line, DIM, is_on=self._is_colored))
            self._is_thinking = is_thought

    def _color(self, drafter: str) -> str:
        if not self._is_colored:
            return ""
        return self._colors.setdefault(drafter, DRAFTER_COLORS[len(self._colors) % len(DRAFTER_COLORS)])
