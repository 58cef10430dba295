"""Grammars (GBNF, Lark) and JSON schemas as a constraint on tokens, through llguidance.

As in llama.cpp, every end token is allowed exactly where the text may end, and other control tokens count as the text
they are written with.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specli.errors import SpecliError, UsageError
from specli.sampling.candidates import Floats
from specli.sampling.gbnf import ROOT, parse_gbnf
from specli.sampling.json_schema import parse_json_schema
from specli.sampling.lark import MARK, OPTIONS, to_lark
from specli.sampling.settings import SamplingConfig
from specli.sampling.vocabulary import SamplerVocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_CONTROL = b"\xff"  # llguidance: a token that is not text


class Words:
    """What llguidance asks of a tokenizer.

    Args:
        vocabulary: The tokenizer.
        n_vocab: Width of the logits.

    Attributes:
        tokens: Bytes of each token; those that are no text have a byte in front that no text has.
        special_token_ids: The latter.
        trie: The bytes of all tokens, for llguidance.
    """

    bos_token_id = None

    def __init__(self, vocabulary: SamplerVocabulary, n_vocab: int) -> None:
        self._vocabulary = vocabulary
        ends = sorted(vocabulary.eog_ids)
        self.eos_token_id = ends[0] if ends else 0
        self.tokens: list[bytes] = []
        self.special_token_ids: list[int] = []
        for token in range(n_vocab):
            piece = b"" if token in vocabulary.eog_ids else vocabulary.piece(token, special=True)
            if not piece:
                self.special_token_ids.append(token)
            self.tokens.append(piece or _CONTROL + b"<|%d|>" % token)
        self.trie = self._open_trie(n_vocab)

    @classmethod
    @lru_cache(maxsize=1)  # seconds for a vocabulary of 262144 tokens, and the same for all requests
    def of(cls, vocabulary: SamplerVocabulary, n_vocab: int) -> Words:
        """Those of a vocabulary; kept until another one is asked for."""
        return cls(vocabulary, n_vocab)

    def text(self, token: int) -> bytes:
        """The bytes that a token adds to the text."""
        piece = self.tokens[token]
        return b"" if piece.startswith(_CONTROL) else piece

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """A token for each text that one has."""
        return {piece: token for token, piece in enumerate(self.tokens) if not piece.startswith(_CONTROL)}

    def spelled(self, text: bytes) -> list[int] | None:
        """Tokens whose bytes are the text, each as long as possible; None: there are none."""
        longest = max(map(len, self.ids), default=0)
        tokens: list[int] = []
        while text:
            length = next((n for n in range(min(longest, len(text)), 0, -1) if text[:n] in self.ids), 0)
            if not length:
                return None
            tokens.append(self.ids[text[:length]])
            text = text[length:]
        return tokens

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self._vocabulary.encode(text, add_special=False, parse_special=False)

    def _open_trie(self, n_vocab: int) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        ends = sorted(self._vocabulary.eog_ids) or [self.eos_token_id]
        return LLTokenizer(TokenizerWrapper(self), n_vocab=n_vocab, eos_token=ends)


def _compile(config: SamplingConfig, vocabulary: SamplerVocabulary, forbidden: Collection[int]) -> tuple[str, str]:
    """What constrains the text, for messages, and its llguidance grammar."""
    if config.json_schema is not None:
        what, rules = "JSON schema", parse_json_schema(config.json_schema)
    elif config.grammar and config.grammar.startswith(MARK):
        return "grammar", _with_options(config.grammar)
    else:
        assert config.grammar is not None
        what, rules = "grammar", parse_gbnf(config.grammar, partial(_whole_token, vocabulary))
    try:
        body = to_lark(rules, ROOT, forbidden)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None
    return what, _with_options(f"{MARK} {{}}\n{body}")


def _whole_token(vocabulary: SamplerVocabulary, text: str) -> int | None:
    tokens = vocabulary.encode(text, add_special=False, parse_special=True)
    return tokens[0] if len(tokens) == 1 else None


def _with_options(lark: str) -> str:
    head, separator, rest = lark.partition("\n")
    try:
        options = json.loads(head.removeprefix(MARK) or "{}")
    except ValueError:
        return lark  # llguidance says what is wrong with it
    return f"{MARK} {json.dumps(OPTIONS | options)}{separator}{rest}"


def _first_line(error: object) -> str:
    return next(iter(str(error).splitlines()), "invalid")


class Grammar:
    """Where a constrained text stands.

    Args:
        matcher: llguidance's state.
        n_vocab: Width of the logits.
    """

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._allowed: npt.NDArray[np.bool_] | None = None

    @classmethod
    def from_config(cls, config: SamplingConfig, vocabulary: SamplerVocabulary, n_vocab: int) -> Grammar | None:
        """The constraint of the settings, or None.

        Raises:
            UsageError: The grammar or schema is wrong.
        """
        if not config.grammar and config.json_schema is None:
            return None
        from llguidance import LLMatcher, LLParserLimits

        words = Words.of(vocabulary, n_vocab)
        what, source = _compile(config, vocabulary, words.special_token_ids)
        matcher = LLMatcher(
            words.trie,
            LLMatcher.grammar_from_lark(source),
            log_level=0,
            limits=LLParserLimits(verbose_errors=False),
        )
        if matcher.is_error():
            raise UsageError(f"{what}: {_first_line(matcher.get_error())}")
        return cls(matcher, n_vocab)

    def copy(self) -> Grammar:
        """One that stands at the same place."""
        return Grammar(self._matcher.deep_copy(), self._n_vocab)

    def allows(self, token: int) -> bool:
        """The token may come next."""
        if self._matcher.is_stopped():
            return bool(self.allowed()[token])
        return bool(self._matcher.validate_tokens([token]) == 1)

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which tokens may come next, `[V]`."""
        if self._allowed is None:
            mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)
            self._allowed = np.zeros(self._n_vocab, np.bool_)
            self._allowed[: len(mask)] = mask[: self._n_vocab] != 0
        return self._allowed

    def masked(self, logits: Floats) -> Floats:
        """The logits with -inf for everything that may not come next, `[V]` float32.

        Raises:
            SpecliError: Nothing may.
        """
        allowed = self.allowed()
        if not allowed.any():
            raise SpecliError("the grammar allows no token here")
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        """The token comes next.

        Raises:
            SpecliError: It may not, or the grammar became too complex.
        """
        if self._matcher.is_stopped() and self.allows(token):
            return  # the end token of a text that could not go on
        self._allowed = None
        if not self._matcher.consume_token(token):
            raise SpecliError(f"the grammar rejects token {token}: {_first_line(self._matcher.get_error())}")
