"""The speculation loop: steps of draft, one forward of the target, verify, for all sequences at once.

The rounds are those of llama.cpp's server (`tools/server/server-context.cpp`, b11434). What holds between steps: a
slot's cells are its `history` and nothing else that counts, the newest token of a request is sampled but not yet
evaluated, and every drafter has been shown exactly the history. Positions make it cheap: a cell behind the end of the
history is never read, so rejecting a draft means forgetting how long the sequence was.

A request gets the same tokens, drafts and counts whatever else is served with it: kernels compute a row the same way
whatever the batch holds, and drafters keep their sequences apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.engine.config import RequestConfig
from specli.engine.sequence import Sequence, Slot, TokenEvent, common_prefix
from specli.engine.stats import Round
from specli.engine.verify import Verdict, VerifyRule
from specli.errors import IncompatibleError
from specli.kernels.ops import Buffer
from specli.models.base import ForwardOutput, Model, chain_paths
from specli.sampling.sampler import Sampler
from specli.tokenizer import Tokenizer

PROMPT_SHARE = 4  # while answers are written, prompts get at most one row in so many
PLAIN_SHARE = 4  # one in so many plain steps is timed for the choice of draft lengths: there are many
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Part:
    """What a forward adds to one slot.

    Args:
        slot: The slot.
        tokens: At least one token, to follow its history.
        n_outputs: So many of the last of them get logits; None for all.

    Attributes:
        slot: As given.
        tokens: As given; may grow until the forward.
        n_kept: Tokens that join the history afterwards; None for all.
        parents: Of the tokens behind the first, if they are a tree (`Draft`).
        path: Numbers of the tree's tokens that are kept.
        ids: The tokens as they were evaluated, `[T]` int32.
        positions: Their positions, `[T]` int32.
    """

    __slots__ = ("ids", "n_kept", "n_outputs", "parents", "path", "positions", "slot", "tokens")

    ids: Ints
    positions: Ints

    def __init__(self, slot: Slot, tokens: list[int], n_outputs: int | None = None) -> None:
        self.slot = slot
        self.tokens = tokens
        self.n_outputs = n_outputs
        self.n_kept: int | None = None
        self.parents: list[int] | None = None
        self.path: list[int] = []


class Engine:
    """A target, its drafters, and slots whose tokens outlive requests.

    Args:
        target: The target model. Its `n_slots` is the number of sequences; it has room for a row of each in a forward.
        tokenizer: The target's.
        chain: Drafters in priority order; may be empty.
        rule: Decides how many draft tokens are accepted.
        n_ctx: Tokens a slot can hold.

    Attributes:
        slots: One per sequence of the target's cache.
        similarity: A request gets the idle slot that knows most of its prompt if that is more than this share of it,
            else the slot idle longest.
    """

    def __init__(
        self, target: Model, tokenizer: Tokenizer, chain: DrafterChain, rule: VerifyRule, *, n_ctx: int
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self.chain = chain
        self.rule = rule
        self.n_ctx = n_ctx
        self.slots = [Slot(index) for index in range(target.options.n_slots)]
        size = target.options.max_tokens
        self._counting = np.arange(max(n_ctx, size), dtype=np.int32)  # positions and row numbers
        self._slot_rows = [np.full(size, slot.index, dtype=np.int32) for slot in self.slots]
        self._no_draft = Draft()
        self.similarity = 0.0
        self._n_steps = self._n_admitted = 0

    # -- requests --------------------------------------------------------------------------------------------------

    def sequence(self, prompt: Iterable[int], request: RequestConfig) -> Sequence:
        """A request for `step`, which gives it a slot as soon as there is one.

        Raises:
            IncompatibleError: The prompt is empty or leaves no room in the context.
            UsageError: A sampling setting is out of range.
        """
        prompt = list(prompt)
        return Sequence(prompt, request, self._sampler(prompt, request), self.tokenizer)

    def generate(self, prompt: Iterable[int], request: RequestConfig) -> Generation:
        """A request that runs the steps it needs by itself: iterate it for events; closing it early is fine.

        If all slots are taken when it begins, it ends the request that nobody has asked for anything for the longest.

        Raises:
            IncompatibleError, UsageError: As `sequence`.
        """
        prompt = list(prompt)
        return Generation(self, prompt, request, self._sampler(prompt, request))

    def step(self, sequences: Iterable[Sequence]) -> bool:
        """Takes requests one round further, or a chunk of their prompts; all in one forward of the target.

        Requests without a slot get one in the order given, as long as there are idle ones; one that wants a certain
        slot or waits for its twin is passed over. A request keeps its slot until it ends. Tokens are added to
        `Sequence.events`. An error that one request meets ends this one only and is found in its `error`.

        Returns:
            Whether there was anything to do.

        Raises:
            Exception: The forward or a drafter failed. All these requests are ended, and their slots forget what they
                held.
        """
        self._n_steps += 1
        live = [each for each in sequences if not each.is_done and (each.slot is not None or self._admit(each))]
        if not live:
            return False
        try:
            self._advance(live)
        except BaseException:
            for sequence in live:
                sequence.end()
            for slot in self.slots:
                if slot.last_used == self._n_steps:
                    self._rewind(slot, 0)
            raise
        return True

    def can_begin(self, sequence: Sequence) -> bool:
        """Whether a request without a slot would get one: one that it may have is idle, and its twin's prompt is in."""
        twin = sequence.twin
        is_early = twin is not None and not twin.is_done and twin.is_reading and not self.chain.reads_features
        return not is_early and bool(self._idle(sequence))

    def use(self, chain: DrafterChain, rule: VerifyRule) -> None:
        """Replaces the drafters and the rule; requests under way are ended, and all slots forget what they held."""
        self.chain, self.rule = chain, rule
        self.reset()

    def reset(self) -> None:
        """Ends what is under way and forgets all sequences."""
        for slot in self.slots:
            if slot.sequence is not None:
                slot.sequence.end()
            self._rewind(slot, 0)

    def forget(self, slot: Slot) -> None:
        """Has an idle slot hold nothing."""
        assert slot.sequence is None
        self._rewind(slot, 0)

    def make_room(self) -> None:
        """Sees to it that a slot is idle: ends the request that has not been taken further for the longest."""
        latest = min(self.slots, key=lambda slot: (slot.sequence is not None, slot.last_used))
        if latest.sequence is not None:
            latest.sequence.end()

    # -- the target ------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> Slot:
        """The slot that was used last."""
        return max(self.slots, key=lambda slot: slot.last_used)

    def evaluate(self, parts: list[Part]) -> ForwardOutput:
        """Runs the target on tokens that may follow the histories, at most one part per slot.

        Returns:
            Logits of the wanted rows and captured states, part by part; the next forward overwrites them.
        """
        arguments = []
        row = 0
        for part in parts:
            arguments.append(self._place(part, row))
            row += len(part.tokens)
        trees = {"paths": self._paths(parts)} if any(part.parents for part in parts) else {}
        if len(arguments) == 1:
            return self.target.forward(*arguments[0], **trees)
        return self.target.forward(*map(np.concatenate, zip(*arguments, strict=True)), **trees)

    def extend(self, parts: list[Part], features: Mapping[str, Buffer]) -> None:
        """Takes what was just evaluated into the histories, as far as it is kept, and shows it to the drafters.

        Args:
            parts: All of the latest forward.
            features: The states it captured.
        """
        shown: list[TargetBatch] = []
        is_shown = self.chain.is_shown
        row = 0
        for part in parts:
            slot, tokens, ids, positions, n = part.slot, part.tokens, part.ids, part.positions, part.n_kept
            n_rows = len(tokens)
            if part.parents is not None:
                tokens, ids, positions = self._compact(part, row, features)
                self.target.cache.truncate(slot.index, len(slot.history) + len(tokens))
            elif n is not None and n < n_rows:
                tokens, ids, positions = tokens[:n], ids[:n], positions[:n]
                self.target.cache.truncate(slot.index, len(slot.history) + n)
            slot.history += tokens
            if is_shown and tokens:
                shown.append(TargetBatch(slot.index, ids, positions, row, features))
            row += n_rows
        if shown:
            self.chain.process(shown)

    def truncate(self, slot: Slot, length: int) -> None:
        """Forgets everything in the slot from token `length` on."""
        del slot.history[length:]
        self.target.cache.truncate(slot.index, length)

    def plain_step_ns(self, repeats: int = 5) -> float:
        """Time of a forward of one row at the end of the latest history, the median of `repeats`.

        The newest token is evaluated again, which writes the values that are there already.
        """
        slot = self.latest
        length, rows = len(slot.history), self._slot_rows[slot.index][:1]
        ids, last = np.array(slot.history[-1:], dtype=np.int32), self._counting[length - 1 : length]
        times = []
        for _ in range(repeats):
            begun = time.perf_counter_ns()
            self.target.forward(ids, last, rows, self._counting[:1])
            times.append(time.perf_counter_ns() - begun)
        return float(median(times))

    # -- a step ----------------------------------------------------------------------------------------------------

    def _sampler(self, prompt: list[int], request: RequestConfig) -> Sampler:
        """The sampler of a request that can be served."""
        if not prompt:
            raise IncompatibleError("the prompt is empty", hint="give some text, or a model that adds a BOS token")
        if len(prompt) >= self.n_ctx:
            raise IncompatibleError(
                f"the prompt has {len(prompt)} tokens, the context holds {self.n_ctx}", hint="raise --ctx-size"
            )
        bad = next((token for token in prompt if not 0 <= token < self.tokenizer.n_vocab), None)
        if bad is not None:
            raise IncompatibleError(f"prompt token {bad} is outside the vocabulary of {self.tokenizer.n_vocab}")
        return Sampler(request.sampling, self.tokenizer, n_vocab=self.target.config.n_vocab)

    def _admit(self, sequence: Sequence) -> bool:
        """Gives the request the idle slot that knows most of its prompt, else that idle longest; False if none is."""
        if not self.can_begin(sequence):
            return False
        idle, twin, begun = self._idle(sequence), sequence.twin, time.perf_counter_ns()
        enough = self.similarity * len(sequence.prompt)
        known = [(self._reusable(slot, sequence), slot) for slot in idle]
        keep, slot = max(known, key=lambda each: (each[0] > enough and each[0], -each[1].last_used, -each[1].index))
        self._rewind(slot, keep)
        if twin is not None:
            keep = self._copy(twin, slot, sequence)
        slot.sequence, sequence.slot, sequence.slot_index, sequence.n_read = sequence, slot, slot.index, keep
        sequence.number, self._n_admitted = self._n_admitted, self._n_admitted + 1
        sequence.drafters = self.chain.counters(slot.index)
        sequence.timings.cache_n = keep
        sequence.timings.prompt_ns = time.perf_counter_ns() - begun
        return True

    def _idle(self, sequence: Sequence) -> list[Slot]:
        """The idle slots that the request may get."""
        wanted, slots = sequence.wanted_slot, self.slots
        return [slot for slot in (slots if wanted is None else (slots[wanted % len(slots)],)) if slot.sequence is None]

    def _reusable(self, slot: Slot, sequence: Sequence) -> int:
        """Tokens of the slot that the request's prompt begins with and that need not be evaluated again.

        The last token of the prompt is evaluated in any case, for its logits; one token more when a drafter reads
        features, because its newest cell pairs a token with its successor (see `Drafter.rewind`). Nothing is kept when
        recurrent layers no longer know the state at the end of the prefix, all logits of the prompt are wanted, or the
        request does not want it.
        """
        if sequence.request.prompt_logprobs or not sequence.reuses:
            return 0
        keep = common_prefix(slot.history, sequence.prompt[:-1])
        if self.chain.reads_features:
            keep = max(0, keep - 1)
        return keep if self.target.cache.can_truncate(slot.index, keep) else 0

    def _copy(self, twin: Sequence, slot: Slot, sequence: Sequence) -> int:
        """Copies what the twin's slot knows of the prompt, if that is more; returns how many tokens there are then."""
        source, n_known = self.slots[twin.slot_index], len(slot.history)
        if twin.slot_index < 0 or source is slot or self.chain.reads_features:
            return n_known
        n = self._reusable(source, sequence)
        if n <= n_known:
            return n_known
        self.target.cache.copy(source.index, slot.index, n)
        slot.history[:] = source.history[:n]
        return n

    def _rewind(self, slot: Slot, length: int) -> None:
        """A new request keeps the first `length` tokens of the slot."""
        self.truncate(slot, length)
        self.chain.rewind(slot.index, length)

    def _advance(self, live: list[Sequence]) -> None:
        """One forward for requests that have slots, and what comes of it."""
        begun = time.perf_counter_ns()
        rounds: list[_Round] = []
        reading: list[Sequence] = []
        for sequence in live:
            slot = _slot_of(sequence)
            slot.last_used = self._n_steps
            if sequence.n_read < len(sequence.prompt):
                reading.append(sequence)
            else:
                rounds.append(_Round(sequence, slot))
        if rounds and self.chain.drafters:
            self._draft(rounds, len(reading))
        drafted = time.perf_counter_ns()
        chunks = self._chunks(reading, rounds) if reading else []
        parts: list[Part] = [*rounds, *chunks]
        out = self.evaluate(parts)
        logits = out.read()
        evaluated = time.perf_counter_ns()
        if self.chain.lengths is not None and not chunks:
            n_rows = sum([len(each.tokens) for each in rounds])
            if n_rows > 1 or not self._n_steps % PLAIN_SHARE:
                self.chain.lengths.costs.observe(n_rows, evaluated - drafted)
        row = 0
        for each in rounds:
            n_rows = len(each.tokens)
            self._verify(each, logits[row : row + n_rows])
            row += n_rows
        verified = time.perf_counter_ns()
        self.extend(parts, out.features)
        for each in rounds:
            if each.draft is not None and each.n_kept:
                self.chain.accept(each.slot.index, each.n_kept - 1, each.n_accepted)
        settled = time.perf_counter_ns()
        ns, draft_ns, verify_ns = settled - begun, drafted - begun, evaluated - drafted
        for each in rounds:
            timings = each.sequence.timings
            timings.predicted_ns += ns
            timings.draft_ns += draft_ns + settled - verified
            timings.verify_ns += verify_ns
            if each.n_kept:
                if each.draft is None:
                    each.sequence.plain_steps.append(verified - drafted)
                timings.count_round(len(each.tokens) - 1, each.n_accepted, ns)
                if each.sequence.request.trace:
                    each.record(draft_ns, verify_ns)
        for chunk in chunks:
            n_rows = len(chunk.tokens) if chunk.n_outputs is None else chunk.n_outputs
            self._read(chunk, logits[row : row + n_rows], begun)
            row += n_rows

    def _place(self, part: Part, row: int) -> tuple[Ints, Ints, Ints, Ints]:
        """The arguments of the forward for a part whose first row is `row`."""
        counting, slot, n_outputs = self._counting, part.slot, part.n_outputs
        start, n = len(slot.history), len(part.tokens)
        part.ids = ids = np.array(part.tokens, dtype=np.int32)
        part.positions = positions = counting[start : start + n]
        if part.parents is not None:
            positions = start + np.array(_levels(part.parents), dtype=np.int32)
        first = row if n_outputs is None else row + n - n_outputs
        return ids, positions, self._slot_rows[slot.index][:n], counting[first : row + n]

    def _paths(self, parts: list[Part]) -> Ints:
        """Where the tokens of trees are written and find their ancestors; see `Model.forward`."""
        paths = []
        for part in parts:
            start, options = len(part.slot.history), self.target.options
            rows = chain_paths(self._counting[start : start + len(part.tokens)], options)
            for node, parent in enumerate(part.parents or ()):
                line = [start + 1 + node]
                while parent >= 0:
                    line.append(start + 1 + parent)
                    parent = part.parents[parent] if part.parents else -1
                if line[0] != start + len(line):  # not where it would be in a chain
                    rows[node + 1, 1] = start + 1
                    rows[node + 1, 2 : 2 + len(line)] = line[::-1]
            paths.append(rows)
        return np.concatenate(paths)

    def _compact(self, part: Part, first_row: int, features: Mapping[str, Buffer]) -> tuple[list[int], Ints, Ints]:
        """Moves what is kept of a tree to where it would be in a chain: cells, and captured states.

        Returns:
            The tokens kept, as a list and as numbers, and their positions.
        """
        start, kept = len(part.slot.history), [0, *(1 + node for node in part.path)] if part.n_kept else []
        for place, row in enumerate(kept):
            if place != row:  # it lies further back, so nothing that is still wanted is overwritten
                self.target.cache.move(part.slot.index, start + row, start + place)
                for states in features.values():
                    states.restore(states.save(first_row + row, first_row + row + 1), first_row + place)
        return [part.tokens[row] for row in kept], part.ids[kept], self._counting[start : start + len(kept)]

    def _draft(self, rounds: list[_Round], n_reading: int) -> None:
        """Asks the drafters; requests share the rows that no request needs."""
        if self.chain.skips(len(rounds)):
            for each in rounds:
                each.sequence.timings.n_rounds_skipped += 1
            return
        options = self.target.options
        n_beside = options.max_tokens // PROMPT_SHARE if n_reading else 0
        n_rows = options.max_tokens - n_beside
        share = (min(n_rows, options.max_outputs - n_reading) - len(rounds)) // len(rounds)
        asking, requests = [], []
        for each in rounds:
            sequence, slot = each.sequence, each.slot
            most = min(share, sequence.room(self.n_ctx))
            if most > 0:
                last, sampler = sequence.tokens[-1], sequence.sampler
                asking.append(each)
                requests.append(
                    DraftRequest(slot.index, slot.history, last, most, sampler.config.temperature, sampler.seed)
                )
        if requests:
            for each, (draft, drafter) in zip(asking, self.chain.draft(requests, n_beside), strict=True):
                each.sequence.timings.draft_n_cut += draft.n_cut
                if drafter is not None:
                    each.draft, each.drafter = draft, drafter
                    each.tokens += draft.tokens
                    each.parents = draft.parents
                elif not self.chain.is_asking:
                    each.sequence.timings.n_rounds_skipped += 1

    def _chunks(self, reading: list[Sequence], rounds: list[_Round]) -> list[_Chunk]:
        """The next tokens of prompts, beside the rows of the rounds: evenly shared, and if too few, first come."""
        options = self.target.options
        n_needed = sum(len(each.tokens) for each in rounds)
        n_rows = options.max_tokens - n_needed
        if rounds:
            n_rows = min(n_rows, max(1, options.max_tokens // PROMPT_SHARE))
        spare_outputs = options.max_outputs - n_needed - len(reading)
        if n_rows >= len(reading):  # what short prompts leave is for the others
            reading = sorted(reading, key=lambda each: len(each.prompt) - each.n_read)
        chunks = []
        for number, sequence in enumerate(reading):
            size = min(n_rows, max(1, n_rows // (len(reading) - number)))
            wants_all = sequence.request.prompt_logprobs
            if wants_all:
                size = min(size, 1 + spare_outputs)
            tokens = sequence.prompt[sequence.n_read : sequence.n_read + size]
            if not tokens:
                continue
            is_last = sequence.n_read + len(tokens) == len(sequence.prompt)
            if wants_all:
                spare_outputs -= len(tokens) - 1
            n_rows -= len(tokens)
            chunks.append(_Chunk(sequence, tokens, None if wants_all else int(is_last)))
        return chunks

    def _verify(self, each: _Round, rows: Floats) -> None:
        """Decides how much of a draft is accepted, and hands the tokens to the request; a failure ends the request."""
        sequence = each.sequence
        begun = time.perf_counter_ns()
        try:
            verdict = self.rule(each.draft or self._no_draft, rows, sequence.sampler)
        except Exception as error:
            sequence.end(error=error)
            return
        sequence.timings.sample_ns += time.perf_counter_ns() - begun
        if each.draft is not None and each.parents is not None:
            each.path = each.draft.path(verdict.tokens[: verdict.n_accepted])
            rows = rows[[0, *(1 + node for node in each.path)]] if sequence.request.logprobs else rows
        n_taken = sequence.take(verdict, each.drafter, rows, self.n_ctx)
        n_accepted = verdict.n_accepted
        each.verdict, each.n_taken, each.n_kept = verdict, n_taken, 1 + n_accepted
        each.n_accepted = n_accepted if n_accepted < n_taken else n_taken
        if verdict.error is not None and not sequence.is_done:
            sequence.end(error=verdict.error)

    def _read(self, chunk: _Chunk, rows: Floats, begun: int) -> None:
        """A chunk of a prompt is in the cache; behind the last one the answer begins."""
        sequence, timings = chunk.sequence, chunk.sequence.timings
        timings.prompt_n += len(chunk.tokens)
        if sequence.request.prompt_logprobs:
            sequence.note_prompt(sequence.n_read, rows)
        sequence.n_read += len(chunk.tokens)
        if sequence.is_reading:
            timings.prompt_ns += time.perf_counter_ns() - begun
            return
        sampler = sequence.sampler
        sampler.accept_prompt(sequence.prompt)
        if sequence.request.n_predict == 0:
            timings.prompt_ns += time.perf_counter_ns() - begun
            sequence.end("limit")
            return
        self.chain.begin(chunk.slot.index, sequence.prompt)
        try:
            token = sampler.sample(rows[-1])
            sampler.accept(token)
        except Exception as error:
            sequence.end(error=error)
            return
        timings.prompt_ns += time.perf_counter_ns() - begun
        sequence.take(Verdict([token]), None, rows[-1:], self.n_ctx)


def _levels(parents: list[int]) -> list[int]:
    """How far behind the first token each of a part's tokens comes, the first included."""
    levels = [0]
    for parent in parents:
        levels.append(1 + levels[1 + parent])
    return levels


class Generation(Sequence, Iterator[TokenEvent]):
    """A request that pulls its own events: asked for the next one, it runs steps of the engine until there is one."""

    def __init__(self, engine: Engine, prompt: list[int], request: RequestConfig, sampler: Sampler) -> None:
        super().__init__(prompt, request, sampler, engine.tokenizer)
        self._engine = engine

    def __next__(self) -> TokenEvent:
        while not self.events:
            if self.is_done:
                error, self.error = self.error, None
                raise StopIteration if error is None else error
            if self.slot is None:
                self._engine.make_room()
            self._engine.step([self])
        return self.events.popleft()

    def close(self) -> None:
        """Ends the request early; what its slot holds stays usable."""
        self.events.clear()
        if not self.is_done:
            self.end()


class _Chunk(Part):
    """Tokens of the prompt of the request `sequence`."""

    __slots__ = ("sequence",)

    def __init__(self, sequence: Sequence, tokens: list[int], n_outputs: int | None) -> None:
        super().__init__(_slot_of(sequence), tokens, n_outputs)
        self.sequence = sequence


class _Round(Part):
    """A round of one request: its newest token and what is drafted behind it. If the rule fails nothing is kept.

    Attributes:
        sequence: The request.
        draft: The draft; None without one.
        drafter: Whose it is.
        verdict: What the rule says; None until then, or if it failed.
        n_taken: Tokens that the request took.
        n_accepted: Draft tokens among them.
    """

    __slots__ = ("draft", "drafter", "n_accepted", "n_taken", "sequence", "verdict")

    def __init__(self, sequence: Sequence, slot: Slot) -> None:
        self.slot = slot
        self.tokens = [sequence.tokens[-1]]
        self.n_outputs = None
        self.parents = None
        self.path = []
        self.sequence = sequence
        self.draft: Draft | None = None
        self.drafter: str | None = None
        self.verdict: Verdict | None = None
        self.n_kept = self.n_taken = self.n_accepted = 0

    def record(self, draft_ns: int, verify_ns: int) -> None:
        """Adds the round to the request's trace."""
        assert self.verdict is not None
        start = int(self.positions[0])
        drafted, taken = tuple(self.tokens[1:]), tuple(self.verdict.tokens[: self.n_taken])
        self.sequence.rounds.append(Round(self.drafter, start, drafted, taken, self.n_accepted, draft_ns, verify_ns))


def _slot_of(sequence: Sequence) -> Slot:
    assert sequence.slot is not None, "the request has no slot"
    return sequence.slot
