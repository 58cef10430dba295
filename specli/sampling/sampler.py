"""From logits to a token: the chain, its picker and an optional grammar.

llama.cpp `common/sampling.cpp` (docs/speculation.md §6.1). A grammar is checked on the picked token only. If the
token does not fit, the row is sampled once more with everything banned that the grammar forbids, which draws again.
"""

from __future__ import annotations

import math

import numpy as np

from specli.errors import SpecliError
from specli.rng import REJECTION_SALT, MersenneTwister, resolve_seed
from specli.sampling.candidates import Candidates, Floats, Ids, descending, largest, total
from specli.sampling.chain import ChainContext, build_chain, check_sampling
from specli.sampling.grammar import Grammar
from specli.sampling.lazy import LazyGrammar
from specli.sampling.links import Distribution, Link, Temperature
from specli.sampling.native import NativeTail
from specli.sampling.settings import SamplingConfig
from specli.sampling.vocabulary import SamplerVocabulary


class Sampler:
    """The target's sampler of one request: samples rows of logits and follows the sequence.

    Args:
        config: The settings; what is left open takes llama.cpp's default.
        tokenizer: The target's tokenizer.
        n_vocab: Width of the logits.

    Attributes:
        config: The settings in force.
        seed: The seed in use; from the operating system if `config.seed` is -1.
        rejections: The stream that decides in rejection sampling.
        synthetic: The stream that decides in synthetic acceptance.

    Raises:
        UsageError: A setting is out of range, or the grammar is wrong.
    """

    def __init__(self, config: SamplingConfig, tokenizer: SamplerVocabulary, *, n_vocab: int) -> None:
        self.config = config = config.settings()
        check_sampling(config, n_vocab)
        self.seed = resolve_seed(config.seed)
        self.rejections = MersenneTwister(self.seed ^ REJECTION_SALT)
        self.synthetic = MersenneTwister(self.seed)
        self._links, self._picker = build_chain(ChainContext(config, tokenizer, n_vocab, self.seed))
        self._grammar = LazyGrammar.from_config(config, tokenizer, n_vocab)
        self._end_ids = tokenizer.eog_ids
        self._candidates: Candidates | None = None  # of the last sample; None where only its largest logit counted
        self._largest = -1
        self._leading, self._tail = NativeTail.of(self._links, self._picker)
        links: list[Link] = [*self._links, self._picker]
        self._listeners = [link for link in links if type(link).accept is not Link.accept]
        # Only the largest logit is left, wherever in the chain the others go, and nobody sees how it is drawn.
        self._takes_largest = (
            self.config.temperature <= 0
            and type(self._picker) is Distribution
            and any(isinstance(link, Temperature) for link in self._links)
            and all(link.keeps_largest for link in self._links)
        )

    @property
    def is_greedy(self) -> bool:
        """Every token is the most likely one of the list."""
        return self.config.temperature <= 0 and (self.config.dynatemp_range <= 0 or self.config.mirostat > 0)

    def sample(self, logits: Floats) -> int:
        """Picks a token, which `accept` must then be told of if it becomes part of the sequence.

        Args:
            logits: `[V]` float32, not changed.

        Raises:
            SpecliError: A logit is not a number, or no token may follow.
        """
        token = self._pick(logits)
        if self._grammar is None or self._grammar.allows(token):
            return token
        if self.config.ignore_eos or self.config.logit_bias:
            self._check_choice(self._grammar)
        return self._pick(self._grammar.masked(logits))

    def _check_choice(self, grammar: Grammar) -> None:
        """Says what is wrong where the settings ban all that the grammar allows."""
        left = grammar.allowed().copy()
        if not left.any():
            return
        if self.config.ignore_eos:
            left[list(self._end_ids)] = False
            if not left.any():
                raise SpecliError("the grammar allows only the end token, which --ignore-eos bans")
        left[[token for token, bias in self.config.logit_bias if bias == -math.inf]] = False
        if not left.any():
            raise SpecliError("the grammar allows only tokens that --logit-bias bans")

    def _pick(self, logits: Floats) -> int:
        if self._takes_largest:
            self._candidates, self._largest = None, largest(logits)
            return self._largest
        self._candidates = candidates = Candidates(logits)
        if self._tail is not None:
            assert isinstance(self._picker, Distribution)
            return candidates.token(self._tail.pick(self._leading, candidates, self._picker.draw()))
        for link in self._links:
            link.apply(candidates)
        return candidates.token(self._picker.pick(candidates))

    def accept(self, token: int, *, generated: bool = True) -> None:
        """The token became part of the sequence.

        Args:
            token: Its id.
            generated: Sampled by the target; False for prompt tokens, which the grammar does not see.
        """
        if generated and self._grammar is not None:
            self._grammar.accept(token)
        for link in self._listeners:
            link.accept(token)

    def accept_prompt(self, tokens: list[int]) -> None:
        """`accept` of many prompt tokens; only as many of the last as the chain remembers are looked at."""
        window = max((link.window for link in self._listeners), default=0)
        for token in tokens[len(tokens) - min(window, len(tokens)) :]:
            self.accept(token, generated=False)

    def distribution(self) -> tuple[Ids, Floats]:
        """What the last sample was drawn from, before its token is accepted.

        Returns:
            `[n]` int32 ids and `[n]` float32 probabilities, descending; what the grammar forbids has probability 0.
        """
        candidates = self._candidates
        if candidates is None:
            return np.array([self._largest], np.int32), np.ones(1, np.float32)
        assert candidates.probabilities is not None
        ids, p = candidates.token_ids(), candidates.probabilities
        if not candidates.is_sorted:
            order = descending(p)
            ids, p = ids[order], p[order]
        if self._grammar is not None:
            p = np.where(self._grammar.allowed()[ids], p, np.float32(0))
            left = total(p)
            if left > 0:
                p = p * (np.float32(1) / left)
        return ids, p
