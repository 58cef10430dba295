"""The procedure of draft-eagle3 and draft-mtp (speculation.md §§5.2, 5.7; llama.cpp `common/speculative.cpp`).

What stands is taken in as soon as that is known; the last of its states comes before the next token. Different from
llama.cpp, nothing outlives a request: where it pairs the first token of a second request with the last state of the
first, this program pairs it with zeros as in a fresh process; and cells that a new request shares with the previous
one are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.config import DraftConfig
from specli.drafters.stepping import CandidateSampler, collect, likeliest
from specli.models.feedback import FeedbackNetwork


class FeedbackDrafter:
    """Proposes what a network that reads the target's hidden states, and then its own, would write.

    Args:
        name: The spec type.
        network: Made for `config.n_max` tokens, with step programs if `config.is_stepwise`. Closed with the drafter.
        config: Draft length and thresholds.
    """

    reads_features = True

    def __init__(self, name: str, network: FeedbackNetwork, config: DraftConfig) -> None:
        self.name = name
        self.max_draft = config.n_max
        self._network = network
        self._config = config
        self._sampler = CandidateSampler(probabilistic=config.probabilistic)
        self._newest = -1  # position of the carried state

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """The prompt has been taken in; random numbers start over."""
        self._sampler.reset()

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Takes the batch in."""
        [batch] = parts
        first = int(batch.positions[0])
        self._network.ingest(batch.tokens, first, follows=self._newest == first - 1)
        self._newest = first + len(batch.tokens) - 1

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Proposes up to `n_max` tokens; see `specli.drafters.stepping`."""
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        network, sampler, token = self._network, self._sampler, request.last_token
        position = len(request.history)
        if position == 0:
            return Draft()  # nothing has been evaluated
        assert self._newest == position - 1, "the state before the last token is not there"
        sampler.prepare(request)
        if sampler.is_greedy and self._config.p_min <= 0:
            values, ids = network.draft(token, position)
            return likeliest(values, ids, self._config, limit=request.max_tokens)
        rest = iter(range(1, network.n_draft))
        return collect(
            sampler.best(*network.start(token, position)),
            lambda token: sampler.best(*network.advance(next(rest), token)),
            sampler,
            self._config,
            limit=request.max_tokens,
        )

    def accept(self, slot: int, n_accepted: int) -> None:
        """Nothing: `process` has seen what stands."""

    def rewind(self, slot: int, length: int) -> None:
        """The state before token `length` is gone, but the cell of that pair is still there (`Drafter.rewind`)."""
        self._newest = -1

    def close(self) -> None:
        """Releases the network."""
        self._network.close()
