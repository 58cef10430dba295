"""How a sampler chain is built from settings and the model's own defaults (llama.cpp `common/sampling.cpp`, b11434)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from specli.errors import UsageError
from specli.gguf.metadata import FloatKind, IntKind, Metadata
from specli.rng import MersenneTwister
from specli.sampling.dry import Dry, find_breakers
from specli.sampling.links import (
    AdaptiveP,
    Distribution,
    DynamicTemperature,
    Link,
    LogitBias,
    MinP,
    Mirostat,
    Penalties,
    Picker,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
    Xtc,
    f32,
)
from specli.sampling.names import SAMPLER_LETTERS, canonical_sampler
from specli.sampling.settings import SamplingConfig, SamplingSettings
from specli.sampling.vocabulary import SamplerVocabulary

log = logging.getLogger(__name__)

CERTAIN = 1e15
"""The bias that stands for +inf: no logit comes near, and no link of the chain overflows. (llama.cpp adds the infinity,
and what its samplers then make of inf - inf depends on their order.)
"""


@dataclass(frozen=True)
class ChainContext:
    """What links are built from.

    Attributes:
        config: The settings.
        vocabulary: The tokenizer.
        n_vocab: Width of the logits.
        seed: Resolved seed; every random link has its own stream of it.
    """

    config: SamplingSettings
    vocabulary: SamplerVocabulary
    n_vocab: int
    seed: int

    def stream(self) -> MersenneTwister:
        """A new stream of the request's seed."""
        return MersenneTwister(self.seed)


def _penalties(context: ChainContext) -> Link | None:
    c = context.config
    is_neutral = c.repeat_penalty == 1 and c.frequency_penalty == 0 and c.presence_penalty == 0
    if c.repeat_last_n <= 0 or is_neutral:
        return None
    return Penalties(c.repeat_last_n, c.repeat_penalty, c.frequency_penalty, c.presence_penalty)


def _dry(context: ChainContext) -> Link | None:
    c = context.config
    if c.dry_multiplier == 0 or c.dry_base < 1 or c.dry_penalty_last_n <= 0:
        return None
    breakers = find_breakers(c.dry_sequence_breakers, context.vocabulary, context.n_vocab)
    return Dry(c.dry_multiplier, c.dry_base, c.dry_allowed_length, c.dry_penalty_last_n, breakers)


def _top_n_sigma(context: ChainContext) -> Link | None:
    n = context.config.top_n_sigma
    return TopNSigma(n) if n > 0 else None


def _top_k(context: ChainContext) -> Link | None:
    k = context.config.top_k
    return TopK(k) if k > 0 else None


def _typical(context: ChainContext) -> Link | None:
    p = context.config.typical_p
    return Typical(p, context.config.min_keep) if p < 1 else None


def _top_p(context: ChainContext) -> Link | None:
    p = context.config.top_p
    return TopP(p, context.config.min_keep) if p < 1 else None


def _min_p(context: ChainContext) -> Link | None:
    p = context.config.min_p
    return MinP(p, context.config.min_keep) if f32(p) > 0 else None


def _xtc(context: ChainContext) -> Link | None:
    c = context.config
    if c.xtc_probability <= 0 or c.xtc_threshold > 0.5:
        return None
    return Xtc(c.xtc_probability, c.xtc_threshold, c.min_keep, context.stream())


def _temperature(context: ChainContext) -> Link | None:
    c = context.config
    if c.dynatemp_range > 0:
        return DynamicTemperature(c.temperature, c.dynatemp_range, c.dynatemp_exponent)
    return Temperature(c.temperature) if c.temperature != 1 else None


