"""draft-dspark: a DFlash block whose tokens follow each other, cut at low confidence (docs/speculation.md §5.6).

llama.cpp `common/speculative.cpp`, `common_speculative_impl_draft_dflash` with a Markov head. `p_min` there refers to
the confidence head and not to the tokens' probabilities. Rejection sampling wants each token drawn given the one drawn
before, so with a temperature the chain runs step by step; llama.cpp has no such mode.
"""

from __future__ import annotations

import numpy as np

from specli.drafters import FilePair, NetworkParts
from specli.drafters.dflash import DFlash, build_network, check_block
from specli.drafters.settings import DraftConfig
from specli.errors import IncompatibleError
from specli.models.dflash import DFlashNetwork
from specli.models.positions import Proposal


def check_dspark(pair: FilePair) -> None:
    """As `check_block`; a confidence threshold needs a head that predicts confidence.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    config = check_block(pair, DSpark.name)
    if pair.config.draft.p_min > 0 and not config.has_confidence:
        raise IncompatibleError(
            f"{pair.file.path}: DSpark draft has no confidence head: please set --spec-draft-p-min 0"
        )


def build_dspark(parts: NetworkParts) -> DSpark:
    """The drafter of a checked pair."""
    return DSpark(*build_network(parts))


class DSpark(DFlash):
    """Proposes the tokens of a chained block; the arguments are those of `DFlash`.

    With `p_min` above 0 the draft ends before the first slot whose confidence is below it, or, with `survival`, before
    the first at which the product of the confidences so far is: the predicted probability that the draft stands up to
    there.
    """

    name = "draft-dspark"
    p_min_is_of_tokens = False

    def __init__(self, network: DFlashNetwork | None, config: DraftConfig) -> None:
        super().__init__(network, config)
        self._survival: dict[int, np.float32] = {}  # by slot of the cache, of the draft that is being made

    def _is_kept(self, slot: int, index: int, proposal: Proposal) -> bool:
        survival = self._survival[slot] = proposal.confidence * (self._survival[slot] if index else np.float32(1))
        p_min = np.float32(self._config.p_min)
        return p_min <= 0 or bool((survival if self._config.survival else proposal.confidence) >= p_min)
