"""draft-mtp: checks and construction; the procedure is in `specli.drafters.feedback`.

Heads come from the target's own file, from a file that holds nothing else, or as a Gemma 4 assistant.
"""

from __future__ import annotations

from specli.drafters import FilePair, NetworkParts
from specli.drafters.feedback import FeedbackDrafter
from specli.drafters.pairing import check_kind, check_number, target_config
from specli.errors import IncompatibleError
from specli.gguf.file import GGUFFile
from specli.models import model_class
from specli.models.architecture import ModelConfig
from specli.models.gemma4_assistant import ARCHITECTURE as ASSISTANT
from specli.models.gemma4_assistant import AssistantConfig, AssistantNetwork, AssistantWeights
from specli.models.mtp import MTPNetwork, MTPWeights, has_heads

NAME = "draft-mtp"


def is_mtp(file: GGUFFile) -> bool:
    """Whether a file has MTP heads."""
    return file.architecture == ASSISTANT or has_heads(file)


def check_mtp(pair: FilePair) -> None:
    """Refuses a target or a draft file without heads, and heads of another target.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file, target = pair.file, target_config(pair)
    if file.architecture == ASSISTANT:
        _check_assistant(pair, target)
        return
    if not has_heads(file):
        raise IncompatibleError(
            f"{file.path}: there are no MTP heads in this file",
            hint="give a file that has them with -md" if file is pair.target_file else None,
        )
    check_kind(file, NAME, pair.target_file.architecture)
    config = _heads(pair).config
    check_number(pair, "hidden width", config.n_embd, target.n_embd)
    check_number(pair, "vocabulary size", config.n_vocab, target.n_vocab)


def build_mtp(parts: NetworkParts) -> FeedbackDrafter:
    """The drafter of a checked pair."""
    pair, draft, target = parts.pair, parts.draft, parts.target
    if pair.file.architecture == ASSISTANT:
        config = AssistantConfig.from_gguf(pair.file, target.config.n_layers)
        assistant = AssistantNetwork(
            AssistantWeights(pair.file, config), config, parts.executor, parts.options, target,
            n_draft=draft.n_max, steps=draft.is_stepwise,
        )  # fmt: skip
        return FeedbackDrafter(NAME, assistant, draft)
    network = MTPNetwork(
        _heads(pair), parts.executor, parts.options, target, n_draft=draft.n_max, steps=draft.is_stepwise
    )
    return FeedbackDrafter(NAME, network, draft)


def draft_limit(file: GGUFFile) -> int | None:
    """Most tokens of a draft: one per head if there are several, else any number."""
    n_heads = file.metadata.get(f"{file.architecture}.nextn_predict_layers", "u32", 0)
    return n_heads if n_heads > 1 and file.architecture != ASSISTANT else None


def _heads(pair: FilePair) -> MTPWeights:
    file, target_file = pair.file, pair.target_file
    return MTPWeights(file, model_class(target_file), borrows=file.path.samefile(target_file.path))


def _check_assistant(pair: FilePair, target: ModelConfig) -> None:
    """What an assistant reads of its target: states, embeddings, and the caches of the last two layers."""
    file, n_layers = pair.file, target.n_layers
    if n_layers < 2:
        raise IncompatibleError(f"{file.path}: an assistant reads two layers, {pair.target_file.path} has {n_layers}")
    config = AssistantConfig.from_gguf(file, n_layers)
    check_number(pair, "target hidden width", config.target_width, target.n_embd)
    check_number(pair, "vocabulary size", config.network.n_vocab, target.n_vocab)
    for index, layer in enumerate(config.network.layers):
        assert layer.kv_source is not None
        source = target.layers[layer.kv_source]
        check_number(pair, f"head size of layer {index}", layer.head_size_k, source.head_size_k)
        if layer.n_heads % source.n_kv_heads:
            raise IncompatibleError(
                f"{file.path}: {layer.n_heads} query heads of layer {index} cannot share the {source.n_kv_heads} "
                f"key/value heads of {pair.target_file.path}"
            )
    AssistantWeights(file, config)
