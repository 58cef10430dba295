"""Settings of the sampler as one frozen record, with llama.cpp's defaults (`common/common.h`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from specli.rng import RANDOM_SEED

DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@dataclass(frozen=True)
class SamplingConfig:
    """Target sampling, one field per llama.cpp option. A temperature of 0 or less is greedy.

    Attributes:
        explicit: Names of the fields the user set; the model's own sampling defaults (`general.sampling.*`)
            replace the others only.
    """

    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    seed: int = RANDOM_SEED
    temperature: float = 0.80
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.10
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.90
    mirostat: int = 0
    mirostat_lr: float = 0.10
    mirostat_ent: float = 5.00
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    grammar: str | None = None
    json_schema: str | None = None
    min_keep: int = 0
    explicit: frozenset[str] = field(default=frozenset(), compare=False)
