"""Rejection sampling with the drafts of real networks keeps the target's distribution (chi-square)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from specli.drafters.base import Draft
from specli.drafters.settings import DraftConfig
from specli.engine.verify import lossless_rule
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.drafting import Pair, open_pair
from tests.support.runs import executors
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_assistant, tiny_eagle3, tiny_mtp
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


# --- drafts that p_min ends early, with an n_min ---------------------------------------------------------------------

N_DRAFTS = 2000
N_LETTERS = 12
SHORT_PROMPT, SHORT_LAST = [1, 2, 3, 4, 5, 6, 7], 3


def flat_head(seed: int) -> dict[str, np.ndarray | None]:
    """A head whose logits have a standard deviation of about 1."""
    return {"output.weight": np.random.default_rng(seed).normal(0, 1 / 8, (N_LETTERS, 64)).astype(np.float32)}


def of_letters(folder: Path, family: str) -> Path:
    return tiny_gguf(folder / "t.gguf", family, vocab="letters", tensors=flat_head(7))


def with_heads(folder: Path, n_heads: int) -> Path:
    return tiny_mtp(folder / "t.gguf", "qwen35", vocab="letters", own_norm=False, n_heads=n_heads, tensors=flat_head(7))


def spark(folder: Path) -> Path:
    """Its confidence depends on the token before only."""
    confidence = np.concatenate([np.zeros(64), np.random.default_rng(4).normal(0, 2, 16)]).astype(np.float32)
    tensors = {"conf_proj.weight": confidence[np.newaxis], "conf_proj.bias": np.zeros(1, np.float32)}
    return tiny_dflash(folder / "d.gguf", vocab="letters", markov=16, confidence=True, block_size=4, tensors=tensors)


# Name → files, p_min between the second slot's best probabilities, whether the tokens drawn decide on the length.
EARLY_ENDS: dict[str, tuple[Callable[[Path], tuple[Path, Path | None]], float, bool]] = {
    "draft-simple": (
        lambda f: (of_letters(f, "llama"), tiny_gguf(f / "d.gguf", vocab="letters", seed=1, tensors=flat_head(8))),
        0.23,
        True,
    ),
    "draft-eagle3": (lambda f: (of_letters(f, "qwen3"), tiny_eagle3(f / "d.gguf", vocab="letters")), 0.45, True),
    "draft-mtp": (lambda f: (with_heads(f, 1), None), 0.24, True),
    "draft-mtp several heads": (lambda f: (with_heads(f, 2), None), 0.25, True),
    "draft-mtp assistant": (
        lambda f: (tiny_gguf(f / "t.gguf", "gemma4"), tiny_assistant(f / "d.gguf")),
        0.28,
        True,
    ),
    "draft-dflash": (
        lambda f: (
            of_letters(f, "gemma3"),
            tiny_dflash(f / "d.gguf", vocab="letters", follows_target=True, block_size=4),
        ),
        0.617,
        False,
    ),
    "draft-dflash DFlash2": (
        lambda f: (of_letters(f, "qwen3"), tiny_dflash(f / "d.gguf", vocab="letters", selector=4, block_size=4)),
        0.6,
        True,
    ),
    "draft-dspark": (lambda f: (of_letters(f, "qwen2"), spark(f)), 0.5, True),
}


@pytest.mark.parametrize("name", EARLY_ENDS)
def test_n_min_and_p_min_leave_the_distribution_as_it_is(tmp_path: Path, name: str) -> None:
    """The share of the first tokens behind which a draft ends early, and of every token, within 4 standard deviations.

    Dropping these drafts, as llama.cpp does, is off by far more.
    """
    make, p_min, is_drawn = EARLY_ENDS[name]
    target, draft = make(tmp_path)
    config = DraftConfig(n_max=2, n_min=2, p_min=p_min, probabilistic=True)
    with open_pair(target, draft, name.split()[0], config, kernels=executors()[-1]) as pair:
        pair.prompt(SHORT_PROMPT)
        logits = rows_after(pair, [SHORT_LAST])[0].astype(np.float64)
        # A bias makes the target like what is drafted, so that most drafts stand: it must be felt if they are dropped.
        (candidates, q), *_ = pair.draft(SHORT_LAST, temperature=1.0).probabilities or []
        liked = logits.max() + np.log(q / q[0])
        bias = dict(zip(candidates.tolist(), (liked - logits[candidates]).tolist(), strict=True))
        logits[candidates] = liked
        p = np.exp(logits - logits.max())
        p /= p.sum()
        known: dict[tuple[int, ...], np.ndarray] = {}

        def firsts(drops_short: bool) -> tuple[np.ndarray, set[int], set[int]]:
            """Counts by token, and the tokens drafted first behind which a draft ended early, or went on."""
            sampling = SamplingConfig(
                temperature=1.0, samplers=("temperature",), seed=5, logit_bias=tuple(bias.items())
            )
            sampler = Sampler(sampling, pair.tokenizer, n_vocab=len(p))
            rule = lossless_rule(frozenset())
            counts, short, long = np.zeros(len(p)), set(), set()
            for _ in range(N_DRAFTS):
                drafted = pair.draft(SHORT_LAST, temperature=1.0, seed=11)
                assert drafted.probabilities is not None
                (short if len(drafted.tokens) == 1 else long).add(drafted.tokens[0])
                if drops_short and len(drafted.tokens) < config.n_min:
                    drafted = Draft()
                key = tuple(drafted.tokens)
                if key not in known:
                    known[key] = rows_after(pair, [SHORT_LAST, *key])
                counts[rule(drafted, known[key], sampler).tokens[0]] += 1
            return counts, short, long

        def deviations(counts: np.ndarray, short: set[int]) -> np.ndarray:
            """Of the share of `short` and of the tokens, in standard deviations."""
            places = list(short)
            found = np.append(counts, counts[places].sum())
            chance = np.append(p, p[places].sum())
            expected = N_DRAFTS * chance
            return np.abs(found - expected) / np.sqrt(np.maximum(expected * (1 - chance), 1))

        counts, short, long = firsts(drops_short=False)
        assert short
        assert bool(long) == is_drawn
        assert deviations(counts, short).max() < 4
        if is_drawn:
            assert deviations(firsts(drops_short=True)[0], short).max() > 6
