"""`mistral3`: Ministral 3 (docs/targets.md §3.29; llama.cpp `src/models/mistral3.cpp`).

A Llama with YaRN whose magnitude the file undoes, and queries that grow with their position.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.models.architecture import Keys, ModelConfig, Temperature
from specli.models.llama import Llama


class Mistral3(Llama):
    """Llama with attention temperature."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds YaRN's limits and magnitude and the temperature, whose steps are the context before scaling."""
        config = super().configure(file)
        keys = Keys(file)
        rope = config.layers[0].rope
        rope = replace(
            rope,
            beta_fast=keys.positive("rope.scaling.yarn_beta_fast", rope.beta_fast),
            beta_slow=keys.positive("rope.scaling.yarn_beta_slow", rope.beta_slow),
        )
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0)
        if rope.scaling == "yarn" and multiplier:
            magnitude = 1 + 0.1 * multiplier * math.log(max(1.0, rope.factor))
            rope = replace(rope, attention_factor=rope.attention_factor / magnitude)
        scale = keys.number("attention.temperature_scale", 0.0)
        if scale:
            rope = replace(rope, temperature=Temperature(scale, rope.n_ctx_original))
        return replace(config, layers=tuple(replace(layer, rope=rope) for layer in config.layers))
