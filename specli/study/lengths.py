"""The draft settings of each drafter type that measuring varies: where they lie in the configuration, their range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specli.drafters.config import SpeculationConfig


@dataclass(frozen=True)
class Knob:
    """One setting of one drafter type.

    Attributes:
        record: Field of `SpeculationConfig` that holds it.
        field: Its name there.
        option: Its spelling on the command line.
        values: What a search tries, in order.
        is_length: It bounds the draft.
    """

    record: str
    field: str
    option: str
    values: tuple[float, ...]
    is_length: bool = False

    def read(self, config: SpeculationConfig) -> Any:
        """The value in force."""
        return getattr(getattr(config, self.record), self.field)

    def write(self, config: SpeculationConfig, value: float) -> SpeculationConfig:
        """The configuration with another value."""
        record = getattr(config, self.record)
        number = type(getattr(record, self.field))(value)
        return replace(config, **{self.record: replace(record, **{self.field: number})})


KEYS = (2, 3, 4, 6, 8, 12, 16, 24)
SPANS = (2, 4, 8, 16, 32, 48, 64)
CHAINS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
CHANCES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def _network(chances: tuple[float, ...] = CHANCES) -> tuple[Knob, ...]:
    return (
        Knob("draft", "n_max", "--spec-draft-n-max", CHAINS, is_length=True),
        Knob("draft", "p_min", "--spec-draft-p-min", chances),
    )


def _map(name: str) -> tuple[Knob, ...]:
    record = name.replace("-", "_")
    return (
        Knob(record, "size_n", f"--spec-{name}-size-n", KEYS),
        Knob(record, "size_m", f"--spec-{name}-size-m", SPANS, is_length=True),
    )


KNOBS: Mapping[str, tuple[Knob, ...]] = {
    "ngram-simple": _map("ngram-simple"),
    "ngram-map-k": _map("ngram-map-k"),
    "ngram-map-k4v": (
        *_map("ngram-map-k4v"),
        Knob("ngram_map_k4v", "min_hits", "--spec-ngram-map-k4v-min-hits", (1, 2, 3)),
    ),
    "ngram-mod": (
        Knob("ngram_mod", "n_match", "--spec-ngram-mod-n-match", KEYS),
        Knob("ngram_mod", "n_min", "--spec-ngram-mod-n-min", (0, 2, 4, 8, 16, 32, 48)),
        Knob("ngram_mod", "n_max", "--spec-ngram-mod-n-max", SPANS, is_length=True),
    ),
    "ngram-cache": (),
    "draft-simple": _network(),
    "draft-eagle3": _network(),
    "draft-mtp": _network(),
    "draft-dflash": _network(),
    "draft-dspark": _network(),
}
"""Knobs by drafter type. What `--spec-draft-*` sets is shared by all networks."""


def with_length(config: SpeculationConfig, types: Sequence[str], length: int) -> SpeculationConfig:
    """The configuration with drafts of at most `length` tokens for all the types that can be bounded."""
    for name in types:
        for knob in KNOBS[name]:
            if knob.is_length:
                config = knob.write(config, length)
    if "ngram-mod" in types and config.ngram_mod.n_min > length:
        config = replace(config, ngram_mod=replace(config.ngram_mod, n_min=length))
    if config.draft.n_min > config.draft.n_max:
        config = replace(config, draft=replace(config.draft, n_min=config.draft.n_max))
    return config
