"""The config defaults against the classes of `transformers` they are taken from, where that is installed."""

from typing import Any

import pytest

from specli.convert.defaults import CLASS_DEFAULTS


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
