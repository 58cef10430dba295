"""Which texts a grammar or schema allows, found out byte by byte."""

from __future__ import annotations

from collections.abc import Iterable

from specli.sampling.grammar import Grammar
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

_VOCABULARY = ByteVocabulary()
_END = 256


def opened(*, grammar: str | None = None, json_schema: str | None = None) -> Grammar:
    """The constraint at its start."""
    config = SamplingConfig(grammar=grammar, json_schema=json_schema)
    made = Grammar.from_config(config, _VOCABULARY, 258)
    assert made is not None
    return made


def whole_texts(texts: Iterable[str], constraint: Grammar) -> list[str]:
    """The texts that may end where they do, out of those given; texts that begin alike share the work."""
    states: dict[str, Grammar | None] = {"": constraint}

    def state(text: str) -> Grammar | None:
        start = text
        while start not in states:
            start = start[:-1]
        for end in range(len(start) + 1, len(text) + 1):
            before = states[text[: end - 1]]
            states[text[:end]] = before and _after(before, text[end - 1])
        return states[text]

    return [text for text in texts if (found := state(text)) is not None and found.allows(_END)]


def _after(constraint: Grammar, char: str) -> Grammar | None:
    following = Grammar(constraint._matcher.deep_copy(), constraint._n_vocab)
    for byte in char.encode():
        if not following.allows(byte):
            return None
        following.accept(byte)
    return following
