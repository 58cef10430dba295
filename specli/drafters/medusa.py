"""draft-medusa: checks and construction; the procedure is in `specli.drafters.feedback`."""

from __future__ import annotations

from specli.drafters import FilePair, NetworkParts
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_last_state, check_number, target_config
from specli.models.medusa import ARCHITECTURE, MedusaConfig, MedusaNetwork, MedusaWeights

NAME = "draft-medusa"


def check_medusa(pair: FilePair) -> None:
    """Refuses a file that has no Medusa heads, is broken, or was made for another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = pair.file, target_config(pair)
    check_kind(file, NAME, ARCHITECTURE)
    config = MedusaConfig.from_gguf(file)
    check_number(pair, "hidden width", config.n_embd, target.n_embd)
    check_number(pair, "vocabulary size", config.n_vocab, target.n_vocab)
    check_last_state(pair, config.taps, target.n_layers)
    MedusaWeights(file, config)


def build_medusa(parts: NetworkParts) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    draft = parts.draft
    network = MedusaNetwork(
        parts.pair.file, parts.executor, parts.options, parts.target, n_draft=draft.n_max, steps=draft.is_stepwise
    )
    return FeedbackDrafter(NAME, network, draft)
