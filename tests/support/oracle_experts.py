"""Feed-forwards of the oracle, dense and with experts (docs/targets.md §§2.5-2.6)."""

import numpy as np

from tests.support.oracle_weights import Weights, gelu, sigmoid, silu, softmax

NORMALISED = {"llama", "qwen3moe", "qwen35moe", "qwen3next", "gemma4", "mimo2"}


def feed_forward(w: Weights, at: str, h: np.ndarray, *, is_shared_only: bool = False) -> np.ndarray:
    """Dense, or chosen experts and the shared one. `is_shared_only`: gemma4, whose experts have another input."""
    if is_shared_only or f"{at}ffn_gate_inp.weight" not in w.file.tensors:
        return dense(w, at, h, "")
    out = experts(w, at, h, w.linear(h, f"{at}ffn_gate_inp"))
    if f"{at}ffn_gate_shexp.weight" not in w.file.tensors:
        return out
    shared = dense(w, at, h, "_shexp")
    if f"{at}ffn_gate_inp_shexp.weight" in w.file.tensors:
        shared = shared * sigmoid(w.linear(h, f"{at}ffn_gate_inp_shexp"))
    return out + shared


def dense(w: Weights, at: str, h: np.ndarray, suffix: str) -> np.ndarray:
    inner = join(w.arch, w.linear(h, f"{at}ffn_gate{suffix}"), w.linear(h, f"{at}ffn_up{suffix}"))
    return w.linear(inner, f"{at}ffn_down{suffix}")


def join(arch: str, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    if arch == "gpt-oss":
        gate = np.minimum(gate, 7)
        return gate * sigmoid(1.702 * gate) * (np.clip(up, -7, 7) + 1)
    return (gelu if arch.startswith("gemma") else silu)(gate) * up


def experts(w: Weights, at: str, h: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Row by row: the best experts' outputs, weighted."""
    gate_name, up_name, down_name = (f"{at}ffn_{part}_exps" for part in ("gate", "up", "down"))
    down, scale = w.need(f"{down_name}.weight"), w.get(f"{down_name}.scale")
    if f"{at}ffn_gate_up_exps.weight" in w.file.tensors:
        gate, up = np.split(w.need(f"{at}ffn_gate_up_exps.weight"), 2, axis=1)
    else:
        gate, up = w.need(f"{gate_name}.weight"), w.need(f"{up_name}.weight")
    biases = [w.get(f"{name}.bias") for name in (gate_name, up_name, down_name)]
    gate_bias, up_bias, down_bias = (
        np.zeros(m.shape[:2]) if b is None else b for b, m in zip(biases, (gate, up, down), strict=True)
    )
    out = np.zeros_like(h)
    for t, (chosen, weights) in enumerate(zip(*route(w, at, logits), strict=True)):
        for e, weight in zip(chosen, weights, strict=True):
            inner = join(w.arch, gate[e] @ h[t] + gate_bias[e], up[e] @ h[t] + up_bias[e])
            out[t] += weight * (1 if scale is None else scale[e]) * (down[e] @ inner + down_bias[e])
    return out


def best_groups(scores: np.ndarray, n_groups: int, n_kept: int) -> np.ndarray:
    """Scores of experts outside of the groups with the best pairs are -∞."""
    if n_groups < 2:
        return scores
    grouped = scores.reshape(len(scores), n_groups, -1)
    worst = np.argsort(-np.sort(grouped, axis=2)[..., -2:].sum(2), axis=1, kind="stable")[:, n_kept:]
    grouped = grouped.copy()
    for row, groups in enumerate(worst):
        grouped[row, groups] = -np.inf
    return grouped.reshape(scores.shape)


def route(w: Weights, at: str, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chosen experts and their weights, `[T, k]` each."""
    is_sigmoid = w.arch == "mimo2" or w.integer("expert_gating_func") == 2
    probabilities = sigmoid(logits) if is_sigmoid else logits if w.arch == "gpt-oss" else softmax(logits)
    bias = w.get(f"{at}exp_probs_b{'' if w.arch == 'hy_v3' else '.bias'}")
    scores = probabilities if bias is None else probabilities + bias
    scores = best_groups(scores, w.integer("expert_group_count"), w.integer("expert_group_used_count"))
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, : w.integer("expert_used_count")]
    weights = np.take_along_axis(probabilities, chosen, 1)
    if w.arch == "gpt-oss":
        weights = softmax(weights)
    if w.arch in NORMALISED or w.flag("expert_weights_norm"):
        weights = weights / weights.sum(1, keepdims=True)
    return chosen, weights * (w.number("expert_weights_scale") or 1)
