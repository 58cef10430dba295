"""Settings of the drafters as frozen records, with llama.cpp's defaults (speculation.md §1.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class NgramMapConfig:
    """Sizes of ngram-simple, ngram-map-k and ngram-map-k4v (each has its own record)."""

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1


@dataclass(frozen=True)
class NgramModConfig:
    """Sizes of ngram-mod."""

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64


@dataclass(frozen=True)
class DraftConfig:
    """Settings of the drafters that have a network.

    Attributes:
        survival: `p_min` bounds the probability that the whole draft up to a token stands, not that of the token
            alone; only for draft-dspark, which predicts it.
    """

    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0
    probabilistic: bool = False
    survival: bool = False

    @property
    def is_stepwise(self) -> bool:
        """What comes out of a step may decide how a draft goes on; if not, greedy drafts are made in one go."""
        return self.probabilistic or self.p_min > 0


@dataclass(frozen=True)
class SynthConfig:
    """Synthetic acceptance (speculation.md §7): a mean length, or unconditional rates, or neither."""

    length: float | None = None
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class SpeculationConfig:
    """Which drafters run and how. `types` empty: inferred from the draft file, or no drafting."""

    types: tuple[str, ...] = ()
    draft: DraftConfig = field(default_factory=DraftConfig)
    ngram_simple: NgramMapConfig = field(default_factory=NgramMapConfig)
    ngram_map_k: NgramMapConfig = field(default_factory=NgramMapConfig)
    ngram_map_k4v: NgramMapConfig = field(default_factory=NgramMapConfig)
    ngram_mod: NgramModConfig = field(default_factory=NgramModConfig)
    lookup_cache_static: Path | None = None
    lookup_cache_dynamic: Path | None = None
    synth: SynthConfig = field(default_factory=SynthConfig)
