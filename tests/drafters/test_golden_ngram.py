"""The n-gram drafters on token streams recorded with llama-speculative-simple of llama.cpp b11434."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specli.drafters.base import DraftRequest
from specli.drafters.chain import DrafterChain
from specli.drafters.ngram import NgramDrafter, NgramTable
from specli.drafters.ngram_cache import LookupFiles, NgramCache
from specli.drafters.ngram_map import NgramMapK, NgramMapK4V
from specli.drafters.ngram_mod import NgramMod
from specli.drafters.ngram_simple import NgramSimple

N_CTX, N_PREDICT = 1024, 128
RUNS = {
    "ngram-simple n4 m8": lambda: NgramSimple(8, 4),
    "ngram-simple defaults": lambda: NgramSimple(48, 12),
    "ngram-map-k n4 m8": lambda: NgramMapK(8, 4),
    "ngram-map-k defaults": lambda: NgramMapK(48, 12),
    "ngram-map-k4v n4 m8": lambda: NgramMapK4V(8, 4, 1),
    "ngram-map-k4v defaults": lambda: NgramMapK4V(48, 12, 1),
    "ngram-mod n4 m8": lambda: NgramMod(8, 4, 0),
    "ngram-mod defaults": lambda: NgramMod(64, 24, 48),
    "ngram-cache defaults": lambda: NgramCache(8, LookupFiles(n_vocab=49152)),
}
STATISTICS = re.compile(
    r"(?P<name>[\w-]+): #calls\(b,g,a\) = +(?P<calls>[\d ]+), #gen drafts = +(\d+), #acc drafts = +(\d+), "
    r"#gen tokens = +(\d+), #acc tokens = +(\d+)(?:, #mean acc len = ([\d.]+), #acc rate/pos = \((.*?)\))?, dur"
)


@cache
def recorded() -> list[dict[str, Any]]:
    runs = json.loads((Path(__file__).parents[1] / "golden" / "drafters.json").read_text(encoding="utf-8"))["runs"]
    return [run for run in runs if run["run"].startswith("ngram")]


def replay(make: Callable[[], NgramTable], run: dict[str, Any]) -> DrafterChain:
    """Feeds the recorded stream as llama-speculative-simple does.

    It drafts the first token too, so `begin` gets the prompt without its last token; a cap of 0 means none; and once a
    drafter has had a draft, it closes every round with `accept`, also those without a draft.
    """
    chain = DrafterChain([NgramDrafter(make)])
    *history, last = run["prompt_ids"]
    chain.begin(0, history)
    n_done = 0
    for position, token, drafted, verified in run["steps"]:
        assert (position, token) == (len(history), last)
        room = max(0, min(N_CTX - len(history) - 2, N_PREDICT - n_done - 1)) or N_CTX
        [(draft, _)] = chain.draft([DraftRequest(0, history, last, room)])
        assert draft.tokens == drafted
        chain.accept(0, len(verified) - 1)
        history += [last, *verified[:-1]]
        last = verified[-1]
        n_done += len(verified)
    return chain


@pytest.mark.parametrize("name", RUNS)
def test_drafts_and_statistics_equal_the_recorded_ones(name: str) -> None:
    runs = [run for run in recorded() if run["run"] == name]
    assert runs
    for run in runs:
        (stats,) = replay(RUNS[name], run).stats
        line = STATISTICS.fullmatch(run["statistics"][0].split(", dur")[0] + ", dur")
        assert line is not None
        counts = [*map(int, line["calls"].split()), *map(int, line.groups()[2:6])]
        assert line["name"] == stats.name
        assert counts == [
            stats.n_begin, stats.n_draft, stats.n_accept,
            stats.gen_drafts, stats.acc_drafts, stats.gen_tokens, stats.acc_tokens,
        ]  # fmt: skip
        if stats.n_accept:
            assert f"{stats.mean_acc_len:.2f}" == line.groups()[6]
            assert ", ".join(f"{rate:.3f}" for rate in stats.acceptance_per_pos) == line.groups()[7]


def test_every_recorded_ngram_run_is_replayed() -> None:
    assert {run["run"] for run in recorded()} == set(RUNS)
