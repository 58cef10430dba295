"""DFlash, DFlash2 and DSpark once more, in float64 NumPy from docs/draft-networks.md §§3-4: no cache, no programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specli.gguf.file import GGUFFile


@dataclass(frozen=True)
class OracleSlot:
    """What a slot proposes.

    Attributes:
        logits: `[V]`, with -inf for tokens outside the draft vocabulary; DSpark: with the Markov bias.
        scores: Token → logit, or score of the selector; the candidates only.
        token: The best of them.
        confidence: Predicted acceptance; NaN without a head for it.
    """

    logits: np.ndarray
    scores: dict[int, float]
    token: int
    confidence: float


class DFlashOracle:
    """A draft file beside its target's.

    Args:
        file: The draft file.
        target: The target's file, for embedding and head.
    """

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        self._file = file
        self._target = target
        self.eps = self.number("attention.layer_norm_rms_epsilon")
        self.n_heads, self.n_kv = self.integer("attention.head_count"), self.integer("attention.head_count_kv")
        self.size = self.integer("attention.key_length")

    def integer(self, name: str) -> int:
        return self._file.metadata.get(f"dflash.{name}", "u32", 0)

    def number(self, name: str) -> float:
        return self._file.metadata.get(f"dflash.{name}", "f32", 0.0)

    def flag(self, name: str, default: bool) -> bool:
        return self._file.metadata.get(f"dflash.{name}", "bool", default)

    def tensor(self, name: str) -> np.ndarray | None:
        found = self._file.tensors.get(name)
        return None if found is None else found.dequantise().astype(np.float64)

    def need(self, name: str) -> np.ndarray:
        found = self.tensor(name)
        assert found is not None, name
        return found

    def norm(self, x: np.ndarray, name: str | None) -> np.ndarray:
        weight = 1.0 if name is None else self.tensor(name)
        return x if weight is None else x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps) * weight

    def borrowed(self, name: str) -> np.ndarray:
        tensors = self._target.tensors
        return tensors.get(name, tensors["token_embd.weight"]).dequantise().astype(np.float64)

    def block(self, hidden: list[np.ndarray], anchor: int, n_draft: int) -> list[OracleSlot]:
        """Greedy proposals after the tokens that gave the target's boundaries `hidden`, `[n, E]` each."""
        taps = self._file.metadata.require("dflash.target_layers", "[int]")
        fused = np.concatenate([hidden[tap] for tap in taps], axis=1) @ self.need("fc.weight").T
        context = self.norm(fused, "enc.output_norm.weight")
        is_dspark = "markov_w1.weight" in self._file.tensors
        first = 0 if is_dspark and self.flag("sample_from_anchor", True) else 1
        mask = self._file.metadata.require("tokenizer.ggml.mask_token_id", "u32")
        tokens = [anchor] + [mask] * (n_draft + first - 1)
        table = self.tensor("token_embd.weight")
        embedding = self.borrowed("token_embd.weight") if table is None else table
        x = embedding[tokens] * (self.number("embedding_scale") or 1)
        for layer in range(self.integer("block_count")):
            x = self._layer(x, context, layer)
        states = self.norm(x, "output_norm.weight")[first:]
        head = self.tensor("output.weight")
        if head is None:
            head = self.borrowed("output.weight") if table is None else table
        logits = states @ head.T
        if self.integer("selector_top_k"):
            logits *= self.number("logit_scale") or 1
            cap = self.number("final_logit_softcapping")
            logits = cap * np.tanh(logits / cap) if cap else logits
        logits = self._scattered(logits, len(embedding), -np.inf)
        return self._chain(logits, states, anchor)

    def _layer(self, x: np.ndarray, context: np.ndarray, layer: int) -> np.ndarray:
        at = f"blk.{layer}."
        n, n_slots = len(context), len(x)
        z = self.norm(x, at + "attn_norm.weight")
        z, convolve = self._convolution(z, at + "attn")
        q = self._turned(z, at, "attn_q", np.arange(n, n + n_slots))
        rows = np.concatenate([context, z])
        k = self._turned(rows, at, "attn_k", np.arange(n + n_slots))
        weight = self.tensor(at + "attn_v.weight")
        v = rows @ (self.need(at + "attn_k.weight") if weight is None else weight).T
        v = v.reshape(len(rows), -1, self.size)
        if weight is None:
            v = self.norm(v, None)
        distance = np.arange(n, n + n_slots)[:, None] - np.arange(n + n_slots)[None, :]
        causal = self._file.metadata.get("dflash.attention.causal_pattern", "[bool]", None)
        hidden = (distance < 0) & (self.flag("attention.causal", False) if causal is None else causal[layer])
        key = "dflash.attention.sliding_window_pattern"
        if key in self._file.metadata and self._file.metadata.require(key, "[int]")[layer]:
            hidden |= distance >= self.integer("attention.sliding_window")
        sinks = self.tensor(at + "attn_sinks.weight")
        heads = []
        for head in range(self.n_heads):
            group = head // (self.n_heads // self.n_kv)
            scores = q[:, head] @ k[:, group].T * (self.number("attention.scale") or self.size**-0.5)
            weights = np.exp(np.where(hidden, -np.inf, scores))
            total = weights.sum(1, keepdims=True) + (0 if sinks is None else np.exp(sinks[head]))
            heads.append(weights / total @ v[:, group])
        out = np.concatenate(heads, 1) @ self.need(at + "attn_output.weight").T
        out = convolve(out * (self.number("attention.value_scale") or 1))
        x = x + self.norm(out, at + "post_attention_norm.weight")
        z, convolve = self._convolution(self.norm(x, at + "ffn_norm.weight"), at + "ffn")
        gate = z @ self.need(at + "ffn_gate.weight").T
        if self._file.metadata.get("dflash.hidden_activation", "str", "silu") == "silu":
            gate = gate / (1 + np.exp(-gate))
        else:
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        out = convolve((gate * (z @ self.need(at + "ffn_up.weight").T)) @ self.need(at + "ffn_down.weight").T)
        scale = self.tensor(at + "layer_output_scale.weight")
        return (x + self.norm(out, at + "post_ffw_norm.weight")) * (1 if scale is None else scale)

    def _turned(self, rows: np.ndarray, at: str, part: str, positions: np.ndarray) -> np.ndarray:
        """Projected, normed per head and rotated, `[T, heads, d]`."""
        heads = (rows @ self.need(f"{at}{part}.weight").T).reshape(len(rows), -1, self.size)
        heads = self.norm(heads, f"{at}{part}_norm.weight")
        half = self.size // 2
        factors = self.tensor("rope_freqs.weight")
        frequency = self.number("rope.freq_base") ** (-np.arange(half) / half) / (1 if factors is None else factors)
        angle = positions[:, None, None] * frequency
        a, b = heads[..., :half], heads[..., half:]
        turned = [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)]
        return np.concatenate(turned, axis=2)

    def _convolution(self, z: np.ndarray, prefix: str):
        """The convolved input, and what convolves the output."""
        base = self.tensor(prefix + "_conv_base")  # [2, K, E]
        if base is None:
            return z, lambda out: out
        _, taps, width = base.shape
        groups = width // self.integer("conv_group_size")
        dynamic = (z @ self.need(prefix + "_conv_proj.weight").T).reshape(len(z), 2, taps, groups)

        def convolve(v: np.ndarray, side: int) -> np.ndarray:
            out = np.zeros_like(v)
            for t in range(len(v)):
                for tap in range(min(taps, t + 1)):
                    per_channel = np.repeat(dynamic[t, side, tap], width // groups)
                    out[t] += (base[side, tap] + per_channel) * v[t - tap]
            return out

        return convolve(z, 0), lambda out: convolve(out, 1)

    def _scattered(self, rows: np.ndarray, n_vocab: int, rest: float) -> np.ndarray:
        mapping = self._file.tensors.get("d2t")
        if mapping is None:
            return rows
        full = np.full((*rows.shape[:-1], n_vocab), rest)
        full[..., mapping.numbers()] = rows
        return full

    def _chain(self, logits: np.ndarray, states: np.ndarray, anchor: int) -> list[OracleSlot]:
        """Walks the slots, each with the token chosen before it."""
        slots, previous = [], anchor
        for z, state in zip(logits, states, strict=True):
            confidence = np.nan
            if "markov_w1.weight" in self._file.tensors:
                markov = self.need("markov_w1.weight")[previous]
                z = z + self._scattered(self.need("markov_w2.weight") @ markov, len(z), 0.0)
                weight = self.tensor("conf_proj.weight")
                if weight is not None:
                    joined = np.concatenate([state, markov])
                    logit = float(weight.reshape(-1) @ joined + self.need("conf_proj.bias")[0])
                    confidence = 1 / (1 + np.exp(-logit))
            best = np.argsort(-z, kind="stable")[: self.integer("selector_top_k") or 10]
            values = z[best]
            if self.integer("selector_top_k"):
                gate = self.need("selector_predecessor.weight")[previous] * (
                    self.need("selector_hidden.weight") @ state
                )
                values = values + self.need("selector_successor.weight")[best] @ gate
            scores = {int(token): float(value) for token, value in zip(best, values, strict=True)}
            previous = max(scores, key=lambda token: scores[token])
            slots.append(OracleSlot(z, scores, previous, confidence))
        return slots
