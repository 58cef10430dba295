"""Turns a trace into the native library's list of operations (native.h).

Operations are grouped into *steps*; threads wait for each other only between steps. A run of operations that treat
every row by itself is one step, all products of one `linear` call are another. Products with quantised weights read an
*image* of their input (int8 with a scale per 32 values); the recorder adds the operation that makes it, once per value
of a buffer.
"""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from specli.errors import UnsupportedError
from specli.gguf.quant import QuantType
from specli.kernels.cpu.library import CacheStruct, Op, View, WeightStruct, native_exports
from specli.kernels.ops import (
    MIN_WEIGHT_SUM,
    Activation,
    Array,
    AttentionSpec,
    Buffer,
    Extent,
    KVLayer,
    Ops,
    RecurrentLayer,
    RopeTable,
    RoutingSpec,
    Weight,
    host,
)

# Not row-wise: always a step of their own.
_TILED = frozenset(
    {
        "linear", "gated", "attention", "quantise_pairs", "expert_gated", "expert_linear",
        "causal_convolve", "delta_scan",
    }
)  # fmt: skip
_ALONE = _TILED | {"gather", "scatter", "convolve"}  # these read other rows than they write
_ONCE = len(Extent)  # native.h has one more: always exactly one row
_GROUP = 8  # rows per group of an image
_IMAGE_BYTES = 64  # per row and block of 32 values
_FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)


@dataclass(frozen=True, eq=False)
class NativeWeight:
    """A matrix, or a stack of matrices, in strips.

    Attributes:
        name: GGUF tensor name.
        type: The type it is multiplied in.
        shape: Torch order.
        struct: What the library reads.
        storage: The strips.
        keep: What else `struct` points to.
    """

    name: str
    type: QuantType
    shape: tuple[int, ...]
    struct: WeightStruct
    storage: npt.NDArray[np.uint8]
    keep: tuple[object, ...] = ()


@dataclass(frozen=True)
class _Region:
    """The memory of a buffer: first byte, bytes from row to row, bytes of a row, rows."""

    start: int
    stride: int
    row: int
    rows: int

    @classmethod
    def of(cls, buffer: Buffer) -> _Region:
        data = host(buffer.storage)
        assert data.dtype in (np.float32, np.int32), "buffers hold 4-byte elements"
        assert data.shape[1] == 1 or data.strides[1] == 4, "the last axis is contiguous"
        return cls(_address(data), data.strides[0], 4 * data.shape[1], data.shape[0])

    @property
    def end(self) -> int:
        return self.start + (self.rows - 1) * self.stride + self.row

    def overlaps(self, other: _Region) -> bool:
        return self.start < other.end and other.start < self.end

    def conflicts(self, other: _Region) -> bool:
        """Whether a row of one may share memory with a *different* row of the other."""
        if not self.overlaps(other):
            return False
        return self.stride != other.stride or abs(self.start - other.start) >= self.stride


@dataclass
class _Step:
    """The step being filled: where it starts and what it touches."""

    start: int
    extent: int
    closed: bool
    reads: list[_Region] = field(default_factory=list)
    writes: list[_Region] = field(default_factory=list)


