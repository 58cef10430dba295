"""Which device holds which weights: rules by tensor name (llama.cpp's tensor overrides, `common/arg.cpp`).

The first rule whose pattern is found in a tensor's name decides; what no rule matches lies on the model's device. Rules
place matrices and stacks of matrices: a product is computed where its matrix lies, and the rows travel. Norms, biases
and the cache stay on the device of their layer: the model's, unless layers are split over several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXPERTS = r"ffn_(?:gate|up|gate_up|down)_exps\."
DENSE = r"ffn_(?:gate|up|down)\."
_INPUTS = re.compile(r"^(?:token_embd|per_layer_)")  # of what happens before the first layer
_IN_LAYER = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True)
class PlacementRule:
    """Where tensors of some names lie.

    Attributes:
        pattern: Regular expression that is searched in the name.
        device: `cpu`, `cuda:0`, ….
        what: What it places, in messages.
    """

    pattern: str
    device: str
    what: str


class Placement:
    """Rules in order of precedence, and the devices of layers.

    Args:
        rules: As given; patterns are valid.
        layers: The device of each layer; layers beyond them, and what is behind the last one, lie on the model's
            device. None = all do.
        is_tied: The embedding is the head, too, and lies where the head does.

    Attributes:
        rules: As given.
        layers: As given.
    """

    def __init__(
        self, rules: Iterable[PlacementRule] = (), layers: Sequence[str] = (), *, is_tied: bool = False
    ) -> None:
        self.rules = tuple(rules)
        self.layers = tuple(layers)
        self._is_tied = is_tied
        self._compiled = [(re.compile(rule.pattern), rule) for rule in self.rules]

    def rule_for(self, name: str) -> PlacementRule | None:
        """The rule that places a tensor, if any."""
        return next((rule for pattern, rule in self._compiled if pattern.search(name)), None)

    def elsewhere(self, device: str) -> PlacementRule | None:
        """The first thing that does not lie on a device, if any; for kernels that have one."""
        layers = (PlacementRule("", each, "layers are split") for each in self.layers)
        return next((rule for rule in (*self.rules, *layers) if rule.device != device), None)

    def device_of(self, name: str, default: str) -> str:
        """Where a matrix lies; `default` = the model's device."""
        rule = self.rule_for(name)
        return self.home_of(name, default) if rule is None else rule.device

    def home_of(self, name: str, default: str) -> str:
        """Where the rows are that a tensor is applied to; `default` = the model's device."""
        layer = _IN_LAYER.match(name)
        if layer is not None:
            return self.layer_device(int(layer[1]), default)
        if _INPUTS.match(name) and not (self._is_tied and name == "token_embd.weight"):
            return self.layer_device(0, default)
        return default

    def layer_device(self, index: int, default: str) -> str:
        """The device of a layer; `default` = the model's device."""
        return self.layers[index] if index < len(self.layers) else default


def in_layers(layers: Iterable[int], pattern: str = "") -> str:
    """A pattern for tensors of some layers only; of none for no layers."""
    return rf"^blk\.(?:{'|'.join(map(str, layers)) or '(?!)'})\.{pattern}"
