"""What a drafter is: four verbs, a request, a draft (llama.cpp `common/speculative.h`, speculation.md §2).

A drafter proposes tokens; the engine verifies them with the target and tells every drafter what stands. The engine,
not the drafter, keeps counters and clocks. llama.cpp shows drafters a draft's rejected tail, too, and then the verdict:
states of it would be taken in only to be written over.
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
    """What joined the sequence and was evaluated: a prompt chunk, or `[last token, draft …]` as far as it stands.

    Attributes:
        tokens: `[T]` int32.
        positions: `[T]` int32, ascending by one, in one slot.
        features: Tap name → `[≥ T, D]` float32 buffer of the target (`"layers"`: the tapped hidden states side by side
            in the order of `feature_layers`; `"nextn"`: the state MTP heads read). Valid until the next forward.
    """

    tokens: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    features: Mapping[str, Buffer] = MappingProxyType({})


class DraftRequest(NamedTuple):
    """What a drafter may look at when it drafts.

    Attributes:
        history: Tokens already in the target's cache (T); do not keep or change it.
        last_token: Newest token, sampled but not yet evaluated (s); its position is `len(history)`.
        max_tokens: Most draft tokens that can be used, ≥ 1. Longer drafts are cut by the chain.
        temperature: The target's; 0 or less means greedy.
        seed: The target sampler's seed.
    """

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
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]] | None = None


class Drafter(Protocol):
    """A source of drafts for one sequence.

    Attributes:
        name: The spec type, for example `ngram-mod`.
        max_draft: Most tokens it ever proposes.
        reads_features: It needs `TargetBatch.features`.
    """

    name: str
    max_draft: int
    reads_features: bool

    def begin(self, prompt: Sequence[int]) -> None:
        """A new request: its whole prompt has been evaluated and passed through `process`."""

    def process(self, batch: TargetBatch) -> None:
        """Sees the tokens of the sequence in order, once the target has evaluated them; never rejected ones."""

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes tokens. May advance the drafter's own cache, which `process` puts right again."""

    def accept(self, n_accepted: int, *, own: bool) -> None:
        """Closes a round that had a draft: how many of its tokens stood, and whether the draft was this drafter's.

        `process` has seen them.
        """

    def rewind(self, length: int) -> None:
        """A new request keeps only the first `length` tokens of the sequence (not called for rejected drafts).

        Drafters that read features are given tokens again from `length` on, whose predecessor they have seen unchanged:
        the engine keeps one token less than it could, so that cells pairing a token with its successor's stay valid.
        """

    def close(self) -> None:
        """The last call: writes what outlives the program, releases the rest."""
