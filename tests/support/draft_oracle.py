"""Draft networks a second time, in float64 NumPy from docs/draft-networks.md: the whole sequence at once, no cache.

A network is a layer over pairs of token and state. Pairs of tokens that stand have states of the target; then the draft
goes on with its own. `steps` gives the logits of every step of a draft, given what the draft says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from specli.gguf.file import GGUFFile
from tests.support.oracle import PRE_FFN_NORMS, run_oracle
from tests.support.oracle_attention import attention, is_sliding
from tests.support.oracle_experts import dense, feed_forward
from tests.support.oracle_latent import latent_attention
from tests.support.oracle_weights import Weights, softmax


class DraftOracle(ABC):
    """Attention over the pairs so far, one at a time.

    Args:
        file: The draft file.
        prefix: Of the layer's tensors.
        interleaved: Rotary pairing.
    """

    def __init__(self, file: GGUFFile, prefix: str, *, interleaved: bool) -> None:
        self.file = file
        self.prefix = prefix
        self.interleaved = interleaved
        self.eps = file.metadata.require(f"{file.architecture}.attention.layer_norm_rms_epsilon", "f32")
        self.keys: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    @abstractmethod
    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        """`[V_d]` logits of len(draft) + 1 steps after the tokens `history + [last]`."""

    def number(self, name: str) -> int:
        return self.file.metadata.require(f"{self.file.architecture}.{name}", "u32")

    def tensor(self, name: str, other: GGUFFile | None = None) -> np.ndarray:
        return (other or self.file).tensors[name].dequantise().astype(np.float64)

    def layer_tensor(self, name: str) -> np.ndarray:
        return self.tensor(f"{self.prefix}{name}.weight")

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return rms(x, self.eps) * self.tensor(name)

    def attend(
        self, x: np.ndarray, position: int, *, head_norms: bool = False, window: int = 0, biases: bool = False
    ) -> np.ndarray:
        """Appends the pair's key and value; what its query collects among the last `window` pairs, projected."""
        size = self.number("attention.key_length")
        q, k, v = (self.layer_tensor(f"attn_{part}") @ x for part in "qkv")
        if biases:
            q, k, v = (p + self.tensor(f"blk.0.attn_{n}.bias") for p, n in zip((q, k, v), "qkv", strict=True))
        q, k, v = (part.reshape(-1, size) for part in (q, k, v))
        if head_norms:
            q, k = (rms(part, self.eps) * self.layer_tensor(f"attn_{n}_norm") for part, n in ((q, "q"), (k, "k")))
        self.keys.append(self.rotate(k, position))
        self.values.append(v)
        q = self.rotate(q, position)
        group = len(q) // len(k)
        heads = []
        seen = slice(-window if window else None, None)
        for head, query in enumerate(q):
            keys = np.stack([row[head // group] for row in self.keys[seen]])
            scores = keys @ query / np.sqrt(size)
            weights = np.exp(scores - scores.max())
            heads.append(weights / weights.sum() @ np.stack([row[head // group] for row in self.values[seen]]))
        return self.layer_tensor("attn_output") @ np.concatenate(heads)

    def rotate(self, heads: np.ndarray, position: int) -> np.ndarray:
        half = heads.shape[1] // 2
        base = self.file.metadata.require(f"{self.file.architecture}.rope.freq_base", "f32")
        angle = position * base ** (-np.arange(half) / half)
        if "rope_freqs.weight" in self.file.tensors:
            angle = angle / self.tensor("rope_freqs.weight")
        a, b = (slice(0, None, 2), slice(1, None, 2)) if self.interleaved else (slice(None, half), slice(half, None))
        out = np.empty_like(heads)
        out[:, a] = heads[:, a] * np.cos(angle) - heads[:, b] * np.sin(angle)
        out[:, b] = heads[:, a] * np.sin(angle) + heads[:, b] * np.cos(angle)
        return out

    def feed_forward(self, x: np.ndarray) -> np.ndarray:
        gate = self.layer_tensor("ffn_gate") @ x
        return self.layer_tensor("ffn_down") @ (gate / (1 + np.exp(-gate)) * (self.layer_tensor("ffn_up") @ x))


class Eagle3Oracle(DraftOracle):
    """EAGLE-3 (docs/draft-networks.md §2): the pair (t_{P+1}, g_P) lies at P."""

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        super().__init__(file, "blk.0.", interleaved=True)
        self.target = target
        flag = file.metadata.require
        self.norm_before_fc = flag("eagle3.norm_before_fc", "bool")
        self.norm_before_residual = flag("eagle3.norm_before_residual", "bool")
        self.fc_norm, self.norm_output = (
            file.metadata.get(f"eagle3.{name}", "bool", False) for name in ("fc_norm", "norm_output")
        )
        self.window = file.metadata.get("eagle3.attention.sliding_window", "u32", 0)
        self.taps = flag("eagle3.target_layers", "[i32]")
        self.embeddings = self.own_or("token_embd.weight", "token_embd.weight")
        self.head = self.own_or("output.weight", "output.weight", "token_embd.weight")

    def own_or(self, name: str, *others: str) -> np.ndarray:
        if name in self.file.tensors:
            return self.tensor(name)
        return self.tensor(next(other for other in others if other in self.target.tensors), self.target)

    def fused(self, history: Sequence[int]) -> np.ndarray:
        """g of every position, `[T, E]`."""
        hidden = run_oracle(self.target, list(history)).hidden
        joined = np.concatenate([hidden[tap] for tap in self.taps], axis=1)
        if self.norm_before_fc:
            joined = self.norm(joined, "enc.output_norm.weight")
        if self.fc_norm:
            parts = np.split(joined, len(self.taps), axis=1)
            joined = np.concatenate([self.norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)], axis=1)
        return joined @ self.tensor("fc.weight").T

    def pair(self, token: int, state: np.ndarray, position: int) -> np.ndarray:
        """The residual stream after the layer."""
        normed = self.norm(state, "blk.0.attn_norm_2.weight")
        x = np.concatenate([self.norm(self.embeddings[token], "blk.0.attn_norm.weight"), normed])
        attended = self.attend(
            x, position, head_norms="blk.0.attn_q_norm.weight" in self.file.tensors, window=self.window
        )
        out = (normed if self.norm_before_residual else state) + attended
        return out + self.feed_forward(self.norm(out, "blk.0.ffn_norm.weight"))

    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        self.keys, self.values = [], []
        for position, (token, state) in enumerate(zip([*history[1:], last], self.fused(history), strict=True)):
            out = self.pair(token, state, position)
        normed = self.norm(out, "output_norm.weight")
        logits = [self.head @ normed]
        for position, token in enumerate(draft, len(history)):
            out = self.pair(token, normed if self.norm_output else out, position)
            normed = self.norm(out, "output_norm.weight")
            logits.append(self.head @ normed)
        return logits


def last_states(target: GGUFFile, history: Sequence[int]) -> np.ndarray:
    """What the target's head multiplies, `[T, E]`."""
    return Weights(target).norm(run_oracle(target, list(history)).hidden[-1], "output_norm.weight")


def head_of(target: GGUFFile) -> np.ndarray:
    """`[V, E]`, the target's head."""
    return Weights(target).need(next(n for n in ("output.weight", "token_embd.weight") if n in target.tensors))


class EagleOracle(DraftOracle):
    """EAGLE-1 (SafeAILab/EAGLE `eagle/model/cnets1.py`): the pair (t_{P+1}, g_P) lies at P, with the normed g."""

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        super().__init__(file, "blk.0.", interleaved=True)
        self.target = target
        own = "token_embd.weight" in file.tensors
        self.embeddings = self.tensor("token_embd.weight", file if own else target)

    def pair(self, token: int, state: np.ndarray, position: int) -> np.ndarray:
        """The state that the layer estimates."""
        x = self.tensor("fc.weight") @ np.concatenate([self.embeddings[token], state])
        if "fc.bias" in self.file.tensors:
            x = x + self.tensor("fc.bias")
        out = x + self.attend(x, position, biases="blk.0.attn_q.bias" in self.file.tensors)
        return out + self.feed_forward(self.norm(out, "blk.0.ffn_norm.weight"))

    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        self.keys, self.values = [], []
        head, known = head_of(self.target), last_states(self.target, history)
        for position, (token, state) in enumerate(zip([*history[1:], last], known, strict=True)):
            out = self.pair(token, state, position)
        logits = [head @ out]
        for position, token in enumerate(draft, len(history)):
            out = self.pair(token, out, position)
            logits.append(head @ out)
        return logits


class MedusaOracle:
    """Medusa (FasterDecoding/Medusa `medusa/model/medusa_model.py`): head i of the last normed state."""

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        self.w = Weights(file)
        self.target = target

    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        """`[V]` logits of len(draft) + 1 heads after the tokens `history + [last]`."""
        state, logits = last_states(self.target, history)[-1], []
        for head in range(len(draft) + 1):
            x = state
            for part in range(self.w.integer("residual_count")):
                y = self.w.linear(x, f"blk.{head}.residual.{part}")
                x = x + y / (1 + np.exp(-y))
            logits.append(self.w.need(f"blk.{head}.output.weight") @ x)
        return logits


class MTPOracle:
    """MTP (docs/draft-networks.md §5): the pair (t_p, h_{p-1}) lies at p; before the first token the state is zero.

    Args:
        file: The file with the heads.
        target: The target's.
    """

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        self.w = Weights(file)
        self.target = target
        self.n_heads = self.w.integer("nextn_predict_layers")
        self.first = self.w.integer("block_count") - self.n_heads

    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        """`[V]` logits of len(draft) + 1 steps after the tokens `history + [last]`."""
        known = run_oracle(self.target, list(history)).nextn
        tokens, states, logits = [*history, last], [np.zeros(known.shape[1]), *known], []
        for step in range(len(draft) + 1):
            index = self.first + (step if self.n_heads > 1 else 0)
            raw, normed = (rows[-1] for rows in self.block(index, tokens, np.stack(states)))
            logits.append(self.named(f"blk.{index}.nextn.shared_head_head.weight", "output.weight") @ normed)
            states = [*states, raw if self.w.arch == "mimo2" else normed]
            tokens = [*tokens, *draft[step : step + 1]]
        return logits

    def block(self, index: int, tokens: list[int], states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a block gives for every pair, before and after the norm before its head."""
        w, at = self.w, f"blk.{index}."
        embedded = self.named(f"{at}nextn.embed_tokens.weight", "token_embd.weight")[tokens]
        pair = [w.norm(embedded, f"{at}nextn.enorm.weight"), w.norm(states, f"{at}nextn.hnorm.weight")]
        x = w.linear(np.concatenate(pair, axis=1), f"{at}nextn.eh_proj")
        h = w.norm(x, f"{at}attn_norm.weight")
        is_latent = f"{at}attn_kv_a_mqa.weight" in w.file.tensors
        x = x + (latent_attention(w, at, h, []) if is_latent else attention(w, index, h, []))
        pre_ffn = "post_attention_norm" if w.arch in PRE_FFN_NORMS else "ffn_norm"
        x = x + feed_forward(w, at, w.norm(x, f"{at}{pre_ffn}.weight"))
        own = f"{at}nextn.shared_head_norm.weight"
        return x, w.norm(x, own if own in w.file.tensors else "output_norm.weight")

    def named(self, own: str, shared: str) -> np.ndarray:
        names = (own, shared, "token_embd.weight")
        return self.w.need(next(name for name in names if name in self.w.file.tensors))


class AssistantOracle:
    """gemma4-assistant (docs/draft-networks.md §5.6): queries of the newest token on the target's cells before it."""

    def __init__(self, file: GGUFFile, target: GGUFFile) -> None:
        self.w = Weights(file)
        self.target = target

    def steps(self, history: Sequence[int], last: int, draft: Sequence[int]) -> list[np.ndarray]:
        """`[V]` logits of len(draft) + 1 steps after the tokens `history + [last]`."""
        w, known = self.w, run_oracle(self.target, list(history))
        embeddings, state = Weights(self.target).need("token_embd.weight"), known.nextn[-1]
        logits = []
        for token in (last, *draft):
            joined = np.concatenate([np.sqrt(len(state)) * embeddings[token], state])
            x = w.linear(joined, "nextn.pre_projection")
            for layer in range(w.integer("block_count")):
                x = self.layer(layer, x, len(history), known.caches)
            out = w.norm(x, "output_norm.weight")
            logits.append(w.need("token_embd.weight") @ out)
            state = w.linear(out, "nextn.post_projection")
        return logits

    def layer(self, layer: int, x: np.ndarray, n: int, caches: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        w, at, slides = self.w, f"blk.{layer}.", is_sliding(self.w, layer)
        keys, values = caches[-2 if slides else -1]
        window = w.integer("attention.sliding_window") if slides else n + 1
        seen = slice(max(0, n - window + 1), n)
        q = w.linear(w.norm(x, f"{at}attn_norm.weight"), f"{at}attn_q").reshape(1, -1, keys.shape[2])
        q = self.rotate(w.norm(q, f"{at}attn_q_norm.weight")[0], n, "_swa" if slides else "")
        group = len(q) // keys.shape[1]
        heads = [softmax(keys[seen, h // group] @ query) @ values[seen, h // group] for h, query in enumerate(q)]
        branch = w.linear(np.concatenate(heads), f"{at}attn_output")
        x = x + w.norm(branch, f"{at}post_attention_norm.weight")
        branch = dense(w, at, w.norm(x, f"{at}ffn_norm.weight"), "")
        x = x + w.norm(branch, f"{at}post_ffw_norm.weight")
        return x * w.need(f"{at}layer_output_scale.weight")

    def rotate(self, heads: np.ndarray, position: int, kind: str) -> np.ndarray:
        half = self.w.integer(f"rope.dimension_count{kind}") // 2
        angle = position * self.w.number(f"rope.freq_base{kind}") ** (-np.arange(half) / half)
        if not kind:
            angle = angle / self.w.need("rope_freqs.weight")
        out, a, b = heads.copy(), slice(half), slice(half, 2 * half)
        out[:, a] = heads[:, a] * np.cos(angle) - heads[:, b] * np.sin(angle)
        out[:, b] = heads[:, a] * np.sin(angle) + heads[:, b] * np.cos(angle)
        return out


def rms(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
