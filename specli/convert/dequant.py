"""Quantised checkpoints turned back into floats while they are read (docs/checkpoints.md §8).

fp8 with block scales, and compressed-tensors in its float, int and packed forms. MXFP4 stays as it is (gpt_oss.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from specli.convert.checkpoint import Checkpoint
from specli.convert.lazy import Array, LazyTensor
from specli.convert.values import Values
from specli.errors import FormatError, UnsupportedError

UNUSED_SUFFIXES = (".activation_scale", "_activation_scale", ".input_scale", ".k_scale", ".v_scale")
"""Scales of activations and caches, which weights-only files do not keep."""

MAX_PACKED_BITS = 8
SIMPLE_FORMATS = ("float-quantized", "int-quantized", "naive-quantized")


def dequantised(checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """The tensors with quantised ones as floats, in the same order.

    Raises:
        UnsupportedError: The method or format is not handled.
        FormatError: A scale is missing or does not fit.
    """
    config = checkpoint.config.section("quantization_config")
    method = config.text("quant_method")
    if method in (None, "mxfp4"):
        return checkpoint.tensors
    if method not in _METHODS:
        known = ", ".join([*_METHODS, "mxfp4"])
        raise UnsupportedError(f"{config.path}: quant_method {method!r} is not handled, only {known}")
    return _METHODS[method](checkpoint, config)


def _fp8(checkpoint: Checkpoint, config: Values) -> dict[str, LazyTensor]:
    return _scaled(checkpoint, "_scale_inv", config.integers("weight_block_size"))


def _compressed(checkpoint: Checkpoint, config: Values) -> dict[str, LazyTensor]:
    kind = config.text("format")
    groups = config.section("config_groups")
    if len(groups.items) != 1:
        raise UnsupportedError(f"{config.path}: {len(groups.items)} compressed-tensors groups, one is handled")
    weights = groups.section(next(iter(groups.items))).section("weights")
    strategy = weights.text("strategy")
    if kind in SIMPLE_FORMATS and strategy in ("channel", "block", "tensor"):
        return _scaled(checkpoint, "_scale", weights.integers("block_structure"))
    if kind == "pack-quantized" and strategy == "group":
        return _packed(checkpoint, weights.need("num_bits"), weights.need("group_size"))
    raise UnsupportedError(
        f"{config.path}: compressed-tensors format {kind!r} with strategy {strategy!r} is not handled"
    )


_METHODS: Mapping[str, Callable[[Checkpoint, Values], dict[str, LazyTensor]]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed,
}


def _scaled(checkpoint: Checkpoint, suffix: str, block: list[int] | None) -> dict[str, LazyTensor]:
    """Weights times their scales; `W` is scaled by `W` + `suffix`."""
    tensors = dict(checkpoint.tensors)
    for name, scale in checkpoint.tensors.items():
        if name.endswith(UNUSED_SUFFIXES):
            del tensors[name]
        elif name.endswith(f".weight{suffix}"):
            weight_name = name.removesuffix(suffix)
            weight = tensors.get(weight_name)
            if weight is None:
                raise FormatError(f"{checkpoint.directory}: {name} scales {weight_name}, which is missing")
            tensors[weight_name] = _times(checkpoint, weight_name, weight, scale, block)
            del tensors[name]
    return tensors


def _times(
    checkpoint: Checkpoint, name: str, weight: LazyTensor, scale: LazyTensor, block: list[int] | None
) -> LazyTensor:
    """The product of a weight and the scale of its blocks, rows or whole.

    Worked example, weight [256, 384] with blocks [128, 128] has scales [2, 3]: element (130, 5) takes scale (1, 0).
    """
    if block and (min(block) < 1 or len(block) > len(weight.shape)):
        raise FormatError(f"{checkpoint.directory}: {name} has shape {list(weight.shape)}, its scale's blocks {block}")
    lead = len(weight.shape) - len(block) if block else 0
    sizes = [1] * lead + list(block or [])
    expected = tuple(math.ceil(n / s) for n, s in zip(weight.shape, sizes, strict=True)) if block else None
    per_row = (weight.shape[0], *([1] * (len(scale.shape) - 1)))
    if scale.shape not in (expected, (1,), per_row):
        raise FormatError(
            f"{checkpoint.directory}: {name} has shape {list(weight.shape)}, its scale {list(scale.shape)}"
        )

    def read(start: int, stop: int) -> Array:
        values = weight.read(start, stop).astype(np.float32, copy=False)
        if scale.shape == (1,):
            return values * scale.all().astype(np.float32)
        if scale.shape != expected:
            factors = scale.read(start, stop).astype(np.float32)
            return values * factors.reshape(-1, *[1] * (values.ndim - 1))
        first, last = start // sizes[0], math.ceil(stop / sizes[0])
        factors = scale.read(first, last).astype(np.float32)
        for axis, size in enumerate(sizes):
            factors = factors.repeat(size, axis)
        offset = start - first * sizes[0]
        part = factors[
            tuple(slice(offset if a == 0 else 0, (offset if a == 0 else 0) + n) for a, n in enumerate(values.shape))
        ]
        return values * part

    return LazyTensor(weight.shape, "F32", read)


def _packed(checkpoint: Checkpoint, n_bits: int, group_size: int) -> dict[str, LazyTensor]:
    """Integers packed into int32 along the input axis, with one scale per group and optional zero points.

    Raises:
        UnsupportedError: The integers have more than eight bits.
        FormatError: A part is missing or does not fit.
    """
    if n_bits > MAX_PACKED_BITS:
        path = checkpoint.config.path
        raise UnsupportedError(f"{path}: num_bits is {n_bits}, pack-quantized is handled up to {MAX_PACKED_BITS}")
    tensors = dict(checkpoint.tensors)
    done: dict[str, LazyTensor] = {}
    for name in checkpoint.tensors:
        if not name.endswith(".weight_packed"):
            continue
        base = name.removesuffix("_packed")
        if base in tensors:
            raise FormatError(f"{checkpoint.directory}: {base} is there as it is and as {name}")
        try:
            parts: dict[str, Any] = {part: tensors.pop(f"{base}_{part}") for part in ("packed", "scale", "shape")}
        except KeyError as error:
            raise FormatError(f"{checkpoint.directory}: {name} needs {error.args[0]}, which is missing") from None
        zero_point = tensors.pop(f"{base}_zero_point", None)
        done[base] = _unpacked(checkpoint, base, parts, zero_point, n_bits, group_size)
    return {**tensors, **done}


def _unpacked(
    checkpoint: Checkpoint,
    name: str,
    parts: Mapping[str, LazyTensor],
    zero_point: LazyTensor | None,
    n_bits: int,
    group_size: int,
) -> LazyTensor:
    """One weight from its packed codes.

    Worked example, 4 bits: the word 0x76543210 holds the codes 0, 1, … 7; code c stands for (c - 8) · scale, or
    (c - z) · scale where z is the zero point of its row and group.
    """
    packed, scale = parts["packed"], parts["scale"]
    if parts["shape"].shape != (2,):
        raise FormatError(f"{checkpoint.directory}: {name}_shape holds {parts['shape'].n_elements} numbers, expected 2")
    rows, columns = (int(n) for n in parts["shape"].all())
    n_groups, per_word = math.ceil(columns / group_size), 32 // n_bits
    expected = {"packed": (rows, math.ceil(columns / per_word)), "scale": (rows, n_groups)}
    found = {"packed": packed.shape, "scale": scale.shape}
    if zero_point is not None:
        expected["zero_point"], found["zero_point"] = (math.ceil(rows / per_word), n_groups), zero_point.shape
    for part, shape in expected.items():
        if found[part] != shape:
            raise FormatError(
                f"{checkpoint.directory}: {name}_{part} has shape {list(found[part])}, expected {list(shape)}"
            )
    shifts = np.arange(0, 32 - (n_bits - 1), n_bits, dtype=np.int32)
    mask = (1 << n_bits) - 1
    points: Array | None = None
    if zero_point is not None:  # packed along the output axis
        spread = zero_point.all()[:, None, :] >> shifts[None, :, None] & mask
        points = spread.reshape(-1, spread.shape[-1])[:rows]

    def read(start: int, stop: int) -> Array:
        codes = (packed.read(start, stop)[..., None] >> shifts & mask).reshape(stop - start, -1)[:, :columns]
        offset = 1 << (n_bits - 1) if points is None else points[start:stop].repeat(group_size, 1)[:, :columns]
        factors = scale.read(start, stop).astype(np.float32).repeat(group_size, 1)[:, :columns]
        return (codes - offset).astype(np.float32) * factors

    return LazyTensor((rows, columns), "F32", read)
