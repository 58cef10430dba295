"""Plain torch on any device, one row at a time: the definition of a correct result.

Batch invariance by construction: whatever sums or calls a transcendental function is computed for one row, on freshly
allocated (so equally aligned) storage whose shape depends on that row only. Operations that merely move elements or
round each of them once (IEEE add, subtract, multiply) run on all rows together, which cannot change a bit.

Weights are dequantised to float32 when taken; quantised caches go through `specli.gguf.quant`. A product is computed
where its matrix lies: rows of a model on another device are copied there, and the result back.
"""

# ruff: noqa: D102 - operations are documented where they are declared, in ops.py

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from specli.gguf.quant import QuantTensor, QuantType, dequantise, quantise
from specli.kernels.counting import SilentOps
from specli.kernels.ops import (
    MIN_WEIGHT_SUM,
    Activation,
    Array,
    AttentionSpec,
    Buffer,
    Executor,
    Extent,
    Gating,
    KVLayer,
    Ops,
    Program,
    RecurrentLayer,
    RopeTable,
    RoutingSpec,
    Weight,
    tensor_of,
    zeros,
)
from specli.kernels.placement import Placement
from specli.kernels.threads import ThreadConfig

_FLOAT_TYPES = {QuantType.F32: torch.float32, QuantType.F16: torch.float16, QuantType.BF16: torch.bfloat16}

_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Activation.SILU: lambda g, u: F.silu(g) * u,
    Activation.GELU: lambda g, u: F.gelu(g, approximate="tanh") * u,
    Activation.SWIGLU_OAI: lambda g, u: (
        g.clamp(max=7) * torch.sigmoid(1.702 * g.clamp(max=7)) * (u.clamp(min=-7, max=7) + 1)
    ),
}

_GATINGS: dict[Gating, Callable[[torch.Tensor], torch.Tensor]] = {
    Gating.SOFTMAX: lambda logits: torch.softmax(logits, dim=0),
    Gating.SIGMOID: torch.sigmoid,
    Gating.SOFTMAX_CHOSEN: lambda logits: logits,
    Gating.SQRT_SOFTPLUS: lambda logits: F.softplus(logits).sqrt(),
}


@dataclass(frozen=True, eq=False)
class ReferenceWeight:
    """A dequantised matrix.

    Attributes:
        name: GGUF tensor name.
        type: The quant type of the file.
        matrix: float32 of the tensor's shape.
    """

    name: str
    type: QuantType
    matrix: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Torch order."""
        return tuple(self.matrix.shape)


@dataclass(frozen=True, eq=False)
class ReferenceStack:
    """The matrices of all experts, left as they are stored; each is dequantised when it is used.

    Attributes:
        tensor: `(n_expert, n_out, n_in)`.
        device: Where the matrices are multiplied.
    """

    tensor: QuantTensor
    device: torch.device

    @property
    def name(self) -> str:
        """GGUF tensor name."""
        return self.tensor.name

    @property
    def type(self) -> QuantType:
        """The quant type of the file."""
        return self.tensor.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Torch order."""
        return self.tensor.shape

    def expert(self, index: int) -> torch.Tensor:
        """`(n_out, n_in)` float32."""
        return torch.from_numpy(self.tensor.dequantise(index, index + 1)[0]).to(self.device)


def _matrix(weight: Weight) -> torch.Tensor:
    assert isinstance(weight, ReferenceWeight), "a weight of another executor, or a stack"
    return weight.matrix


