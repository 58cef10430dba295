"""Mixtures of experts."""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

from collections.abc import Callable

import torch

from specli.kernels.ops import MIN_WEIGHT_SUM, Activation, Array, Buffer, Gating, RoutingSpec, Weight
from specli.kernels.reference.frame import Frame, by_tiles, unless_empty
from specli.kernels.reference.rows import ACTIVATIONS, sigmoid, softplus
from specli.kernels.reference.weights import ReferenceStack, times_own

_GATINGS: dict[Gating, Callable[[torch.Tensor], torch.Tensor]] = {
    Gating.SOFTMAX: lambda logits: torch.softmax(logits, dim=1),
    Gating.SIGMOID: sigmoid,
    Gating.SOFTMAX_CHOSEN: lambda logits: logits,
    Gating.SQRT_SOFTPLUS: lambda logits: softplus(logits).sqrt(),
}


class ExpertOps(Frame):
    """Routing, products with chosen experts, their sum."""

    @unless_empty
    def route(self, weights: Buffer, experts: Buffer, logits: Buffer, spec: RoutingSpec) -> None:
        rows = self._live(logits)
        probabilities = by_tiles(_GATINGS[spec.gating], rows)
        scores = _choice_scores(probabilities, spec)
        chosen = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, : experts.width]
        values = by_tiles(lambda tile: _weights(tile, spec), probabilities.gather(1, chosen))
        if spec.expert_scales is not None:
            values = values * spec.expert_scales[chosen]
        self._live(weights).copy_(values)
        self._live(experts).copy_(chosen)

    @unless_empty
    def expert_gated_linear(
        self,
        out: Buffer,
        x: Buffer,
        experts: Buffer,
        gate: Weight,
        up: Weight | None,
        activation: Activation,
        *,
        gate_bias: Array | None = None,
        up_bias: Array | None = None,
    ) -> None:
        rows = self._live(x)
        for part, expert in zip(*self._choices(out, experts), strict=True):
            if up is None:
                g, u = (_expert_times(gate, 2 * expert + i, rows, None) for i in range(2))
            else:
                g, u = _expert_times(gate, expert, rows, gate_bias), _expert_times(up, expert, rows, up_bias)
            part.copy_(ACTIVATIONS[activation](g, u))

    @unless_empty
    def expert_linear(
        self, out: Buffer, x: Buffer, experts: Buffer, weight: Weight, *, bias: Array | None = None
    ) -> None:
        inputs = self._live(x).chunk(experts.width, dim=1)
        for part, expert, rows in zip(*self._choices(out, experts), inputs, strict=True):
            part.copy_(_expert_times(weight, expert, rows, bias))

    @unless_empty
    def weighted_sum(self, out: Buffer, x: Buffer, weights: Buffer, *, accumulate: bool = False) -> None:
        rows, factors = self._live(x), self._live(weights)
        parts = rows.view(len(rows), weights.width, -1)
        total = factors[:, :1] * parts[:, 0]
        for i in range(1, weights.width):
            total = total + factors[:, i : i + 1] * parts[:, i]
        self._live(out).copy_(self._live(out) + total if accumulate else total)

    def _choices(self, out: Buffer, experts: Buffer) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """The parts of `out` for the first, second, … choice of every row, and `[n]` the experts chosen."""
        return self._live(out).chunk(experts.width, dim=1), self._live(experts).unbind(1)


def _weights(values: torch.Tensor, spec: RoutingSpec) -> torch.Tensor:
    """What rows' chosen probabilities weigh."""
    if spec.gating == Gating.SOFTMAX_CHOSEN:
        values = torch.softmax(values, dim=1)
    if spec.is_normalised:
        values = values / values.sum(dim=1, keepdim=True).clamp(min=MIN_WEIGHT_SUM)
    return values * spec.scale


def _choice_scores(probabilities: torch.Tensor, spec: RoutingSpec) -> torch.Tensor:
    """What the choice of experts goes by: biased, and -inf in groups that are out."""
    scores = probabilities if spec.bias is None else probabilities + spec.bias
    if spec.n_groups > 1:
        groups = scores.unflatten(1, (spec.n_groups, -1))
        best_two = groups.topk(2, dim=2).values
        group_scores = best_two[..., 0] + best_two[..., 1]
        best = torch.sort(group_scores, dim=1, descending=True, stable=True).indices[:, : spec.n_groups_used]
        is_out = torch.ones_like(group_scores, dtype=torch.bool).scatter(1, best, False)
        scores = groups.masked_fill(is_out[..., None], -torch.inf).flatten(1)
    return scores


def _expert_times(weight: Weight, experts: torch.Tensor, rows: torch.Tensor, bias: Array | None) -> torch.Tensor:
    """Each row times its own expert's matrix, plus its bias."""
    assert isinstance(weight, ReferenceStack), "a weight of another executor, or no stack"

    def tile(rows: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        return times_own(weight.chosen(experts), rows)

    product = by_tiles(tile, rows, experts)
    return product if bias is None else product + bias[experts]
