"""`mask_embedding.pt`: a block drafter's own embedding of the mask token.

llama.cpp `DFlashModel.generate_extra_tensors`, conversion/qwen.py.

The target's row of that token is untrained. The drafter gets an embedding table of its own, the target's with that row
replaced, and then also a head of its own, since the run-time would take the table for it.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specli.convert.checkpoint import Checkpoint
from specli.convert.job import Job
from specli.convert.lazy import Array, LazyTensor
from specli.convert.pickled import DTYPES
from specli.convert.target import Target
from specli.errors import FormatError, UsageError
from specli.files import is_there

if TYPE_CHECKING:
    import torch

FILE = "mask_embedding.pt"
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def mask_embedding_tensors(
    job: Job, target: Target, own: dict[str, LazyTensor], mask_id: int | None
) -> dict[str, LazyTensor]:
    """Head (unless the drafter has one) and embedding table by GGUF name; nothing without such a file.

    Args:
        job: The conversion.
        target: Whose table and head are taken.
        own: The drafter's tensors by normalised name.
        mask_id: The mask token.

    Raises:
        FormatError: The file does not fit the drafter, or the target's tensors do not.
        UsageError: The target is no checkpoint directory.
    """
    path = job.checkpoint.directory / FILE
    if not is_there(path):
        return {}
    shape = job.config.need("vocab_size"), job.config.need("hidden_size")
    vector = _read(path, mask_id, shape)
    borrowed = {} if {"embed_tokens.weight", HEAD} <= own.keys() else _target_tensors(path, target)
    table = own.get("embed_tokens.weight") or _need(target, borrowed, TABLE)
    if table.shape != shape:
        raise FormatError(f"{target.path}: {TABLE} has shape {list(table.shape)}, expected {list(shape)}")
    tensors = {}
    if HEAD not in own:
        tensors["output.weight"] = _need(target, borrowed, TABLE if target.is_tied else HEAD)
    assert mask_id is not None
    return {**tensors, "token_embd.weight": _with_row(table, mask_id, vector)}


def _read(path: Path, mask_id: int | None, shape: tuple[int, int]) -> torch.Tensor:
    """The vector, checked against the mask token and the embedding table's shape."""
    import torch

    try:
        record = torch.load(path, map_location="cpu", weights_only=True)
        found, vector = record["mask_token_id"], record["embedding"]
    except (OSError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError, AttributeError):
        raise FormatError(f"{path}: expected a torch file with mask_token_id and embedding") from None
    if not isinstance(found, int) or found != mask_id or not 0 <= found < shape[0]:
        raise FormatError(
            f"{path}: mask_token_id is {found}, expected that of the config ({mask_id}), below {shape[0]}"
        )
    if not isinstance(vector, torch.Tensor) or tuple(vector.shape) != shape[1:]:
        size = list(vector.shape) if isinstance(vector, torch.Tensor) else type(vector).__name__
        raise FormatError(f"{path}: embedding is {size}, expected a tensor of shape {list(shape[1:])}")
    return vector


def _target_tensors(path: Path, target: Target) -> dict[str, LazyTensor]:
    if target.directory is None:
        raise UsageError(
            f"{path}: needs the target's embeddings and head",
            hint="give its checkpoint directory with --target-model-dir, not a GGUF file",
        )
    return Checkpoint.open(target.directory).tensors


def _need(target: Target, tensors: dict[str, LazyTensor], name: str) -> LazyTensor:
    if name not in tensors:
        raise FormatError(f"{target.path}: missing {name}, which {FILE} needs")
    return tensors[name]


def _with_row(table: LazyTensor, index: int, vector: torch.Tensor) -> LazyTensor:
    """The table with one row replaced, in the precision of the table."""
    import torch

    names = {label: name for name, label in DTYPES.items()}
    row: Any = vector.to(getattr(torch, names[table.dtype])).float().numpy()
    read = table.read

    def replaced(start: int, stop: int) -> Array:
        rows = read(start, stop)
        if start <= index < stop:
            rows = rows.copy()
            rows[index - start] = row
        return rows

    return replace(table, read=replaced)
