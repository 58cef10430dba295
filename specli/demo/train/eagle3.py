"""EAGLE-3 with training-time test (arXiv 2503.01840; `../reference` layout: SpecForge `LlamaForCausalLMEagle3`).

Slot i holds the fused feature of position i and the embedding of token i+1, and predicts token i+2. In step k of the
unrolled training the row's own output takes the feature's place and the token moves k places on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specli.demo.train.answers import TAPS, Batch
from specli.demo.train.network import Attention, FeedForward, Norm, Qwen3, linear

N_STEPS, STEP_WEIGHT = 4, 0.8
"""Unrolled steps, and the weight of a step relative to the one before."""


FEATURE_SCALE = 1 / 256
"""Brings the tapped residual stream, whose root mean square is near 256, to the size that a fresh layer works at; part
of `fc.weight` in the exported file."""


class Midlayer(nn.Module):
    """The one decoder layer; its attention reads embedding and feature side by side."""

    def __init__(self, target: Qwen3) -> None:
        super().__init__()
        shape = target.shape
        self.input_layernorm, self.hidden_norm = Norm(shape.width), Norm(shape.width)
        self.self_attn = Attention(shape, n_in=2 * shape.width, head_norms=False)
        self.post_attention_layernorm = Norm(shape.width)
        self.mlp = FeedForward(shape.width, shape.inner)


class Eagle3(nn.Module):
    """The draft network; norm and head start as the target's.

    Args:
        target: Gives the frozen embedding and the starting weights.
        kept: `[D]` int64, ascending target ids of the draft vocabulary.
    """

    def __init__(self, target: Qwen3, kept: Tensor) -> None:
        super().__init__()
        width = target.shape.width
        self.kept = kept
        self.table = [target.embed_tokens]  # in a list: neither trained nor saved
        self.fc = linear(len(TAPS) * width, width)
        self.midlayer = Midlayer(target)
        self.norm = Norm(width)
        self.lm_head = linear(width, len(kept))
        with torch.no_grad():
            self.fc.weight[:, -width:] += torch.eye(width)
            self.norm.weight.copy_(target.norm.weight)
            self.lm_head.weight.copy_(target.embed_tokens.weight[kept])

    def steps(self, features: Tensor, first: Tensor, later: Tensor | None, n_steps: int) -> list[Tensor]:
        """Draft logits of each unrolled step.

        Args:
            features: `[B, S, A · E]`.
            first: `[B, S]` token i+1 of every row.
            later: `[B, S, n_steps - 1]` tokens of the following steps, or None for the network's own choices.
            n_steps: How many.

        Returns:
            `n_steps` times `[B, S, D]` float32.
        """
        layer, width = self.midlayer, features.shape[1]
        positions = torch.arange(width)
        x, token = self.fc(features * FEATURE_SCALE), first
        keys: list[Tensor] = []
        values: list[Tensor] = []
        results = []
        for step in range(n_steps):
            e = layer.input_layernorm(self.table[0](token))
            u = torch.cat((e, layer.hidden_norm(x).to(e.dtype)), -1)
            q = layer.self_attn.query(u, positions + step)
            k, v = layer.self_attn.key_value(u, positions + step)
            keys.append(k)
            values.append(v)
            x = x + layer.self_attn.o_proj(unrolled_attention(q, keys, values))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            results.append(self.lm_head(self.norm(x)).float())
            if step + 1 < n_steps:
                token = self.kept[results[-1].argmax(-1)] if later is None else later[..., step]
        return results


def unrolled_attention(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Causal attention to the first step's rows, and to the same position's row of each later step; `[B, S, H · D]`."""
    scale = q.shape[-1] ** -0.5
    width = q.shape[2]
    scores = (q @ keys[0].transpose(-1, -2)).float() * scale  # one key head serves all query heads
    future = torch.ones(width, width, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(future, -torch.inf)
    own = [(q * k).sum(-1, keepdim=True).float() * scale for k in keys[1:]]
    weights = torch.cat((scores, *own), -1).softmax(-1).to(q.dtype)
    y = weights[..., :width] @ values[0].to(q.dtype)
    for index, v in enumerate(values[1:]):
        y = y + weights[..., width + index : width + index + 1] * v
    return y.transpose(1, 2).flatten(2)


def draft_vocabulary(answers: list[list[int]], size: int, n_tokens: int) -> Tensor:
    """The `size` most frequent tokens, ascending; filled up with the lowest unused ids."""
    counts = torch.bincount(torch.tensor([token for tokens in answers for token in tokens]), minlength=n_tokens)
    ranked = torch.sort(counts, descending=True, stable=True).indices
    return ranked[:size].sort().values


def shifted(x: Tensor, by: int) -> Tensor:
    """Column i+by in column i of `[B, S, …]`, zeros at the end."""
    return F.pad(x[:, by:].transpose(1, -1), (0, by)).transpose(1, -1)


def loss(network: Eagle3, target: Qwen3, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Weighted soft cross-entropy over the draft vocabulary, and the share of right first and last steps."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = target.logits(batch.hidden)
        best = logits.argmax(-1)
        wanted = logits[..., network.kept].softmax(-1)
    inside = torch.zeros(target.shape.n_tokens, dtype=torch.bool).index_fill_(0, network.kept, True)
    later = torch.stack([shifted(batch.tokens, 2 + k) for k in range(N_STEPS - 1)], -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = network.steps(batch.features, shifted(batch.tokens, 1), later, N_STEPS)
    total = torch.zeros(())
    figures = {}
    for step, result in enumerate(results):
        use = shifted(batch.is_answer, 2 + step) & inside[shifted(best, 1 + step)]
        share = shifted(wanted, 1 + step)[use]
        total = total + STEP_WEIGHT**step * F.cross_entropy(result[use], share)
        hits = network.kept[result[use].argmax(-1)] == shifted(best, 1 + step)[use]
        figures[f"right_{step + 1}"] = hits.float().mean().item()
    return total, figures


@torch.no_grad()
def drafts(network: Eagle3, tokens: Tensor, features: Tensor, n: int) -> Tensor:
    """What would be drafted after each known token.

    Args:
        network: The drafter.
        tokens: `[S]` of one sequence.
        features: `[S, A · E]`.
        n: Tokens of a draft.

    Returns:
        `[S, n]` int64; row i follows token i. Row 0, without a feature before it, is -1.
    """
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = network.steps(features[None, :-1], tokens[None, 1:], None, n)
    chosen = torch.stack([network.kept[result[0].argmax(-1)] for result in results], -1)
    return F.pad(chosen, (0, 0, 1, 0), value=-1)
