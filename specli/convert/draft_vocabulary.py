"""The table from draft ids to target ids: offsets in checkpoints, absolute in GGUF files (docs/checkpoints.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specli.convert.changes import Change, Sizes
from specli.convert.job import Job
from specli.convert.lazy import Array, LazyTensor
from specli.errors import FormatError
from specli.gguf.quant import QuantType


def target_ids(path: Path, table: Array, n_tokens: int, in_use: Array | None) -> tuple[Array, bool]:
    """Absolute target ids of a `d2t` table.

    Worked example: table [0, 2, 2] of offsets means draft ids 0, 1, 2 are target ids 0, 3, 4.

    Args:
        path: For messages.
        table: `[D]` integers as stored.
        n_tokens: Target vocabulary.
        in_use: `[V]` the `t2d` mask, which decides between offsets and absolute ids; None when absent.

    Returns:
        `[D]` int64 ids, and whether the table already held absolute ids.

    Raises:
        FormatError: The table gives no unique ids of the vocabulary that agree with `in_use`, as offsets or as ids.
    """
    stored = table.astype(np.int64)
    ids = stored + np.arange(len(stored))
    fault = _fault(ids, n_tokens, in_use)
    if fault is None:
        return ids, False
    if in_use is not None and _fault(stored, n_tokens, in_use) is None:
        return stored, True
    is_absolute = _fault(stored, n_tokens, None) is None and bool((np.diff(stored) > 0).all())
    hint = "the table looks as if it held absolute ids; checkpoints store offsets" if is_absolute else None
    raise FormatError(f"{path}: d2t: {fault}", hint=hint)


def _fault(ids: Array, n_tokens: int, in_use: Array | None) -> str | None:
    outside = np.flatnonzero((ids < 0) | (ids >= n_tokens))
    if len(outside):
        return f"draft id {outside[0]} means target id {ids[outside[0]]}, outside 0 to {n_tokens - 1}"
    order = np.argsort(ids, kind="stable")
    twins = np.flatnonzero(np.diff(ids[order]) == 0)
    if len(twins):
        first, second = order[twins[0]], order[twins[0] + 1]
        return f"draft ids {first} and {second} both mean target id {ids[first]}"
    if in_use is not None and not np.array_equal(ids[order], np.flatnonzero(in_use)):
        return f"its {len(ids)} target ids are not the {int(np.count_nonzero(in_use))} that t2d marks"
    return None


def absolute_ids(job: Job, n_tokens: int) -> Change:
    """The change that turns `d2t` into absolute I64 ids, checked when the plan is made."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (table,) = sources
        mask = job.checkpoint.tensors.get("t2d") or job.checkpoint.tensors.get("model.t2d")
        in_use = None if mask is None else mask.all().reshape(-1)
        if in_use is not None and len(in_use) != n_tokens:
            raise FormatError(f"{job.checkpoint.directory}: t2d has {len(in_use)} entries, expected {n_tokens}")
        ids, was_absolute = target_ids(job.checkpoint.directory, table.all().reshape(-1), n_tokens, in_use)
        if was_absolute:
            job.notes.append("d2t held absolute ids already, as t2d shows")
        data = ids.astype("<i8")
        return LazyTensor((len(data),), "I64", lambda start, stop: data[start:stop].view(np.uint8), type=QuantType.I64)

    return change


def draft_vocabulary_size(job: Job, n_tokens: int) -> int:
    """Size of the draft vocabulary, from the config.

    Raises:
        FormatError: `draft_vocab_size` is larger than the target's vocabulary.
    """
    size = job.config.integer("draft_vocab_size", "truncated_vocab_size") or n_tokens
    if size > n_tokens:
        raise FormatError(f"{job.config.path}: draft_vocab_size {size} exceeds vocab_size {n_tokens}")
    return size
