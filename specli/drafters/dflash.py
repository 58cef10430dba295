"""draft-dflash: a block of tokens in one pass, from the target's own hidden states (speculation.md §§5.3-5.4).

llama.cpp `common/speculative.cpp`, `common_speculative_impl_draft_dflash`. The procedure has no state of its own: the
context lies in the network's cache by position, what stands of every batch of the target is written there, and a draft
reads only positions before its anchor and its own block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from specli.drafters import FilePair, NetworkParts, detect_type
from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.config import DraftConfig
from specli.drafters.pairing import check_kind, check_number, check_taps, target_config
from specli.drafters.stepping import Candidates, CandidateSampler, likeliest, long_enough
from specli.errors import IncompatibleError
from specli.models.dflash import DFlashNetwork
from specli.models.dflash_config import DFlashConfig, draft_limit
from specli.models.dflash_weights import DFlashWeights
from specli.models.slots import Proposal


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


class DFlash:
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
        self.max_draft = config.n_max
        self.network = network
        self._config = config
        self._sampler = CandidateSampler(probabilistic=config.probabilistic)

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """The prompt's states are in the cache; drafting starts with fresh random numbers."""
        self._sampler.reset()

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Takes the tokens' states into the cache."""
        [batch] = parts
        if self.network is not None:
            self.network.ingest(len(batch.tokens), int(batch.positions[0]))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Fills a block and reads it in order, up to the first slot that is refused."""
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        network = self.network
        if network is None:
            return Draft()
        self._sampler.prepare(request)
        position = len(request.history)
        if self._sampler.is_greedy and self._config.p_min <= 0:
            network.block(request.last_token, position)
            values, ids = network.slots.values.read(), network.slots.ids.read()
            return likeliest(values, ids, self._config, limit=request.max_tokens)
        network.backbone(request.last_token, position)
        draft = self._stepwise(network, request.last_token, min(self._config.n_max, request.max_tokens))
        return long_enough(draft, self._config)

    def accept(self, slot: int, n_accepted: int) -> None:
        """Nothing: `process` has seen the tokens, and positions say which of them count."""

    def rewind(self, slot: int, length: int) -> None:
        """Forgets what lies beyond `length`."""
        if self.network is not None:
            self.network.truncate(length)

    def close(self) -> None:
        """Releases the network."""
        if self.network is not None:
            self.network.close()

    def _stepwise(self, network: DFlashNetwork, anchor: int, most: int) -> Draft:
        """Picks token after token, each given the one before it."""
        draft = Draft() if self._sampler.is_greedy else Draft(probabilities=[])
        proposals = (network.slot(index, [anchor, *draft.tokens][-1]) for index in range(most))
        for candidates in self._kept(proposals):
            draft.tokens.append(self._sampler.pick(candidates))
            if draft.probabilities is not None:
                draft.probabilities.append((candidates.ids, candidates.probabilities))
        return draft

    def _kept(self, proposals: Iterable[Proposal]) -> Iterator[Candidates]:
        """The candidates of each slot, up to the first that ends the draft."""
        for proposal in proposals:
            candidates = self._sampler.best(proposal.values, proposal.ids)
            if candidates is None or candidates.probabilities[0] < np.float32(self._config.p_min):
                return
            yield candidates
