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
from specli.gguf.quant import QuantType

Sizes = Mapping[str, int]
Change = Callable[[Sequence[LazyTensor], Sizes], LazyTensor]


def keep(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """The only source, unchanged."""
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
    """Norm weights stored as the difference from one; added in the source's own precision, as llama.cpp does."""
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


def row_part(index: int, count: int = 2) -> Change:
    """One of `count` equal parts of the leading axis: gate (0) and up (1) rows stored as one matrix."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        n = source.shape[0] // count
        first = index * n
        return replace(
            source, shape=(n, *source.shape[1:]), read=lambda start, stop: source.read(first + start, first + stop)
        )

    return change


def alternate(index: int) -> Change:
    """Every second entry of axis 1: gate (0) and up (1) rows stored in turn, as gpt-oss does."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        picked = source.mapped(lambda values: values[:, index::2])
        return replace(picked, shape=(source.shape[0], source.shape[1] // 2, *source.shape[2:]))

    return change


def swap_last(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """The last two of three axes exchanged: experts stored as [n, in, out]."""
    (source,) = sources
    return replace(source.mapped(lambda values: values.swapaxes(1, 2)), shape=(source.shape[0], *source.shape[:0:-1]))


def chain(*changes: Change) -> Change:
    """A change that applies several, one after the other."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        tensor = changes[0](sources, sizes)
        for following in changes[1:]:
            tensor = following([tensor], sizes)
        return tensor

    return change


def mxfp4(picked: slice) -> Change:
    """MXFP4 experts from blocks `[n, rows, cols/32, 16]` and scales `[n, rows, cols/32]`, bits only moved.

    A source byte b holds elements 2b (low nibble) and 2b + 1; a GGUF block is the scale byte and 16 bytes, byte j
    holding elements j (low) and j + 16.

    Args:
        picked: Which rows.
    """

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        blocks, scales = sources
        n, rows, n_blocks, _ = blocks.shape

        def read(start: int, stop: int) -> Array:
            codes = blocks.read(start, stop)[:, picked]  # [n, rows, blocks, 16]
            elements = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], 32)
            packed = elements[..., :16] | elements[..., 16:] << 4
            return np.concatenate([scales.read(start, stop)[:, picked, :, None], packed], axis=-1)

        shape = (n, len(range(rows)[picked]), n_blocks * 32)
        return LazyTensor(shape, blocks.dtype, read, type=QuantType.MXFP4)

    return change


def tile_heads(lead: str, groups: str, per_group: str, width: str) -> Change:
    """Value heads from grouped to tiled order: row block (g, j) of `width` rows moves to (j, g).

    ggml repeats key heads in turn (k0 k1 k0 k1 …), transformers one after the other (k0 k0 k1 k1 …).

    Args:
        lead: Symbol of the number of leading rows that stay.
        groups: Symbol of the key head count.
        per_group: Symbol of value heads per key head.
        width: Symbol of rows per value head.
    """

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        n_lead, n_groups, n_per, n_rows = (sizes[symbol] for symbol in (lead, groups, per_group, width))

        def read(start: int, stop: int) -> Array:
            parts = [source.read(start, min(stop, n_lead))] if start < n_lead else []
            for block in range((max(start, n_lead) - n_lead) // n_rows, (stop - n_lead) // n_rows):
                j, g = divmod(block, n_groups)
                first = n_lead + (g * n_per + j) * n_rows
                parts.append(source.read(first, first + n_rows))
            return np.concatenate(parts)

        return replace(source, read=read, step=n_rows)  # n_lead is a whole number of heads of the same width

    return change


def tile_columns(groups: str, per_group: str, width: str) -> Change:
    """Value heads from grouped to tiled order along the input axis."""

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        n_groups, n_per, n_columns = (sizes[symbol] for symbol in (groups, per_group, width))

        def reorder(rows: Array) -> Array:
            heads = rows.reshape(len(rows), n_groups, n_per, n_columns)
            tiled: Array = heads.swapaxes(1, 2).reshape(rows.shape)
            return tiled

        return source.mapped(reorder)

    return change


def squeeze_middle(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """A convolution kernel `[channels, 1, width]` without its middle axis."""
    (source,) = sources
    return replace(source.mapped(lambda values: values[:, 0]), shape=(source.shape[0], source.shape[2]))


def minus_exp(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """-exp(x): decay rates stored as logarithms. Computed in float64 and rounded once."""
    (source,) = sources
    return source.mapped(lambda values: (-np.exp(values.astype(np.float64))).astype(values.dtype))


def proportional_rope_factors(width: int, fraction: float) -> LazyTensor:
    """`rope_freqs` `[width / 2]` of Gemma 4: 1 for the rotated share of pairs, 1e30 (no rotation) for the rest."""
    n_rotated = int(width * fraction / 2)
    return constant(np.array([1.0] * n_rotated + [1e30] * (width // 2 - n_rotated), np.float32))


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
    factor = np.float32(scaling.get("factor", 8.0))
    low, high = scaling.get("low_freq_factor", 1.0), scaling.get("high_freq_factor", 4.0)
    original = scaling.get("original_max_position_embeddings", 8192)
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    wavelengths = np.float32(2 * math.pi) / (np.float32(1) / np.float32(base) ** exponents)  # float32 as llama.cpp
    smooth = (np.float32(original) / wavelengths - np.float32(low)) / np.float32(high - low)
    blended = np.float32(1) / ((np.float32(1) - smooth) / factor + smooth)
    factors = np.where(
        wavelengths < original / high, np.float32(1), np.where(wavelengths > original / low, factor, blended)
    )
    return constant(factors.astype(np.float32))
