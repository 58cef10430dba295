"""The MTP block of the second target, in GLM-4.5's form (docs/checkpoints.md §6; llama.cpp src/models/glm4-moe.cpp).

The trunk is the demo target under another name: GLM's dense layers with head norms and full rotary width compute what
Qwen3's do. Row p holds the embedding of token p and the target's final state at p-1, and predicts token p+1; drafting
feeds the block's own normed output back. Trained after the target, which stays as it is (FastMTP, arXiv 2509.18362).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specli.demo.train.answers import Batch
from specli.demo.train.eagle3 import STEP_WEIGHT, shifted, unrolled_attention
from specli.demo.train.network import Attention, FeedForward, Norm, Qwen3, linear

N_STEPS = 3
N_EXPERTS, EXPERT_INNER = 4, 96
"""Routed experts, one of which each token gets; the shared one is as wide as the target's feed-forward."""


class Experts(nn.Module):
    """One expert by sigmoid score, and a shared one."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = linear(width, N_EXPERTS)
        self.experts = nn.ModuleList(FeedForward(width, EXPERT_INNER) for _ in range(N_EXPERTS))
        self.shared_experts = FeedForward(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, S, E]`."""
        scores = self.gate(x.float()).sigmoid()
        weights = scores * F.one_hot(scores.argmax(-1), N_EXPERTS)  # [B, S, N_EXPERTS]
        result: Tensor = self.shared_experts(x)
        for index, expert in enumerate(self.experts):
            result = result + weights[..., index : index + 1].to(x.dtype) * expert(x)
        return result


class Mtp(nn.Module):
    """The block; its last norm starts as the target's."""

    def __init__(self, target: Qwen3) -> None:
        super().__init__()
        shape = target.shape
        self.target = [target]  # in a list: neither trained nor saved
        self.enorm, self.hnorm = Norm(shape.width), Norm(shape.width)
        self.eh_proj = linear(2 * shape.width, shape.width)
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.width), Norm(shape.width)
        self.self_attn = Attention(shape)
        self.mlp = Experts(shape.width, shape.inner)
        self.shared_head = nn.ModuleDict({"norm": Norm(shape.width)})
        with torch.no_grad():
            self.eh_proj.weight[:, shape.width :] += torch.eye(shape.width)
            self.shared_head["norm"].load_state_dict(target.norm.state_dict())

    def steps(self, tokens: Tensor, hidden: Tensor, later: Tensor | None, n_steps: int) -> list[Tensor]:
        """Logits of each unrolled step, `n_steps` times `[B, S, V]` float32.

        Args:
            tokens: `[B, S]`.
            hidden: `[B, S, E]`, the target's state after its final norm, of the same positions.
            later: `[B, S, n_steps - 1]` tokens of the following steps, or None for the block's own choices.
            n_steps: How many.
        """
        positions = torch.arange(tokens.shape[1])
        x, token = F.pad(hidden[:, :-1], (0, 0, 1, 0)), tokens  # row 0 has no state before it
        keys: list[Tensor] = []
        values: list[Tensor] = []
        results = []
        for step in range(n_steps):
            e = self.enorm(self.target[0].embed_tokens(token))
            x = self.eh_proj(torch.cat((e, self.hnorm(x).to(e.dtype)), -1))
            y = self.input_layernorm(x)
            q = self.self_attn.query(y, positions + step)
            k, v = self.self_attn.key_value(y, positions + step)
            keys.append(k)
            values.append(v)
            x = x + self.self_attn.o_proj(unrolled_attention(q, keys, values))
            x = x + self.mlp(self.post_attention_layernorm(x))
            x = self.shared_head["norm"](x)
            results.append(self.target[0].logits(x))
            if step + 1 < n_steps:
                token = results[-1].argmax(-1) if later is None else later[..., step]
        return results


def loss(network: Mtp, target: Qwen3, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Weighted soft cross-entropy, and the share of right tokens of each step."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = target.logits(batch.hidden)
    later = torch.stack([shifted(batch.tokens, 1 + k) for k in range(N_STEPS - 1)], -1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = network.steps(batch.tokens, batch.hidden, later, N_STEPS)
    total = torch.zeros(())
    figures = {}
    for step, result in enumerate(results):
        use = shifted(batch.is_answer, 1 + step)
        ahead = shifted(wanted, step)[use]
        total = total + STEP_WEIGHT**step * F.cross_entropy(result[use], ahead.softmax(-1))
        figures[f"right_{step + 1}"] = (result[use].argmax(-1) == ahead.argmax(-1)).float().mean().item()
    return total, figures


@torch.no_grad()
def drafts(network: Mtp, tokens: Tensor, hidden: Tensor, n: int) -> Tensor:
    """What would be drafted after each token of one sequence `[S]`, given its states `[S, E]`: `[S, n]` int64."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = network.steps(tokens[None], hidden[None], None, n)
    return torch.stack([result[0].argmax(-1) for result in results], -1)
