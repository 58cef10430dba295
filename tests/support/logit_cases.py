"""Tiny targets whose likeliest continuations llama.cpp has recorded (tests/golden/logits.json)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.tiny_families import ARCHITECTURES
from tests.support.tiny_gguf import tiny_gguf

PROMPT = np.random.default_rng(11).integers(10, 200, 40).tolist()  # longer than the families' window of 16
LENGTHS = (1, 5, 13, 17, 24, 33, 40)  # of the prompt, whose next token is looked at
N_BEST = 6
SCALED = {
    "llama.rope.scaling.type": ("str", "linear"),
    "llama.rope.scaling.factor": ("f32", 4.0),
}
YARN = {
    "qwen3.rope.scaling.type": ("str", "yarn"),
    "qwen3.rope.scaling.factor": ("f32", 8.0),
    "qwen3.rope.scaling.original_context_length": ("u32", 32),
}


def _family(name: str, **fields: object) -> Callable[[Path], Path]:
    return lambda path: tiny_gguf(path, name, n_layer=4, **fields)  # type: ignore[arg-type]


ALWAYS_TIED = ("gemma2", "cohere2")  # llama.cpp refuses files of these that have a head


CASES: dict[str, Callable[[Path], Path]] = {
    **{name: _family(name, tied=name in ALWAYS_TIED) for name in ARCHITECTURES},
    "llama linear": _family("llama", metadata=SCALED),
    "qwen3 yarn": _family("qwen3", metadata=YARN),
    "qwen3 wide heads": _family("qwen3", head_size=32, n_head_kv=1),
}
