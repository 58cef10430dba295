"""What a drafter's file remembers of its target, and the drafter's own embeddings held against the target's."""

from __future__ import annotations

import numpy as np

from specli.convert.checkpoint import Checkpoint
from specli.convert.job import Job
from specli.convert.keys import KeyValues
from specli.convert.lazy import LazyTensor
from specli.convert.plan import Blueprint
from specli.convert.target import Target
from specli.errors import SpecliError, UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.origin import (
    EMBEDDINGS,
    N_COLUMNS,
    NAME,
    VOCABULARY,
    Sample,
    cosine,
    embeddings_of,
    sampled_rows,
    vocabulary_hash,
    without_padding,
)

TABLE = "token_embd.weight"
EQUAL, EQUAL_QUANTISED = 0.9999, 0.97  # cosine of copies: rounded once, and of a quantised table


def remember_target(job: Job, target: Target, blueprint: Blueprint) -> KeyValues:
    """The keys about the target. Says what the drafter's own embeddings are beside the target's.

    Args:
        job: Gets the note or warning.
        target: The target.
        blueprint: Says where the drafter's embeddings stand.
    """
    keys = KeyValues()
    keys.add(NAME, "str", target.name)
    try:
        tokens = without_padding(target.vocabulary(target.n_tokens).get("tokenizer.ggml.tokens", []))
    except SpecliError:  # a layout may read the target's tokenizer in another way, and judges it
        return keys
    sample = _target_sample(target, len(tokens))
    keys.add(VOCABULARY, "str", vocabulary_hash(tokens))
    if sample is not None:
        keys.add(EMBEDDINGS, "[f32]", sample.tolist())
        _say_embeddings(job, target, blueprint, sample, len(tokens))
    return keys


def borrow_embeddings(blueprint: Blueprint) -> None:
    """Leaves the drafter's own embeddings out (`--borrow-embeddings`).

    Raises:
        UsageError: The drafter cannot do without.
    """
    row = next((row for row in blueprint.rows if row.name == TABLE), None)
    if row is None or row.need != "borrowed":
        raise UsageError("--borrow-embeddings: this drafter needs embeddings of its own, or has none")
    blueprint.rows = [other for other in blueprint.rows if other is not row]
    blueprint.left_out = {**blueprint.left_out, row.sources[0]: "the target's are read (--borrow-embeddings)"}


def _say_embeddings(job: Job, target: Target, blueprint: Blueprint, sample: Sample, n_tokens: int) -> None:
    source = next((row.sources[0] for row in blueprint.rows if row.name == TABLE and row.need == "borrowed"), None)
    tensors = {blueprint.rename(name): tensor for name, tensor in job.checkpoint.tensors.items()}
    own = tensors.get(source) if source is not None else None
    if own is None:
        return
    found = _sample(own, n_tokens)
    likeness = 0.0 if found is None else cosine(found, sample)
    if likeness < (EQUAL if target.directory is not None else EQUAL_QUANTISED):
        job.warnings.append(
            f"the drafter's embeddings differ from the target's (cosine {likeness:.3f}): its own are written; "
            "--borrow-embeddings leaves them out"
        )
    else:
        job.notes.append("the drafter's embeddings are the target's: --borrow-embeddings would save them")


def _target_sample(target: Target, n_tokens: int) -> Sample | None:
    """The sample of the target's embeddings; None where its weights are not there."""
    if target.directory is None:
        return embeddings_of(GGUFFile.open(target.path), n_tokens)
    try:
        with Checkpoint.open(target.directory, weights_needed=False) as checkpoint:
            names = [name for name in checkpoint.tensors if name.endswith("embed_tokens.weight")]
            return _sample(checkpoint.tensors[names[0]], n_tokens) if len(names) == 1 else None
    except SpecliError:  # only its config and tokenizer are needed
        return None


def _sample(table: LazyTensor, n_tokens: int) -> Sample | None:
    if not table.is_float or len(table.shape) != 2 or table.shape[0] < n_tokens:
        return None
    rows = [table.read(row, row + 1)[0, :N_COLUMNS].astype(np.float32) for row in sampled_rows(n_tokens)]
    return np.concatenate(rows) if rows else None
