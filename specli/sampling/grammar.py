"""Grammars (GBNF, Lark) and JSON schemas as a constraint on tokens, through llguidance.

Every end token is allowed exactly where the text may end, as in llama.cpp. Other control tokens never are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specli.errors import SpecliError, UsageError
from specli.sampling.candidates import Floats
from specli.sampling.config import SamplingConfig
from specli.sampling.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_LARK_MARK = "%llguidance"  # a grammar that starts so is Lark already (as in llama.cpp)
_CONTROL = b"\xff"  # llguidance: a token that is not text
# llama.cpp's JSON whitespace: none, a blank, or one or two line feeds with an indentation; never endless.
_JSON_SPACE = r"(\x20|\n{1,2}[ \t]{0,20})?"


class _Words:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, n_vocab: int) -> None:
        self._vocabulary = vocabulary
        ends = sorted(vocabulary.eog_ids)
        self.eos_token_id = ends[0] if ends else 0
        self.tokens: list[bytes] = []
        self.special_token_ids: list[int] = []
        for token in range(n_vocab):
            piece = b"" if token in vocabulary.eog_ids else vocabulary.piece(token)
            if not piece:
                self.special_token_ids.append(token)
            self.tokens.append(piece or _CONTROL + b"<|%d|>" % token)

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.encode(text, add_special=False, parse_special=False)


def _open_tokenizer(vocabulary: Vocabulary, n_vocab: int) -> LLTokenizer:
    """The trie of the vocabulary's bytes."""
    from llguidance import LLTokenizer, TokenizerWrapper

    words = _Words(vocabulary, n_vocab)
    ends = sorted(vocabulary.eog_ids) or [words.eos_token_id]
    return LLTokenizer(TokenizerWrapper(words), n_vocab=n_vocab, eos_token=ends)


def _compile(config: SamplingConfig) -> tuple[str, str] | None:
    """What constrains the text, for messages, and its llguidance grammar; None without a constraint."""
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import gbnf_to_lark

    if config.json_schema is not None:
        try:
            document = LLMatcher.grammar_from_json_schema(
                config.json_schema, defaults={"whitespace_flexible": True, "whitespace_pattern": _JSON_SPACE}
            )
            schema = json.loads(document)["grammars"][0]["json_schema"]
            return "JSON schema", LLMatcher.grammar_from_lark(
                _unforced(f"{_LARK_MARK} {{}}\nstart: %json {json.dumps(schema)}")
            )
        except ValueError as error:
            raise UsageError(f"JSON schema: {_first_line(error)}") from None
    if not config.grammar:
        return None
    if config.grammar.startswith(_LARK_MARK):
        return "grammar", LLMatcher.grammar_from_lark(_unforced(config.grammar))
    try:
        return "grammar", LLMatcher.grammar_from_lark(_unforced(gbnf_to_lark(config.grammar)))
    except Exception as error:  # plain ones, for rules that are missing
        raise UsageError(f"grammar: {_first_line(error)}") from None


def _unforced(lark: str) -> str:
    """The grammar with every token allowed that goes on with the text, as in llama.cpp.

    Otherwise, where the grammar leaves no choice, llguidance allows only the tokens that the tokenizer makes of the
    text to come. It would ask for ` {` instead of `{` with SPM vocabularies, which put a blank before every text.
    """
    head, separator, rest = lark.partition("\n")
    try:
        options = json.loads(head.removeprefix(_LARK_MARK) or "{}")
    except ValueError:
        return lark  # llguidance says what is wrong with it
    return f"{_LARK_MARK} {json.dumps({'no_forcing': True, **options})}{separator}{rest}"


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
    def from_config(cls, config: SamplingConfig, vocabulary: Vocabulary, n_vocab: int) -> Grammar | None:
        """The constraint of the settings, or None.

        Raises:
            UsageError: The grammar or schema is wrong.
        """
        if not config.grammar and config.json_schema is None:
            return None
        from llguidance import LLMatcher

        compiled = _compile(config)
        assert compiled is not None
        what, source = compiled
        matcher = LLMatcher(_open_tokenizer(vocabulary, n_vocab), source, log_level=0)
        if matcher.is_error():
            problem = _first_line(matcher.get_error())
            raise UsageError(f"{what}: {problem.rpartition('failed to compile JSON schema: ')[2]}")
        return cls(matcher, n_vocab)

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

    def copy(self) -> Grammar:
        """A state that goes on alone."""
        return Grammar(self._matcher.deep_copy(), self._n_vocab)

    def restarted(self) -> Grammar:
        """The state before the first token."""
        twin = self.copy()
        twin._matcher.reset()
        return twin
