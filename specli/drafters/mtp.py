"""draft-mtp: checks and construction; the procedure is in `specli.drafters.feedback`.

Heads come from the target's own file, from a file that holds nothing else, or as a Gemma 4 assistant.
"""

from __future__ import annotations

import logging

from specli.drafters import DrafterInputs
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_number, target_config
from specli.errors import IncompatibleError
from specli.gguf.file import GGUFFile
from specli.models import model_class
from specli.models.config import ModelConfig
from specli.models.feedback import FeedbackNetwork
from specli.models.gemma4_assistant import ARCHITECTURE as ASSISTANT
from specli.models.gemma4_assistant import AssistantConfig, AssistantNetwork, AssistantWeights
from specli.models.mtp import MTPNetwork, MTPWeights, has_heads

NAME = "draft-mtp"
log = logging.getLogger(__name__)


def is_mtp(file: GGUFFile) -> bool:
    """Whether a file has MTP heads."""
    return file.architecture == ASSISTANT or has_heads(file)


def check_mtp(inputs: DrafterInputs) -> None:
    """Refuses a target or a draft file without heads, and heads of another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = _file(inputs), target_config(inputs)
    if file.architecture == ASSISTANT:
        _check_assistant(inputs, file, target)
        return
    if not has_heads(file):
        raise IncompatibleError(
            f"{file.path}: there are no MTP heads in this file",
            hint="give a file that has them with -md" if inputs.draft_file is None else None,
        )
    check_kind(file, NAME, inputs.target_file.architecture)
    config = _heads(inputs).config
    check_number(file, "hidden width", config.n_embd, inputs, target.n_embd)
    check_number(file, "vocabulary size", config.n_vocab, inputs, target.n_vocab)


def build_mtp(inputs: DrafterInputs) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    return FeedbackDrafter(NAME, _network(inputs), inputs.config.draft)


def draft_limit(file: GGUFFile) -> int | None:
    """Most tokens of a draft: one per head if there are several, else any number."""
    n_heads = file.metadata.get(f"{file.architecture}.nextn_predict_layers", "u32", 0)
    return n_heads if n_heads > 1 and file.architecture != ASSISTANT else None


def _network(inputs: DrafterInputs) -> FeedbackNetwork:
    assert inputs.target is not None
    assert inputs.executor is not None
    assert inputs.options is not None
    file, draft = _file(inputs), inputs.config.draft
    n_draft = max(1, draft.n_max)
    if file.architecture == ASSISTANT:
        config = AssistantConfig.from_gguf(file, inputs.target.config.n_layers)
        return AssistantNetwork(
            AssistantWeights(file, config), config, inputs.executor, inputs.options, inputs.target,
            n_draft=n_draft, steps=draft.is_stepwise,
        )  # fmt: skip
    limit = draft_limit(file)
    if limit is not None and n_draft > limit:
        log.warning("requested draft size %d exceeds the number of MTP heads -- clamping to %d", n_draft, limit)
        n_draft = limit
    return MTPNetwork(
        _heads(inputs), inputs.executor, inputs.options, inputs.target, n_draft=n_draft, steps=draft.is_stepwise
    )


def _file(inputs: DrafterInputs) -> GGUFFile:
    """The draft file, or without one the target's."""
    return inputs.draft_file or inputs.target_file


def _heads(inputs: DrafterInputs) -> MTPWeights:
    file = _file(inputs)
    return MTPWeights(file, model_class(inputs.target_file), borrows=file.path.samefile(inputs.target_file.path))


def _check_assistant(inputs: DrafterInputs, file: GGUFFile, target: ModelConfig) -> None:
    """What an assistant reads of its target: states, embeddings, and the caches of the last two layers."""
    n_layers = target.n_layers
    if n_layers < 2:
        raise IncompatibleError(f"{file.path}: an assistant reads two layers, {inputs.target_file.path} has {n_layers}")
    config = AssistantConfig.from_gguf(file, n_layers)
    check_number(file, "target hidden width", config.target_width, inputs, target.n_embd)
    check_number(file, "vocabulary size", config.network.n_vocab, inputs, target.n_vocab)
    for index, layer in enumerate(config.network.layers):
        assert layer.kv_source is not None
        source = target.layers[layer.kv_source]
        check_number(file, f"head size of layer {index}", layer.head_size_k, inputs, source.head_size_k)
        if layer.n_heads % source.n_kv_heads:
            raise IncompatibleError(
                f"{file.path}: {layer.n_heads} query heads of layer {index} cannot share the {source.n_kv_heads} "
                f"key/value heads of {inputs.target_file.path}"
            )
    AssistantWeights(file, config)
