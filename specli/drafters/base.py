"""What a drafter is: its verbs, a request, a draft (llama.cpp `common/speculative.h`).

A drafter proposes tokens for one or more sequences, each in a *slot*, a sequence of the target's cache. The engine
verifies the tokens with the target and shows every drafter the ones that were accepted. The engine, not the drafter,
keeps counters and clocks. llama.cpp shows drafters a draft's rejected tail, too, and then the verdict: states of it
would be taken in only to be written over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from specli.kernels.ops import Buffer


class TargetBatch(NamedTuple):
    """What joined one sequence in a forward: a chunk of its prompt, or its newest token and the accepted draft tokens.

    Attributes:
        slot: Number of the sequence in the target's cache.
        tokens: `[T]` int32.
        positions: `[T]` int32, ascending by one.
        first_row: Row of the feature buffers that belongs to the first token; those of the others follow it.
        features: Tap name → `[≥ first_row + T, D]` float32 buffer of the target (`"layers"`: the tapped hidden states
            side by side in the order of `feature_layers`; `"nextn"`: the state MTP heads read). All sequences of a
            forward share them. They are valid until the next forward.
    """

    slot: int
    tokens: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    first_row: int = 0
    features: Mapping[str, Buffer] = MappingProxyType({})


class DraftRequest(NamedTuple):
    """What a drafter may look at when it drafts for one sequence.

    Attributes:
        slot: Number of the sequence in the target's cache.
        history: Tokens already in the target's cache (T); do not keep or change it.
        last_token: Newest token, sampled but not yet evaluated (s); its position is `len(history)`.
        max_tokens: Most draft tokens that can be used, ≥ 1. Longer drafts are cut by the chain.
        temperature: The target's; 0 or less means greedy.
        seed: The target sampler's seed.
    """

    slot: int
    history: Sequence[int]
    last_token: int
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0


@dataclass
class Draft:
    """Proposed tokens; empty is normal.

    Attributes:
        tokens: Token ids in order.
        probabilities: For each token the candidates it was drawn from, as (ids int32 `[C]`, probabilities float32
            `[C]`), when the drafter sampled; None when it was greedy. Needed for rejection sampling.
        confidence: For each token the chance that it is accepted if those before it are, as a network sees it (its
            probability of the likeliest token, or what a head predicts); None = it says nothing.
        match: How good a table's match was, a small number; what is accepted is learnt for each apart.
        n_cut: Tokens that were cut off its end, because verifying them was not worth their time.
        parents: For each token the number of the one that it follows, which comes before it; -1 = the sequence's newest
            token. Siblings differ. None = each follows the one before.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]] | None = None
    confidence: list[float] | None = None
    match: int = 0
    n_cut: int = 0
    parents: list[int] | None = None

    def path(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the draft's tokens that `tokens` runs along, as far as it does; of a tree only."""
        assert self.parents is not None
        nodes = {edge: node for node, edge in enumerate(zip(self.parents, self.tokens, strict=True))}
        path: list[int] = []
        for token in tokens:
            node = nodes.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        return path


class Drafter(Protocol):
    """A source of drafts for the sequences of a target.

    What it proposes for one does not depend on the others, unless they share a pool (`SpeculationConfig.shared_pool`).

    Attributes:
        name: The spec type, for example `ngram-mod`.
        max_draft: Most tokens it ever proposes.
        reads_features: It needs `TargetBatch.features`.
        reads_batches: It needs `process`; if not, the history that comes with a request is all it reads.
    """

    name: str
    max_draft: int
    reads_features: bool
    reads_batches: bool

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """A new request in the slot: its whole prompt has been evaluated and passed through `process`."""

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Sees what a forward of the target added, at most one part per slot.

        Every sequence is shown in order and without rejected tokens.
        """

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Proposes tokens, one draft per request; at most one request per slot.

        May advance the drafter's own cache, which `process` puts right again.
        """

    def cut(self, slot: int, n_tokens: int) -> None:
        """Of the slot's latest draft only the first `n_tokens` will be verified, by choice; only tables are told."""

    def accept(self, slot: int, n_accepted: int) -> None:
        """Closes a round with a draft of this drafter: how many of its tokens were accepted, and shown."""

    def rewind(self, slot: int, length: int) -> None:
        """A new request keeps only the first `length` tokens of the slot's sequence (not called for rejected drafts).

        Drafters that read features are given tokens again from `length` on, whose predecessor they have seen unchanged:
        the engine keeps one token less than it could, so that cells pairing a token with its successor's stay valid.
        """

    def close(self) -> None:
        """The last call: writes what outlives the program, releases the rest."""
