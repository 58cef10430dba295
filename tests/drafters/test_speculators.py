"""Drafters as speculators writes them, converted, against the package's own numbers (golden/record_speculators.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.convert import ConvertConfig, ConvertReport, convert
from specli.drafters.settings import DraftConfig
from specli.gguf.file import GGUFFile
from specli.models.draft import Anchor, Part
from tests.golden.record_speculators import ANCHORS, BLOCK, BLOCKS, EAGLE3, N_STEPS, N_TOKENS, SLOTS, inputs
from tests.support.checkpoints import CASES
from tests.support.drafting import open_pair
from tests.support.runs import executors

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "speculators.json").read_text(encoding="utf-8"))
KERNELS = pytest.mark.parametrize("kernels", executors())


def converted(tmp_path: Path, name: str) -> tuple[Path, ConvertReport]:
    """The target's file, and the report on the drafter."""
    for case in (name, "qwen3"):
        CASES[case].write(tmp_path / case)
    target = convert(ConvertConfig(tmp_path / "qwen3", outfile=tmp_path / "target.gguf", outtype="f32"))
    request = ConvertConfig(tmp_path / name, outfile=tmp_path / "draft.gguf", outtype="f32", target=tmp_path / "qwen3")
    return target.paths[0], convert(request)


@KERNELS
@pytest.mark.parametrize("name", EAGLE3)
def test_eagle3_logits(tmp_path: Path, kernels: str, name: str) -> None:
    """At every slot and step where a window does not part training from drafting."""
    target, report = converted(tmp_path, name)
    draft = report.paths[0]
    with GGUFFile.open(draft) as file:
        window = file.metadata.get("eagle3.attention.sliding_window", "u32", 1000)
    states, tokens = inputs(N_TOKENS["eagle3"])
    config = DraftConfig(n_max=N_STEPS, probabilistic=True)
    with open_pair(target, draft, "draft-eagle3", config, kernels=kernels) as pair:
        network = pair.drafter._network  # type: ignore[attr-defined]
        for slot, steps in zip(SLOTS, RECORDED[name], strict=True):
            n = slot + 1
            network._features.data[:n] = torch.from_numpy(states[:n])
            network.ingest([Part(0, tokens[:n], 0, 0)])
            network.start([Anchor(0, int(tokens[n]), n)])
            for step, expected in enumerate(steps):
                if step:
                    network.advance(step, tokens[n + step : n + step + 1])
                if step == 0 or slot + step < window:
                    np.testing.assert_allclose(network.logits.data[0].numpy(), expected, rtol=0, atol=2e-4)


@KERNELS
@pytest.mark.parametrize("name", BLOCKS)
def test_slots_of_a_block(tmp_path: Path, kernels: str, name: str) -> None:
    """Layers that slide are causal within a block, others are not."""
    target, report = converted(tmp_path, name)
    recorded, is_dspark = RECORDED[name], name.startswith("dspark")
    states, tokens = inputs(N_TOKENS["block"])
    kind, config = "draft-dspark" if is_dspark else "draft-dflash", DraftConfig(n_max=BLOCK, probabilistic=True)
    with open_pair(target, report.paths[0], kind, config, kernels=kernels) as pair:
        network = pair.drafter.network  # type: ignore[attr-defined]
        first = network.config.first_position
        assert first == (name == "dflash-speculators-sliding")
        for index, anchor in enumerate(ANCHORS):
            network._features.data[:anchor] = torch.from_numpy(states[:anchor])
            network.ingest([Part(0, tokens[:anchor], 0, 0)])
            network.backbone([Anchor(0, int(tokens[anchor]), anchor)])
            hidden = network.block_positions.hidden.data.numpy()
            np.testing.assert_allclose(hidden, recorded["hidden"][index][first:], rtol=0, atol=5e-4)
            for slot in range(BLOCK if is_dspark else 0):  # the Markov head goes from slot to slot
                [proposal] = network.position(slot, tokens[anchor + slot : anchor + slot + 1])
                assert proposal.ids[: len(recorded["ids"][index][slot])].tolist() == recorded["ids"][index][slot]
                values, confidence = recorded["values"][index][slot], recorded["confidence"][index][slot]
                np.testing.assert_allclose(proposal.values[: len(values)], values, rtol=0, atol=2e-4)
                assert proposal.confidence == pytest.approx(confidence, abs=2e-4)


def test_one_causal_flag_where_layers_agree_and_a_pattern_with_a_warning_where_not(tmp_path: Path) -> None:
    alike, apart = (converted(tmp_path / name, name)[1] for name in (BLOCKS[0], BLOCKS[-1]))
    assert alike.metadata["dflash.attention.causal"] is True
    assert alike.warnings == ()
    assert apart.metadata["dflash.attention.causal_pattern"] == [True, False]
    assert "dflash.attention.causal" not in apart.metadata
    assert apart.warnings == (
        "only sliding layers are causal within a block: llama.cpp takes none to be, and drafts worse",
    )
