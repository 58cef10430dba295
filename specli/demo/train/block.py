"""DFlash (arXiv 2602.06036, z-lab layout) and DSpark (DeepSpec layout): all tokens of a draft from one pass.

A block is the anchor (the newest token, whose features are not known yet) and masks behind it. Its rows see the
features of all positions before the anchor and each other. In DFlash position j holds the token of its own position; in
DSpark the token after it, with a bias from the token before (Markov head) and an estimate of being accepted
(confidence head).
"""

from __future__ import annotations

from collections import Counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specli.demo.train.answers import TAPS, Answer, Batch, with_features
from specli.demo.train.evaluate import reached
from specli.demo.train.network import Layer, Norm, Qwen3, linear

N_LAYERS = 2
N_ANCHORS = 24
"""Blocks drawn from each sequence in a step."""
DECAY = 4.0
"""Slots further back count exp(-1/DECAY) less each."""
MARKOV_RANK = 32
CROSS_ENTROPY, DISTANCE = 0.5, 0.5
"""DSpark's weights of the two draft losses; the confidence loss has 1."""
CONFIDENCE_DECAY = 1e-2
"""Weight of the squared confidence head in its last fit."""


class BlockDrafter(nn.Module):
    """DFlash; with `markov_head` and `confidence_head` DSpark.

    Args:
        target: Gives the frozen embedding and head, and the last norm to start from. Its layers would be a bad start:
            their weights have grown so large that they hardly turn any more.
        mask: Id of the mask token.
        block: Slots of a block, the anchor included.
        is_dspark: Whether position 0 predicts too and the two heads exist.
    """

    def __init__(self, target: Qwen3, mask: int, *, block: int, is_dspark: bool) -> None:
        super().__init__()
        width, n_tokens = target.shape.width, target.shape.n_tokens
        self.target = [target]  # in a list: neither trained nor saved
        self.mask, self.block, self.is_dspark = mask, block, is_dspark
        self.fc = linear(len(TAPS) * width, width)
        self.hidden_norm, self.norm = Norm(width), Norm(width)
        self.layers = nn.ModuleList(Layer(target.shape) for _ in range(N_LAYERS))
        if is_dspark:
            self.markov_head = nn.ModuleDict(
                {"markov_w1": nn.Embedding(n_tokens, MARKOV_RANK), "markov_w2": linear(MARKOV_RANK, n_tokens)}
            )
            self.confidence_head = nn.ModuleDict({"proj": nn.Linear(width + MARKOV_RANK, 1)})
            nn.init.normal_(self.w1.weight, std=0.1)
            nn.init.zeros_(self.w2.weight)
        with torch.no_grad():
            self.fc.weight[:, -width:] += torch.eye(width)
            self.norm.load_state_dict(target.norm.state_dict())

    @property
    def w1(self) -> nn.Embedding:
        """The Markov head's row of the token before, `[V, rank]`."""
        table = self.markov_head["markov_w1"]
        assert isinstance(table, nn.Embedding)
        return table

    @property
    def w2(self) -> nn.Linear:
        """The Markov head's way back to the vocabulary."""
        matrix = self.markov_head["markov_w2"]
        assert isinstance(matrix, nn.Linear)
        return matrix

    def forward(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """Hidden states of blocks.

        Args:
            tokens: `[B, S]`.
            features: `[B, S, A · E]`; of a block only those before its anchor are seen.
            anchors: `[B, N]` positions.

        Returns:
            `[B, N, block, E]`.
        """
        n, width = anchors.shape[1], tokens.shape[1]
        places = torch.arange(width)
        block_places = (anchors[..., None] + torch.arange(self.block)).flatten(1)  # [B, N · block]
        ids = torch.full((*anchors.shape, self.block), self.mask)
        ids[..., 0] = tokens.gather(1, anchors)
        x = self.target[0].embed_tokens(ids.flatten(1))
        context = self.hidden_norm(self.fc(features))
        owner = torch.arange(n).repeat_interleave(self.block)
        before = places[None, None] < anchors.repeat_interleave(self.block, 1)[..., None]  # [B, N · block, S]
        same = (owner[:, None] == owner[None]).expand(len(tokens), -1, -1)
        mask = torch.cat((before, same), -1)[:, None]
        for module in self.layers:
            assert isinstance(module, Layer)
            attention = module.self_attn
            y = module.input_layernorm(x)
            k, v = attention.key_value(y, block_places)
            k_context, v_context = attention.key_value(context.to(y.dtype), places)
            k, v = torch.cat((k_context, k), 2), torch.cat((v_context, v), 2)
            x = x + attention.attend(attention.query(y, block_places), k, v, mask)
            x = x + module.mlp(module.post_attention_layernorm(x))
        hidden: Tensor = self.norm(x)
        return hidden.view(*anchors.shape, self.block, -1)

    def logits(self, hidden: Tensor, before: Tensor | None) -> Tensor:
        """`[..., V]` float32; `before` `[...]` are the tokens before the predicted ones (DSpark)."""
        logits = self.target[0].logits(hidden)
        if before is not None:
            logits = logits + self.w2(self.w1(before)).float()
        return logits

    def grounds(self, hidden: Tensor, before: Tensor) -> Tensor:
        """What the confidence head looks at, `[..., E + rank]`."""
        return torch.cat((hidden, self.w1(before).to(hidden.dtype)), -1)

    def confidence(self, grounds: Tensor) -> Tensor:
        """Logit of being accepted, `[...]` float32."""
        logit: Tensor = self.confidence_head["proj"](grounds)
        return logit[..., 0].float()


def draw_anchors(batch: Batch, generator: torch.Generator) -> Tensor:
    """`[B, N_ANCHORS]` positions before answer tokens, mostly without repetition."""
    chances = F.pad(batch.is_answer[:, 1:].float(), (0, 1)) + 1e-6
    n = min(N_ANCHORS, chances.shape[1])
    return torch.multinomial(chances, n, generator=generator)


def gathered(rows: Tensor, places: Tensor) -> Tensor:
    """`rows` `[B, S]` at `places` `[B, N, K]`; zeros beyond the end."""
    inside = places < rows.shape[1]
    picked = rows.gather(1, places.clamp(max=rows.shape[1] - 1).flatten(1)).view(places.shape)
    return torch.where(inside, picked, torch.zeros_like(picked))


def loss(network: BlockDrafter, target: Qwen3, batch: Batch, draw: torch.Generator) -> tuple[Tensor, dict[str, float]]:
    """Weighted loss of the predicting positions, and the share of right first and last ones."""
    anchors = draw_anchors(batch, draw)
    first = 0 if network.is_dspark else 1
    positions = torch.arange(first, network.block)
    places = anchors[..., None] + positions + (1 - first)  # of the predicted tokens
    labels, use = gathered(batch.tokens, places), gathered(batch.is_answer, places)
    weights = torch.exp(-(positions - first) / DECAY).expand(use.shape)[use]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = network(batch.tokens, batch.features, anchors)[:, :, first:][use]
        before = gathered(batch.tokens, places - 1)[use] if network.is_dspark else None
        logits = network.logits(hidden, before)
    labels = labels[use]
    cost = F.cross_entropy(logits, labels, reduction="none")
    right = logits.argmax(-1) == labels
    if before is not None:
        rows = torch.arange(len(places))[:, None, None].expand(places.shape)[use]
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = target.logits(batch.hidden[rows, places[use] - 1]).softmax(-1)
        distance = (logits.softmax(-1) - wanted).abs().sum(-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            sure = network.confidence(network.grounds(hidden, before))
        cost = CROSS_ENTROPY * cost + DISTANCE * distance
        cost = cost + F.binary_cross_entropy_with_logits(sure, right.float(), reduction="none")
    position = positions.expand(use.shape)[use] - first
    figures = {f"right_{k + 1}": right[position == k].float().mean().item() for k in (0, 1, 3)}
    return (cost * weights).sum() / weights.sum(), figures


@torch.no_grad()
def drafts(network: BlockDrafter, tokens: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """What would be drafted after each known token.

    Args:
        network: The drafter.
        tokens: `[S]` of one sequence.
        features: `[S, A · E]`.

    Returns:
        Tokens `[S, n]` int64, row i after token i. For DSpark also what their confidence follows from,
        `[S, n, E + rank]`, for DFlash the probability of the chosen token, `[S, n]`.
    """
    rows, grounds = [], []
    first = 0 if network.is_dspark else 1
    for start in range(0, len(tokens), 64):
        anchors = torch.arange(start, min(start + 64, len(tokens)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = network(tokens[None], features[None], anchors[None])[0, :, first:]
            before = tokens[anchors]
            chosen: list[Tensor] = []
            reasons: list[Tensor] = []
            for position in range(hidden.shape[1]):
                logits = network.logits(hidden[:, position], before if network.is_dspark else None)
                chosen.append(logits.argmax(-1))
                chance = logits.softmax(-1).amax(-1)
                reasons.append(network.grounds(hidden[:, position], before) if network.is_dspark else chance)
                before = chosen[-1]
        rows.append(torch.stack(chosen, -1))
        grounds.append(torch.stack(reasons, 1))
    return torch.cat(rows), torch.cat(grounds).float()


def draft_batch(network: BlockDrafter, batch: Batch) -> tuple[Tensor, Tensor]:
    """Drafts of a batch of one sequence, and how sure the drafter is of each token."""
    chosen, grounds = drafts(network, batch.tokens[0], batch.features[0])
    return chosen, network.confidence(grounds).sigmoid().detach() if network.is_dspark else grounds


def fit_confidence(network: BlockDrafter, target: Qwen3, answers: list[Answer]) -> float:
    """Fits the confidence head alone to which of the drafter's own tokens the target takes, and gives the loss in nats.

    In training the head sees true tokens in front, when drafting its own; and what was trained on is foreseen better.
    Hence a logistic regression on rounds replayed over answers that the drafter has not seen, each kind weighted alike.
    """
    grounds, rights, kinds = [], [], []
    for answer in answers:
        batch = with_features(target, [answer])
        chosen, reasons = drafts(network, batch.tokens[0], batch.features[0])
        for seen in reached(answer, chosen):
            for place, step, is_right in seen:
                grounds.append(reasons[place, step])
                rights.append(float(is_right))
                kinds.append(answer.kind)
    x, y, n_of = torch.stack(grounds), torch.tensor(rights), Counter(kinds)
    weights = torch.tensor([len(kinds) / len(n_of) / n_of[kind] for kind in kinds])
    parameters = list(network.confidence_head.parameters())
    optimiser = torch.optim.LBFGS(parameters, max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.binary_cross_entropy_with_logits(network.confidence(x), y, weights)
        (value + CONFIDENCE_DECAY * parameters[0].square().sum()).backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        network.confidence_head.requires_grad_()
        optimiser.step(loss)  # type: ignore[no-untyped-call]
        return float(loss().detach())
