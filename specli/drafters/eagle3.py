"""draft-eagle3: checks and construction; the procedure is in `specli.drafters.feedback`."""

from __future__ import annotations

from specli.drafters import DrafterInputs
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_number, check_taps, draft_file_of, target_config
from specli.errors import IncompatibleError
from specli.models.eagle3 import ARCHITECTURE, Eagle3Config, Eagle3Network, Eagle3Weights

NAME = "draft-eagle3"


def check_eagle3(inputs: DrafterInputs) -> None:
    """Refuses a file that is no EAGLE-3 drafter, is broken, or was made for another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = draft_file_of(inputs), target_config(inputs)
    check_kind(file, NAME, ARCHITECTURE)
    config = Eagle3Config.from_gguf(file)
    check_number(file, "target hidden width", config.target_width, inputs, target.n_embd)
    check_number(file, "vocabulary size", config.network.n_vocab, inputs, target.n_vocab)
    check_taps(file, config.taps, inputs, target.n_layers)
    weights = Eagle3Weights(file, config)
    for name, own in (("token_embd.weight", weights.token_embd), ("output.weight", weights.output)):
        if own is None and config.network.n_embd != target.n_embd:
            raise IncompatibleError(
                f"{file.path}: {name} is missing, and that of {inputs.target_file.path} has width {target.n_embd}, "
                f"not {config.network.n_embd}"
            )


def build_eagle3(inputs: DrafterInputs) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    assert inputs.target is not None
    assert inputs.executor is not None
    assert inputs.options is not None
    draft = inputs.config.draft
    network = Eagle3Network(
        draft_file_of(inputs),
        inputs.executor,
        inputs.options,
        inputs.target,
        n_draft=max(1, draft.n_max),
        steps=draft.is_stepwise,
    )
    return FeedbackDrafter(NAME, network, draft)
