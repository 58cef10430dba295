"""The native CPU executor: weights in strips, traces as programs that one call replays."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from specli.errors import ResourceError
from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.cpu.library import (
    Op,
    Pool,
    ProgramStruct,
    WeightStruct,
    chosen_set,
    native_library,
    shared_pool,
    thread_counts,
)
from specli.kernels.cpu.recorder import NativeWeight, Recorder
from specli.kernels.ops import Executor, Ops, Program, zeros
from specli.kernels.placement import Placement
from specli.kernels.threads import ThreadConfig

# Types with a strip layout; the others are dequantised to F16 when taken.
NATIVE_TYPES = frozenset(
    {
        *(QuantType.F32, QuantType.F16, QuantType.BF16),
        *(QuantType.Q4_0, QuantType.Q4_1, QuantType.Q5_0, QuantType.Q5_1, QuantType.Q8_0),
        *(QuantType.Q2_K, QuantType.Q3_K, QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K),
        *(QuantType.IQ4_NL, QuantType.IQ4_XS, QuantType.MXFP4),
    }
)
_ALIGNMENT = 64
_AREA_BYTES = 64 << 20
_LARGE_PAGE = 2 << 20


class NativeProgram(Program):
    """A recorded trace, which one native call replays."""

    def __init__(self, recorder: Recorder, kernels: int, pool: Pool, n_threads: tuple[int, int]) -> None:
        # A copy of the bytes: an array made of the structs would keep every one of them.
        self._ops = (Op * len(recorder.ops)).from_buffer_copy(b"".join(map(bytes, recorder.ops)))
        self._shared = np.empty(recorder.scratch_bytes + _ALIGNMENT, np.uint8)
        self._shared[: min(recorder.scratch_bytes, 1 << 16)] = 0  # the counters; the rest is not touched before use
        self._keep = (recorder.keep, pool)
        self._plain, self._batch = n_threads
        self._run = pool.library.program_run
        first, behind = recorder.repeated
        self._struct = ProgramStruct(self._ops, len(self._ops), first, behind, 0, _address(self._shared))
        self._before = (kernels, pool.handle, ctypes.addressof(self._struct))

    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        """Replays the operations in one native call."""
        n_threads = self._plain if tokens <= 1 and sequences <= 1 else self._batch
        self._run(*self._before, tokens, outputs, sequences, steps, n_threads)


class CpuExecutor(Executor):
    """Runs programs in the native library.

    Args:
        device: Must be the CPU.
        threads: How many threads and where; None = defaults.
        exact: float32 activations instead of int8 images: three times slower, for debugging.
        kernels: Key of an instruction set; None = that of `SPECLI_CPU`, or the best this processor has.
        placement: Which weights lie elsewhere: none can.

    Raises:
        ResourceError: The library is not there, or weights lie on another device.
        UsageError: This processor does not run these kernels.
    """

    name = "cpu"
    shares_weights = True

    def __init__(
        self,
        device: str = "cpu",
        *,
        threads: ThreadConfig | None = None,
        exact: bool = False,
        kernels: str | None = None,
        placement: Placement | None = None,
    ) -> None:
        elsewhere = placement.elsewhere("cpu") if placement else None
        if elsewhere is not None:
            raise ResourceError(f"cpu kernels read no weights on {elsewhere.device} ({elsewhere.what})")
        self.device = device
        self._converted: Counter[QuantType] = Counter()
        self._library = native_library()
        chosen = chosen_set(self._library, kernels)
        self._kernels_name, self._kernels = chosen.name, chosen.table
        config = threads or ThreadConfig()
        self._n_threads = thread_counts(config)
        self._pool = shared_pool(config, max(self._n_threads))
        self._n_threads = (min(self._n_threads[0], self._pool.n_threads), min(self._n_threads[1], self._pool.n_threads))
        self._exact = exact
        self._free = np.empty(0, np.uint8)  # what is left of the last area for weights
        self._weights: dict[int, tuple[QuantTensor, NativeWeight]] = {}  # by address, which the tensor keeps taken

    def weight(self, tensor: QuantTensor) -> NativeWeight:
        """Repacks a matrix, in parallel; a tensor taken twice (tied embeddings) is repacked once.

        Stacks of experts are not touched: the library repacks an expert's strips when a row first needs them.
        """
        if not _is_mapped(tensor.data):  # a rearranged copy, which is not kept
            return self._repack(tensor)
        address = _address(tensor.data)
        if address not in self._weights:
            self._weights[address] = (tensor, self._repack(tensor))
        return self._weights[address][1]

    def _repack(self, tensor: QuantTensor) -> NativeWeight:
        source, (struct, n_bytes) = tensor.data, self._struct(tensor)
        type = QuantType(struct.type)
        if type != tensor.type:
            self._converted[tensor.type] += 1
            source = tensor.dequantise().astype(np.float16).reshape(-1).view(np.uint8)
        storage = self._storage(n_bytes)
        struct.data = -(-_address(storage) // _ALIGNMENT) * _ALIGNMENT
        address, is_mapped = _address(source), _is_mapped(source)
        if len(tensor.shape) == 2:
            self._library.weight_repack(
                self._pool.handle, max(self._n_threads), ctypes.byref(struct), address, is_mapped
            )
            return NativeWeight(tensor.name, type, tensor.shape, struct, storage)
        is_ready = np.zeros(struct.n_experts * struct.n_strips, np.uint8)
        n_ready = np.zeros(struct.n_experts, np.int32)
        struct.is_mapped, struct.source = is_mapped, address
        struct.is_ready, struct.n_ready = _address(is_ready), _address(n_ready)
        return NativeWeight(tensor.name, type, tensor.shape, struct, storage, (source, is_ready, n_ready))

    def _struct(self, tensor: QuantTensor) -> tuple[WeightStruct, int]:
        """A matrix or stack in strips, and the bytes of these; where they lie is not filled in yet."""
        type = tensor.type if tensor.type in NATIVE_TYPES else QuantType.F16
        n_out, n_in = tensor.shape[-2:]
        n_experts = tensor.shape[0] if len(tensor.shape) == 3 else 1
        n_strips = -(-n_out // 16)
        strip_bytes = self._library.strip_bytes(type, n_in)
        struct = WeightStruct(None, strip_bytes, type, n_out, n_in, n_experts, n_strips)
        return struct, n_experts * n_strips * strip_bytes + _ALIGNMENT

    def outline(self, tensor: QuantTensor) -> tuple[NativeWeight, str, int]:
        """A weight without strips, and their bytes."""
        struct, n_bytes = self._struct(tensor)
        weight = NativeWeight(tensor.name, QuantType(struct.type), tensor.shape, struct, np.empty(0, np.uint8))
        n_flags = struct.n_experts * (struct.n_strips + 4) if len(tensor.shape) == 3 else 0
        return weight, self.device, n_bytes + n_flags

    def packed_bytes(self, sizes: Iterable[int]) -> int:
        """What matrices of these sizes take in areas (`_storage`), which end with a large page."""
        areas = [(0, 0)]  # used and left
        for size in sizes:
            used, left = areas[-1]
            if size <= left:
                areas[-1] = used + size, left - size
            else:
                areas.append((size, max(size, _AREA_BYTES) - size))
        return sum(used + min(left, -used % _LARGE_PAGE) for used, left in areas)

    def _storage(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Room for strips; matrices share areas, so that each does not waste part of a large page."""
        if n_bytes > len(self._free):
            self._free = _large_pages(max(n_bytes, _AREA_BYTES))
        storage, self._free = self._free[:n_bytes], self._free[n_bytes:]
        return storage

    def array(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values themselves: numpy arrays are what the native kernels read."""
        return values

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A zeroed numpy array."""
        return zeros(shape, dtype)

    def compile(self, trace: Callable[[Ops], None]) -> NativeProgram:
        """Records the trace; it is not called again."""
        recorder = Recorder(exact=self._exact)
        trace(recorder)
        return NativeProgram(recorder, self._kernels, self._pool, self._n_threads)

    def program_bytes(self, trace: Callable[[Ops], None]) -> int:
        """The operations, and what they work on besides buffers."""
        recorder = Recorder(exact=self._exact)
        trace(recorder)
        return len(recorder.ops) * ctypes.sizeof(Op) + recorder.n_bytes + recorder.scratch_bytes + _ALIGNMENT

    @property
    def notes(self) -> list[str]:
        """Types without a layout of their own, with the number of their matrices."""
        return [
            f"{n} matri{'ces' if n > 1 else 'x'} of type {type.label} converted to f16 (no cpu kernels for the type)"
            for type, n in self._converted.items()
        ]

    def describe(self) -> str:
        """The instruction set and the threads."""
        plain, batch = self._n_threads
        threads = f"{plain} thread{'s' if plain > 1 else ''}" + (f", {batch} for batches" if batch != plain else "")
        return f"cpu kernels ({self._kernels_name}, {threads}{', exact' if self._exact else ''})"

    def close(self) -> None:
        """Lets the weights go; the threads end with the last executor that shares them."""
        self._weights.clear()
        self._free = np.empty(0, np.uint8)


def _large_pages(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Storage that takes no memory before it is written, in large pages where the system has them.

    A step reads every weight once. Small pages make it look up a page every few lines: in a virtual machine, where
    page tables are nested, a quarter of the time of a plain step.
    """
    try:
        pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{n_bytes} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_mapped(array: object) -> bool:
    """Whether an array's memory is a file mapping, whose pages may be dropped and read again."""
    while array is not None:
        if isinstance(array, mmap.mmap):
            return True
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return False
