"""What every layout module is handed: the request, the checkpoint with its merged config, and the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specli.convert.checkpoint import Checkpoint
from specli.convert.defaults import CLASS_DEFAULTS, HEAD_DIM_FROM_WIDTH
from specli.convert.outtype import Outtype
from specli.convert.records import ConvertConfig
from specli.convert.target import Target
from specli.convert.values import Values
from specli.errors import UsageError


@dataclass
class Job:
    """One conversion while it is being planned.

    Attributes:
        request: What was asked for.
        checkpoint: Source directory.
        config: Its config with nested parts merged and class defaults filled in.
        outtype: Resolved output type.
        target: The drafter's target, when given.
        notes: Choices made, for the report; layouts append.
        warnings: What the user should look at; layouts append.
        fit: Findings of `--check`.
    """

    request: ConvertConfig
    checkpoint: Checkpoint
    config: Values
    outtype: Outtype
    target: Target | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fit: tuple[str, ...] = ()

    def need_target(self, layout: str) -> Target:
        """The target that the drafter was trained for.

        Raises:
            UsageError: No target was given.
        """
        if self.target is None:
            raise UsageError(
                f"{self.checkpoint.directory}: a drafter ({layout}) needs --target-model-dir",
                hint="give the target's checkpoint directory or GGUF file",
            )
        return self.target


def with_defaults(config: Values) -> Values:
    """A config as its `transformers` class would complete it."""
    kind = config.text("model_type")
    defaults = CLASS_DEFAULTS.get(kind or "", {})
    filled: dict[str, Any] = {**defaults, **config.items}
    if "rope_parameters" in defaults and "rope_parameters" not in config:
        filled["rope_parameters"] = _completed_rope(defaults["rope_parameters"], config)
    if kind in HEAD_DIM_FROM_WIDTH and filled.get("head_dim") is None:
        filled["head_dim"] = config.need("hidden_size") // config.need("num_attention_heads")
    if filled.get("num_key_value_heads") is None and kind in CLASS_DEFAULTS:
        filled["num_key_value_heads"] = filled.get("num_attention_heads")
    return Values(config.path, filled)


def _completed_rope(defaults: Mapping[str, Any], config: Values) -> dict[str, Any]:
    """A class's default rope settings with those of an older config, which names base and scaling separately."""
    scaling = config.section("rope_scaling").items
    base = {"rope_theta": config.raw("rope_theta")} if "rope_theta" in config else {}
    if "full_attention" not in defaults:
        kept = {"rope_theta": defaults["rope_theta"]} if scaling else defaults
        return {**kept, **scaling, **base}
    local = {"rope_theta": config.raw("rope_local_base_freq")} if "rope_local_base_freq" in config else {}
    return {
        "full_attention": {**defaults["full_attention"], **scaling, **base},
        "sliding_attention": {**defaults["sliding_attention"], **local},
    }


def merged_config(config: Values) -> Values:
    """The text model's config: a nested `text_config` over the root, with class defaults for whichever has a class."""
    nested = config.section("text_config")
    if not nested.items:
        return with_defaults(config)
    return config.merged(with_defaults(nested).items)


def basic_sizes(config: Values) -> dict[str, int]:
    """Size symbols of an ordinary transformer, used in the shapes of table rows.

    E hidden width, V vocabulary, F feed-forward width (absent where all layers are experts), D head width, H query
    heads, G key/value heads, Q = H·D, K = G·D.
    """
    width, heads = config.need("hidden_size"), config.need("num_attention_heads")
    groups = config.integer("num_key_value_heads") or heads
    head = config.integer("head_dim") or width // heads
    sizes = {"E": width, "D": head, "H": heads, "G": groups, "Q": heads * head, "K": groups * head}
    sizes["V"] = config.need("vocab_size")
    if "intermediate_size" in config:
        sizes["F"] = config.need("intermediate_size")
    return sizes
