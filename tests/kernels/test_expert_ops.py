"""Experts on every executor: choice, products and sums against formulas; rows whatever the other rows are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.ops import Activation, Buffer, Executor, Extent, Gating, Ops, RoutingSpec
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig
from tests.support.blocks import BLOCK_TYPES
from tests.support.native import tensor
from tests.support.runs import executors

T, N, USED = 33, 12, 3
ROW_COUNTS = (1, 2, 5, 8, 17, 33)
TYPES = [QuantType.F32, QuantType.F16, QuantType.BF16, *BLOCK_TYPES]
NATIVE = [type for type in TYPES if not type.label.startswith(("iq1", "iq2", "iq3", "tq", "nvfp4", "q1", "q2_0"))]


def open_kernels(name: str, *, exact: bool = True) -> Executor:
    if name == "reference":
        return ReferenceExecutor(threads=ThreadConfig(n_threads=1))
    from specli.kernels.cpu.executor import CpuExecutor

    return CpuExecutor(threads=ThreadConfig(n_threads=2), exact=exact)


def rows(width: int, *, seed: int = 0) -> Buffer:
    return Buffer(torch.randn(T, width, generator=torch.Generator().manual_seed(seed)), Extent.TOKENS)


def choice(executor: Executor, *, seed: int = 3) -> Buffer:
    """USED different experts per row."""
    rng = np.random.default_rng(seed)
    chosen = executor.buffer(T, USED, Extent.TOKENS, np.int32)
    chosen.data.copy_(torch.tensor(np.stack([rng.permutation(N)[:USED] for _ in range(T)])))
    return chosen


def expected_route(logits: np.ndarray, spec: RoutingSpec) -> tuple[np.ndarray, np.ndarray]:
    """Experts and weights of one row, as docs/targets.md §2.6 has it, step by step."""
    p = {
        Gating.SOFTMAX: np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum(),
        Gating.SIGMOID: 1 / (1 + np.exp(-logits)),
        Gating.SOFTMAX_CHOSEN: logits,
        Gating.SQRT_SOFTPLUS: np.sqrt(np.log1p(np.exp(logits))),
    }[spec.gating]
    scores = p if spec.bias is None else p + spec.bias.double().numpy()
    if spec.n_groups > 1:
        groups = scores.reshape(spec.n_groups, -1)
        best = np.argsort(-np.sort(groups, axis=1)[:, -2:].sum(1))[: spec.n_groups_used]
        scores = np.where(np.isin(np.arange(len(scores)) // groups.shape[1], best), scores, -np.inf)
    chosen = np.argsort(-scores, kind="stable")[:USED]
    w = p[chosen]
    if spec.gating == Gating.SOFTMAX_CHOSEN:
        w = np.exp(w - w.max()) / np.exp(w - w.max()).sum()
    if spec.is_normalised:
        w = w / max(w.sum(), 2.0**-14)
    w = w * spec.scale
    return chosen, w if spec.expert_scales is None else w * spec.expert_scales.double().numpy()[chosen]


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("gating", Gating)
@pytest.mark.parametrize("extras", ["none", "bias", "groups", "scales"])
def test_experts_are_chosen_and_weighted_by_the_rules(kernels: str, gating: Gating, extras: str) -> None:
    executor, logits = open_kernels(kernels), rows(N)
    vector = torch.randn(N, generator=torch.Generator().manual_seed(9))
    spec = RoutingSpec(
        gating,
        is_normalised=extras in ("bias", "groups"),
        scale=2.5 if extras == "groups" else 1.0,
        n_groups=4 if extras == "groups" else 1,
        n_groups_used=2 if extras == "groups" else 1,
        bias=vector if extras == "bias" else None,
        expert_scales=vector if extras == "scales" else None,
    )
    weights, chosen = executor.buffer(T, USED, Extent.TOKENS), executor.buffer(T, USED, Extent.TOKENS, np.int32)
    executor.compile(lambda ops: ops.route(weights, chosen, logits, spec)).run(T)
    for t in range(T):
        experts, values = expected_route(logits.data[t].double().numpy(), spec)
        assert chosen.data[t].tolist() == experts.tolist()
        np.testing.assert_allclose(weights.data[t].numpy(), values, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kernels", executors())
def test_equal_scores_go_to_the_lowest_number(kernels: str) -> None:
    executor, logits = open_kernels(kernels), rows(N)
    logits.data.zero_()
    logits.data[:, 7] = 1
    weights, chosen = executor.buffer(T, USED, Extent.TOKENS), executor.buffer(T, USED, Extent.TOKENS, np.int32)
    spec = RoutingSpec(Gating.SOFTMAX, is_normalised=True)
    executor.compile(lambda ops: ops.route(weights, chosen, logits, spec)).run(T)
    assert chosen.data.tolist() == [[7, 0, 1]] * T


def joined(activation: Activation, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    executor = ReferenceExecutor()
    out, x = Buffer(g[None].clone(), Extent.TOKENS), Buffer(u[None].clone(), Extent.TOKENS)
    executor.compile(lambda ops: ops.join(out, x, activation)).run(1)
    return out.data[0]


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("type", [QuantType.F32, QuantType.Q4_0, QuantType.MXFP4])
def test_gated_products_use_each_rows_own_experts(
    kernels: str, activation: Activation, is_fused: bool, type: QuantType
) -> None:
    """40 outputs: two whole strips and a half; fused stacks hold gate and up of an expert after one another."""
    executor, x, n_out = open_kernels(kernels), rows(64), 40
    both = tensor(type, 2 * N, n_out, 64)
    values = torch.from_numpy(both.dequantise())
    chosen, out = choice(executor), executor.buffer(T, USED * n_out, Extent.TOKENS)
    if is_fused:
        gate, up = executor.weight(both), None
        gate_values, up_values, biases = values[0::2], values[1::2], [None, None]
    else:
        halves = np.split(both.data, 2)
        gate, up = (executor.weight(QuantTensor(f"w{i}", type, (N, n_out, 64), half)) for i, half in enumerate(halves))
        gate_values, up_values = values[:N], values[N:]
        biases = [torch.randn(N, n_out), torch.randn(N, n_out)]
    program = executor.compile(
        lambda ops: ops.expert_gated_linear(
            out, x, chosen, gate, up, activation, gate_bias=biases[0], up_bias=biases[1]
        )
    )
    program.run(T)
    for t in range(T):
        for i, e in enumerate(chosen.data[t].tolist()):
            g, u = (m[e].double() @ x.data[t].double() for m in (gate_values, up_values))
            if not is_fused:
                g, u = g + biases[0][e], u + biases[1][e]
            expected = joined(activation, g.float(), u.float())
            torch.testing.assert_close(out.data[t, n_out * i : n_out * (i + 1)], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("choices", [[5, 0, 2], [5, 0, 0], [0, 0, 0]])
def test_a_row_alone_may_choose_an_expert_more_than_once(kernels: str, choices: list[int]) -> None:
    """As one does whose router's logits are not numbers; int8 activations."""
    executor, x, n_out = open_kernels(kernels, exact=False), rows(64), 40
    gate, up = (executor.weight(tensor(QuantType.Q4_0, N, n_out, 64, seed=i)) for i in range(2))
    chosen, out = choice(executor), executor.buffer(T, USED * n_out, Extent.TOKENS)
    chosen.data[0] = torch.tensor(choices)
    program = executor.compile(lambda ops: ops.expert_gated_linear(out, x, chosen, gate, up, Activation.SILU))
    program.run(T)
    expected = out.data[0].clone()
    out.data.zero_()
    program.run(1)
    assert torch.equal(out.data[0], expected)


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("type", NATIVE, ids=lambda t: t.label)
def test_down_products_read_each_choices_part(kernels: str, type: QuantType) -> None:
    n_in = max(64, type.block_size)
    executor, x, source = open_kernels(kernels), rows(USED * n_in), tensor(type, N, 24, n_in)
    weight, values, bias = executor.weight(source), torch.from_numpy(source.dequantise()), torch.randn(N, 24)
    chosen, out = choice(executor), executor.buffer(T, USED * 24, Extent.TOKENS)
    executor.compile(lambda ops: ops.expert_linear(out, x, chosen, weight, bias=bias)).run(T)
    parts = x.data.view(T, USED, n_in).double()
    experts = chosen.data.long()
    expected = torch.einsum("tuoi,tui->tuo", values.double()[experts], parts) + bias[experts]
    torch.testing.assert_close(out.data.view(T, USED, 24), expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("accumulate", [False, True])
def test_results_are_added_with_their_weights(kernels: str, accumulate: bool) -> None:
    executor, x, weights, out = open_kernels(kernels), rows(3 * 50), rows(3, seed=1), rows(50, seed=2)
    before = out.data.clone()
    executor.compile(lambda ops: ops.weighted_sum(out, x, weights, accumulate=accumulate)).run(T)
    expected = torch.einsum("tn,tnd->td", weights.data, x.data.view(T, 3, 50))
    torch.testing.assert_close(out.data, expected + before if accumulate else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize(
    "type", [QuantType.F16, QuantType.Q8_0, QuantType.Q4_K, QuantType.MXFP4], ids=lambda t: t.label
)
def test_rows_do_not_depend_on_their_company(kernels: str, type: QuantType) -> None:
    """The whole mixture, int8 activations included: any number of rows, any choice of the others."""
    n = max(64, type.block_size)
    executor = open_kernels(kernels, exact=False)
    x, logits, out = rows(n), rows(N, seed=4), executor.buffer(T, n, Extent.TOKENS)
    gate, up, down = (executor.weight(tensor(type, N, n, n, seed=i)) for i in range(3))
    weights, chosen = executor.buffer(T, USED, Extent.TOKENS), executor.buffer(T, USED, Extent.TOKENS, np.int32)
    inner, results = executor.buffer(T, USED * n, Extent.TOKENS), executor.buffer(T, USED * n, Extent.TOKENS)
    spec = RoutingSpec(Gating.SOFTMAX, is_normalised=True)

    def trace(ops: Ops) -> None:
        ops.route(weights, chosen, logits, spec)
        ops.expert_gated_linear(inner, x, chosen, gate, up, Activation.SILU)
        ops.expert_linear(results, inner, chosen, down)
        ops.weighted_sum(out, results, weights)

    program = executor.compile(trace)
    program.run(T)
    expected, inputs, choices = out.data.clone(), x.data.clone(), logits.data.clone()
    for count in ROW_COUNTS:
        program.run(count)
        assert torch.equal(out.data[:count], expected[:count])
        x.data[1:count], logits.data[1:count] = torch.randn(count - 1, n), torch.randn(count - 1, N)
        program.run(count)
        assert torch.equal(out.data[0], expected[0])
        x.data.copy_(inputs)
        logits.data.copy_(choices)
