"""`smollm3` (docs/targets.md §3.23; llama.cpp `src/models/smollm3.cpp`)."""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.models.architecture import ModelConfig
from specli.models.llama import Llama

_NO_ROPE_STEP = 4


class SmolLM3(Llama):
    """Llama whose every fourth layer does not rotate queries and keys."""

    rope_factors = "no"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds which layers do not rotate; no key says it."""
        config = super().configure(file)
        layers = (
            replace(layer, is_rotated=(index + 1) % _NO_ROPE_STEP > 0) for index, layer in enumerate(config.layers)
        )
        return replace(config, layers=tuple(layers))
