"""The config defaults against the classes of `transformers` they are taken from, where that is installed."""

from pathlib import Path
from typing import Any

import pytest

from specli.convert.defaults import CLASS_DEFAULTS
from specli.convert.gemma4 import full_sizes
from specli.convert.job import with_defaults
from specli.convert.values import Values


def class_default(config: dict[str, Any], name: str) -> Any:
    rope = config.get("rope_parameters") or {}
    if name == "global_head_dim":  # newer versions keep it per layer
        layers = config.get("per_layer_config", {}).values()
        return config.get(name) or next(layer["head_dim"] for layer in layers)
    aliases = {"num_experts": ("num_experts", "num_local_experts"), "n_routed_experts": ("n_routed_experts",)}
    names = aliases.get(name, (name,))
    return next((config[n] for n in names if n in config), rope.get(name))


@pytest.mark.parametrize("kind", CLASS_DEFAULTS)
def test_defaults_are_those_of_the_class(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.CONFIG_MAPPING[kind]().to_dict()
    expected = CLASS_DEFAULTS[kind]
    assert {name: class_default(config, name) for name in expected} == dict(expected)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"global_head_dim": 64, "num_global_key_value_heads": 1},
        {"global_head_dim": 64, "num_global_key_value_heads": 1, "attention_k_eq_v": True},
        {"per_layer_config": {"1": {"head_dim": 64, "num_key_value_heads": 1}}},
        {"per_layer_config": {"1": {"num_key_value_heads": 1}}, "global_head_dim": 64},
        {"per_layer_config": {"0": {"head_dim": 64}, "1": {"sliding_window": 8}}},
    ],
)
def test_full_layers_of_gemma4_are_those_of_the_class(tmp_path: Path, settings: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    types = ["sliding_attention", "full_attention"]
    given = {
        "num_hidden_layers": 2,
        "layer_types": types,
        "head_dim": 32,
        "num_key_value_heads": 4,
        "hidden_size": 64,
        **settings,
    }
    layer = transformers.CONFIG_MAPPING["gemma4_text"](**given).per_layer_config[1]
    config = with_defaults(Values(tmp_path / "config.json", {"model_type": "gemma4_text", **given}))
    head, groups = full_sizes(config, types)
    assert (head, groups or 4) == (layer.head_dim, layer.num_key_value_heads)
