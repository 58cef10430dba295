"""Drafts of tiny pairs against those of llama.cpp b11434 (tests/golden/record_drafts.py)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from specli.drafters.settings import DraftConfig
from tests.support.draft_cases import BLOCK_CASES, CASES, N_MAX, PROMPT
from tests.support.drafting import drafted_by, open_pair
from tests.support.runs import executors, skipping_unsupported

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "drafts.json").read_text(encoding="utf-8"))
ROUNDS, BLOCKS = GOLDEN["rounds"], GOLDEN["blocks"]


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("name", CASES)
def test_candidates_of_every_step_are_the_recorded_ones(tmp_path: Path, kernels: str, name: str) -> None:
    """Ids exactly, probabilities as printed; rounds accept what the recorded ones did."""
    target, draft = CASES[name].write(tmp_path)
    config = DraftConfig(n_max=N_MAX, probabilistic=True)  # ten candidates
    with (
        skipping_unsupported(),
        open_pair(target, draft, CASES[name].spec_type, config, kernels=kernels) as pair,
    ):
        ids = pair.tokenizer.encode(PROMPT, add_special=True, parse_special=True)
        pair.prompt(ids[:-1])
        last = ids[-1]
        for number, found in enumerate(ROUNDS[name]):
            assert len(pair.history) == found["n_history"]
            values, best = drafted_by(pair, last)
            weights = np.exp(values - values[:, :1])
            probabilities = weights / weights.sum(axis=1, keepdims=True)
            for step, candidates in enumerate(found["steps"]):
                expected, recorded = zip(*candidates, strict=True)
                assert tuple(best[step, : len(expected)]) == expected, (number, step)
                np.testing.assert_allclose(probabilities[step, : len(expected)], recorded, rtol=0, atol=1e-3)
            drafted = [candidates[0][0] for candidates in found["steps"]]
            following = ROUNDS[name][number + 1 :]
            if following:
                n_accepted = following[0]["n_history"] - found["n_history"] - 1
                chosen = pair.verify(last, drafted, n_accepted).argmax(dim=1).tolist()
                assert chosen[:n_accepted] == drafted[:n_accepted]
                last = chosen[n_accepted]


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("name", BLOCK_CASES)
def test_candidates_of_every_position_of_a_block_are_the_recorded_ones(tmp_path: Path, kernels: str, name: str) -> None:
    case = BLOCK_CASES[name]
    target, draft = case.write(tmp_path)
    with (
        skipping_unsupported(),
        open_pair(target, draft, case.spec_type, DraftConfig(n_max=N_MAX, probabilistic=True), kernels=kernels) as pair,
    ):
        ids = pair.tokenizer.encode(PROMPT, add_special=True, parse_special=True)
        pair.prompt(ids[:-1])
        last = ids[-1]
        for found, following in pairwise(BLOCKS[name]):
            assert len(pair.history) == found["n_history"]
            drafted = pair.draft(last).tokens
            assert drafted == [candidates[0][0] for candidates in found["steps"]]
            proposals = pair.drafter.network.block_positions.read()  # type: ignore[attr-defined]
            for proposal, candidates in zip(proposals, found["steps"], strict=False):
                weights = np.exp(proposal.values - proposal.values[0])
                chances = dict(zip(proposal.ids.tolist(), weights / weights.sum(), strict=True))
                for token, recorded in candidates:
                    assert chances[token] == pytest.approx(recorded, abs=1e-3)
            n_accepted = following["n_history"] - found["n_history"] - 1
            chosen = pair.verify(last, drafted, n_accepted).argmax(dim=1).tolist()
            assert chosen[:n_accepted] == drafted[:n_accepted]
            last = chosen[n_accepted]
