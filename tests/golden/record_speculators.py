"""Records tests/golden/speculators.json: what the `speculators` package computes with the drafters of the fixtures.

    python -m tests.golden.record_speculators > tests/golden/speculators.json   # needs speculators; 0.9.0 was used

States of a target and tokens are drawn. EAGLE-3: the training pass gives logits of every step at every slot; a slot's
steps are the draft that begins there and reads the given tokens, as long as the window does not matter (behind the
first step, training lets a slot see its window and all its own steps, while a draft's window moves along). DFlash and
DSpark: hidden states of the slots of two blocks, and what a Markov head makes of them when the given tokens stand.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.checkpoints import CASES, DRAFT_V, TAPS, E
from tests.support.hf_files import V, random_values

EAGLE3 = ("eagle3-speculators", "eagle3-defaults", "eagle3-31")
BLOCKS = ("dflash-speculators-sliding", "dflash-speculators-anchor", "dspark-speculators-sliding")
N_STEPS = 3
N_TOKENS = {"eagle3": 12, "block": 24}
SLOTS = (2, 4, 9)
ANCHORS = (5, 14)
BLOCK, N_BEST = 8, 3


def inputs(n: int) -> tuple[Any, Any]:
    """States `[n, 3E]` and tokens `[n + 1]`: the state at i comes of token i."""
    import numpy as np

    states = random_values("states", (n, len(TAPS) * E)).astype(np.float32) * 40
    return states, np.random.default_rng(7).integers(5, V - 10, n + 1, dtype=np.int32)


def load(folder: Path, model_class: Any, config_class: Any, **more: Any) -> Any:
    """The package's model with the fixture's weights, and others by name."""
    import torch
    from safetensors.torch import load_file

    config = config_class.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    tensors = {**load_file(folder / "model.safetensors"), **more}
    exact = (torch.bool, torch.int64)
    tensors = {name: tensor if tensor.dtype in exact else tensor.float() for name, tensor in tensors.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected, unexpected
    assert all(name.startswith(("verifier_", "lm_head.")) for name in missing), missing
    return model


def rounded(values: Any) -> Any:
    return [rounded(item) for item in values] if isinstance(values, list) else round(values, 4)


def eagle3(folder: Path) -> list[list[list[float]]]:
    """Logits by slot and step."""
    import torch
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    model = load(folder, Eagle3DraftModel, Eagle3SpeculatorConfig)
    steps: list[Any] = []
    model.lm_head.register_forward_hook(lambda module, given, logits: steps.append(logits[0]))
    n = N_TOKENS["eagle3"]
    states, tokens = inputs(n)
    with torch.no_grad():  # token i + 1 stands beside the state at i
        model(
            torch.from_numpy(states)[None], torch.from_numpy(tokens[1:]).long()[None],
            torch.zeros(1, n, dtype=torch.long), ttt_steps=N_STEPS,
        )  # fmt: skip
    assert steps[0].shape == (n, DRAFT_V)
    return rounded([[steps[step][slot].tolist() for step in range(N_STEPS)] for slot in SLOTS])


def blocks(folder: Path, name: str) -> dict[str, Any]:
    """Hidden states by anchor and slot; with a Markov head also the best tokens, their logits, and confidence."""
    import speculators.models.dflash.core as core
    import torch
    from safetensors.torch import load_file

    if name.startswith("dspark"):
        from speculators.models.dspark import DSparkDraftModel as Model
        from speculators.models.dspark import DSparkSpeculatorConfig as Config
    else:
        from speculators.models.dflash import DFlashDraftModel as Model
        from speculators.models.dflash import DFlashSpeculatorConfig as Config
    with tempfile.TemporaryDirectory() as target:
        CASES["qwen3"].write(Path(target))
        embeddings = load_file(Path(target) / "model.safetensors")["model.embed_tokens.weight"]
    model = load(folder, Model, Config, **{"embed_tokens.weight": embeddings})
    anchors = torch.tensor(ANCHORS)
    core.select_anchors = lambda *given: (anchors, torch.ones(len(ANCHORS), dtype=torch.bool))
    n = N_TOKENS["block"]
    states, tokens = inputs(n)
    ids = torch.from_numpy(tokens[:n]).long()[None]
    with torch.no_grad():
        hidden, logits, *_ = model._backbone_forward(
            torch.from_numpy(states)[None], ids, torch.ones(1, n), torch.zeros(1, n, E),
            torch.zeros(1, n, dtype=torch.long), max_anchors=len(ANCHORS),
        )  # fmt: skip
        hidden = hidden.view(len(ANCHORS), BLOCK, E)
        found = {"hidden": rounded(hidden.tolist())}
        if not name.startswith("dspark"):
            return found
        previous = torch.stack([ids[0, anchor : anchor + BLOCK] for anchor in ANCHORS])
        markov = model.markov_head.prev_embeddings(previous)
        bias = model.markov_head.block_bias(prev_token_ids=previous, hidden_states=hidden, prev_emb=markov)
        values, best = (logits.view(len(ANCHORS), BLOCK, -1) + bias).topk(N_BEST)
        confidence = torch.sigmoid(model.confidence_head(torch.cat([hidden, markov], dim=-1))).view(-1, BLOCK)
    found |= {"values": rounded(values.tolist()), "ids": (best + model.d2t[best]).tolist()}
    return found | {"confidence": rounded(confidence.tolist())}


def main() -> None:
    found: dict[str, Any] = {}
    for name in (*EAGLE3, *BLOCKS):
        with tempfile.TemporaryDirectory() as folder:
            CASES[name].write(Path(folder))
            found[name] = eagle3(Path(folder)) if name in EAGLE3 else blocks(Path(folder), name)
    json.dump({"engine": f"speculators {version('speculators')}", **found}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
