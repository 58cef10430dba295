"""EAGLE-3 heads as speculators writes them, converted, against the package's own logits (golden/record_eagle3.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.convert import ConvertConfig, convert
from specli.drafters.config import DraftConfig
from specli.gguf.file import GGUFFile
from tests.golden.record_eagle3 import N_STEPS, NAMES, SLOTS, inputs
from tests.support.checkpoints import CASES
from tests.support.drafting import open_pair
from tests.support.runs import executors

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "eagle3.json").read_text(encoding="utf-8"))["logits"]


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_trainer(tmp_path: Path, kernels: str, name: str) -> None:
    """At every slot and step where a window does not part training from drafting."""
    folder, target = tmp_path / name, tmp_path / "qwen3"
    CASES[name].write(folder)
    CASES["qwen3"].write(target)
    paths = [
        convert(ConvertConfig(source, outfile=tmp_path / out, outtype="f32", target=other)).paths[0]
        for source, out, other in ((target, "t.gguf", None), (folder, "d.gguf", target))
    ]
    with GGUFFile.open(paths[1]) as file:
        window = file.metadata.get("eagle3.attention.sliding_window", "u32", 1000)
    states, tokens = inputs()
    config = DraftConfig(n_max=N_STEPS, probabilistic=True)
    with open_pair(*paths, "draft-eagle3", config, kernels=kernels) as pair:
        network = pair.drafter._network  # type: ignore[attr-defined]
        for slot, steps in zip(SLOTS, RECORDED[name], strict=True):
            n = slot + 1
            network._features.data[:n] = torch.from_numpy(states[:n])
            network.ingest(tokens[:n], np.arange(n, dtype=np.int32), follows=True)
            network.start(int(tokens[n]), n)
            for step, expected in enumerate(steps):
                if step:
                    network.advance(step, int(tokens[n + step]))
                if step == 0 or slot + step < window:
                    np.testing.assert_allclose(network.logits.data[0].numpy(), expected, rtol=0, atol=2e-4)
