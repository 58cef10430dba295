"""Latent attention of the oracle, with keys and values expanded for every head (docs/targets.md, deepseek2)."""

import numpy as np

from tests.support.oracle_attention import yarn
from tests.support.oracle_weights import Weights, softmax


def latent_attention(w: Weights, at: str, h: np.ndarray, caches: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """`[T, D]`; appends the cells' keys and values to `caches`."""
    n_heads, n_rot, position = w.integer("attention.head_count"), w.integer("rope.dimension_count"), np.arange(len(h))
    n_latent, size = w.integer("attention.kv_lora_rank"), w.integer("attention.key_length_mla")
    low = (
        w.norm(w.linear(h, f"{at}attn_q_a"), f"{at}attn_q_a_norm.weight")
        if f"{at}attn_q_a.weight" in w.file.tensors
        else h
    )
    name = "attn_q" if low is h else "attn_q_b"
    q = w.linear(low, f"{at}{name}").reshape(len(h), n_heads, size)
    latent, shared = np.split(w.linear(h, f"{at}attn_kv_a_mqa"), [n_latent], axis=1)
    latent = w.norm(latent, f"{at}attn_kv_a_norm.weight")
    shared, factor = rotated(w, shared[:, None], position, n_rot)
    turned, _ = rotated(w, q[..., size - n_rot :], position, n_rot)
    caches.append((np.concatenate([latent[:, None], shared], 2), latent[:, None]))
    k_b, v_b = w.need(f"{at}attn_k_b.weight"), w.need(f"{at}attn_v_b.weight")
    hidden = position[:, None] < position[None, :]
    heads = []
    for head in range(n_heads):
        keys, values = latent @ k_b[head], latent @ v_b[head].T
        scores = q[:, head, : size - n_rot] @ keys.T + turned[:, head] @ shared[:, 0].T
        heads.append(softmax(np.where(hidden, -np.inf, scores * factor**2 * size**-0.5)) @ values)
    return w.linear(np.concatenate(heads, 1), f"{at}attn_output")


def rotated(w: Weights, heads: np.ndarray, position: np.ndarray, n_rot: int) -> tuple[np.ndarray, float]:
    """Neighbours turned, and DeepSeek's factor on queries and keys under YaRN: 0.1 · mscale_all_dim · ln(factor) + 1.

    The turned elements keep their length: mscale and mscale_all_dim are equal in all published configs.
    """
    base, half, factor = w.number("rope.freq_base"), n_rot // 2, 1.0
    frequency = base ** (-np.arange(half) / half)
    if w.text("rope.scaling.type") == "yarn":
        frequency, _ = yarn(w, frequency, n_rot, base)
        all_dim = w.number("rope.scaling.yarn_log_multiplier") / 0.1
        factor = 0.1 * all_dim * np.log(w.number("rope.scaling.factor")) + 1
    angle = position[:, None, None] * frequency
    a, b = heads[..., 0::2], heads[..., 1::2]
    out = np.empty_like(heads)
    out[..., 0::2] = a * np.cos(angle) - b * np.sin(angle)
    out[..., 1::2] = a * np.sin(angle) + b * np.cos(angle)
    return out, factor
