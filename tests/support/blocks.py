"""Random rows in any quant type, with finite values of a wanted spread."""

import numpy as np

from specli.gguf.encode import ENCODERS
from specli.gguf.quant import QuantType, dequantise, quantise

_HALVES = {  # quant types without an encoder: byte offsets of the float16 fields of a block
    QuantType.Q2_K: (80, 82),
    QuantType.Q3_K: (108,),
    QuantType.IQ1_S: (0,),
    QuantType.IQ2_XXS: (0,),
    QuantType.IQ2_XS: (0,),
    QuantType.IQ2_S: (0,),
    QuantType.IQ3_XXS: (0,),
    QuantType.IQ3_S: (0,),
    QuantType.IQ4_XS: (0,),
    QuantType.TQ1_0: (52,),
    QuantType.TQ2_0: (64,),
    QuantType.Q1_0: (0,),
    QuantType.Q2_0: (0,),
}
BLOCK_TYPES = tuple(ENCODERS) + tuple(_HALVES) + (QuantType.MXFP4,)


def random_rows(type: QuantType, n_rows: int, n: int, rng: np.random.Generator, *, std: float = 1.0) -> np.ndarray:
    """`[n_rows, row_bytes]` uint8 in a type of `BLOCK_TYPES`: values have standard deviation `std` and mean near 0."""
    if type in ENCODERS:
        return quantise(type, rng.normal(0, std, (n_rows, n)).astype(np.float32))
    n_blocks = n_rows * type.row_bytes(n) // type.block_bytes
    blocks = rng.integers(0, 256, (n_blocks, type.block_bytes), np.uint8)
    if type is QuantType.MXFP4:
        blocks[:, 0] = 128 + round(np.log2(std / 5.9))  # the 16 levels have standard deviation 5.9; only powers of two
    else:
        _set_halves(blocks, _HALVES[type], 1.0)
        _set_halves(blocks, _HALVES[type], std / dequantise(type, blocks[:64]).std())
    return blocks.reshape(n_rows, type.row_bytes(n))


def _set_halves(blocks: np.ndarray, offsets: tuple[int, ...], value: float) -> None:
    for offset in offsets:
        blocks[:, offset : offset + 2] = np.array([value], np.float16).view(np.uint8)
