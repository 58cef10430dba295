"""The target that a drafter was converted for, as its file remembers it, and whether another one is that target.

`specli convert` writes the keys; llama.cpp reads over them. Embeddings are remembered by a sample that survives
quantisation, so the target may be of any type: its values are compared by the cosine of the angle between both samples.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specli.gguf.file import GGUFFile

NAME = "specli.target.name"
VOCABULARY = "specli.target.vocabulary"
EMBEDDINGS = "specli.target.embeddings"

N_ROWS, N_COLUMNS = 32, 32
SAME = 0.9  # cosine: q2_k has 0.95 and more, another model about 0
_PADDING = re.compile(r"\[PAD[0-9]+\]")

Sample = npt.NDArray[np.float32]


def vocabulary_hash(tokens: Sequence[str]) -> str:
    """SHA-256 of the tokens' texts, without the padding that converters add at the end."""
    texts = without_padding(tokens)
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def without_padding(tokens: Sequence[str]) -> Sequence[str]:
    """The tokens up to the last that is not `[PAD<id>]`."""
    n = len(tokens)
    while n and _PADDING.fullmatch(tokens[n - 1]):
        n -= 1
    return tokens[:n]


def sampled_rows(n_tokens: int) -> list[int]:
    """Ids whose embeddings are sampled, evenly spread. Worked example: of 64 tokens 0, 2, 4, …, 62."""
    return sorted({number * n_tokens // N_ROWS for number in range(N_ROWS)} if n_tokens else set())


def embeddings_of(target: GGUFFile, n_tokens: int) -> Sample | None:
    """The sample of a target's embeddings, `[rows · N_COLUMNS]`; None where the table is missing or too short."""
    table = target.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[0] < n_tokens:
        return None
    return np.concatenate([table.dequantise(row, row + 1)[0, :N_COLUMNS] for row in sampled_rows(n_tokens)])


def cosine(a: Sample, b: Sample) -> float:
    """Cosine of the angle between two samples; 0 where their sizes differ or one is zero or not finite."""
    if a.shape != b.shape:
        return 0.0
    with np.errstate(all="ignore"):
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        value = float(a64 @ b64 / np.sqrt((a64 @ a64) * (b64 @ b64)))
    return value if math.isfinite(value) else 0.0


def other_target(draft: GGUFFile, target: GGUFFile) -> str | None:
    """A sentence about a target that is not the one the drafter was made for; None if it is, or nothing is known."""
    known = draft.metadata.get(VOCABULARY, "str", "")
    sample = draft.metadata.get(EMBEDDINGS, "[f32]", [])
    if not known and not sample:
        return None
    tokens = target.metadata.get("tokenizer.ggml.tokens", "[str]", [])
    name = draft.metadata.get(NAME, "str", "another target")
    differing = None
    if known and tokens and known != vocabulary_hash(tokens):
        differing = "another vocabulary"
    elif sample:
        own = embeddings_of(target, len(without_padding(tokens)))
        if own is not None and cosine(np.array(sample, np.float32), own) < SAME:
            differing = "other embeddings"
    if differing is None:
        return None
    return f"{draft.path}: was converted for {name}, but {target.path} has {differing}: few drafts may be accepted"
