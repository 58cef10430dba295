"""Rejection sampling with the drafts of real networks keeps the target's distribution (chi-square)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from specli.drafters.config import DraftConfig
from specli.engine.verify import lossless_rule
from specli.sampling.config import SamplingConfig
from specli.sampling.sampler import Sampler
from tests.support.drafting import Pair, open_pair
from tests.support.runs import executors
from tests.support.tiny_drafters import tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

N_TRIALS = 20_000  # finds a token whose share is off by 2 of 100 points with a probability above 0.999
TOP_K = 8
LIMIT = 40.5  # 1 - 1e-6 quantile of chi-square with 7 degrees of freedom
LAST = 50
PROMPT = [(7 * i * i + 3 * i) % 190 + 5 for i in range(20)] + [LAST] * 3


def rows_after(pair: Pair, tokens: list[int]) -> np.ndarray:
    """The target's logits `[len(tokens), V]` behind the history, which stays."""
    ids = np.array(tokens, np.int32)
    positions = np.arange(len(pair.history), len(pair.history) + len(ids), dtype=np.int32)
    out = pair.target.forward(ids, positions, np.zeros_like(ids), np.arange(len(ids), dtype=np.int32))
    return out.logits.numpy().copy()


def chances(logits: np.ndarray, temperature: float) -> dict[int, float]:
    best = np.argsort(-logits, kind="stable")[:TOP_K]
    weights = np.exp((logits[best].astype(np.float64) - logits[best[0]]) / temperature)
    return {int(token): float(w) for token, w in zip(best, weights / weights.sum(), strict=True)}


def chi_square(counts: Counter[int], expected: dict[int, float]) -> float:
    assert counts.keys() <= expected.keys()
    total = sum(counts.values())
    return sum((counts[token] - total * p) ** 2 / (total * p) for token, p in expected.items())


@pytest.mark.slow
@pytest.mark.parametrize("spec_type", ["draft-eagle3", "draft-mtp"])
def test_tokens_follow_the_target(tmp_path: Path, spec_type: str) -> None:
    """The first token of a round, and the second given the first; drafts of two tokens.

    The temperature makes the likeliest of eight tokens e³ times as likely as the last.
    """
    if spec_type == "draft-eagle3":
        target = tiny_gguf(tmp_path / "t.gguf", "qwen3", tied=True)
        draft: Path | None = tiny_eagle3(tmp_path / "d.gguf", follows_target=True)
    else:
        target, draft = tiny_mtp(tmp_path / "t.gguf", "qwen3", follows_target=True), None
    config = DraftConfig(n_max=2, probabilistic=True)
    with open_pair(target, draft, spec_type, config, kernels=executors()[-1]) as pair:
        pair.prompt(PROMPT)
        logits = rows_after(pair, [LAST])[0]
        best = np.sort(logits)[::-1]
        temperature = float(best[0] - best[TOP_K - 1]) / 3
        sampling = SamplingConfig(temperature=temperature, top_k=TOP_K, top_p=1.0, min_p=0.0, seed=11)
        sampler = Sampler(sampling, pair.tokenizer, n_vocab=pair.target.config.n_vocab)
        rule = lossless_rule(frozenset())
        first = chances(logits, temperature)
        likeliest = max(first, key=lambda token: first[token])
        second = chances(rows_after(pair, [LAST, likeliest])[1], temperature)
        known: dict[tuple[int, ...], np.ndarray] = {}
        firsts: Counter[int] = Counter()
        seconds: Counter[int] = Counter()
        proposed: Counter[int] = Counter()
        for _ in range(N_TRIALS):
            drafted = pair.draft(LAST, temperature=temperature, seed=11)
            key = tuple(drafted.tokens)
            if key not in known:
                known[key] = rows_after(pair, [LAST, *key])
            tokens = rule(drafted, known[key], sampler).tokens
            firsts[tokens[0]] += 1
            proposed[drafted.tokens[0]] += 1
            if len(tokens) > 1 and tokens[0] == likeliest:
                seconds[tokens[1]] += 1
        assert chi_square(firsts, first) < LIMIT
        assert chi_square(seconds, second) < LIMIT
        assert sum(seconds.values()) > N_TRIALS / 50
        inside = Counter({token: n for token, n in proposed.items() if token in first})
        assert chi_square(inside, first) > LIMIT  # what the drafter proposed does not follow the target
