"""How many threads a model gets and where they run (llama.cpp `common/common.cpp`)."""

from __future__ import annotations

from dataclasses import dataclass

MAX_THREADS = 512
"""Most threads of one model, as in llama.cpp; pool.c has the same number."""


@dataclass(frozen=True)
class ThreadConfig:
    """Threads of one model. None = the default (physical cores; for the batch field: as the plain one).

    Attributes:
        n_threads: For single-token steps; ≤ 0 means hardware threads.
        n_threads_batch: For prompt chunks and verifications.
        cpu_mask: CPUs allowed, None = all.
        strict: Pin one thread per CPU of the mask.
        poll: 0…100, how eagerly idle threads spin.
        priority: -1 low … 3 realtime.
    """

    n_threads: int | None = None
    n_threads_batch: int | None = None
    cpu_mask: frozenset[int] | None = None
    strict: bool = False
    poll: int = 50
    priority: int = 0
