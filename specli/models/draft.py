"""What draft networks share: a vocabulary of their own, states of the target that they read, where drafts start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType

Ints = npt.NDArray[np.int32]

N_CANDIDATES = 10  # best tokens of a step that are looked at; as many as llama.cpp's draft sampler keeps


class Part(NamedTuple):
    """Tokens of one sequence whose states the target has just captured.

    Attributes:
        slot: Of the sequence.
        tokens: `[T]`.
        position: Of the first.
        first_row: Row of the target's features that belongs to the first; the others follow.
        follows: Whether the tokens before them were the latest that the network took in of the sequence; only networks
            that pair a token with the state before it ask.
    """

    slot: int
    tokens: Ints
    position: int
    first_row: int
    follows: bool = True


class Anchor(NamedTuple):
    """Where a draft starts.

    Attributes:
        slot: Of the sequence.
        token: Its newest token, not evaluated yet; the network has taken in everything before it.
        position: Of that token.
    """

    slot: int
    token: int
    position: int


def taps_of(file: GGUFFile) -> tuple[int, ...]:
    """The boundaries a draft file reads.

    Raises:
        FormatError: It names none, or one twice.
    """
    key = f"{file.architecture}.target_layers"
    taps = tuple(file.metadata.require(key, "[int]"))
    if not taps or min(taps) < 0 or len(set(taps)) < len(taps):
        raise FormatError(f"{file.path}: key {key} is {list(taps)}, expected different layers, counted from 0")
    return taps


def draft_vocabulary(file: GGUFFile, n_vocab: int) -> npt.NDArray[np.int32] | None:
    """The target's id of every draft token, from tensor `d2t` (docs/draft-networks.md §1.7).

    Args:
        file: An open draft file.
        n_vocab: Tokens of the target.

    Returns:
        `[V_d]` int32; None if the draft network has the whole vocabulary.

    Raises:
        FormatError: The ids are not whole numbers, not those of target tokens, or not distinct.
    """
    tensor = file.tensors.get("d2t")
    if tensor is None:
        return None
    if tensor.type != QuantType.I64 or len(tensor.shape) != 1 or not tensor.n_elements:
        raise FormatError(f"{file.path}: d2t is {tensor.type.label} {list(tensor.shape)}, expected a list of i64")
    ids = tensor.numbers()
    if int(ids.min()) < 0 or int(ids.max()) >= n_vocab:
        raise FormatError(f"{file.path}: d2t has ids {ids.min()} to {ids.max()}, expected 0 to {n_vocab - 1}")
    if len(np.unique(ids)) != len(ids):
        raise FormatError(f"{file.path}: d2t names a token twice")
    return ids.astype(np.int32)