# Canonical name → builder of its link; None where the settings switch it off.
BUILDERS: dict[str, Callable[[ChainContext], Link | None]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typ_p": _typical,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}

# Setting → key and kind under `general.sampling.` (llama.cpp `common/common.cpp`).
MODEL_DEFAULTS: dict[str, tuple[str, IntKind | FloatKind]] = {
    "top_k": ("top_k", "i32"),
    "top_p": ("top_p", "f32"),
    "min_p": ("min_p", "f32"),
    "xtc_probability": ("xtc_probability", "f32"),
    "xtc_threshold": ("xtc_threshold", "f32"),
    "temperature": ("temp", "f32"),
    "repeat_last_n": ("penalty_last_n", "i32"),
    "repeat_penalty": ("penalty_repeat", "f32"),
    "mirostat": ("mirostat", "i32"),
    "mirostat_ent": ("mirostat_tau", "f32"),
    "mirostat_lr": ("mirostat_eta", "f32"),
}


def with_model_defaults(config: SamplingConfig, metadata: Metadata) -> SamplingSettings:
    """Fills in what a request left to the model; says so where the model names an unknown sampler.

    Args:
        config: What the request asks for.
        metadata: Of the target's file.
    """
    found: dict[str, object] = {}
    for field, (name, kind) in MODEL_DEFAULTS.items():
        key = f"general.sampling.{name}"
        if getattr(config, field) is None and key in metadata:
            found[field] = metadata.require(key, kind)
    if config.samplers is None and "general.sampling.sequence" in metadata:
        names = metadata.require("general.sampling.sequence", "str").split(";")
        found["samplers"] = tuple(filter(None, map(canonical_sampler, names)))
        for name in names:
            if name and canonical_sampler(name) is None:
                log.warning("general.sampling.sequence: unable to match sampler by name '%s'", name.lower())
    return config.settings(found)


def check_sampling(config: SamplingSettings, n_vocab: int) -> None:
    """Refuses settings that no chain can be built from.

    Raises:
        UsageError: A value is out of range; grammar and schema are both given.
    """
    repeat = config.repeat_penalty
    if not math.isfinite(repeat) or repeat <= 0:
        raise UsageError("penalty_repeat must be finite and greater than 0")
    if not math.isfinite(config.frequency_penalty):
        raise UsageError("penalty_freq must be finite")
    if not math.isfinite(config.presence_penalty):
        raise UsageError("penalty_present must be finite")
    for item in fields(config):
        value = getattr(config, item.name)
        if isinstance(value, float) and math.isnan(value):
            raise UsageError(f"{item.name} is not a number")
    if config.mirostat not in (0, 1, 2):
        raise UsageError(f"mirostat must be 0, 1 or 2, got {config.mirostat}")
    for name in config.samplers:
        if name not in SAMPLER_LETTERS.values():
            raise UsageError(f"sampler '{name}' is not known", hint=f"samplers: {' '.join(SAMPLER_LETTERS.values())}")
    for token, bias in config.logit_bias:
        if not 0 <= token < n_vocab:
            log.warning("the logit bias of token %d has no effect: the vocabulary has %d tokens", token, n_vocab)
        if math.isnan(bias):
            raise UsageError(f"the logit bias of token {token} is not a number")
    if config.grammar and config.json_schema:
        raise UsageError("a grammar and a JSON schema are mutually exclusive")


def build_chain(context: ChainContext) -> tuple[list[Link], Picker]:
    """The links in order, switched-off ones left out, and the picker that ends the chain."""
    config = context.config
    links = _biases(context)
    if config.mirostat:
        links.append(Temperature(config.temperature))
        picker: Picker = Mirostat(
            config.mirostat, config.mirostat_ent, config.mirostat_lr, context.n_vocab, context.stream()
        )
        return links, picker
    for name in config.samplers:
        link = BUILDERS[name](context) if name != "adaptive_p" else None  # which picks, so it ends the chain
        links += [link] if link else []
    if "adaptive_p" in config.samplers:
        picker = AdaptiveP(config.adaptive_target, config.adaptive_decay, context.stream())
    else:
        picker = Distribution(context.stream())
    return _without_idle_cuts(links, config), picker


def _biases(context: ChainContext) -> list[Link]:
    config, vocabulary = context.config, context.vocabulary
    biases = [(token, min(bias, CERTAIN)) for token, bias in config.logit_bias if 0 <= token < context.n_vocab]
    if config.ignore_eos:
        biases += [(token, -math.inf) for token in sorted(vocabulary.eog_ids)]
    biases += [(token, -math.inf) for token in vocabulary.suppress_ids]
    return [LogitBias(biases)] if biases else []


def _without_idle_cuts(links: Sequence[Link], config: SamplingSettings) -> list[Link]:
    """Greedy sampling takes the largest logit, whatever is cut below it just before: it becomes one argmax."""
    kept: list[Link] = []
    for link in links:
        if isinstance(link, Temperature) and config.temperature <= 0:
            while kept and kept[-1].keeps_largest:
                kept.pop()
        kept.append(link)
    return kept
