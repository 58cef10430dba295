"""What happens to a tensor's values between checkpoint and GGUF, as functions that table rows refer to.

Each takes the source tensors of a row and the model's sizes by symbol and returns the tensor to write. All work on
slices of the leading axis, so memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from specli.convert.lazy import Array, LazyTensor, constant

Sizes = Mapping[str, int]
Change = Callable[[Sequence[LazyTensor], Sizes], LazyTensor]


def keep(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """The only source as it is."""
    (source,) = sources
    return source


def pair_heads(heads: str) -> Change:
    """Rows from rotate-half order to adjacent pairs, for ggml's NORM rope: row (head, r, j) moves to (head, 2j + r).

    Worked example, one head of 4 rows a b c d (rotate-half pairs (a, c) and (b, d)): a c b d.

    Args:
        heads: Symbol of the head count.
    """

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        width = source.shape[0] // sizes[heads]

        def reorder(rows: Array) -> Array:
            heads_split = rows.reshape(-1, 2, width // 2, *rows.shape[1:])  # [heads, 2, width/2, …]
            paired: Array = heads_split.swapaxes(1, 2).reshape(rows.shape)
            return paired

        return source.mapped(reorder, step=width)

    return change


def unpair_heads(heads: str) -> Change:
    """Rows from adjacent pairs to rotate-half order, the inverse of `pair_heads`: even rows first, then odd."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        width = source.shape[0] // sizes[heads]

        def reorder(rows: Array) -> Array:
            heads_split = rows.reshape(-1, width // 2, 2, *rows.shape[1:])  # [heads, width/2, 2, …]
            paired: Array = heads_split.swapaxes(1, 2).reshape(rows.shape)
            return paired

        return source.mapped(reorder, step=width)

    return change


def plus_one(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """Norm weights stored as the difference from one; added in the source's own precision, as upstream does."""
    (source,) = sources
    return source.mapped(lambda values: values + values.dtype.type(1))


def first_rows(count: str) -> Change:
    """The first rows only: an embedding table padded beyond the vocabulary."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        return replace(source, shape=(min(sizes[count], source.shape[0]), *source.shape[1:]))

    return change


def stack(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """Tensors of one shape along a new leading axis, in the given order: experts."""

    def read(start: int, stop: int) -> Array:
        return np.stack([source.all() for source in sources[start:stop]])

    return LazyTensor((len(sources), *sources[0].shape), sources[0].dtype, read)


def half(index: int) -> Change:
    """Half of axis -2: experts whose gate (0) and up (1) projections are stored as one tensor, gate first."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        n = source.shape[-2] // 2
        picked = source.mapped(lambda values: values[..., index * n : (index + 1) * n, :])
        return replace(picked, shape=(*source.shape[:-2], n, source.shape[-1]))

    return change


def flat(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """All axes joined into one."""
    (source,) = sources
    values = source.all().reshape(-1)
    return LazyTensor((math.prod(source.shape),), source.dtype, lambda start, stop: values[start:stop])


def llama3_rope_factors(base: float, width: int, scaling: Mapping[str, float]) -> LazyTensor:
    """`rope_freqs` `[width / 2]` of Llama 3 scaling: 1 for short wavelengths, `factor` for long ones, blended between.

    Source: llama.cpp conversion/llama.py, `LlamaModel.generate_extra_tensors`; values equal transformers'
    `_compute_llama3_parameters` as divisors.

    Args:
        base: Rope base.
        width: Rotary width.
        scaling: `factor`, `low_freq_factor`, `high_freq_factor`, `original_max_position_embeddings`; llama.cpp's
            defaults 8, 1, 4, 8192.
    """
    factor = scaling.get("factor", 8.0)
    low, high = scaling.get("low_freq_factor", 1.0), scaling.get("high_freq_factor", 4.0)
    original = scaling.get("original_max_position_embeddings", 8192)
    frequencies = np.float32(1) / np.float32(base) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    factors = []
    for frequency in frequencies.astype(np.float32):
        wavelength = 2 * math.pi / float(frequency)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return constant(np.array(factors, np.float32))
