"""PyTorch checkpoints (`pytorch_model*.bin`), unpickled with weights-only loading and read by byte range.

Under `FakeTensorMode` torch unpickles names, dtypes and shapes without touching tensor bytes and notes where each
storage lies in the (uncompressed) zip archive; the bytes are then read like a safetensors file's.
"""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

from specli.convert.lazy import LazyTensor
from specli.convert.safetensors import TensorFile
from specli.errors import FormatError, UnsupportedError

DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip
"""Torch dtype to its safetensors name."""


def open_pickled(path: Path) -> tuple[TensorFile, dict[str, LazyTensor]]:
    """The tensors of one file in stored order.

    Raises:
        FormatError: The file is not a torch archive, or holds anything but named tensors.
        UnsupportedError: A tensor is stored in a layout or dtype that is not handled.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not zipfile.is_zipfile(path):
        raise FormatError(f"{path}: not a torch zip archive (truncated, or written by torch before 1.6)")
    try:
        with FakeTensorMode():
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatError(f"{path}: weights-only loading failed: {reason}") from None
    if not isinstance(state, dict):
        raise FormatError(f"{path}: holds a {type(state).__name__}, expected named tensors")
    file = TensorFile(path)
    return file, {name: _tensor(path, file, name, value) for name, value in state.items()}


def _tensor(path: Path, file: TensorFile, name: Any, value: Any) -> LazyTensor:
    import torch

    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        raise FormatError(f"{path}: entry {name!r} is a {type(value).__name__}, expected a tensor")
    dtype = DTYPES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None or not value.is_contiguous():
        raise UnsupportedError(f"{path}: tensor {name!r} is {value.dtype} with strides {value.stride()}, not handled")
    start = value.untyped_storage()._checkpoint_offset  # set by torch.load
    assert start is not None
    return file.tensor(dtype, tuple(value.shape), start + int(value.storage_offset()) * value.element_size())
