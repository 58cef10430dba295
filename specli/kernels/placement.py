"""Which device holds which weights: rules by tensor name (llama.cpp's tensor overrides, `common/arg.cpp`).

The first rule whose pattern is found in a tensor's name decides; what no rule matches lies on the model's device. Rules
place matrices and stacks of matrices: a product is computed where its matrix lies, and the rows travel. Norms, biases
and the cache stay on the model's device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

EXPERTS = r"ffn_(?:gate|up|gate_up|down)_exps\."
DENSE = r"ffn_(?:gate|up|down)\."


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
    """Rules in order of precedence.

    Args:
        rules: As given; patterns are valid.

    Attributes:
        rules: As given.
    """

    def __init__(self, rules: Iterable[PlacementRule] = ()) -> None:
        self.rules = tuple(rules)
        self._compiled = [(re.compile(rule.pattern), rule) for rule in self.rules]

    def rule_for(self, name: str) -> PlacementRule | None:
        """The rule that places a tensor, if any."""
        return next((rule for pattern, rule in self._compiled if pattern.search(name)), None)

    def device_of(self, name: str, default: str) -> str:
        """Where a tensor lies; `default` = the model's device."""
        rule = self.rule_for(name)
        return default if rule is None else rule.device


def in_layers(layers: Iterable[int], pattern: str = "") -> str:
    """A pattern for tensors of some layers only; of none for no layers."""
    return rf"^blk\.(?:{'|'.join(map(str, layers)) or '(?!)'})\.{pattern}"
