"""A second forward pass, in float64 NumPy straight from target-models.md §§2-3: whole sequence at once, no cache."""

from dataclasses import dataclass

import numpy as np

from specli.gguf.file import GGUFFile


@dataclass(frozen=True)
class Oracle:
    """What a sequence gives: `logits` `[T, V]` and `hidden`, the N+1 layer boundaries `[T, D]`."""

    logits: np.ndarray
    hidden: list[np.ndarray]
    normed: np.ndarray


def run_oracle(file: GGUFFile, tokens: list[int]) -> Oracle:
    """The results for `tokens` at positions 0 … T-1. Handles llama, qwen2, qwen3 and gemma3 without RoPE scaling."""
    arch, keys = file.architecture, file.metadata
    gemma = arch == "gemma3"

    def integer(name: str, default: int = 0) -> int:
        return keys.get(f"{arch}.{name}", "u32", default)

    def tensor(name: str) -> np.ndarray | None:
        found = file.tensors.get(name)
        return None if found is None else found.dequantise().astype(np.float64)

    eps = keys.require(f"{arch}.attention.layer_norm_rms_epsilon", "f32")

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        weight = tensor(name)
        return x if weight is None else x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        weight, bias = tensor(f"{name}.weight"), tensor(f"{name}.bias")
        assert weight is not None
        return x @ weight.T + (0 if bias is None else bias)

    n_embd, n_heads = integer("embedding_length"), integer("attention.head_count")
    n_kv, size = integer("attention.head_count_kv"), integer("attention.key_length")
    table = tensor("token_embd.weight")
    assert table is not None
    position = np.arange(len(tokens))
    base = keys.get(f"{arch}.rope.freq_base", "f32", 10000.0)
    x = table[tokens] * (np.sqrt(n_embd) if gemma else 1)
    hidden = [x]
    for layer in range(integer("block_count")):
        at = f"blk.{layer}."
        period = integer("attention.sliding_window_pattern", 6)
        slides = gemma and integer("attention.sliding_window") > 0 and layer % period < period - 1
        angle_base = keys.get(f"{arch}.rope.freq_base_swa", "f32", 10000.0) if slides else base
        h = norm(x, f"{at}attn_norm.weight")
        if f"{at}attn_qkv.weight" in file.tensors:
            joined = linear(h, f"{at}attn_qkv")
            q, k, v = np.split(joined, [n_heads * size, (n_heads + n_kv) * size], axis=1)
        else:
            q, k, v = (linear(h, f"{at}attn_{part}") for part in "qkv")
        q, k, v = (part.reshape(len(tokens), -1, size) for part in (q, k, v))
        q, k = norm(q, f"{at}attn_q_norm.weight"), norm(k, f"{at}attn_k_norm.weight")
        q, k = (_rotate(part, position, angle_base, interleaved=arch == "llama") for part in (q, k))
        distance = position[:, None] - position[None, :]
        masked = (distance < 0) | (slides & (distance >= integer("attention.sliding_window")))
        heads = []
        for head in range(n_heads):
            group = head // (n_heads // n_kv)
            scores = np.where(masked, -np.inf, q[:, head] @ k[:, group].T / np.sqrt(size))
            weights = np.exp(scores - scores.max(1, keepdims=True))
            heads.append(weights / weights.sum(1, keepdims=True) @ v[:, group])
        x = x + norm(linear(np.concatenate(heads, 1), f"{at}attn_output"), f"{at}post_attention_norm.weight")
        h = norm(x, f"{at}ffn_norm.weight")
        gate = linear(h, f"{at}ffn_gate")
        if gemma:
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        x = x + norm(linear(gate * linear(h, f"{at}ffn_up"), f"{at}ffn_down"), f"{at}post_ffw_norm.weight")
        hidden.append(x)
    normed = norm(x, "output_norm.weight")
    logits = linear(normed, "output" if "output.weight" in file.tensors else "token_embd")
    cap = keys.get(f"{arch}.final_logit_softcapping", "f32", 0.0)
    return Oracle(cap * np.tanh(logits / cap) if cap else logits, hidden, normed)


def _rotate(heads: np.ndarray, position: np.ndarray, base: float, *, interleaved: bool) -> np.ndarray:
    """RoPE on `[T, n_heads, size]`."""
    half = heads.shape[2] // 2
    angle = position[:, None, None] * base ** (-np.arange(half) / half)
    a, b = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(None, half), slice(half, None))
    out = np.empty_like(heads)
    out[..., a] = heads[..., a] * np.cos(angle) - heads[..., b] * np.sin(angle)
    out[..., b] = heads[..., a] * np.sin(angle) + heads[..., b] * np.cos(angle)
    return out
