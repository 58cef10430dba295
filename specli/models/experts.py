"""Mixtures of experts: router, chosen experts, shared expert (docs/targets.md §2.6).

Stacks stay as stored, `(n_expert, n_out, n_in)`; what a row does with its experts does not depend on other rows.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.quant import QuantTensor
from specli.kernels.ops import Activation, Buffer, Ops, RoutingSpec
from specli.models.architecture import ExpertConfig
from specli.models.layers import FeedForward, Rows
from specli.models.tensors import Matrix, Need, Tensors, value_of

_SELECTION_BIAS = "exp_probs_b.bias"


class Experts:
    """`Σ_e w_e · (down_e(act(gate_e(x), up_e(x))))` over the chosen experts e, best first.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        n_embd: Width of input and output.
        config: Sizes and routing.
        activation: How gate and up are joined.
        biases: Whether the router and the three projections have biases.
        selection_bias: Whether there is a bias on the scores that choose (`exp_probs_b`).
        bias_name: Its tensor, without prefix.
        output_scales: Whether every expert's output has a factor (`ffn_down_exps.scale`).

    A file may carry `ffn_gate_up_exps`, gate rows before up rows, in place of the two stacks.
    """

    def __init__(
        self,
        tensors: Tensors,
        prefix: str,
        n_embd: int,
        config: ExpertConfig,
        activation: Activation,
        *,
        biases: Need = "no",
        selection_bias: Need = "no",
        bias_name: str = _SELECTION_BIAS,
        output_scales: Need = "no",
    ) -> None:
        self._config = config
        self._activation = activation
        n, n_ff = config.n_experts, config.n_ff
        self.ffn_gate_inp = tensors.matrix(f"{prefix}ffn_gate_inp.weight", (n, n_embd))
        self.ffn_gate_inp_bias = tensors.vector(f"{prefix}ffn_gate_inp.bias", n, biases)
        self.exp_probs_b = tensors.vector(f"{prefix}{bias_name}", n, selection_bias)
        self.ffn_up_exps: Matrix | None = None
        if f"{prefix}ffn_gate_up_exps.weight" in tensors:
            self.ffn_gate_exps = tensors.matrix(
                f"{prefix}ffn_gate_up_exps.weight", (n, 2 * n_ff, n_embd), change=_halves_as_experts
            )
        else:
            self.ffn_gate_exps = tensors.matrix(f"{prefix}ffn_gate_exps.weight", (n, n_ff, n_embd))
            self.ffn_up_exps = tensors.matrix(f"{prefix}ffn_up_exps.weight", (n, n_ff, n_embd))
        self.ffn_gate_exps_bias = tensors.array(f"{prefix}ffn_gate_exps.bias", (n, n_ff), biases)
        self.ffn_up_exps_bias = tensors.array(f"{prefix}ffn_up_exps.bias", (n, n_ff), biases)
        self.ffn_down_exps = tensors.matrix(f"{prefix}ffn_down_exps.weight", (n, n_embd, n_ff))
        self.ffn_down_exps_bias = tensors.array(f"{prefix}ffn_down_exps.bias", (n, n_embd), biases)
        self.ffn_down_exps_scale = tensors.vector(f"{prefix}ffn_down_exps.scale", n, output_scales)

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= experts(x)`, routed by x."""
        self.trace_routed(ops, out, x, x, rows, accumulate=accumulate)

    def trace_routed(
        self, ops: Ops, out: Buffer, x: Buffer, router_x: Buffer, rows: Rows, *, accumulate: bool = False
    ) -> None:
        """`out (+)= experts(x)`, routed by another input than the experts get."""
        weights, chosen = self._trace_choice(ops, router_x, rows)
        results = self._trace_results(ops, x, chosen, rows, out.width)
        ops.weighted_sum(out, results, weights, accumulate=accumulate)

    def trace_weighted_input(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= expert(w·x)` for the one expert of a row: its input is weighted, not what it gives (llama4)."""
        assert self._config.n_used == 1, "each choice would need an input of its own"
        weights, chosen = self._trace_choice(ops, x, rows)
        weighted = rows.scratch.buffer("weighted_input", x.width)
        ops.weighted_sum(weighted, x, weights)
        results = self._trace_results(ops, weighted, chosen, rows, out.width)
        if accumulate:
            ops.add(out, results)
        else:
            ops.copy(out, results)

    def _trace_choice(self, ops: Ops, x: Buffer, rows: Rows) -> tuple[Buffer, Buffer]:
        """Weights `[T, n_used]` and numbers of the chosen experts."""
        config = self._config
        logits = rows.scratch.buffer("router", config.n_experts)
        ops.linear([logits], x, [self.ffn_gate_inp.value], biases=[value_of(self.ffn_gate_inp_bias)])
        chosen = rows.scratch.buffer("chosen", config.n_used, is_int=True)
        weights = rows.scratch.buffer("expert_weights", config.n_used)
        ops.route(weights, chosen, logits, self._routing())
        return weights, chosen

    def _trace_results(self, ops: Ops, x: Buffer, chosen: Buffer, rows: Rows, width: int) -> Buffer:
        """`[T, n_used·width]`: what the chosen experts give, side by side."""
        config = self._config
        inner = rows.scratch.buffer("expert_inner", config.n_used * config.n_ff)
        ops.expert_gated_linear(
            inner,
            x,
            chosen,
            self.ffn_gate_exps.value,
            value_of(self.ffn_up_exps),
            self._activation,
            gate_bias=value_of(self.ffn_gate_exps_bias),
            up_bias=value_of(self.ffn_up_exps_bias),
        )
        results = rows.scratch.buffer("expert_results", config.n_used * width)
        ops.expert_linear(results, inner, chosen, self.ffn_down_exps.value, bias=value_of(self.ffn_down_exps_bias))
        return results

    def _routing(self) -> RoutingSpec:
        config = self._config
        return RoutingSpec(
            gating=config.gating,
            is_normalised=config.is_normalised,
            scale=config.scale,
            n_groups=config.n_groups,
            n_groups_used=config.n_groups_used,
            bias=value_of(self.exp_probs_b),
            expert_scales=value_of(self.ffn_down_exps_scale),
        )


class SharedExperts:
    """Chosen experts and, beside them, one that every token gets.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        n_embd: Width of input and output.
        config: Sizes and routing; `n_ff_shared` > 0.
        activation: How gate and up are joined.
        selection_bias: As for `Experts`.
        bias_name: As for `Experts`.
        is_gated: The shared expert's output is multiplied by σ(`ffn_gate_inp_shexp` · x).
    """

    def __init__(
        self,
        tensors: Tensors,
        prefix: str,
        n_embd: int,
        config: ExpertConfig,
        activation: Activation,
        *,
        selection_bias: Need = "no",
        bias_name: str = _SELECTION_BIAS,
        is_gated: bool = False,
    ) -> None:
        self.experts = Experts(
            tensors, prefix, n_embd, config, activation, selection_bias=selection_bias, bias_name=bias_name
        )
        self.shared = FeedForward(tensors, prefix, n_embd, config.n_ff_shared, activation, suffix="_shexp")
        self.ffn_gate_inp_shexp = tensors.matrix(
            f"{prefix}ffn_gate_inp_shexp.weight", (1, n_embd), "required" if is_gated else "no"
        )

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= experts(x) + shared(x)`."""
        self.experts.trace(ops, out, x, rows, accumulate=accumulate)
        if self.ffn_gate_inp_shexp is None:
            self.shared.trace(ops, out, x, rows, accumulate=True)
            return
        result = rows.scratch.buffer("shared_expert", out.width)
        self.shared.trace(ops, result, x, rows)
        gate = rows.scratch.buffer("shared_gate", 1)
        ops.linear([gate], x, [self.ffn_gate_inp_shexp.value])
        ops.sigmoid(gate)
        ops.weighted_sum(out, result, gate, accumulate=True)


def _halves_as_experts(tensor: QuantTensor) -> QuantTensor:
    """`(n, 2·n_ff, n_in)` as `(2·n, n_ff, n_in)`: the same bytes, an expert's gate before its up."""
    n, n_out, n_in = tensor.shape
    return replace(tensor, shape=(2 * n, n_out // 2, n_in))
