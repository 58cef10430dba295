"""Which quant type each tensor gets (llama.cpp conversion/base.py, `prepare_tensors`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specli.convert.lazy import LazyTensor
from specli.errors import UsageError
from specli.gguf.quant import QuantType

MXFP4_FILE_TYPE = 38

_FILE_TYPES: dict[QuantType, tuple[int, str]] = {  # general.file_type and name in file names (llama.h, llama_ftype)
    QuantType.F32: (0, "F32"),
    QuantType.F16: (1, "F16"),
    QuantType.BF16: (32, "BF16"),
    QuantType.Q8_0: (7, "Q8_0"),
    QuantType.Q4_0: (2, "Q4_0"),
    QuantType.Q4_1: (3, "Q4_1"),
    QuantType.Q5_0: (8, "Q5_0"),
    QuantType.Q5_1: (9, "Q5_1"),
    QuantType.Q4_K: (15, "Q4_K"),
    QuantType.Q5_K: (17, "Q5_K"),
    QuantType.Q6_K: (18, "Q6_K"),
}

_ALWAYS_F32 = (
    ".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", ".ssm_conv1d.weight", ".ssm_conv1d_q.weight",
    ".ssm_conv1d_k.weight", ".ssm_conv1d_v.weight",
)  # fmt: skip


@dataclass(frozen=True)
class Outtype:
    """The type matrices get.

    Attributes:
        type: Quant type.
        file_type: `general.file_type`.
        label: Upper-case name used in file names.
    """

    type: QuantType
    file_type: int
    label: str

    def with_mxfp4(self) -> Outtype:
        """The type for a source with MXFP4 experts: these name the file unless the other matrices are quantised."""
        if self.type not in (QuantType.F32, QuantType.F16, QuantType.BF16):
            return self
        return replace(self, file_type=MXFP4_FILE_TYPE, label="MXFP4_MOE")


def resolve_outtype(label: str, tensors: Iterable[LazyTensor]) -> Outtype:
    """The type that a label means; "auto" follows the first matrix that is bf16 or f16, else f16.

    Raises:
        UsageError: The label is not known.
    """
    if label == "auto":
        halves = (tensor.dtype for tensor in tensors if len(tensor.shape) >= 2 and tensor.dtype in ("BF16", "F16"))
        label = next(halves, "F16").lower()
    known = {kind.label: kind for kind in _FILE_TYPES}
    if label not in known:
        raise UsageError(f"unknown output type {label!r}, expected auto or one of {', '.join(known)}")
    return Outtype(known[label], *_FILE_TYPES[known[label]])


def tensor_type(name: str, values: LazyTensor, outtype: Outtype) -> QuantType:
    """Type of one tensor in the file; f16 where a quantised type does not fit the rows."""
    if values.type is not None:
        return values.type
    is_small = len(values.shape) <= 1 or name.endswith(("_norm.weight", *_ALWAYS_F32))
    if is_small or not name.endswith(".weight"):
        return QuantType.F32
    return QuantType.F16 if values.shape[-1] % outtype.type.block_size else outtype.type
