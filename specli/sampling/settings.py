"""Settings of the sampler as one frozen record, with llama.cpp's defaults (`common/common.h`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from specli.rng import RANDOM_SEED

DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@dataclass(frozen=True)
class Triggers:
    """What a lazy grammar waits for; until then the text is free.

    Attributes:
        words: Texts with which the constrained part begins.
        tokens: Tokens that begin it, whatever they are written with.
        thought: What begins and what ends a thought at the beginning of the text, which triggers nothing.
        is_thinking: The text begins within a thought.
    """

    words: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    thought: tuple[str, str] | None = None
    is_thinking: bool = False


@dataclass(frozen=True)
class SamplingConfig:
    """How a request wants its tokens sampled, one field per llama.cpp option.

    What is None is the model's own choice (`general.sampling.*` in its file) or, where it makes none, llama.cpp's
    default; `settings` fills it in.
    """

    samplers: tuple[str, ...] | None = None
    seed: int = RANDOM_SEED
    temperature: float | None = None
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repeat_last_n: int | None = None
    repeat_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.90
    mirostat: int | None = None
    mirostat_lr: float | None = None
    mirostat_ent: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    grammar: str | None = None
    json_schema: str | None = None
    triggers: Triggers | None = None
    min_keep: int = 0

    def settings(self, model: Mapping[str, Any] = MappingProxyType({})) -> SamplingSettings:
        """With everything filled in.

        Args:
            model: The model's own choices, by field.
        """
        asked = {item.name: getattr(self, item.name) for item in fields(self)}
        return SamplingSettings(**{**model, **{name: value for name, value in asked.items() if value is not None}})


@dataclass(frozen=True)
class SamplingSettings(SamplingConfig):
    """Sampling in force: no field is left to the model. A temperature of 0 or less is greedy."""

    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    temperature: float = 0.80
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.10
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    mirostat: int = 0
    mirostat_lr: float = 0.10
    mirostat_ent: float = 5.00


MODEL_CHOICES = tuple(SamplingSettings.__annotations__)
"""Fields that are None until someone chooses."""
