"""Records tests/golden/eagle3.json: what the `speculators` package computes with the EAGLE-3 heads of the fixtures.

    python -m tests.golden.record_eagle3 > tests/golden/eagle3.json   # needs speculators; 0.9.0 was used

States of a target and tokens are drawn; the training pass gives logits of every step at every slot. A slot's steps are
the draft that begins there and reads the given tokens, as long as the window does not matter: behind the first step,
training lets a slot see its window and all its own steps, while a draft's window moves along.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.checkpoints import CASES, DRAFT_V, TAPS, E, V, random_values

NAMES = ("eagle3-speculators", "eagle3-defaults", "eagle3-31")
N_TOKENS, N_STEPS = 12, 3
SLOTS = (2, 4, 9)


def inputs() -> tuple[Any, Any]:
    """States `[12, 3E]` and tokens `[13]`: token i + 1 stands beside the state at i."""
    import numpy as np

    states = random_values("states", (N_TOKENS, len(TAPS) * E)).astype(np.float32) * 40
    return states, np.random.default_rng(7).integers(5, V - 10, N_TOKENS + 1, dtype=np.int32)


def record(folder: Path) -> list[list[list[float]]]:
    """Logits by slot and step, rounded."""
    import torch
    from safetensors.torch import load_file
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config).float().eval()
    missing, unexpected = model.load_state_dict(
        {
            name: t if t.dtype in (torch.bool, torch.int64) else t.float()
            for name, t in load_file(folder / "model.safetensors").items()
        },
        strict=False,
    )
    assert not unexpected, unexpected
    assert all(name.startswith("verifier_") for name in missing), missing
    steps: list[Any] = []
    model.lm_head.register_forward_hook(lambda module, given, logits: steps.append(logits[0]))
    states, tokens = inputs()
    with torch.no_grad():
        model(
            torch.from_numpy(states)[None], torch.from_numpy(tokens[1:]).long()[None],
            torch.zeros(1, N_TOKENS, dtype=torch.long), ttt_steps=N_STEPS,
        )  # fmt: skip
    assert steps[0].shape == (N_TOKENS, DRAFT_V)
    return [[[round(x, 4) for x in steps[step][slot].tolist()] for step in range(N_STEPS)] for slot in SLOTS]


def main() -> None:
    found = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            CASES[name].write(Path(folder))
            found[name] = record(Path(folder))
    json.dump({"engine": f"speculators {version('speculators')}", "logits": found}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
