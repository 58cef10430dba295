"""draft-eagle3: checks and construction; the procedure is in `specli.drafters.feedback`."""

from __future__ import annotations

from specli.drafters import FilePair, NetworkParts
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_number, check_taps, target_config
from specli.errors import IncompatibleError
from specli.models.eagle3 import ARCHITECTURE, Eagle3Config, Eagle3Network, Eagle3Weights

NAME = "draft-eagle3"


def check_eagle3(pair: FilePair) -> None:
    """Refuses a file that is no EAGLE-3 drafter, is broken, or was made for another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = pair.file, target_config(pair)
    check_kind(file, NAME, ARCHITECTURE)
    config = Eagle3Config.from_gguf(file)
    check_number(pair, "target hidden width", config.target_width, target.n_embd)
    check_number(pair, "vocabulary size", config.network.n_vocab, target.n_vocab)
    check_taps(pair, config.taps, target.n_layers)
    weights = Eagle3Weights(file, config)
    for name, own in (("token_embd.weight", weights.token_embd), ("output.weight", weights.output)):
        if own is None and config.network.n_embd != target.n_embd:
            raise IncompatibleError(
                f"{file.path}: {name} is missing, and that of {pair.target_file.path} has width {target.n_embd}, "
                f"not {config.network.n_embd}"
            )


def build_eagle3(parts: NetworkParts) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    draft = parts.draft
    network = Eagle3Network(
        parts.pair.file, parts.executor, parts.options, parts.target, n_draft=draft.n_max, steps=draft.is_stepwise
    )
    return FeedbackDrafter(NAME, network, draft)
