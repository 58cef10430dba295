"""Records tests/golden/published.json: the tensors and logits of `transformers` for tests.support.published.

    python -m tests.golden.record_published [NAME …]     # transformers 5.24 was used; without names: all

Weights are those of `write_published`; logits are float32, of a whole prompt at once.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.published import GOLDEN, IDS, PROMPT, PUBLISHED, ROWS, config_of, write_published


def saved_shapes(name: str, folder: Path) -> dict[str, list[int]]:
    """What `save_pretrained` writes, by name."""
    (folder / "config.json").write_text(json.dumps(config_of(name)), encoding="utf-8")
    config = AutoConfig.from_pretrained(folder)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "saved")
    content = (folder / "saved" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return {tensor: entry["shape"] for tensor, entry in header.items() if tensor != "__metadata__"}


def transformers_logits(directory: Path) -> torch.Tensor:
    """`[T, V]` float32 of the prompt."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([PROMPT])).logits[0].float()
    return found


def record(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        shapes = saved_shapes(name, Path(folder))
        write_published(Path(folder) / "hf", name, shapes)
        logits = transformers_logits(Path(folder) / "hf")
    return {
        "shapes": shapes,
        "logits": [[round(float(logits[row, i]), 5) for i in IDS] for row in ROWS],
    }


def main() -> None:
    names = sys.argv[1:] or list(PUBLISHED)
    old = json.loads(GOLDEN.read_text(encoding="utf-8"))["families"] if GOLDEN.exists() else {}
    families = old | {name: record(name) for name in names}
    text = {"made_by": "transformers 5.24, by tests/golden/record_published.py", "families": families}
    GOLDEN.write_text(json.dumps(text, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
