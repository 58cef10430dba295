"""Trains the demo target on the corpus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from specli.demo.train.corpus import documents
from specli.demo.train.fitting import Recipe, fit
from specli.demo.train.network import Layer, Qwen3, Shape
from specli.demo.train.texts import FIRST_KINDS, KINDS, MORE_KINDS

SHAPE = Shape(width=192, n_layers=12, n_heads=3, n_groups=1, head=64, inner=576)
SEED = 20
AGAIN = ("question", "code", "code", "program", "arithmetic", "story")
"""Kinds that the last phase draws more often."""


@dataclass(frozen=True)
class Phase:
    """One part of the training: how long, on which corpus, with how many layers."""

    name: str
    recipe: Recipe
    n_generated: int
    share_of_library: float
    kinds: tuple[str, ...] = KINDS
    n_layers: int = SHAPE.n_layers
    short_share: float = 0.7
    """Rows are cut to SHORT tokens in this first part of the phase: attention is cheaper there."""


PHASES = (
    Phase("target_text", Recipe(n_steps=600), 16_000, 0.4, FIRST_KINDS, n_layers=8),
    Phase("target_exchanges", Recipe(n_steps=340, warm_up=20), 9_000, 0.12, FIRST_KINDS, n_layers=8),
    Phase("target_grown", Recipe(n_steps=1250, warm_up=60, cool_down=0), 66_000, 0.6, MORE_KINDS, short_share=1),
    Phase("target", Recipe(n_steps=600, warm_up=20, cool_down=1), 24_000, 0.12, KINDS + AGAIN, short_share=0.85),
)
"""Two short phases of eight layers, half library and half exchanges, then mostly exchanges; a long one of all layers
with more kinds of exchanges; and one that cools down on all kinds. A phase starts with the weights of the one before.
For the shipped target the last phase was shortened from 850 steps after its first 300.
"""

LENGTH, SHORT, BATCH = 512, 256, 4
"""Tokens of a training row, of one cut to be short, and whole rows of a step."""


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
        texts = documents(SEED + PHASES.index(phase), phase.n_generated, phase.share_of_library, phase.kinds)
        torch.save(token_rows(tokenizer, texts), path)
    rows: Tensor = torch.load(path, weights_only=True)
    return rows


def language_loss(network: Qwen3, rows: Tensor) -> Tensor:
    """Mean cross-entropy of next tokens in nats; rows `[B, S]`."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = network(rows)
        logits = network.logits(hidden[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def grow(network: Qwen3, n_layers: int) -> Qwen3:
    """A deeper network that computes the same: new layers, evenly spread, whose two output matrices are zero.

    Otherwise a new layer is a copy of the one in front of it, which learns faster than chance.
    """
    shape = replace(network.shape, n_layers=n_layers)
    grown = Qwen3(shape)
    grown.embed_tokens.load_state_dict(network.embed_tokens.state_dict())
    grown.norm.load_state_dict(network.norm.state_dict())
    n_old = len(network.layers)
    sources = [-(-(index + 1) * n_old // n_layers) for index in range(n_layers)]  # old layers up to here
    for index, layer in enumerate(grown.layers):
        layer.load_state_dict(network.layers[sources[index] - 1].state_dict())
        if sources[index] == (sources[index - 1] if index else 0):
            assert isinstance(layer, Layer)
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return grown


def train(tokenizer: Tokenizer, work: Path, shape: Shape = SHAPE, *, compiled: bool = False) -> Qwen3:
    """Trains or resumes; state and curve of each phase lie in the folder of its name in `work`."""
    torch.manual_seed(SEED)
    network = Qwen3(replace(shape, n_layers=PHASES[0].n_layers))
    for phase in PHASES:
        if phase.n_layers > network.shape.n_layers:
            network = grow(network, phase.n_layers)
        if compiled:
            for layer in network.layers:
                layer.compile(dynamic=False)
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
                parts = [language_loss(network, part).item() for part in torch.split(held_out, BATCH)]
            figures["held_out"] = sum(parts) / len(parts)
        length = SHORT if step < phase.short_share * phase.recipe.n_steps else LENGTH
        return language_loss(network, rows[picked].long().view(-1, length)), figures

    fit(network, loss, phase.recipe, folder)
