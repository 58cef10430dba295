"""One request: what it asks for, what it has become so far, and everything that belongs to it alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.drafters.stats import DrafterStats
from specli.engine.config import RequestConfig
from specli.engine.stats import Round, Timings
from specli.engine.stop import StopMatcher
from specli.engine.verify import Verdict
from specli.sampling.sampler import Sampler
from specli.tokenizer import StreamDecoder, Tokenizer

EMPTY = np.empty(0, dtype=np.int32)
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of one token under the target's raw logits (natural log, before any sampler).

    Attributes:
        id: The token.
        logprob: Its log-probability; None for the prompt's first token.
        top: The most likely tokens at that place with their log-probabilities, best first.
    """

    id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, logits: Floats, token: int, n_top: int) -> TokenLogprob:
        """Reads token and the `n_top` best off one row of logits `[V]`."""
        shifted = logits.astype(np.float64) - float(logits.max())
        norm = float(np.log(np.exp(shifted).sum()))
        best = np.argsort(-logits, kind="stable")[:n_top] if n_top else EMPTY
        return cls(token, float(shifted[token]) - norm, tuple((int(i), float(shifted[i]) - norm) for i in best))


class TokenEvent(NamedTuple):
    """One generated token as it leaves the engine.

    Attributes:
        id: Token id; end tokens are reported too.
        text: Text that became final with it (whole characters, stop strings held back); may be empty.
        from_draft: Name of the drafter that proposed it, or None when the target sampled it.
        round: Number of the round it belongs to, from 0 (the prompt's own token). The tokens of a round come together:
            by its first event `Sequence` and the statistics have counted all of them.
        stop: Why generation ended with this token: eos, limit, stop or context; None while it goes on.
        logprob: Filled when `RequestConfig.logprobs` is set.
        ends_round: It is the last of its round, where one can leave with every token of the request seen.
    """

    id: int
    text: str
    from_draft: str | None
    round: int
    stop: str | None = None
    logprob: TokenLogprob | None = None
    ends_round: bool = True


@dataclass(eq=False)
class Slot:
    """One sequence of the target's cache. What it holds outlives the request, so that the next one may go on from it.

    Attributes:
        index: Its number in the cache.
        history: The tokens in the cache. The newest token of a request is not among them until it has been evaluated.
        sequence: The request it serves; None while it is idle.
        last_used: Number of the engine's latest step that used it.
    """

    index: int
    history: list[int] = field(default_factory=list)
    sequence: Sequence | None = None
    last_used: int = 0


