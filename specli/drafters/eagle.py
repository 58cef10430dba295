"""draft-eagle: checks and construction; the procedure is in `specli.drafters.feedback`."""

from __future__ import annotations

from specli.drafters import FilePair, NetworkParts
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_last_state, check_number, target_config
from specli.models.eagle import ARCHITECTURE, EagleConfig, EagleNetwork, EagleWeights

NAME = "draft-eagle"


def check_eagle(pair: FilePair) -> None:
    """Refuses a file that is no EAGLE-1 drafter, is broken, or was made for another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = pair.file, target_config(pair)
    check_kind(file, NAME, ARCHITECTURE)
    config = EagleConfig.from_gguf(file)
    check_number(pair, "hidden width", config.network.n_embd, target.n_embd)
    check_number(pair, "vocabulary size", config.network.n_vocab, target.n_vocab)
    check_last_state(pair, config.taps, target.n_layers)
    EagleWeights(file, config)


def build_eagle(parts: NetworkParts) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    draft = parts.draft
    network = EagleNetwork(
        parts.pair.file, parts.executor, parts.options, parts.target, n_draft=draft.n_max, steps=draft.is_stepwise
    )
    return FeedbackDrafter(NAME, network, draft)
