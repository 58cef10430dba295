"""What draft networks share: a vocabulary of their own, and states of the target that they read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType

N_CANDIDATES = 10  # best tokens of a step that are looked at; as many as llama.cpp's draft sampler keeps


def draft_vocabulary(file: GGUFFile, n_vocab: int) -> npt.NDArray[np.int32] | None:
    """The target's id of every draft token, from tensor `d2t` (draft-models.md §1.7).

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
