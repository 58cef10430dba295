"""draft-dflash: a block of tokens in one pass, from the target's own hidden states (docs/speculation.md §§5.3-5.4).

llama.cpp `common/speculative.cpp`, `common_speculative_impl_draft_dflash`. The procedure has no state of its own: the
context lies in the network's cache by position, what stands of every batch of the target is written there, and a draft
reads only positions before its anchor and its own block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specli.drafters import FilePair, NetworkParts, detect_type
from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.pairing import check_kind, check_number, check_taps, target_config
from specli.drafters.settings import DraftConfig
from specli.drafters.stepping import DraftCandidates, Floats, Ints, NetworkDrafter, logistic, trimmed
from specli.errors import IncompatibleError
from specli.models.dflash import DFlashNetwork
from specli.models.dflash_config import DFlashConfig, draft_limit
from specli.models.dflash_weights import DFlashWeights
from specli.models.draft import Anchor, Part
from specli.models.positions import Proposal


def check_block(pair: FilePair, name: str) -> DFlashConfig:
    """Refuses a file that is no drafter of type `name`, is broken, or was made for another target.

    Returns:
        The network's configuration.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = pair.file, target_config(pair)
    check_kind(file, name, "dflash")
    detected = detect_type(file)
    if detected != name:
        raise IncompatibleError(f"{file.path}: a drafter of type {detected} does not fit {name}")
    config = DFlashConfig.from_gguf(file)
    check_number(pair, "hidden width", config.network.n_embd, target.n_embd)
    check_number(pair, "vocabulary size", config.network.n_vocab, target.n_vocab)
    check_taps(pair, config.taps, target.n_layers)
    DFlashWeights(file, config)
    return config


def build_network(parts: NetworkParts) -> tuple[DFlashNetwork | None, DraftConfig]:
    """The network of a checked pair, None if nothing is to be drafted, and the settings within its limits."""
    file, draft = parts.pair.file, parts.draft
    draft = replace(draft, n_min=min(draft.n_min, draft_limit(file)))
    if draft.n_max < 1:
        return None, draft
    network = DFlashNetwork(
        file, parts.executor, parts.options, parts.target, n_draft=draft.n_max, steps=draft.is_stepwise
    )
    return network, draft


def check_dflash(pair: FilePair) -> None:
    """As `check_block`."""
    check_block(pair, DFlash.name)


def build_dflash(parts: NetworkParts) -> DFlash:
    """The drafter of a checked pair."""
    return DFlash(*build_network(parts))


class DFlash(NetworkDrafter):
    """Proposes the tokens of a filled block, up to the first that is too unlikely.

    Args:
        network: The draft network, made for `config.n_max` tokens; None if that is 0. Closed with the drafter.
        config: Draft length and thresholds within the limits of the network.

    Attributes:
        network: As given.
    """

    name = "draft-dflash"
    reads_features = True

    def __init__(self, network: DFlashNetwork | None, config: DraftConfig) -> None:
        is_normed = network is not None and network.block_positions.is_normed
        of_head = logistic if network is not None and network.predicts else math.exp
        super().__init__(config, of_head if is_normed else None)
        self.max_draft = config.n_max
        self.network = network

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Takes the tokens' states into the cache."""
        if self.network is not None:
            self.network.ingest(
                [Part(part.slot, part.tokens, int(part.positions[0]), part.first_row) for part in parts]
            )

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Fills a block for each request and reads it in order, up to the first slot that is refused."""
        return [Draft() for _ in requests] if self.network is None else super().draft(requests)

    def rewind(self, slot: int, length: int) -> None:
        """Forgets what lies beyond `length`."""
        if self.network is not None:
            self.network.truncate(slot, length)

    def close(self) -> None:
        """Releases the network."""
        if self.network is not None:
            self.network.close()

    def _write(self, requests: Sequence[DraftRequest], n_steps: int) -> tuple[Floats, Ints]:
        assert self.network is not None
        return self.network.block(_anchors(requests))

    def _start(self, requests: Sequence[DraftRequest]) -> list[DraftCandidates | None]:
        assert self.network is not None
        self.network.backbone(_anchors(requests))
        return self._of_slot(requests, 0, [request.last_token for request in requests])

    def _advance(
        self, requests: Sequence[DraftRequest], index: int, tokens: Sequence[int | None]
    ) -> list[DraftCandidates | None]:
        return self._of_slot(requests, index, tokens)

    def _of_slot(
        self, requests: Sequence[DraftRequest], index: int, previous: Sequence[int | None]
    ) -> list[DraftCandidates | None]:
        """The candidates of slot `index` of each block, each given the token before it; None where the draft ends."""
        assert self.network is not None
        found: list[DraftCandidates | None] = [None] * len(requests)
        for row, proposal in enumerate(self.network.position(index, trimmed(previous))):
            slot = requests[row].slot
            if previous[row] is not None and self._is_kept(slot, index, proposal):
                found[row] = self._sampler(slot).best(proposal.values, proposal.ids)
        return found

    def _is_kept(self, slot: int, index: int, proposal: Proposal) -> bool:
        """Whether the draft may go on, besides what the candidates' probabilities say."""
        return True


def _anchors(requests: Sequence[DraftRequest]) -> list[Anchor]:
    return [Anchor(request.slot, request.last_token, len(request.history)) for request in requests]
