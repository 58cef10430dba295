"""What n-gram drafting costs per token as the history grows: `python tests/benchmarks/ngram_scaling.py`.

Reports only. The goal is at most 1.5 times the cost at 1k tokens for 128k. The text is made of phrases
that come back with Zipf frequencies, over a vocabulary of 50k tokens; every length ends at the same place of it.
`learn` is the processor time of `begin` and the first draft per prompt token, `draft` that of a round that goes on by
one token, with the defaults of the type; the best of several runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from specli.drafters.base import DraftRequest
from specli.drafters.ngram import NgramTable
from specli.drafters.ngram_cache import LookupFiles, NgramCache
from specli.drafters.ngram_map import NgramMapK, NgramMapK4V
from specli.drafters.ngram_mod import NgramMod
from specli.drafters.ngram_simple import NgramSimple

N_VOCAB = 50_000
LENGTHS = (1_024, 8_192, 32_768, 131_072)
DRAFTERS: dict[str, Callable[[], NgramTable]] = {
    "ngram-simple": lambda: NgramSimple(48, 12),
    "ngram-map-k": lambda: NgramMapK(48, 12),
    "ngram-map-k4v": lambda: NgramMapK4V(48, 12, 1),
    "ngram-mod": lambda: NgramMod(64, 24, 48),
    "ngram-cache": lambda: NgramCache(8, LookupFiles(n_vocab=N_VOCAB)),
}


def text(n_tokens: int, *, seed: int = 0) -> list[int]:
    """Phrases of 2 to 40 tokens, drawn with Zipf frequencies."""
    rng = np.random.default_rng(seed)
    phrases = [np.minimum(rng.zipf(1.3, rng.integers(2, 40)), N_VOCAB - 1).tolist() for _ in range(n_tokens // 20 + 50)]
    tokens: list[int] = []
    while len(tokens) < n_tokens:
        tokens += phrases[min(int(rng.zipf(1.2)), len(phrases)) - 1]
    return tokens[:n_tokens]


def measure(make: Callable[[], NgramTable], before: list[int], after: list[int]) -> tuple[float, float]:
    """Nanoseconds per token of the prompt `before`, and per round over the text `after`."""
    drafter = make()
    history = list(before)
    begun = time.thread_time_ns()
    drafter.begin(history)
    drafter.draft(DraftRequest(0, history, after[0], 64))
    learn = (time.thread_time_ns() - begun) / len(before)
    begun = time.thread_time_ns()
    for token, following in pairwise(after):
        history.append(token)
        drafter.draft(DraftRequest(0, history, following, 64))
    return learn, (time.thread_time_ns() - begun) / (len(after) - 1)


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2000)
    arguments = parser.parse_args()
    print(f"{'':14}{'tokens':>8}{'learn':>12}{'draft':>12}{'draft / draft at 1k':>22}")
    tokens = text(LENGTHS[-1] + arguments.rounds + 1)
    before, after = tokens[: LENGTHS[-1]], tokens[LENGTHS[-1] :]
    for name, make in DRAFTERS.items():
        base = 0.0
        for length in LENGTHS:
            runs = [measure(make, before[-length:], after) for _ in range(arguments.runs)]
            learn, draft = (min(values) for values in zip(*runs, strict=True))
            base = base or draft
            print(f"{name:14}{length:8}{learn / 1e3:9.2f} µs{draft / 1e3:9.2f} µs{draft / base:21.2f}x")


if __name__ == "__main__":
    main()
