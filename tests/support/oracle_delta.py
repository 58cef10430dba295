"""The gated delta net of the oracle, one token after the other (docs/targets.md §3.8)."""

import numpy as np

from tests.support.oracle_weights import Weights, sigmoid, silu


def delta_net(w: Weights, at: str, h: np.ndarray) -> np.ndarray:
    n_keys, n_heads, size = w.integer("ssm.group_count"), w.integer("ssm.time_step_rank"), w.integer("ssm.state_size")
    qkv, z = w.linear(h, f"{at}attn_qkv"), w.linear(h, f"{at}attn_gate")
    is_grouped = f"{at}ssm_ba.weight" in w.file.tensors  # neighbouring value heads share a key head
    if is_grouped:
        scalars = w.linear(h, f"{at}ssm_ba").reshape(len(h), n_keys, 2, -1)
        strength, slowness = (scalars[:, :, i].reshape(len(h), n_heads) for i in range(2))
    else:
        strength, slowness = w.linear(h, f"{at}ssm_beta"), w.linear(h, f"{at}ssm_alpha")
    beta = sigmoid(strength)
    rate = np.log1p(np.exp(slowness + w.need(f"{at}ssm_dt.bias"))) * w.need(f"{at}ssm_a")
    kernel = w.need(f"{at}ssm_conv1d.weight")  # [channels, taps]
    padded = np.concatenate([np.zeros((kernel.shape[1] - 1, qkv.shape[1])), qkv])
    mixed = silu(sum(padded[j : j + len(h)] * kernel[:, j] for j in range(kernel.shape[1])))
    q, k, v = np.split(mixed, [n_keys * size, 2 * n_keys * size], axis=1)
    q, k = (part.reshape(len(h), n_keys, size) for part in (q, k))
    q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + w.eps) for part in (q, k))
    v = v.reshape(len(h), n_heads, size)
    out = np.zeros_like(v)
    for j in range(n_heads):
        state = np.zeros((size, size))
        for t in range(len(h)):
            number = j // (n_heads // n_keys) if is_grouped else j % n_keys
            key, query = k[t, number], q[t, number] / np.sqrt(size)
            state = np.exp(rate[t, j]) * state
            state = state + np.outer(key, beta[t, j] * (v[t, j] - state.T @ key))
            out[t, j] = state.T @ query
    out = w.norm(out, f"{at}ssm_norm.weight").reshape(len(h), -1) * silu(z)
    return w.linear(out, f"{at}ssm_out")
