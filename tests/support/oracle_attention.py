"""Attention of the oracle: windows, sinks, gates, shared caches, rotary angles (docs/targets.md §§2.2-2.4)."""

import numpy as np

from tests.support.oracle_weights import Weights, sigmoid

GATED = {"qwen35", "qwen35moe", "qwen3next"}
PERIODS = {"gemma3": 6, "gpt-oss": 2}  # of sliding layers, where the key is missing


def attention(w: Weights, layer: int, h: np.ndarray, caches: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """`[T, D]`; appends the layer's keys and values, or those it shares, to `caches`."""
    at, n_heads, position = f"blk.{layer}.", w.integer("attention.head_count"), np.arange(len(h))
    slides, suffix = is_sliding(w, layer), ""
    if slides and w.arch == "gemma4":
        suffix = "_swa"
    size = w.integer(f"attention.key_length{suffix}")
    q, k, v = project(w, at, h, n_heads * size)
    gate = None
    if w.arch in GATED:  # per head: queries, then gates
        q, gate = np.moveaxis(q.reshape(len(h), n_heads, 2, size), 2, 0)
    q = turn(w, at, "q", q.reshape(len(h), n_heads, size), position, slides)
    if k is None:  # the last of its kind that has keys
        n_own = w.integer("block_count") - w.integer("attention.shared_kv_layers")
        k, v = caches[n_own - 2 if slides else n_own - 1]
    else:
        v = (k if v is None else v).reshape(
            len(h), -1, w.integer("attention.value_length") if w.arch == "mimo2" else size
        )
        v = w.normalise(v) if w.arch == "gemma4" else v
        k = turn(w, at, "k", k.reshape(len(h), -1, size), position, slides)
    caches.append((k, v))
    distance = position[:, None] - position[None, :]
    masked = (distance < 0) | (slides & (distance >= w.integer("attention.sliding_window")))
    scale, sinks = 1.0 if w.arch == "gemma4" else size**-0.5, w.get(f"{at}attn_sinks.weight")
    heads = []
    for head in range(n_heads):
        group = head // (n_heads // k.shape[1])
        scores = np.where(masked, -np.inf, q[:, head] @ k[:, group].T * scale)
        most = np.maximum(scores.max(1, keepdims=True), -np.inf if sinks is None else sinks[head])
        weights = np.exp(scores - most)
        total = weights.sum(1, keepdims=True) + (0 if sinks is None else np.exp(sinks[head] - most))
        heads.append(weights / total @ v[:, group])
    joined = np.concatenate(heads, 1) * w.number("attention.value_scale", 1.0)
    if gate is not None:
        joined = joined * sigmoid(gate.reshape(len(h), -1))
    return w.linear(joined, f"{at}attn_output")


def project(
    w: Weights, at: str, h: np.ndarray, q_width: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Queries, keys and values as far as the file has them."""
    if f"{at}attn_qkv.weight" in w.file.tensors:
        joined = w.linear(h, f"{at}attn_qkv")
        size_k, size_v = w.integer("attention.key_length"), w.integer("attention.value_length")
        width = (joined.shape[1] - q_width) * size_k // (size_k + size_v)
        q, k, v = np.split(joined, [q_width, q_width + width], axis=1)
        return q, k, v
    q, k, v = (
        w.linear(h, f"{at}attn_{part}") if f"{at}attn_{part}.weight" in w.file.tensors else None for part in "qkv"
    )
    assert q is not None
    return q, k, v


def is_sliding(w: Weights, layer: int) -> bool:
    name = f"{w.arch}.attention.sliding_window_pattern"
    if not w.integer("attention.sliding_window"):
        return False
    if name in w.file.metadata and w.file.metadata.kind(name).startswith("["):
        return bool(w.file.metadata.require(name, "[int]")[layer])
    period = w.integer("attention.sliding_window_pattern", PERIODS[w.arch])
    return layer % period < period - 1


def turn(w: Weights, at: str, part: str, heads: np.ndarray, position: np.ndarray, slides: bool) -> np.ndarray:
    """Norm and rotary angles of `[T, n_heads, size]`."""
    heads = w.norm(heads, f"{at}attn_{part}_norm.weight")
    base, n_rot, factors = w.number("rope.freq_base", 10000.0), w.integer("rope.dimension_count", heads.shape[2]), None
    if slides and w.arch in ("gemma3", "gemma4", "mimo2"):
        base = w.number("rope.freq_base_swa", 10000.0)
        n_rot = w.integer("rope.dimension_count_swa", n_rot)
    else:
        factors = w.get("rope_freqs.weight")
    half = n_rot // 2
    frequency = base ** (-np.arange(half) / half) / (1 if factors is None else factors)
    magnitude = 1.0
    if w.text("rope.scaling.type") == "yarn":
        frequency, magnitude = yarn(w, frequency, n_rot, base)
    angle = position[:, None, None] * frequency
    a, b = (slice(0, n_rot, 2), slice(1, n_rot, 2)) if w.arch == "llama" else (slice(half), slice(half, n_rot))
    out = heads.copy()
    out[..., a] = magnitude * (heads[..., a] * np.cos(angle) - heads[..., b] * np.sin(angle))
    out[..., b] = magnitude * (heads[..., a] * np.sin(angle) + heads[..., b] * np.cos(angle))
    return out


def yarn(w: Weights, frequency: np.ndarray, n_rot: int, base: float) -> tuple[np.ndarray, float]:
    """Frequencies between interpolated and plain, and the magnitude."""
    factor, original = w.number("rope.scaling.factor"), w.integer("rope.scaling.original_context_length")

    def pair(beta: float) -> float:
        return n_rot * np.log(original / (2 * np.pi * beta)) / (2 * np.log(base))

    low, high = max(0, np.floor(pair(32))), min(n_rot - 1, np.ceil(pair(1)))
    ramp = 1 - np.clip((np.arange(len(frequency)) - low) / max(0.001, high - low), 0, 1)
    return frequency / factor * (1 - ramp) + frequency * ramp, 0.1 * np.log(factor) + 1