def _times(matrix: torch.Tensor, row: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Matrix times row, on the matrix's device, plus bias; on the row's device."""
    product = torch.mv(matrix, row.to(matrix.device, copy=True)).to(row.device)
    return product if bias is None else product + bias


def _expert_times(weight: Weight, expert: int, row: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """One row times one expert's matrix, plus its bias."""
    assert isinstance(weight, ReferenceStack), "a weight of another executor, or no stack"
    return _times(weight.expert(expert), row, None if bias is None else bias[expert])


def _choice_scores(probabilities: torch.Tensor, spec: RoutingSpec) -> torch.Tensor:
    """What the choice of experts goes by: biased, and -inf in groups that are out."""
    scores = probabilities if spec.bias is None else probabilities + spec.bias
    if spec.n_groups > 1:
        groups = scores.view(spec.n_groups, -1)
        group_scores = groups.topk(2, dim=1).values.sum(dim=1)
        best = torch.sort(group_scores, descending=True, stable=True).indices[: spec.n_groups_used]
        masked = torch.full_like(groups, -torch.inf)
        masked[best] = groups[best]
        scores = masked.view(-1)
    return scores


def _normalised(row: torch.Tensor, group: int, eps: float) -> torch.Tensor:
    """Each run of `group` elements divided by its root mean square (summed in float64, as llama.cpp does)."""
    runs = row.reshape(-1, group)
    factor = torch.rsqrt(runs.double().square().mean(dim=1, keepdim=True) + eps)
    return runs * factor.float()  # [n_runs, group]


def _encode(type: QuantType, rows: torch.Tensor) -> torch.Tensor:
    """`[n, head_size]` float32 to `[n, row_bytes]` uint8."""
    dtype = _FLOAT_TYPES.get(type)
    if dtype is not None:
        return rows.to(dtype).contiguous().view(torch.uint8)
    return torch.from_numpy(quantise(type, rows.cpu().numpy())).to(rows.device)


def _decode(type: QuantType, cells: torch.Tensor) -> torch.Tensor:
    """`[n_heads, n, row_bytes]` uint8 to `[n_heads, n, head_size]` float32, newly allocated."""
    dtype = _FLOAT_TYPES.get(type)
    if dtype is not None:
        return cells.view(dtype).to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    n_heads, n, row_bytes = cells.shape
    values = dequantise(type, cells.cpu().numpy().reshape(n_heads * n, row_bytes))
    return torch.from_numpy(values).view(n_heads, n, -1).to(cells.device)


class ReferenceOps(Ops):
    """The operations, executed at once.

    Attributes:
        counts: Live rows per extent of the current run.
        steps: How often it repeats what is to be repeated.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Extent, 0)
        self.steps = 0

    def repeat(self, body: Callable[[], None]) -> None:
        for _ in range(self.steps):
            body()

    def _live(self, buffer: Buffer) -> torch.Tensor:
        return buffer.data[: self.counts[buffer.extent]]

    def embed(self, out: Buffer, table: Weight, ids: Buffer, *, scale: float = 1.0) -> None:
        matrix = _matrix(table)
        self._live(out).copy_(matrix[self._live(ids)[:, 0].long().to(matrix.device)] * scale)

    def rms_norm(self, out: Buffer, x: Buffer, weight: Array | None, *, eps: float) -> None:
        group = x.width if weight is None else weight.shape[0]
        for to, row in zip(self._live(out), self._live(x), strict=True):
            runs = _normalised(row.clone(), group, eps)
            to.copy_((runs if weight is None else runs * weight).view(-1))

    def rms_norm_heads(self, out: Buffer, x: Buffer, *, head_size: int, eps: float) -> None:
        for to, row in zip(self._live(out), self._live(x), strict=True):
            to.copy_(_normalised(row.clone(), head_size, eps).view(-1))

    def linear(
        self,
        outs: Sequence[Buffer],
        x: Buffer,
        weights: Sequence[Weight],
        *,
        biases: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> None:
        for out, weight, bias in zip(outs, weights, biases or [None] * len(outs), strict=True):
            matrix = _matrix(weight)
            for to, row in zip(self._live(out), self._live(x), strict=True):
                product = _times(matrix, row, bias)
                to.copy_(to + product if accumulate else product)

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
        join = _ACTIVATIONS[activation]
        for to, row in zip(self._live(out), self._live(x), strict=True):
            to.copy_(join(_times(_matrix(gate), row, gate_bias), _times(_matrix(up), row, up_bias)))

    def linear_rows(self, out: Buffer, x: Buffer, table: Weight, ids: Buffer) -> None:
        matrix = _matrix(table)
        for to, row, chosen in zip(self._live(out), self._live(x), self._live(ids).long(), strict=True):
            to.add_(_times(matrix[chosen.to(matrix.device)], row))

    def convolve(self, out: Buffer, x: Buffer, kernel: Array, weights: Buffer, *, group: int, block: int) -> None:
        blocks = (torch.split(self._live(buffer), block) for buffer in (out, x, weights))
        for to, rows, factors in zip(*blocks, strict=True):
            n_rows, width = rows.shape
            per_group = factors.reshape(n_rows, len(kernel), width // group)
            to.zero_()
            for j in range(min(len(kernel), n_rows)):
                taps = kernel[j] + per_group[j:, j].repeat_interleave(group, dim=1)  # [n_rows - j, width]
                to[j:].add_(taps * rows[: n_rows - j])

    def rope(self, x: Buffer, positions: Buffer, table: RopeTable, *, head_size: int) -> None:
        rows = self._live(x)
        at = self._live(positions)[:, 0].long()
        cos, sin = table.cos[at, None], table.sin[at, None]  # [T, 1, n_rot/2]
        heads = rows.view(len(rows), -1, head_size)[..., : table.n_rot]  # [T, n_heads, n_rot]
        half = table.n_rot // 2
        pairs = (heads[..., 0::2], heads[..., 1::2]) if table.interleaved else (heads[..., :half], heads[..., half:])
        a, b = (part.clone() for part in pairs)
        pairs[0].copy_(a * cos - b * sin)
        pairs[1].copy_(a * sin + b * cos)

    def rotate(self, x: Buffer, *, block: int) -> None:
        rows = self._live(x)
        values = rows.clone()
        half = 1
        while half < block:  # butterflies of the fast transform, Sylvester order
            a, b = values.view(len(rows), -1, 2, half).unbind(2)
            values = torch.stack([a + b, a - b], dim=2)
            half *= 2
        rows.copy_(values.view(len(rows), -1) * block**-0.5)

    def store(self, layer: KVLayer, k: Buffer, v: Buffer | None, positions: Buffer, slots: Buffer) -> None:
        parts = [(layer.k, layer.type_k, k, layer.head_size_k)]
        if v is not None:
            parts.append((layer.v, layer.type_v, v, layer.head_size_v))
        for storage, type, rows, head_size in parts:
            at = zip(self._live(slots)[:, 0].tolist(), self._live(positions)[:, 0].tolist(), strict=True)
            for (slot, position), row in zip(at, self._live(rows), strict=True):
                tensor_of(storage)[slot, :, position] = _encode(type, row.reshape(-1, head_size))

    def join_heads(self, out: Buffer, a: Buffer, b: Buffer, *, n_heads: int) -> None:
        parts = [self._live(part) for part in (a, b)]
        joined = torch.cat([part.reshape(len(part), n_heads, -1) for part in parts], dim=2)
        self._live(out).copy_(joined.flatten(1))

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
    ) -> None:
        at = self._live(positions)[:, 0].tolist()
        until = [position + 1 for position in at] if ends is None else self._live(ends)[:, 0].tolist()
        in_slot = self._live(slots)[:, 0].tolist()
        rows = zip(self._live(out), self._live(q), in_slot, at, until, strict=True)
        for to, query, slot, position, end in rows:
            start = spec.start(position)
            keys = _decode(layer.type_k, tensor_of(layer.k)[slot, :, start:end])  # [n_kv_heads, n, head_size_k]
            values = _decode(layer.type_v, tensor_of(layer.v)[slot, :, start:end])[..., : layer.head_size_v]
            heads = query.clone().view(layer.n_kv_heads, -1, layer.head_size_k)  # [n_kv_heads, group, head_size_k]
            scores = torch.bmm(heads, keys.transpose(1, 2)) * spec.scale  # [n_kv_heads, group, n]
            if spec.softcap:
                scores = spec.softcap * torch.tanh(scores / spec.softcap)
            if spec.sinks is not None:
                scores = torch.cat([scores, spec.sinks.view(layer.n_kv_heads, -1, 1)], dim=2)
            weights = torch.softmax(scores, dim=2)[..., : end - start].contiguous()
            to.copy_(torch.bmm(weights, values).view(-1))

    def add(self, out: Buffer, x: Buffer) -> None:
        self._live(out).add_(self._live(x))

    def add_row(self, out: Buffer, row: Array) -> None:
        self._live(out).add_(row)

    def multiply(self, out: Buffer, x: Buffer) -> None:
        self._live(out).mul_(self._live(x))

    def scale(self, out: Buffer, factor: float) -> None:
        self._live(out).mul_(factor)

    def sigmoid(self, out: Buffer) -> None:
        for row in self._live(out):
            row.copy_(torch.sigmoid(row.clone()))

    def centre(self, out: Buffer) -> None:
        for row in self._live(out):
            row.sub_(row.clone().mean())

    def softcap(self, out: Buffer, cap: float) -> None:
        for row in self._live(out):
            row.copy_(cap * torch.tanh(row / cap))

    def copy(self, out: Buffer, x: Buffer) -> None:
        self._live(out).copy_(self._live(x))

    def gather(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        self._live(out).copy_(x.data[self._live(rows)[:, 0].long()])

    def scatter(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        out.data[self._live(rows)[:, 0].long()] = self._live(x)

    def increment(self, out: Buffer) -> None:
        self._live(out).add_(1)

    def top_k(self, values: Buffer, ids: Buffer, x: Buffer) -> None:
        best = torch.sort(self._live(x), dim=1, descending=True, stable=True)
        self._live(values).copy_(best.values[:, : ids.width])
        self._live(ids).copy_(best.indices[:, : ids.width])

    def log_softmax(self, values: Buffer, x: Buffer) -> None:
        for to, row in zip(self._live(values), self._live(x), strict=True):
            to.sub_(torch.logsumexp(row.clone(), dim=0))

    def map_ids(self, out: Buffer, ids: Buffer, table: Array) -> None:
        self._live(out).copy_(table[self._live(ids).long()])

    def take(self, out: Buffer, x: Buffer, places: Buffer) -> None:
        self._live(out).copy_(self._live(x).gather(1, self._live(places).long()))

    def join(self, out: Buffer, x: Buffer, activation: Activation) -> None:
        for to, row in zip(self._live(out), self._live(x), strict=True):
            to.copy_(_ACTIVATIONS[activation](to.clone(), row.clone()))

    def route(self, weights: Buffer, experts: Buffer, logits: Buffer, spec: RoutingSpec) -> None:
        for to, ids, row in zip(self._live(weights), self._live(experts), self._live(logits), strict=True):
            probabilities = _GATINGS[spec.gating](row.clone())
            scores = _choice_scores(probabilities, spec)
            chosen = torch.sort(scores, descending=True, stable=True).indices[: experts.width]
            values = probabilities[chosen]
            if spec.gating == Gating.SOFTMAX_CHOSEN:
                values = torch.softmax(values, dim=0)
            if spec.is_normalised:
                values = values / values.sum().clamp(min=MIN_WEIGHT_SUM)
            values = values * spec.scale
            if spec.expert_scales is not None:
                values = values * spec.expert_scales[chosen]
            to.copy_(values)
            ids.copy_(chosen)

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
        for to, row, chosen in zip(self._live(out), self._live(x), self._live(experts).tolist(), strict=True):
            for part, expert in zip(to.view(len(chosen), -1), chosen, strict=True):
                if up is None:
                    g, u = (_expert_times(gate, 2 * expert + i, row, None) for i in range(2))
                else:
                    g, u = _expert_times(gate, expert, row, gate_bias), _expert_times(up, expert, row, up_bias)
                part.copy_(_ACTIVATIONS[activation](g, u))

    def expert_linear(
        self, out: Buffer, x: Buffer, experts: Buffer, weight: Weight, *, bias: Array | None = None
    ) -> None:
        for to, row, chosen in zip(self._live(out), self._live(x), self._live(experts).tolist(), strict=True):
            parts = zip(to.view(len(chosen), -1), row.view(len(chosen), -1), chosen, strict=True)
            for result, part, expert in parts:
                result.copy_(_expert_times(weight, expert, part, bias))

    def weighted_sum(self, out: Buffer, x: Buffer, weights: Buffer, *, accumulate: bool = False) -> None:
        rows, factors = self._live(x), self._live(weights)
        parts = rows.view(len(rows), weights.width, -1)
        total = factors[:, :1] * parts[:, 0]
        for i in range(1, weights.width):
            total = total + factors[:, i : i + 1] * parts[:, i]
        self._live(out).copy_(self._live(out) + total if accumulate else total)

    def causal_convolve(
        self, out: Buffer, x: Buffer, layer: RecurrentLayer, positions: Buffer, slots: Buffer, kernel: Array
    ) -> None:
        length = kernel.shape[1]
        at = zip(self._live(slots)[:, 0].tolist(), self._live(positions)[:, 0].tolist(), strict=True)
        for to, row, (slot, position) in zip(self._live(out), self._live(x), at, strict=True):
            ring = tensor_of(layer.inputs)[slot]
            ring[position % layer.n_inputs] = row
            total = kernel[:, -1] * row
            for back in range(1, min(length, position + 1)):
                total = total + kernel[:, -1 - back] * ring[(position - back) % layer.n_inputs]
            to.copy_(F.silu(total))

    def decay(self, out: Buffer, rates: Array) -> None:
        for row in self._live(out):
            row.copy_(torch.exp(rates * F.softplus(row.clone())))

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
    ) -> None:
        size, n_heads = layer.head_size, layer.n_heads
        at = zip(self._live(slots)[:, 0].tolist(), self._live(positions)[:, 0].tolist(), strict=True)
        inputs = zip(*(self._live(buffer) for buffer in (out, q, k, v, beta, decay)), at, strict=True)
        for to, query, key, value, strength, kept, (slot, position) in inputs:
            ring = tensor_of(layer.states)[slot]
            before = ring[position % layer.n_states] if position else torch.zeros_like(ring[0])
            n_repeats = n_heads * size // len(key)
            keys = key.view(1, -1, size).expand(n_repeats, -1, -1).reshape(n_heads, 1, size)
            queries = query.view(1, -1, size).expand(n_repeats, -1, -1).reshape(n_heads, 1, size)
            state = before * kept.view(-1, 1, 1)  # [n_heads, S, S]
            error = value.view(n_heads, 1, size) - torch.bmm(keys, state)
            state = state + keys.transpose(1, 2) * (strength.view(-1, 1, 1) * error)
            ring[(position + 1) % layer.n_states] = state
            to.copy_(torch.bmm(queries, state).view(-1))


class ReferenceProgram(Program):
    """A trace that is called anew in every run."""

    def __init__(self, trace: Callable[[Ops], None], n_threads: int | None) -> None:
        self._trace = trace
        self._n_threads = n_threads
        self._ops = ReferenceOps()

    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        # One thread count for every row count: how a product is divided among threads may decide its last bit.
        if self._n_threads is not None and torch.get_num_threads() != self._n_threads:
            torch.set_num_threads(self._n_threads)
        self._ops.counts = {Extent.TOKENS: tokens, Extent.OUTPUTS: outputs, Extent.SEQUENCES: sequences}
        self._ops.steps = steps
        with torch.inference_mode():
            self._trace(self._ops)


class ReferenceExecutor(Executor):
    """Runs traces call by call in torch.

    Args:
        device: Any torch device.
        threads: Only `n_threads` counts, for all row counts; ≤ 0 or None leaves torch's own number.
        reason: Why this executor and not a faster one; shown by `describe`.
        placement: Which weights lie elsewhere.
    """

    name = "reference"

    def __init__(
        self,
        device: str | torch.device = "cpu",
        *,
        threads: ThreadConfig | None = None,
        reason: str = "requested",
        placement: Placement | None = None,
    ) -> None:
        self._device = torch.device(device)
        self.device = str(self._device)
        self._placement = placement or Placement()
        self._reason = reason
        n_threads = threads.n_threads if threads is not None else None
        self._n_threads = n_threads if n_threads is not None and n_threads > 0 else None

    def weight(self, tensor: QuantTensor) -> ReferenceWeight | ReferenceStack:
        device = torch.device(self._placement.device_of(tensor.name, self.device))
        if len(tensor.shape) == 3:
            return ReferenceStack(tensor, device)
        return ReferenceWeight(tensor.name, tensor.type, torch.from_numpy(tensor.dequantise()).to(device))

    def array(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> torch.Tensor:
        if self._device.type == "cpu":
            return torch.from_numpy(zeros(shape, dtype))
        return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=self._device)

    def compile(self, trace: Callable[[Ops], None]) -> ReferenceProgram:
        return ReferenceProgram(trace, self._n_threads)

    def outline(self, tensor: QuantTensor) -> tuple[ReferenceWeight | ReferenceStack, str, int]:
        device = self._placement.device_of(tensor.name, self.device)
        if len(tensor.shape) == 3:
            return ReferenceStack(tensor, torch.device(device)), device, tensor.nbytes
        matrix = torch.empty(tensor.shape, device="meta")
        return ReferenceWeight(tensor.name, tensor.type, matrix), device, matrix.nbytes

    def program_bytes(self, trace: Callable[[Ops], None]) -> int:
        trace(SilentOps())
        return 0

    def describe(self) -> str:
        n_threads = self._n_threads or torch.get_num_threads()
        where = f"torch {torch.__version__}, {self.device}, {n_threads} thread{'s' if n_threads > 1 else ''}"
        return f"reference kernels ({where}): {self._reason}"
