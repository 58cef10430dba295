"""Settings of the drafters as frozen records, with llama.cpp's defaults (docs/speculation.md §1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AUTO_LENGTH = -1  # a draft length: as many tokens as the network was made for


@dataclass(frozen=True)
class DraftConfig:
    """Settings of the drafters that have a network.

    Attributes:
        n_max: Longest draft, tokens; `AUTO_LENGTH` = as long as the network can (`NetworkSpec.auto_length`).
        survival: `p_min` bounds the probability that the whole draft up to a token stands, not that of the token
            alone; only for draft-dspark, which predicts it.
        tree: Most nodes of a draft tree of up to `n_max` levels; 0 = drafts are chains.
        p_split: A token beside the likeliest one is a node if it is more probable than this.
    """

    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0
    probabilistic: bool = False
    survival: bool = False
    tree: int = 0
    p_split: float = 0.1

    @property
    def is_stepwise(self) -> bool:
        """What comes out of a step may decide how a draft goes on; if not, greedy drafts are made in one go."""
        return self.probabilistic or self.p_min > 0 or self.tree > 0


@dataclass(frozen=True)
class SynthConfig:
    """Synthetic acceptance (docs/speculation.md §7): a mean length, or unconditional rates, or neither."""

    length: float | None = None
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class SpeculationConfig:
    """Which drafters run and how.

    Attributes:
        types: Drafter types; empty = the type of the draft file, or no drafting.
        adaptive: Before every round the drafters worth asking and their draft lengths are chosen, 0 included; the
            configured lengths are caps. If not, every drafter is asked in llama.cpp's order for all it may propose.
            The commands switch it on.
        ordered: Drafters are asked in llama.cpp's order even when lengths are adaptive, not the most promising first.
        draft: Settings of all types that have a network.
        tables: Settings of the other types, type → name → value. A row of `specli.drafters.DRAFTERS` lists the names;
            what is not given here has the row's default.
        synth: Synthetic acceptance.
        shared_pool: Sequences share what ngram-mod has learnt, so that drafts depend on what others said.
    """

    types: tuple[str, ...] = ()
    adaptive: bool = False
    ordered: bool = False
    draft: DraftConfig = field(default_factory=DraftConfig)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    synth: SynthConfig = field(default_factory=SynthConfig)
    shared_pool: bool = False
