"""The procedure of draft-eagle3 and draft-mtp (llama.cpp `common/speculative.cpp`).

What is accepted is taken in as soon as that is known; the last of its states comes before the next token. Unlike in
llama.cpp, nothing outlives a request: where it pairs the first token of a second request with the last state of the
first, this program pairs it with zeros as in a fresh process; and cells that a new request shares with the previous
one are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig
from specli.drafters.stepping import DraftCandidates, Floats, Ints, NetworkDrafter, trimmed
from specli.models.draft import Anchor, Part
from specli.models.feedback import FeedbackNetwork


class FeedbackDrafter(NetworkDrafter):
    """Proposes what a network that reads the target's hidden states, and then its own, would write.

    Args:
        name: The spec type.
        network: Made for `config.n_max` tokens, with step programs if `config.is_stepwise`. Closed with the drafter.
        config: Draft length and thresholds.
    """

    reads_features = True

    def __init__(self, name: str, network: FeedbackNetwork, config: DraftConfig) -> None:
        super().__init__(config, math.exp if network.is_normed else None)
        self.name = name
        self.max_draft = config.n_max
        self._network = network
        self._newest = [-1] * network.n_slots  # position of the carried state in each slot

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Takes the parts in."""
        taken = []
        for slot, tokens, positions, first_row, _ in parts:
            first = int(positions[0])
            taken.append(Part(slot, tokens, first, first_row, self._newest[slot] == first - 1))
            self._newest[slot] = first + len(tokens) - 1
        self._network.ingest(taken)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Proposes up to `n_max` tokens; nothing for a sequence of which nothing has been evaluated."""
        if all(request.history for request in requests):
            return super().draft(requests)
        drafts = iter(super().draft([request for request in requests if request.history]))
        return [next(drafts) if request.history else Draft() for request in requests]

    def rewind(self, slot: int, length: int) -> None:
        """The state before token `length` is gone, but the cell of that pair is still there (`Drafter.rewind`)."""
        self._newest[slot] = -1

    def close(self) -> None:
        """Releases the network."""
        self._network.close()

    def _write(self, requests: Sequence[DraftRequest], n_steps: int) -> tuple[Floats, Ints]:
        return self._network.draft(self._anchors(requests), n_steps)

    def _start(self, requests: Sequence[DraftRequest]) -> list[DraftCandidates | None]:
        return self._best(requests, self._network.start(self._anchors(requests)))

    def _advance(
        self, requests: Sequence[DraftRequest], index: int, tokens: Sequence[int | None]
    ) -> list[DraftCandidates | None]:
        return self._best(requests, self._network.advance(index, trimmed(tokens)))

    def _best(self, requests: Sequence[DraftRequest], step: tuple[Floats, Ints]) -> list[DraftCandidates | None]:
        """A step's candidates; None for those whose draft has ended, behind the network's rows."""
        values, ids = step
        found: list[DraftCandidates | None] = [None] * len(requests)
        for row in range(len(values)):
            found[row] = self._sampler(requests[row].slot).best(values[row], ids[row])
        return found

    def _anchors(self, requests: Sequence[DraftRequest]) -> list[Anchor]:
        anchors = []
        for request in requests:
            position = len(request.history)
            assert self._newest[request.slot] == position - 1, "the state before the last token is not there"
            anchors.append(Anchor(request.slot, request.last_token, position))
        return anchors
