"""Qwen3 layers in plain PyTorch, with the tensor names of the Hugging Face class.

The target, `draft-simple` and the bodies of all other drafters are made of them. Shapes: B sequences, S positions,
E width, H query heads, G key/value heads, D head width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-6
ROPE_BASE = 10000.0


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3 network."""

    width: int
    n_layers: int
    n_heads: int
    n_groups: int
    inner: int
    head: int = 64
    n_tokens: int = 4096
    context: int = 1024


class Norm(nn.Module):
    """RMSNorm over the last axis, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]`, as it came."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight, EPS).to(x.dtype)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of heads `[B, H, S, D]` at `positions` `[S]` or `[B, S]`, pairs D/2 apart."""
    half = x.shape[-1] // 2
    frequency = ROPE_BASE ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = positions.float()[..., None] * frequency  # [(B,) S, D/2]
    if angle.ndim == 3:
        angle = angle[:, None]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def linear(n_in: int, n_out: int) -> nn.Linear:
    """A matrix without bias, normal(0, 0.02)."""
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


class Attention(nn.Module):
    """Grouped-query attention; `n_in` is twice the width in EAGLE-3, which also has no head norms."""

    def __init__(self, shape: Shape, *, n_in: int | None = None, head_norms: bool = True) -> None:
        super().__init__()
        self.shape = shape
        n_in = n_in or shape.width
        self.q_proj = linear(n_in, shape.n_heads * shape.head)
        self.k_proj = linear(n_in, shape.n_groups * shape.head)
        self.v_proj = linear(n_in, shape.n_groups * shape.head)
        self.o_proj = linear(shape.n_heads * shape.head, shape.width)
        if head_norms:
            self.q_norm, self.k_norm = Norm(shape.head), Norm(shape.head)
        self.has_head_norms = head_norms

    def query(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotated queries `[B, H, S, D]`."""
        q = self.q_proj(x).unflatten(-1, (-1, self.shape.head))
        q = self.q_norm(q) if self.has_head_norms else q
        return rotate(q.transpose(1, 2), positions)

    def key_value(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values `[B, G, S, D]`."""
        k = self.k_proj(x).unflatten(-1, (-1, self.shape.head))
        v = self.v_proj(x).unflatten(-1, (-1, self.shape.head))
        k = self.k_norm(k) if self.has_head_norms else k
        return rotate(k.transpose(1, 2), positions), v.transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Output `[B, S, E]`; `mask` `[B, 1, S, T]` is True where a query may look.

        Written out, because the backward pass of PyTorch's fused kernel takes several times as long on a CPU.
        """
        n, n_repeats = q.shape[2], self.shape.n_heads // self.shape.n_groups
        k, v = (x.to(q.dtype).repeat_interleave(n_repeats, 1) for x in (k, v))
        scores = (q @ k.transpose(-1, -2)).float() * self.shape.head**-0.5
        if causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        y = scores.softmax(-1).to(q.dtype) @ v
        result: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(width, inner), linear(width, inner)
        self.down_proj = linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]`."""
        result: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.width)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.width)
        self.mlp = FeedForward(shape.width, shape.inner)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """`[B, S, E]`, causal."""
        y = self.input_layernorm(x)
        q = self.self_attn.query(y, positions)
        k, v = self.self_attn.key_value(y, positions)
        x = x + self.self_attn.attend(q, k, v, causal=True)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class Qwen3(nn.Module):
    """A whole language model with tied embedding and head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.n_tokens, shape.width)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layers))
        self.norm = Norm(shape.width)

    def forward(self, tokens: Tensor, taps: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """Hidden state after the final norm, and features.

        Args:
            tokens: `[B, S]` int64.
            taps: Boundaries (number of layers already run) to capture.

        Returns:
            Hidden `[B, S, E]` and the captured boundaries side by side, `[B, S, len(taps) · E]`.
        """
        positions = torch.arange(tokens.shape[1])
        x = self.embed_tokens(tokens)
        features = [x] if 0 in taps else []
        for index, layer in enumerate(self.layers, 1):
            x = layer(x, positions)
            if index in taps:
                features.append(x)
        return self.norm(x), torch.cat(features, -1) if features else x

    def logits(self, hidden: Tensor) -> Tensor:
        """`[..., V]` float32."""
        return F.linear(hidden, self.embed_tokens.weight.to(hidden.dtype)).float()
