"""Tiny checkpoints against what llama.cpp b11434 and transformers make of them (../shared/golden/zoo)."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from specli.models.base import Model
from tests.support.hf import write_hf_gguf
from tests.support.running import all_logits, forward, negative_log_likelihood, open_model

# Recorded values are rounded to 1e-5 or 1e-6. gemma3: llama.cpp looks GELU up in a half-precision table, which moves
# its logits by up to 0.004.
TOLERANCE = {"llama": 2e-4, "qwen3": 2e-4, "gemma3": 8e-3}
NEAR_TIE = 0.02  # top-two gap below which another order of rounding may choose the other token


@pytest.fixture(params=TOLERANCE)
def zoo(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, dict]:
    folder = shared / "golden" / "zoo" / request.param
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    return _model(folder, tmp_path_factory.getbasetemp() / f"{request.param}.gguf"), golden


@cache
def _model(folder: Path, path: Path) -> Model:
    config = json.loads((folder / "hf" / "config.json").read_text(encoding="utf-8"))
    weights = {name: t.float().numpy() for name, t in load_file(folder / "hf" / "model.safetensors").items()}
    return open_model(write_hf_gguf(path, config, weights))


@pytest.mark.parametrize("reference", ["logits", "transformers"])
def test_prompts_have_the_recorded_likelihoods(zoo: tuple[Model, dict], reference: str) -> None:
    model, golden = zoo
    tolerance = TOLERANCE[golden["model"]] if reference == "logits" else 2e-4
    for prompt, recorded in zip(golden["logits"], golden[reference], strict=True):
        logits = all_logits(model, prompt["ids"])
        nll = negative_log_likelihood(logits, prompt["ids"]).numpy()
        np.testing.assert_allclose(nll, recorded["nll"], rtol=0, atol=2 * tolerance)
        assert logits.argmax(dim=1).tolist() == recorded["argmax"]
        ids, values = zip(*recorded["top10"], strict=True)
        np.testing.assert_allclose(logits[-1, list(ids)].numpy(), values, rtol=0, atol=tolerance)


def test_greedy_continuations_are_the_recorded_ones(zoo: tuple[Model, dict]) -> None:
    model, golden = zoo
    for prompt in golden["logits"]:
        ids = list(prompt["ids"])
        logits = all_logits(model, ids)[-1]
        for expected, gap in zip(prompt["greedy"], prompt["greedy_top2_gap"], strict=True):
            if gap < NEAR_TIE:
                break
            assert int(logits.argmax()) == expected
            best = torch.topk(logits, 2).values
            assert float(best[0] - best[1]) == pytest.approx(gap, abs=2 * TOLERANCE[golden["model"]])
            logits = forward(model, [expected], start=len(ids)).logits[0]
            ids.append(expected)
