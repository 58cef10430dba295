"""The speculation loop: prefill, then rounds of draft, verify, accept (speculation.md §3; llama.cpp server loop).

Invariant at the start of a round: the target's cache holds `Engine.history` and nothing else that counts, `last` is
sampled but not yet evaluated, and every drafter has been told of exactly those tokens. Positions make it cheap: a cell
behind the end of the history is never read, so rejecting a draft means forgetting how long the sequence was.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.engine.config import RequestConfig
from specli.engine.stats import Round, Timings
from specli.engine.stop import StopMatcher
from specli.engine.verify import Verdict, VerifyRule
from specli.errors import IncompatibleError, SpecliError
from specli.models.base import Model
from specli.sampling.sampler import Sampler
from specli.tokenizer import StreamDecoder, Tokenizer

SLOT = 0  # one sequence today; batches already carry slots
EMPTY = np.empty(0, dtype=np.int32)


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
    def of(cls, logits: npt.NDArray[np.float32], token: int, n_top: int) -> TokenLogprob:
        """Reads token and the `n_top` best off one row of logits `[V]`."""
        shifted = logits.astype(np.float64) - float(logits.max())
        norm = float(np.log(np.exp(shifted).sum()))
        best = np.argsort(-logits, kind="stable")[:n_top] if n_top else EMPTY
        return cls(token, float(shifted[token]) - norm, tuple((int(i), float(shifted[i]) - norm) for i in best))


class TokenEvent(NamedTuple):
    """One generated token as it leaves the loop.

    Attributes:
        id: Token id; end tokens are reported too.
        text: Text that became final with it (whole characters, stop strings held back); may be empty.
        from_draft: Name of the drafter that proposed it, or None when the target sampled it.
        round: Number of the round it belongs to, from 0 (the prompt's own token). The tokens of a round come together:
            by its first event `Generation` and the statistics have counted all of them.
        ends_round: It is the last of its round, where one can leave with every token of the request seen.
        stop: Why generation ended with this token: eos, limit, stop or context; None while it goes on.
        logprob: Filled when `RequestConfig.logprobs` is set.
    """

    id: int
    text: str
    from_draft: str | None
    round: int
    stop: str | None = None
    logprob: TokenLogprob | None = None
    ends_round: bool = True


class Engine:
    """A target, its drafters and one sequence whose cache outlives requests.

    Args:
        target: The target model with room for `chain.max_draft + 1` outputs.
        tokenizer: The target's.
        chain: Drafters in priority order; may be empty.
        rule: Decides how many draft tokens stand.
        n_ctx: Tokens the context can hold.
    """

    def __init__(
        self, target: Model, tokenizer: Tokenizer, chain: DrafterChain, rule: VerifyRule, *, n_ctx: int
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.chain = chain
        self.rule = rule
        self.n_ctx = n_ctx
        self.history: list[int] = []
        self._counting = np.arange(max(n_ctx, target.options.max_tokens), dtype=np.int32)  # positions and row numbers
        self._slots = np.full(target.options.max_tokens, SLOT, dtype=np.int32)

    def generate(self, prompt: Sequence[int], request: RequestConfig) -> Generation:
        """Starts a request. Iterate the result for events; closing it early leaves the engine ready for the next.

        Raises:
            IncompatibleError: The prompt is empty or leaves no room in the context.
            UsageError: A sampling setting is out of range.
        """
        if not prompt:
            raise IncompatibleError("the prompt is empty", hint="give some text, or a model that adds a BOS token")
        if len(prompt) >= self.n_ctx:
            raise IncompatibleError(
                f"the prompt has {len(prompt)} tokens, the context holds {self.n_ctx}", hint="raise --ctx-size"
            )
        bad = next((token for token in prompt if not 0 <= token < self.tokenizer.n_vocab), None)
        if bad is not None:
            raise IncompatibleError(f"prompt token {bad} is outside the vocabulary of {self.tokenizer.n_vocab}")
        sampler = Sampler(request.sampling, self.tokenizer, n_vocab=self.target.config.n_vocab)
        return Generation(self, list(prompt), request, sampler)

    def evaluate(self, tokens: Sequence[int], n_outputs: int) -> tuple[npt.NDArray[np.float32], TargetBatch]:
        """Runs the target on tokens that may follow the history.

        Returns:
            Logits `[N, V]` float32 of the last N = `n_outputs` rows, valid until the next call; the batch for `extend`.
        """
        start, n = len(self.history), len(tokens)
        ids, positions = np.array(tokens, dtype=np.int32), self._counting[start : start + n]
        out = self.target.forward(ids, positions, self._slots[:n], self._counting[n - n_outputs : n])
        return out.read(), TargetBatch(SLOT, ids, positions, features=out.features)

    def extend(self, tokens: Sequence[int], batch: TargetBatch) -> None:
        """Takes the first tokens of the batch just evaluated into the history and shows them to the drafters.

        Args:
            tokens: Those tokens.
            batch: The whole batch; what else it has is forgotten.
        """
        n = len(tokens)
        self.history += tokens
        if n < len(batch.tokens):
            self.target.cache.truncate(SLOT, len(self.history))
            batch = batch._replace(tokens=batch.tokens[:n], positions=batch.positions[:n])
        if self.chain.drafters:
            self.chain.process([batch])

    def plain_step_ns(self, repeats: int = 3) -> float:
        """Time of a forward of one row at the end of the history, the least of `repeats`.

        The newest token is evaluated again, which writes the values that are there already.
        """
        length = len(self.history)
        ids, last = np.array(self.history[-1:], dtype=np.int32), self._counting[length - 1 : length]
        times = []
        for _ in range(repeats):
            begun = time.perf_counter_ns()
            self.target.forward(ids, last, self._slots[:1], self._counting[:1])
            times.append(time.perf_counter_ns() - begun)
        return float(min(times))

    def truncate(self, length: int) -> None:
        """Forgets everything from token `length` on."""
        del self.history[length:]
        self.target.cache.truncate(SLOT, length)

    def reset(self) -> None:
        """Forgets the sequence."""
        self.truncate(0)
        self.chain.rewind(SLOT, 0)

    def reuse(self, prompt: Sequence[int]) -> int:
        """Keeps the longest common prefix of history and prompt and returns its length.

        At least the last prompt token is evaluated again, for its logits; one token more when a drafter reads features,
        because its newest cell pairs a token with its successor (see `Drafter.rewind`). Nothing is kept when recurrent
        layers no longer know the state at the end of the prefix.
        """
        limit = min(len(self.history), len(prompt) - 1)
        keep = next((i for i in range(limit) if self.history[i] != prompt[i]), limit)
        if self.chain.reads_features:
            keep = max(0, keep - 1)
        if not self.target.cache.can_truncate(SLOT, keep):
            keep = 0
        if keep < len(self.history):
            self.truncate(keep)
        self.chain.rewind(SLOT, keep)
        return keep


class Generation(Iterator[TokenEvent]):
    """One request under way. After the last event `stop`, `tokens`, `text` and `timings` are final.

    Attributes:
        stop: Why it ended: eos, limit, stop, context; `interrupt` when the consumer left early.
        tokens: Generated token ids, end token included.
        text: Text emitted so far.
        prompt_logprobs: Filled when the request asks for them.
        rounds: Filled when the request asks for a trace.
    """

    def __init__(self, engine: Engine, prompt: list[int], request: RequestConfig, sampler: Sampler) -> None:
        self.prompt = prompt
        self.request = request
        self.timings = Timings()
        self.tokens: list[int] = []
        self.text = ""
        self.stop = "interrupt"
        self.logprobs: list[TokenLogprob] = []
        self.prompt_logprobs: list[TokenLogprob] = []
        self.rounds: list[Round] = []
        self._engine = engine
        self._sampler = sampler
        self._decoder: StreamDecoder = engine.tokenizer.stream(special=request.special)
        self._stops = StopMatcher(request.stop)
        self._events = self._run()

    def __next__(self) -> TokenEvent:
        return next(self._events)

    def close(self) -> None:
        """Ends the request early; the engine's cache stays consistent."""
        self._events.close()

    def _run(self) -> Generator[TokenEvent]:
        engine, request = self._engine, self.request
        logits = self._prefill()
        if request.n_predict == 0:
            self.stop = "limit"
            return
        engine.chain.begin(SLOT, self.prompt)
        begun = time.perf_counter_ns()
        token = self._sampler.sample(logits)
        self._sampler.accept(token)
        self.timings.prompt_ns += time.perf_counter_ns() - begun
        yield from self._take(Verdict([token]), None, 0, len(engine.history), logits[np.newaxis])
        begun_rounds = time.perf_counter_ns()
        number = 0
        while self.stop == "interrupt":
            number += 1
            events, error = self._round(number)
            self.timings.predicted_ns = time.perf_counter_ns() - begun_rounds
            yield from events
            if error is not None and self.stop == "interrupt":
                raise error

    def _round(self, number: int) -> tuple[list[TokenEvent], SpecliError | None]:
        """Drafts, verifies and counts what the request keeps; returns it, and what plain decoding would fail with."""
        engine, timings = self._engine, self.timings
        last, base = self.tokens[-1], len(engine.history)
        begun = time.perf_counter_ns()
        draft, drafter = self._draft(last)
        draft_ns = time.perf_counter_ns() - begun
        verify_ns = timings.verify_ns
        verdict, rows, batch = self._verify(last, draft)
        events = self._take(verdict, drafter if draft.tokens else None, number, base + 1, rows)
        n_kept = min(verdict.n_accepted, len(events))
        settling = time.perf_counter_ns()
        engine.extend([last, *verdict.tokens[: verdict.n_accepted]], batch)
        if draft.tokens:
            engine.chain.accept(SLOT, verdict.n_accepted, n_kept)
        now = time.perf_counter_ns()
        timings.draft_ns += now - settling
        timings.count_round(len(draft.tokens), n_kept, now - begun)
        if self.request.trace:
            kept = tuple(event.id for event in events)
            verify_ns = timings.verify_ns - verify_ns
            self.rounds.append(Round(drafter, base, tuple(draft.tokens), kept, n_kept, draft_ns, verify_ns))
        return events, verdict.error

    def _prefill(self) -> npt.NDArray[np.float32]:
        """Evaluates what the cache does not hold of the prompt; returns the last token's logits `[V]`."""
        engine, wants_all = self._engine, self.request.prompt_logprobs
        begun = time.perf_counter_ns()
        if wants_all:
            engine.reset()
            self.prompt_logprobs.append(TokenLogprob(self.prompt[0], None))
        start = engine.reuse(self.prompt)
        options = engine.target.options
        size = min(options.max_tokens, options.max_outputs) if wants_all else options.max_tokens
        logits = np.empty((0, 0), dtype=np.float32)
        for at in range(start, len(self.prompt), size):
            chunk = self.prompt[at : at + size]
            is_last = at + len(chunk) == len(self.prompt)
            logits, batch = engine.evaluate(chunk, len(chunk) if wants_all else int(is_last))
            engine.extend(chunk, batch)
            if wants_all:
                following = self.prompt[at + 1 : at + 1 + len(chunk)]
                self.prompt_logprobs += [
                    TokenLogprob.of(row, token, self.request.logprobs)
                    for row, token in zip(logits, following, strict=False)
                ]
        self._sampler.accept_prompt(self.prompt)
        self.timings.cache_n = start
        self.timings.prompt_n = len(self.prompt) - start
        self.timings.prompt_ns = time.perf_counter_ns() - begun
        last: npt.NDArray[np.float32] = logits[-1]
        return last

    def _draft(self, last: int) -> tuple[Draft, str | None]:
        engine, request = self._engine, self.request
        room = engine.n_ctx - len(engine.history) - 2
        if request.n_predict > 0:
            room = min(room, request.n_predict - len(self.tokens) - 1)
        if room <= 0 or not engine.chain.drafters:
            return Draft(), None
        begun = time.perf_counter_ns()
        [(draft, drafter)] = engine.chain.draft(
            [DraftRequest(SLOT, engine.history, last, room, self._sampler.config.temperature, self._sampler.seed)]
        )
        self.timings.draft_ns += time.perf_counter_ns() - begun
        return draft, drafter

    def _verify(self, last: int, draft: Draft) -> tuple[Verdict, npt.NDArray[np.float32], TargetBatch]:
        engine, timings = self._engine, self.timings
        tokens = [last, *draft.tokens]
        begun = time.perf_counter_ns()
        logits, batch = engine.evaluate(tokens, len(tokens))
        evaluated = time.perf_counter_ns()
        verdict = engine.rule(draft, logits, self._sampler)
        timings.verify_ns += evaluated - begun
        timings.sample_ns += time.perf_counter_ns() - evaluated
        return verdict, logits, batch

    def _take(
        self,
        verdict: Verdict,
        drafter: str | None,
        number: int,
        position: int,
        rows: npt.NDArray[np.float32],
    ) -> list[TokenEvent]:
        """Takes the tokens of a round into the request, up to the first that ends it.

        The tokens' positions start at `position`; the context ends by position, token by token, so that a draft cannot
        end a request earlier than plain decoding would.
        """
        request, engine = self.request, self._engine
        events: list[TokenEvent] = []
        for i, token in enumerate(verdict.tokens):
            self.tokens.append(token)
            self.timings.predicted_n += 1
            ended = self._stops.push(self._decoder.push(token))
            stop = None
            if self._stops.matched is not None:
                stop = "stop"
            elif engine.tokenizer.is_end(token):
                stop = "eos"
            elif 0 < request.n_predict <= len(self.tokens):
                stop = "limit"
            elif position + i + 1 >= engine.n_ctx:
                stop = "context"
            if stop not in (None, "stop"):
                ended += self._stops.push(self._decoder.flush()) + self._stops.flush()
            self.text += ended
            logprob = TokenLogprob.of(rows[i], token, request.logprobs) if request.logprobs else None
            if logprob is not None:
                self.logprobs.append(logprob)
            ends_round = stop is not None or i + 1 == len(verdict.tokens)
            source = drafter if i < verdict.n_accepted else None
            events.append(TokenEvent(token, ended, source, number, stop, logprob, ends_round))
            if stop is not None:
                self.stop = stop
                break
        return events