class Recorder(Ops):
    """Records every call.

    Args:
        exact: Multiply float32 activations instead of images.

    Attributes:
        ops: The operations so far.
        keep: Objects whose memory the operations point to.
        scratch_bytes: What attention needs besides.
        repeated: First operation of the part that is repeated, and the one behind its last; equal if there is none.
    """

    def __init__(self, *, exact: bool) -> None:
        self.ops: list[Op] = []
        self.keep: list[object] = []
        self.scratch_bytes = 0
        self.repeated = 0, 0
        self._made: list[npt.NDArray[Any]] = []
        self._exact = exact
        self._exports = native_exports()
        self._step: _Step | None = None
        self._images: dict[_Region, npt.NDArray[np.uint8]] = {}
        self._tables: dict[_Region, npt.NDArray[np.int32]] = {}  # of choices of experts
        self._pair_images: dict[int, npt.NDArray[np.uint8]] = {}
        self._fresh: set[_Region] = set()  # regions whose image or table holds their present value

    @property
    def n_bytes(self) -> int:
        """What images of inputs, tables of experts and rearranged constants take."""
        return sum(array.nbytes for array in self._made)

    # -- recording -------------------------------------------------------------------------------------------------

    def repeat(self, body: Callable[[], None]) -> None:
        assert self.repeated == (0, 0), "one repeated part"
        start = len(self.ops)
        self._part()
        body()
        self._part()
        self.repeated = start, len(self.ops)

    def _part(self) -> None:
        """Starts a part that runs at other times than the one before: no step and no image goes across."""
        self._step = None
        self._fresh.clear()

    def _make(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Zeroed room of the program's own."""
        array = np.zeros(size, dtype)
        self.keep.append(array)
        self._made.append(array)
        return array

    def _view(self, buffer: Buffer) -> View:
        data = host(buffer.storage)
        self.keep.append(data)
        return View(_address(data), data.strides[0] // 4, data.shape[1])

    def _constant(self, array: Array | None) -> int | None:
        """The address of constants."""
        if array is None:
            return None
        data = host(array)
        assert data.flags.c_contiguous, "constants are contiguous"
        self.keep.append(data)
        return _address(data)

    def _record(
        self,
        name: str,
        extent: int,
        *,
        reads: Sequence[Buffer] = (),
        writes: Sequence[Buffer] = (),
        join: bool = False,
        **fields: Any,
    ) -> Op:
        """Appends an operation, in the current step if it may run there (`join`: it must).

        Args:
            name: As in native.h, in small letters.
            extent: Which rows it runs over.
            reads: Buffers of the same extent that it reads row by row.
            writes: Buffers that it writes.
            join: The step was opened by another product of the same call.
            fields: Fields of `Op`; sequences fill arrays.
        """
        read, written = [_Region.of(b) for b in reads], [_Region.of(b) for b in writes]
        step = self._step
        if step is None or not (join or self._may_join(step, name, extent, read, written)):
            step = self._step = _Step(len(self.ops), extent, name in _ALONE)
        step.reads += read
        step.writes += written
        op = Op(code=self._exports.number("operation", name), extent=extent)
        for key, value in fields.items():
            if isinstance(value, (list, tuple)):
                array = getattr(op, key)
                for i, item in enumerate(value):
                    array[i] = item
            else:
                setattr(op, key, value)
        self.ops.append(op)
        self.ops[step.start].step += 1
        self._fresh -= {source for source in self._fresh if any(source.overlaps(w) for w in written)}
        return op

    @staticmethod
    def _may_join(step: _Step, name: str, extent: int, reads: list[_Region], writes: list[_Region]) -> bool:
        if step.closed or name in _ALONE or step.extent != extent:
            return False
        return not (
            any(w.conflicts(r) for w in step.writes for r in reads + writes)
            or any(w.conflicts(r) for w in writes for r in step.reads)
        )

    def _image(self, x: Buffer, weights: Sequence[NativeWeight]) -> int | None:
        """The address of x's image, made now unless it is there; None when no weight reads one."""
        if self._exact or all(weight.type in _FLOAT_TYPES for weight in weights):
            return None
        source = _Region.of(x)
        image = self._images.get(source)
        if image is None:
            rows = -(-x.capacity // _GROUP) * _GROUP
            image = self._images[source] = self._make(rows * (x.width // 32) * _IMAGE_BYTES, np.uint8)
        if source not in self._fresh:
            self._record("quantise", x.extent, reads=[x], x=self._view(x), image=_address(image))
            self._fresh.add(source)
        return _address(image)

    def _weight(self, weight: Weight) -> NativeWeight:
        assert isinstance(weight, NativeWeight), "a weight of another executor"
        self.keep.append(weight)
        return weight

    def _limit(self, name: str) -> int:
        return self._exports.number("limit", name)

    def _cache(self, array: Array, type: QuantType, head_size: int) -> CacheStruct:
        if head_size > self._limit("max_head_size") or head_size % type.block_size:
            raise UnsupportedError(f"{type.label} cache with head size {head_size}: not handled by the CPU kernels")
        data = host(array)
        self.keep.append(data)
        slot, head, row, _ = data.strides
        return CacheStruct(_address(data), slot, head, row, type, head_size)

    # -- operations ------------------------------------------------------------------------------------------------

    def embed(self, out: Buffer, table: Weight, ids: Buffer, *, scale: float = 1.0) -> None:
        weight = self._weight(table)
        self._record(
            "embed", out.extent, reads=[ids], writes=[out],
            out=self._view(out), x=self._view(ids), weight=[ctypes.pointer(weight.struct)], f=[scale],
        )  # fmt: skip

    def rms_norm(self, out: Buffer, x: Buffer, weight: Array | None, *, eps: float) -> None:
        self._norm(out, x, weight, x.width if weight is None else weight.shape[0], eps)

    def rms_norm_heads(self, out: Buffer, x: Buffer, *, head_size: int, eps: float) -> None:
        self._norm(out, x, None, head_size, eps)

    def _norm(self, out: Buffer, x: Buffer, weight: Array | None, length: int, eps: float) -> None:
        assert x.width % length == 0, "runs divide the row"
        self._record(
            "rms_norm", out.extent, reads=[x], writes=[out],
            out=self._view(out), x=self._view(x), p=[self._constant(weight)], n=[length], f=[eps],
        )  # fmt: skip

    def linear(
        self,
        outs: Sequence[Buffer],
        x: Buffer,
        weights: Sequence[Weight],
        *,
        biases: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> None:
        matrices = [self._weight(weight) for weight in weights]
        image = self._image(x, matrices)
        rows = zip(outs, matrices, biases or [None] * len(outs), strict=True)
        for i, (out, matrix, bias) in enumerate(rows):
            assert matrix.shape == (out.width, x.width), f"{matrix.name} is {matrix.shape}, not {(out.width, x.width)}"
            self._record(
                "linear", out.extent, reads=[x], writes=[out], join=i > 0,
                out=self._view(out), x=self._view(x), image=image, weight=[ctypes.pointer(matrix.struct)],
                p=[self._constant(bias)], n=[accumulate],
            )  # fmt: skip

    def gated_linear(
        self,
        out: Buffer,
        x: Buffer,
        gate: Weight,
        up: Weight,
        activation: Activation,
        *,
        gate_bias: Array | None = None,
        up_bias: Array | None = None,
    ) -> None:
        pair = [self._weight(gate), self._weight(up)]
        image = self._image(x, pair)
        for matrix in pair:
            assert matrix.shape == (out.width, x.width), f"{matrix.name} is {matrix.shape}, not {(out.width, x.width)}"
        self._record(
            "gated", out.extent, reads=[x], writes=[out],
            out=self._view(out), x=self._view(x), image=image, weight=[ctypes.pointer(m.struct) for m in pair],
            p=[self._constant(gate_bias), self._constant(up_bias)], n=[activation],
        )  # fmt: skip

    def linear_rows(self, out: Buffer, x: Buffer, table: Weight, ids: Buffer) -> None:
        weight = self._weight(table)
        assert weight.shape[1] == x.width, f"{weight.name} is {weight.shape}, the rows have {x.width}"
        assert ids.width == out.width, "one product per id"
        self._record(
            "linear_rows", out.extent, reads=[x, ids, out], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(ids), weight=[ctypes.pointer(weight.struct)],
        )  # fmt: skip

    def convolve(self, out: Buffer, x: Buffer, kernel: Array, weights: Buffer, *, group: int, block: int) -> None:
        assert not _Region.of(out).overlaps(_Region.of(x)), "not in place"
        assert weights.width * group == host(kernel).size, "one weight per group and tap"
        self._record(
            "convolve", out.extent, reads=[x, weights], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(weights), p=[self._constant(kernel)],
            n=[len(kernel), group, block],
        )  # fmt: skip

    def rope(self, x: Buffer, positions: Buffer, table: RopeTable, *, head_size: int) -> None:
        self._record(
            "rope", x.extent, reads=[positions], writes=[x],
            out=self._view(x), x=self._view(positions), p=[self._constant(table.cos), self._constant(table.sin)],
            n=[head_size, table.n_rot // 2, table.interleaved],
        )  # fmt: skip

    def rotate(self, x: Buffer, *, block: int) -> None:
        self._record("rotate", x.extent, writes=[x], out=self._view(x), n=[block])

    def store(self, layer: KVLayer, k: Buffer, v: Buffer | None, positions: Buffer, slots: Buffer) -> None:
        assert (v is not None) == layer.has_values, "values exactly where the layer keeps them"
        self._record(
            "store", k.extent, reads=[k, *([v] if v else []), positions, slots],
            out=self._view(k), x=self._view(v) if v else View(), y=self._view(positions), z=self._view(slots),
            k=self._cache(layer.k, layer.type_k, layer.head_size_k),
            v=self._cache(layer.v, layer.type_v, layer.head_size_v), n=[0, layer.n_kv_heads],
        )  # fmt: skip

    def join_heads(self, out: Buffer, a: Buffer, b: Buffer, *, n_heads: int) -> None:
        assert a.width % n_heads == b.width % n_heads == 0, "whole heads"
        assert out.width == a.width + b.width, "room for both"
        self._record(
            "join_heads", out.extent, reads=[a, b], writes=[out],
            out=self._view(out), x=self._view(a), y=self._view(b), n=[n_heads],
        )  # fmt: skip

    def attention(
        self,
        out: Buffer,
        q: Buffer,
        layer: KVLayer,
        positions: Buffer,
        slots: Buffer,
        spec: AttentionSpec,
        *,
        ends: Buffer | None = None,
        paths: Buffer | None = None,
    ) -> None:
        rows = min(out.capacity, self._limit("attention_split_rows"))
        partial = -(-layer.head_size_v // 16) * 16 + 2
        n_chunks = -(-layer.capacity // self._limit("attention_chunk"))
        counters = -(-4 * rows * spec.n_heads // 64) * 64
        self.scratch_bytes = max(self.scratch_bytes, counters + 4 * rows * spec.n_heads * n_chunks * partial)
        self._record(
            "attention", out.extent, writes=[out],
            reads=[q, positions, slots, *([ends] if ends else []), *([paths] if paths else [])],
            out=self._view(out), x=self._view(q), y=self._view(positions), z=self._view(slots),
            e=self._view(ends) if ends else View(), a=self._view(paths) if paths else View(),
            p=[self._constant(spec.sinks)],
            k=self._cache(layer.k, layer.type_k, layer.head_size_k),
            v=self._cache(layer.v, layer.type_v, layer.head_size_v),
            n=[spec.n_heads, layer.n_kv_heads, -spec.chunk or spec.window, counters], f=[spec.scale, spec.softcap],
        )  # fmt: skip

    def _in_place(self, name: str, out: Buffer, x: Buffer | None = None, **fields: Any) -> None:
        more: dict[str, Any] = {} if x is None else {"x": self._view(x)}
        reads = [] if x is None else [x]
        self._record(name, out.extent, reads=reads, writes=[out], out=self._view(out), **more, **fields)

    def add(self, out: Buffer, x: Buffer) -> None:
        self._in_place("add", out, x)

    def add_row(self, out: Buffer, row: Array) -> None:
        self._in_place("add_row", out, p=[self._constant(row)])

    def multiply(self, out: Buffer, x: Buffer) -> None:
        self._in_place("multiply", out, x)

    def scale(self, out: Buffer, factor: float) -> None:
        self._in_place("scale", out, f=[factor])

    def sigmoid(self, out: Buffer) -> None:
        self._in_place("sigmoid", out)

    def centre(self, out: Buffer) -> None:
        self._in_place("centre", out)

    def gelu(self, out: Buffer) -> None:
        self._in_place("gelu", out)

    def softcap(self, out: Buffer, cap: float) -> None:
        self._in_place("softcap", out, f=[cap])

    def copy(self, out: Buffer, x: Buffer) -> None:
        assert out.width == x.width, "copies keep the width"
        self._in_place("copy", out, x)

    def gather(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        self._record(
            "gather", out.extent, reads=[rows], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(rows),
        )  # fmt: skip

    def scatter(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        self._record(
            "scatter", x.extent, reads=[x, rows], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(rows),
        )  # fmt: skip

    def increment(self, out: Buffer) -> None:
        self._in_place("increment", out)

    def top_k(self, values: Buffer, ids: Buffer, x: Buffer) -> None:
        assert ids.width == values.width <= x.width, "K is at most the width"
        self._record(
            "top_k", values.extent, reads=[x], writes=[values, ids],
            out=self._view(values), x=self._view(x), y=self._view(ids),
        )  # fmt: skip

    def log_softmax(self, values: Buffer, x: Buffer) -> None:
        self._in_place("log_softmax", values, x)

    def map_ids(self, out: Buffer, ids: Buffer, table: Array) -> None:
        self._in_place("map_ids", out, ids, p=[self._constant(table)])

    def take(self, out: Buffer, x: Buffer, places: Buffer) -> None:
        self._record(
            "take", out.extent, reads=[x, places], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(places),
        )  # fmt: skip

    def join(self, out: Buffer, x: Buffer, activation: Activation) -> None:
        self._in_place("join", out, x, n=[activation])

    def decay(self, out: Buffer, rates: Array) -> None:
        self._in_place("decay", out, p=[self._constant(rates)])

    # -- experts ---------------------------------------------------------------------------------------------------

    def route(self, weights: Buffer, experts: Buffer, logits: Buffer, spec: RoutingSpec) -> None:
        assert logits.width <= self._limit("max_experts"), "experts fit into the kernel's arrays"
        self._record(
            "route", weights.extent, reads=[logits], writes=[weights, experts],
            out=self._view(weights), x=self._view(logits), y=self._view(experts),
            p=[self._constant(spec.bias), self._constant(spec.expert_scales)],
            n=[spec.gating, spec.is_normalised, spec.n_groups, spec.n_groups_used], f=[spec.scale, MIN_WEIGHT_SUM],
        )  # fmt: skip

    def expert_gated_linear(
        self,
        out: Buffer,
        x: Buffer,
        experts: Buffer,
        gate: Weight,
        up: Weight | None,
        activation: Activation,
        *,
        gate_bias: Array | None = None,
        up_bias: Array | None = None,
    ) -> None:
        stacks = [self._weight(gate)] if up is None else [self._weight(gate), self._weight(up)]
        n_experts = stacks[0].shape[0] // (2 if up is None else 1)
        self._expert_products(
            "expert_gated", out, x, experts, stacks, n_experts, [gate_bias, up_bias], n_part=0, activation=activation
        )

    def expert_linear(
        self, out: Buffer, x: Buffer, experts: Buffer, weight: Weight, *, bias: Array | None = None
    ) -> None:
        stack = self._weight(weight)
        self._expert_products("expert_linear", out, x, experts, [stack], stack.shape[0], [bias], n_part=stack.shape[2])

    def _expert_products(
        self,
        name: str,
        out: Buffer,
        x: Buffer,
        experts: Buffer,
        stacks: Sequence[NativeWeight],
        n_experts: int,
        biases: Sequence[Array | None],
        *,
        n_part: int,
        activation: int = 0,
    ) -> None:
        """Products with chosen experts.

        Args:
            name: The operation.
            out: Results of a row's experts side by side.
            x: Inputs.
            experts: Each row's choice.
            stacks: One or two.
            n_experts: How many there are.
            biases: One per matrix of an expert.
            n_part: Inputs of each choice, side by side in x; 0 = all read the whole row.
            activation: How the two products are joined.
        """
        n_used = experts.width
        for stack in stacks:
            expected = out.width // n_used, n_part or x.width
            assert stack.shape[1:] == expected, f"{stack.name} is {stack.shape}, not {(n_experts, *expected)}"
        assert not n_part or x.width == n_used * n_part, "a part of the row for each choice"
        table = self._group(experts, n_experts)
        n_places = experts.capacity * n_used + (_GROUP - 1) * min(n_experts, experts.capacity * n_used)
        shared: dict[str, Any] = {"table": _address(table), "n_experts": n_experts}
        image = None
        if not self._exact and any(stack.type not in _FLOAT_TYPES for stack in stacks):
            image = _address(self._pair_image(n_places * (n_part or x.width) // 32 * _IMAGE_BYTES))
            self._record(
                "quantise_pairs", experts.extent, reads=[x, experts], x=self._view(x), image=image, n=[n_used, n_part],
                **shared,
            )  # fmt: skip
        self._record(
            name, experts.extent, reads=[x, experts], writes=[out],
            out=self._view(out), x=self._view(x), image=image, weight=[ctypes.pointer(s.struct) for s in stacks],
            p=[self._constant(bias) for bias in biases], n=[n_used, n_part, activation], **shared,
        )  # fmt: skip

    def _group(self, experts: Buffer, n_experts: int) -> npt.NDArray[np.int32]:
        """The table of rows sorted by expert, made now unless it is there."""
        source = _Region.of(experts)
        table = self._tables.get(source)
        if table is None:
            n_pairs = experts.capacity * experts.width
            size = 2 + 3 * n_experts + n_pairs + (_GROUP - 1) * min(n_experts, n_pairs)
            table = self._tables[source] = self._make(size, np.int32)
        if source not in self._fresh:
            self._record(
                "group", _ONCE, reads=[experts], x=self._view(experts), n=[experts.extent],
                table=_address(table), n_experts=n_experts,
            )  # fmt: skip
            self._fresh.add(source)
        return table

    def _pair_image(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Room for an image of sorted rows; used up within a call, so all calls of a size share it."""
        image = self._pair_images.get(n_bytes)
        if image is None:
            image = self._pair_images[n_bytes] = self._make(n_bytes, np.uint8)
        return image

    def weighted_sum(self, out: Buffer, x: Buffer, weights: Buffer, *, accumulate: bool = False) -> None:
        assert x.width == weights.width * out.width, "as many parts as weights"
        self._record(
            "weighted_sum", out.extent, reads=[x, weights], writes=[out],
            out=self._view(out), x=self._view(x), y=self._view(weights), n=[accumulate],
        )  # fmt: skip

    # -- layers with memory ----------------------------------------------------------------------------------------

    def causal_convolve(
        self, out: Buffer, x: Buffer, layer: RecurrentLayer, positions: Buffer, slots: Buffer, kernel: Array
    ) -> None:
        assert kernel.shape[1] <= layer.n_inputs, "the layer keeps what the kernel reads"
        inputs = host(layer.inputs)
        taps = np.ascontiguousarray(host(kernel).T)
        self._made.append(taps)
        slot, row, _ = inputs.strides
        self.keep.append(inputs)
        self._record(
            "causal_convolve", out.extent, reads=[x, positions, slots], writes=[out],
            out=self._view(out), x=self._view(x), a=self._view(positions), b=self._view(slots),
            p=[self._constant(taps)], n=[kernel.shape[1], layer.n_inputs],
            k=CacheStruct(_address(inputs), slot, 0, row, QuantType.F32, inputs.shape[2]),
        )  # fmt: skip

    def delta_scan(
        self,
        out: Buffer,
        q: Buffer,
        k: Buffer,
        v: Buffer,
        beta: Buffer,
        decay: Buffer,
        layer: RecurrentLayer,
        positions: Buffer,
        slots: Buffer,
        *,
        is_grouped: bool = False,
    ) -> None:
        size = layer.head_size
        if size % 2 or size > self._limit("max_head_size"):
            raise UnsupportedError(f"delta net with head size {size}: not handled by the CPU kernels")
        states = host(layer.states)
        slot, state, head, _, _ = states.strides
        self.keep.append(states)
        self._record(
            "delta_scan", out.extent, reads=[q, k, v, beta, decay, positions, slots], writes=[out],
            out=self._view(out), x=self._view(q), y=self._view(k), z=self._view(v), e=self._view(beta),
            c=self._view(decay), a=self._view(positions), b=self._view(slots),
            n=[layer.n_states, k.width // size, layer.n_heads * size // k.width if is_grouped else 0],
            k=CacheStruct(_address(states), slot, head, state, QuantType.F32, size),
        )  # fmt: skip


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
