"""Trains the demo target on the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from specli.demo.train.corpus import documents
from specli.demo.train.fitting import Recipe, fit
from specli.demo.train.network import Qwen3, Shape

SHAPE = Shape(width=192, n_layers=8, n_heads=3, n_groups=1, head=64, inner=576)
SEED = 20


@dataclass(frozen=True)
class Phase:
    """One part of the training: how long, and on which corpus."""

    name: str
    recipe: Recipe
    n_generated: int
    share_of_library: float


PHASES = (
    Phase("target_text", Recipe(n_steps=600), n_generated=16_000, share_of_library=0.4),
    Phase("target", Recipe(n_steps=340, warm_up=20), n_generated=9_000, share_of_library=0.12),
)
"""Half library and half exchanges, then mostly exchanges; a phase starts with the weights of the one before."""

LENGTH, BATCH = 512, 4
"""Tokens of a training row, and rows of a step."""
SHORT, SHORT_SHARE = 256, 0.7
"""Rows are cut to this length in the first part of the training: attention is cheaper there."""


def token_rows(tokenizer: Tokenizer, texts: list[str], length: int = LENGTH) -> Tensor:
    """The texts one after the other, cut into rows `[N, length]` int16."""
    ids = [token for encoding in tokenizer.encode_batch(texts) for token in encoding.ids]
    n = len(ids) // length
    return torch.tensor(ids[: n * length], dtype=torch.int16).view(n, length)


def corpus_rows(tokenizer: Tokenizer, folder: Path, phase: Phase) -> Tensor:
    """The rows of a phase, kept in `folder/rows.pt`."""
    path = folder / "rows.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        texts = documents(SEED + PHASES.index(phase), phase.n_generated, phase.share_of_library)
        torch.save(token_rows(tokenizer, texts), path)
    rows: Tensor = torch.load(path, weights_only=True)
    return rows


def language_loss(network: Qwen3, rows: Tensor) -> Tensor:
    """Mean cross-entropy of next tokens in nats; rows `[B, S]`."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = network(rows[:, :-1])
        logits = network.logits(hidden)
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def train(tokenizer: Tokenizer, work: Path, shape: Shape = SHAPE) -> Qwen3:
    """Trains or resumes; state and curve of each phase lie in the folder of its name in `work`."""
    torch.manual_seed(SEED)
    network = Qwen3(shape)
    for phase in PHASES:
        train_phase(network, phase, corpus_rows(tokenizer, work / phase.name, phase), work / phase.name)
    return network


def train_phase(network: Qwen3, phase: Phase, rows: Tensor, folder: Path) -> None:
    """Trains `network` in place on `rows` in random order, 16 of them held out."""
    held_out, rows = rows[:16].long(), rows[16:]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        picked = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        figures = {}
        if step % 50 == 0:
            with torch.no_grad():
                figures["held_out"] = language_loss(network, held_out).item()
        length = SHORT if step < SHORT_SHARE * phase.recipe.n_steps else LENGTH
        return language_loss(network, rows[picked].long().view(-1, length)), figures

    fit(network, loss, phase.recipe, folder)
