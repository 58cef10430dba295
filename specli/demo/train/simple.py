"""draft-simple: a small Qwen3 that imitates the target's distribution on the target's own answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specli.demo.train.answers import Batch
from specli.demo.train.network import Qwen3, Shape

SHAPE = Shape(width=128, n_layers=2, n_heads=4, n_groups=1, head=32, inner=320)


def loss(network: Qwen3, target: Qwen3, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Soft cross-entropy over the answers' tokens, and the share of right ones."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = target.logits(batch.hidden[:, :-1])[batch.is_answer[:, 1:]]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = network(batch.tokens[:, :-1])
        logits = network.logits(hidden[batch.is_answer[:, 1:]])
    right = (logits.argmax(-1) == wanted.argmax(-1)).float().mean().item()
    return F.cross_entropy(logits, wanted.softmax(-1)), {"right_1": right}


@torch.no_grad()
def drafts(network: Qwen3, tokens: Tensor, n: int) -> Tensor:
    """What would be drafted after each token of one sequence `[S]`: `[S, n]` int64."""
    grown = tokens[None].expand(len(tokens), -1).tril()
    rows = torch.arange(len(tokens))
    chosen = []
    for step in range(n):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden, _ = network(grown)
            best = network.logits(hidden[rows, (rows + step).clamp(max=len(tokens) - 1)]).argmax(-1)
        chosen.append(best)
        ahead = rows + step + 1
        fits = ahead < len(tokens)
        grown = grown.clone()
        grown[rows[fits], ahead[fits]] = best[fits]
    return torch.stack(chosen, -1)
