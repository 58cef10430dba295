"""Lazy grammars: the text is free until a word or token triggers the grammar, which then holds it to its end.

As llama.cpp (src/llama-grammar.cpp, b11434), with one difference: a token that would complete a trigger and go on with
what the grammar forbids is forbidden itself. llama.cpp samples it and fails.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.errors import SpecliError, UsageError
from specli.sampling.grammar import Grammar, Words
from specli.sampling.settings import SamplingConfig, Triggers
from specli.sampling.vocabulary import SamplerVocabulary


class _Free(NamedTuple):
    """Where a free text stands.

    Attributes:
        text: Its end, which may be the beginning of what is looked for.
        tokens: The last tokens, which cover that.
        is_thought: It is within a thought.
        is_beginning: Nothing but white space and perhaps the beginning of a thought has come.
    """

    text: bytes = b""
    tokens: tuple[int, ...] = ()
    is_thought: bool = False
    is_beginning: bool = False


class LazyGrammar(Grammar):
    """Where a text stands that a grammar constrains from a trigger on.

    Args:
        grammar: At its beginning.
        triggers: What it waits for.
        words: The vocabulary.

    Raises:
        UsageError: The grammar does not begin with one of the words.
    """

    def __init__(self, grammar: Grammar, triggers: Triggers, words: Words) -> None:
        self._grammar = grammar
        self._words = words
        self._triggers = [word.encode() for word in triggers.words]
        self._tokens = frozenset(triggers.tokens)
        self._start, self._end = (text.encode() for text in triggers.thought or ("", ""))
        self._free: _Free | None = _Free(
            is_thought=triggers.is_thinking and bool(self._end),
            is_beginning=bool(self._start) and not triggers.is_thinking,
        )
        self._masks: dict[_Free, npt.NDArray[np.bool_]] = {}
        for word in triggers.words:
            tokens = words.spelled(word.encode())
            if not tokens or self._begun(tokens) is None:
                raise UsageError(f"the grammar does not begin with its trigger {word!r}")

    @classmethod
    def from_config(cls, config: SamplingConfig, vocabulary: SamplerVocabulary, n_vocab: int) -> Grammar | None:
        """The constraint of the settings, lazy or not, or None.

        Raises:
            UsageError: The grammar, the schema or a trigger is wrong.
        """
        grammar = Grammar.from_config(config, vocabulary, n_vocab)
        if grammar is None or config.triggers is None:
            return grammar
        return cls(grammar, config.triggers, Words.of(vocabulary, n_vocab))

    def copy(self) -> Grammar:
        """One that stands at the same place."""
        made = copy(self)
        made._grammar = self._grammar.copy()
        return made

    def allows(self, token: int) -> bool:
        """The token may come next."""
        if self._free is None:
            return self._grammar.allows(token)
        _, constrained = self._after(self._free, token)
        return constrained is None or self._begun(constrained) is not None

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which tokens may come next, `[V]`."""
        if self._free is None:
            return self._grammar.allowed()
        if self._free not in self._masks:
            mask = np.ones(len(self._words.tokens), np.bool_)
            for token in self._completing():
                mask[token] = self.allows(token)
            self._masks[self._free] = mask
        return self._masks[self._free]

    def accept(self, token: int) -> None:
        """The token comes next.

        Raises:
            SpecliError: It may not, or the grammar became too complex.
        """
        if self._free is None:
            self._grammar.accept(token)
            return
        free, constrained = self._after(self._free, token)
        if constrained is None:
            self._free = free
            return
        begun = self._begun(constrained)
        if begun is None:
            raise SpecliError(f"the grammar rejects token {token}")
        self._grammar, self._free = begun, None

    def _completing(self) -> list[int]:
        """Tokens that may complete a trigger."""
        lasts = {word[-1:] for word in self._triggers}
        return [
            token
            for token, piece in enumerate(self._words.tokens)
            if token in self._tokens or any(last in piece for last in lasts)
        ]

    def _begun(self, tokens: list[int]) -> Grammar | None:
        """The grammar after its first tokens; None: it rejects them."""
        grammar = self._grammar.copy()
        for token in tokens:
            if not grammar.allows(token):
                return None
            grammar.accept(token)
        return grammar

    def _after(self, free: _Free, token: int) -> tuple[_Free, list[int] | None]:
        """The free text with one more token, and the constrained tokens if it triggers the grammar."""
        text, tokens = free.text + self._words.text(token), (*free.tokens, token)
        is_thought = free.is_thought
        if free.is_beginning:
            begun = text.lstrip()
            if len(begun) < len(self._start) and self._start.startswith(begun):
                return _Free(begun, self._covering(tokens, begun), is_beginning=True), None
            if begun.startswith(self._start):
                is_thought, text = True, begun[len(self._start) :]
        if is_thought:
            at = text.find(self._end)
            if at < 0:
                text = _beginning_of(text, [self._end])
                return _Free(text, self._covering(tokens, text), is_thought=True), None
            text = text[at + len(self._end) :]
        if token in self._tokens:
            return _Free(), [token]
        for word in self._triggers:
            at = text.find(word)
            if at >= 0:
                return _Free(), self._tokens_of(tokens, text[at:])
        text = _beginning_of(text, self._triggers)
        return _Free(text, self._covering(tokens, text)), None

    def _covering(self, tokens: tuple[int, ...], text: bytes) -> tuple[int, ...]:
        """The last of the tokens, as many as the text's end needs."""
        n, length = 0, 0
        while length < len(text):
            n += 1
            length += len(self._words.text(tokens[-n]))
        return tokens[len(tokens) - n :]

    def _tokens_of(self, tokens: tuple[int, ...], text: bytes) -> list[int]:
        """The tokens of the text's end; where one begins before the text, others that spell the rest of it."""
        whole = self._covering(tokens, text)
        length = sum(len(self._words.text(token)) for token in whole)
        if length == len(text):
            return [*whole]
        rest = text[: len(text) - length + len(self._words.text(whole[0]))]
        spelled = self._words.spelled(rest)
        if spelled is None:
            raise SpecliError(f"no tokens spell the trigger's {rest.decode(errors='replace')!r}")
        return [*spelled, *whole[1:]]


def _beginning_of(text: bytes, words: list[bytes]) -> bytes:
    """The longest end of the text that one of the words begins with, though not a whole one."""
    longest = max(map(len, words), default=1) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    return next((text[-n:] for n in sizes if any(word.startswith(text[-n:]) for word in words)), b"")
