"""Driving many requests through one engine: who runs, who waits, and what comes back.

The server, `generate --prompts -np N` and `stats -np N` all run their steps here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from specli.engine.loop import Engine
from specli.engine.sequence import Sequence


class Scheduler:
    """Requests in order of arrival; the first of them have slots, the others wait.

    Args:
        engine: Runs them.
        n_running: Requests that run at once at most; None = one per slot.

    Attributes:
        sequences: Those that have not ended, in order of arrival.
        n_running: Requests that run at once at most.
        engine: As given.
    """

    def __init__(self, engine: Engine, n_running: int | None = None) -> None:
        self.sequences: list[Sequence] = []
        self.n_running = len(engine.slots) if n_running is None else min(n_running, len(engine.slots))
        self.engine = engine

    def add(self, sequence: Sequence) -> None:
        """Takes a request; it begins in one of the next steps."""
        self.sequences.append(sequence)

    def step(self) -> int:
        """Runs one step of the engine for those whose turn it is.

        Returns:
            How many requests it took further; 0 if there was nothing to do.

        Raises:
            Exception: The step failed, which ended the requests in it; the others can go on.
        """
        waiting = [each for each in self.sequences if not each.is_done]
        running = [each for each in waiting if each.slot is not None]
        room = self.n_running - len(running)
        if room:
            running += islice((each for each in waiting if each.slot is None and self.engine.can_begin(each)), room)
        try:
            if running:
                self.engine.step(running)
        finally:
            self.sequences = [each for each in waiting if not each.is_done]
        return sum(each.slot_index >= 0 for each in running)

    def run(self, requests: Iterable[Sequence], is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Sequence]:
        """Answers requests; the next one is taken from `requests` when there is room for it to run.

        Args:
            requests: What is asked for.
            is_stopped: Asked before every step; once it is true, nothing more is taken, and requests under way end as
                interrupted and are not given back.

        Yields:
            A request that has `events` which nobody has taken yet, or that has ended; in each step in order of arrival.

        Raises:
            Exception: A step failed.
        """
        source = iter(requests)
        is_drained = False
        try:
            while not is_stopped():
                while not is_drained and len(self.sequences) < self.n_running:
                    sequence = next(source, None)
                    if sequence is None:
                        is_drained = True
                    else:
                        self.add(sequence)
                stepped = list(self.sequences)
                if not stepped:
                    return
                self.step()
                yield from (each for each in stepped if each.events or each.is_done)
        finally:
            for each in self.sequences:
                each.end()
            self.sequences.clear()