class Sequence:
    """One request under way. Once `is_done`, `stop`, `tokens`, `text` and `timings` are final.

    Args:
        prompt: Its tokens, at least one.
        request: What is asked for.
        sampler: The target's sampler, fresh.
        tokenizer: The target's.

    Attributes:
        prompt: As given.
        request: As given.
        sampler: As given.
        slot: Where its tokens are; None before the first step and after the last.
        slot_index: The number of that slot, still known afterwards; -1 before.
        number: How many requests got a slot before it; -1 before it has one.
        reuses: What a slot holds of the prompt is not evaluated again. Set before the first step, if at all.
        wanted_slot: Number of the only slot that it may get; None = any. Set before the first step, if at all.
        twin: A request with the same prompt, for which this one waits, so as to copy what it has evaluated. Set before
            the first step, if at all.
        n_read: Tokens of the prompt that are in the cache.
        tokens: Generated token ids, end token included.
        text: Their text, up to a stop string.
        stop: Why it ended: eos, limit, stop, context; `interrupt` until then, or if it was ended from outside.
        is_done: Nothing more will come.
        error: What ended it, if an error did.
        events: Tokens that nobody has taken yet.
        timings: Where its time went.
        drafters: Counters of the drafters for this request, in priority order.
        logprobs: Filled when the request asks for them.
        prompt_logprobs: Filled when the request asks for them.
        rounds: Filled when the request asks for a trace.
        prompt_text: What the prompt was made of, where that is known.
        plain_steps: Nanoseconds of forward and sampling in every round without a draft.
    """

    def __init__(self, prompt: list[int], request: RequestConfig, sampler: Sampler, tokenizer: Tokenizer) -> None:
        self.prompt = prompt
        self.request = request
        self.sampler = sampler
        self.slot: Slot | None = None
        self.slot_index = self.number = -1
        self.reuses = True
        self.wanted_slot: int | None = None
        self.twin: Sequence | None = None
        self.n_read = 0
        self.tokens: list[int] = []
        self.text = ""
        self.stop = "interrupt"
        self.is_done = False
        self.error: Exception | None = None
        self.events: deque[TokenEvent] = deque()
        self.timings = Timings()
        self.drafters: tuple[DrafterStats, ...] = ()
        self.logprobs: list[TokenLogprob] = []
        self.prompt_logprobs: list[TokenLogprob] = []
        self.rounds: list[Round] = []
        self.prompt_text: str | None = None
        self.plain_steps: list[int] = []
        self._tokenizer = tokenizer
        self._decoder: StreamDecoder = tokenizer.stream(special=request.special, visible=request.visible)
        self._stops = StopMatcher(request.stop)
        self._n_rounds = 0

    @property
    def is_reading(self) -> bool:
        """Tokens of the prompt are still to be evaluated."""
        return self.n_read < len(self.prompt)

    @property
    def stopping_word(self) -> str:
        """The stop string that ended it, or nothing."""
        return self._stops.matched or ""

    def room(self, n_ctx: int) -> int:
        """Draft tokens that the request can use in the next round at most; may be negative."""
        assert self.slot is not None
        room = n_ctx - len(self.slot.history) - 2
        if self.request.n_predict > 0:
            room = min(room, self.request.n_predict - len(self.tokens) - 1)
        return room

    def note_prompt(self, start: int, rows: Floats) -> None:
        """Keeps the log-probabilities of what follows prompt token `start`, from the logits `[N, V]` behind it."""
        if start == 0:
            self.prompt_logprobs.append(TokenLogprob(self.prompt[0], None))
        self.prompt_logprobs += [
            TokenLogprob.of(row, token, self.request.logprobs)
            for row, token in zip(rows, self.prompt[start + 1 : start + 1 + len(rows)], strict=False)
        ]

    def take(self, verdict: Verdict, drafter: str | None, rows: Floats, n_ctx: int) -> int:
        """Takes the tokens of a round into the request, up to the first that ends it.

        The context ends by position, token by token, so that a draft cannot end a request earlier than plain decoding
        would.

        Args:
            verdict: The tokens; those of the draft come first.
            drafter: Whose draft it was.
            rows: Logits `[≥ N, V]` that the tokens were sampled from.
            n_ctx: Tokens the context can hold.

        Returns:
            How many tokens were taken.
        """
        request, tokens, stops = self.request, self.tokens, self._stops
        decoder, end_ids, n_logprobs = self._decoder, self._tokenizer.eog_ids, request.logprobs
        n_known, n_proposed = len(tokens), len(verdict.tokens)
        n_drafted = n_proposed if verdict.error else n_proposed - 1
        to_context = n_ctx - len(self.prompt) - n_known
        to_limit = request.n_predict - n_known if request.n_predict > 0 else to_context + 1
        to_end = min(to_context, to_limit)
        number, self._n_rounds = self._n_rounds, self._n_rounds + 1
        n_taken, stop, logprob = 0, None, None
        for token in verdict.tokens:
            tokens.append(token)
            n_taken += 1
            text = stops.push(decoder.push(token))
            if stops.matched is not None:
                stop = "stop"
            elif token in end_ids:
                stop = "eos"
            elif n_taken >= to_end:
                stop = "limit" if n_taken >= to_limit else "context"
            if stop is not None and stop != "stop":
                text += stops.push(decoder.flush()) + stops.flush()
            self.text += text
            if n_logprobs:
                logprob = TokenLogprob.of(rows[n_taken - 1], token, n_logprobs)
                self.logprobs.append(logprob)
            source = drafter if n_taken <= n_drafted else None
            ends_round = stop is not None or n_taken == n_proposed
            self.events.append(TokenEvent(token, text, source, number, stop, logprob, ends_round))
            if stop is not None:
                self.end(stop)
                break
        self.timings.predicted_n += n_taken
        return n_taken

    def end(self, stop: str = "interrupt", error: Exception | None = None) -> None:
        """Ends the request and frees its slot, which keeps its tokens."""
        self.stop, self.error, self.is_done = stop, error, True
        if self.slot is not None:
            self.slot.sequence = None
            self.slot = None


def common_prefix(history: list[int], prompt: Iterable[int]) -> int:
    """Length of the longest common prefix."""
    n = 0
    for mine, other in zip(history, prompt, strict=False):
        if mine != other:
            break
        n += 1
    return n
