"""One client's request on the event loop: what comes from the engine, as a whole or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from specli.engine.sequence import Sequence, TokenLogprob
from specli.serve.deadline import Within
from specli.serve.errors import RequestError
from specli.serve.fields import Params
from specli.serve.records import ChatForm, CompletionForm, Form, early_timings, event, timings_record
from specli.serve.worker import Batch, Progress, Ticket, Worker

MAX_UNREAD = 4096
"""Steps of an answer that may wait for a client that does not read; then the answer is given up."""

PING = b":\n\n"
DONE = b"data: [DONE]\n\n"


class Answer:
    """The sequences of one request.

    Args:
        sequences: What is generated, in the order of the answer.
        worker: Runs them.
        streams: News come with every step, not only at the end of each sequence.
        tells_progress: Batches tell how far prompts have been read.
    """

    def __init__(
        self, sequences: list[Sequence], worker: Worker, *, streams: bool, tells_progress: bool = False
    ) -> None:
        self.sequences = sequences
        self.tickets = [
            Ticket(sequence, index, self._put, streams=streams, tells_progress=tells_progress)
            for index, sequence in enumerate(sequences)
        ]
        self._is_given_up = False
        self._worker = worker
        self._queue: asyncio.Queue[Batch] = asyncio.Queue()

    async def next(self) -> Batch:
        """The next news of any of the sequences.

        Raises:
            RequestError: One of them failed, which ends the others.
        """
        batch = await self._queue.get()
        if batch.error is not None:
            self.cancel()
            raise batch.error
        return batch

    async def wait(self, batch: Batch) -> None:
        """Waits for the end of all, from the first batch on.

        Raises:
            RequestError: One of them failed.
        """
        n_open = len(self.sequences) - batch.is_last
        while n_open:
            n_open -= (await self.next()).is_last

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._worker.cancel(self.tickets)

    def _put(self, batch: Batch) -> None:
        if self._is_given_up:
            return
        if self._queue.qsize() >= MAX_UNREAD and not batch.is_last:
            self._is_given_up = True
            self.cancel()
            error = RequestError("the client does not read its answer", "server_error")
            batch = Batch(batch.index, [], is_last=True, error=error)
        self._queue.put_nowait(batch)


@dataclass
class _Pending:
    """What a sequence of a stream has not told yet.

    Attributes:
        has_begun: Its first event is out.
        has_progress: An event has told how much of the prompt was found in a slot.
        logprobs: Of tokens whose text is held back.
    """

    has_begun: bool = False
    has_progress: bool = False
    logprobs: list[TokenLogprob] = field(default_factory=list)


async def stream(answer: Answer, form: Form, params: Params, first: Batch) -> AsyncIterator[bytes]:
    """The events of an answer, its end mark included; an error becomes the last event."""
    pending = [_Pending() for _ in answer.sequences]
    n_open, batch = len(answer.sequences), first
    try:
        while True:
            if events := events_of(answer, form, params, batch, pending[batch.index]):
                yield b"".join(map(event, events))
            n_open -= batch.is_last
            if not n_open:
                break
            while True:
                try:
                    async with Within(max(0, params.ping_interval)):
                        batch = await answer.next()
                    break
                except asyncio.TimeoutError:
                    yield PING
    except RequestError as error:
        yield event(error.record())
        return
    if params.has_usage and isinstance(form, CompletionForm | ChatForm):
        yield event(form.usage(answer.sequences))
    if form.ends_with_done:
        yield DONE


def events_of(answer: Answer, form: Form, params: Params, batch: Batch, pending: _Pending) -> list[dict[str, object]]:
    """The events of one batch."""
    index, sequence = batch.index, answer.sequences[batch.index]
    events: list[dict[str, object]] = []
    if batch.progress is not None:
        found = [] if pending.has_progress else [Progress(sequence.timings.cache_n, 0)]
        pending.has_progress = True
        for progress in (*found, batch.progress):
            events += form.progress(sequence, index, progress)
            if params.has_timings:
                events[-1]["timings"] = early_timings(sequence, progress)
    if not pending.has_begun and (batch.events or batch.is_last):
        pending.has_begun = True
        events += form.begin(index)
    for token in batch.events:
        if token.logprob is not None:
            pending.logprobs.append(token.logprob)
        if not token.text and form.ends_with_done:
            continue
        parts = form.parts(sequence, index, token, pending.logprobs)
        if parts:
            pending.logprobs = []
        for part in parts:
            if params.shows_drafters:
                part["drafter"] = token.from_draft
            if params.has_timings:
                part["timings"] = timings_record(sequence)
        events += parts
    if batch.is_last:
        events += form.end(sequence, index, pending.logprobs)
    return events
