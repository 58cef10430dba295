"""Whether a draft file fits its type and its target, by metadata alone."""

from __future__ import annotations

from collections.abc import Sequence

from specli.drafters import FilePair, detect_type
from specli.errors import IncompatibleError
from specli.gguf.file import GGUFFile
from specli.models import model_class
from specli.models.architecture import ModelConfig


def target_config(pair: FilePair) -> ModelConfig:
    """The target's shape."""
    return model_class(pair.target_file).configure(pair.target_file)


def check_kind(file: GGUFFile, spec_type: str, architecture: str) -> None:
    """Refuses a file of another architecture, and says what it is.

    Raises:
        IncompatibleError: It is one.
    """
    if file.architecture == architecture:
        return
    detected = detect_type(file)
    hints = {None: None, spec_type: "it belongs to another target"}
    raise IncompatibleError(
        f"{file.path}: architecture {file.architecture} does not fit {spec_type}, expected {architecture}",
        hint=hints.get(detected, f"this is a drafter of type {detected}"),
    )


def check_number(pair: FilePair, what: str, found: int, expected: int) -> None:
    """Refuses a number that has to be the target's.

    Raises:
        IncompatibleError: The two differ.
    """
    if found != expected:
        raise IncompatibleError(f"{pair.file.path}: {what} {found} does not match {pair.target_file.path} ({expected})")


def context_doubt(file: GGUFFile, n_ctx: int) -> str | None:
    """What speaks against drafting as far as a context reaches: the draft network has seen shorter ones only."""
    key = f"{file.architecture}.context_length"
    trained = file.metadata.require(key, "u32") if key in file.metadata else n_ctx
    if trained >= n_ctx:
        return None
    return f"{file.path}: trained with a context of {trained} tokens, here it has {n_ctx}; drafts may miss beyond"


def check_taps(pair: FilePair, taps: Sequence[int], n_layers: int) -> None:
    """Refuses hidden states that the target does not have.

    Raises:
        IncompatibleError: A boundary lies beyond the last layer.
    """
    if max(taps) > n_layers:
        raise IncompatibleError(
            f"{pair.file.path}: hidden state {max(taps)} does not exist in {pair.target_file.path} (0 to {n_layers})"
        )


def check_last_state(pair: FilePair, taps: Sequence[int], n_layers: int) -> None:
    """Refuses a network that reads another state than the one behind the target's last layer.

    Raises:
        IncompatibleError: The boundary is another.
    """
    check_number(pair, "hidden state", taps[0], n_layers)
