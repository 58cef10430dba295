"""The operations that models are written in, and the executors that run them.

A model is a plain Python function that issues calls of `Ops` on fixed `Buffer`s (its *trace*). No operation depends on
a Python value that changes between steps: row counts, positions, slots and token ids are read from buffers or given to
`Program.run`. So one trace can be executed call by call (`reference`), recorded once and replayed by a native library
(`cpu`).

Every operation is *batch-invariant*: what it computes for one row depends on that row's inputs only, never on how many
other rows the call has or what they hold. Greedy speculative decoding equals plain decoding bit for bit because of it.
"""

from __future__ import annotations

import enum
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from specli.gguf.quant import QuantTensor, QuantType

if TYPE_CHECKING:
    import torch

Array: TypeAlias = Any
"""Numbers where an executor keeps them: a numpy array in main memory, or a torch tensor on any device.

The native kernels work on numpy arrays, so that a run on them does without importing torch, which takes a second.
"""


def tensor_of(array: Array) -> torch.Tensor:
    """An array as a tensor that shares its memory."""
    import torch

    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)


def host(array: Array) -> npt.NDArray[Any]:
    """An array in main memory: itself, a view of a tensor that lies there, or a copy."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


class Extent(enum.IntEnum):
    """Which count says how many leading rows of a buffer are live in a run."""

    TOKENS = 0  # the tokens of this forward, T
    OUTPUTS = 1  # the rows whose logits are wanted, N
    SEQUENCES = 2  # the sequences that are drafted for, B: a row each


class Activation(enum.IntEnum):
    """How a gated feed-forward joins gate g and up u (docs/targets.md §2.5)."""

    SILU = 0  # g·σ(g) ⊙ u
    GELU = 1  # tanh form of GELU(g) ⊙ u
    SWIGLU_OAI = 2  # g' = min(g, 7), u' = clip(u, -7, 7); g'·σ(1.702·g')·(u' + 1)


class Gating(enum.IntEnum):
    """How router logits become probabilities (docs/targets.md §2.6); numbers as in `expert_gating_func`."""

    SOFTMAX = 1  # over all experts
    SIGMOID = 2
    SOFTMAX_CHOSEN = 3  # the logits themselves, and at the end a softmax over the chosen ones
    SQRT_SOFTPLUS = 4


@dataclass(frozen=True, eq=False)
class Buffer:
    """Fixed storage that operations read and write.

    Attributes:
        storage: `[capacity, width]` float32 or int32 on the executor's device. The last axis is contiguous; rows may be
            strided (a `columns` view).
        extent: Which count says how many leading rows are live.
    """

    storage: Array
    extent: Extent

    @property
    def data(self) -> torch.Tensor:
        """The storage as a tensor; shares its memory."""
        return tensor_of(self.storage)

    @property
    def capacity(self) -> int:
        """Most rows the buffer can hold."""
        return int(self.storage.shape[0])

    @property
    def width(self) -> int:
        """Elements per row."""
        return int(self.storage.shape[1])

    def rows(self, start: int, stop: int) -> Buffer:
        """The rows `start … stop-1` as a view."""
        return Buffer(self.storage[start:stop], self.extent)

    @cached_property
    def _first_column(self) -> Array:
        return self.storage[:, 0]

    def fill(self, values: int | npt.NDArray[np.int32], start: int = 0, stop: int | None = None) -> None:
        """Writes numbers from the host into the first column, from row `start` on.

        A single one goes into that row only, or into all rows up to, not including, `stop`.
        """
        column = self._first_column
        if isinstance(values, int):
            column[start : start + 1 if stop is None else stop] = values
        elif isinstance(column, np.ndarray):
            column[start : start + len(values)] = values
        else:
            column[start : start + len(values)] = tensor_of(values)

    def spread(self, value: int) -> None:
        """Writes one number into the first column of every row."""
        self._first_column[:] = value

    def read(self) -> npt.NDArray[Any]:
        """The contents on the host, `[capacity, width]`; a view where the buffer lies there."""
        return host(self.storage)

    def write(self, rows: npt.NDArray[Any]) -> None:
        """Writes the first rows from the host, `[·, width]`."""
        self.storage[: len(rows)] = rows if isinstance(self.storage, np.ndarray) else tensor_of(rows)

    def save(self, start: int, stop: int) -> Array:
        """A copy of the rows `start … stop-1`, on the buffer's device."""
        rows = self.storage[start:stop]
        return rows.copy() if isinstance(rows, np.ndarray) else rows.clone()

    def restore(self, rows: Array, start: int) -> None:
        """Writes rows that `save` returned, from row `start` on."""
        self.storage[start : start + len(rows)] = rows

    def columns(self, start: int, stop: int) -> Buffer:
        """The columns `start … stop-1` as a view with the same rows."""
        return Buffer(self.storage[:, start:stop], self.extent)

    def per_sequence(self, start: int = 0, stop: int | None = None, *, step: int = 1) -> Buffer:
        """Rows `start`, `start + step`, … before `stop` as a view with a row per sequence.

        With `step` rows for each sequence, one after the other, these are number `start` of every sequence.
        """
        return Buffer(self.storage[start:stop:step], Extent.SEQUENCES)


class Weight(Protocol):
    """A matrix (or stack of expert matrices) as an executor keeps it; opaque to models.

    Attributes:
        name: GGUF tensor name.
        type: The quant type it is stored in.
        shape: Torch order, `(n_out, n_in)` or `(n_expert, n_out, n_in)`.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def type(self) -> QuantType: ...  # noqa: D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Rotary angles of every position, with frequency factors, scaling and YaRN magnitude already applied.

    Attributes:
        cos: `[capacity, n_rot/2]` float32, m·cos(θ_k(p)).
        sin: `[capacity, n_rot/2]` float32, m·sin(θ_k(p)).
        interleaved: True pairs (2k, 2k+1) (NORM), False pairs (k, k + n_rot/2) (NEOX). Elements from n_rot on pass.
        queries: The table for queries where they get another one than keys, or None.
    """

    cos: Array
    sin: Array
    interleaved: bool
    queries: RopeTable | None = None

    @property
    def n_rot(self) -> int:
        """Rotated elements per head."""
        return 2 * int(self.cos.shape[1])


@dataclass(frozen=True, eq=False)
class KVLayer:
    """Keys and values of one attention layer. The cell index is the token's position in its slot.

    Attributes:
        k: `[n_slots, n_kv_heads, capacity, row_bytes(k)]` uint8, one row per head and cell in `type_k`.
        v: The same for values in `type_v`; `k` itself where a value is the first elements of its key (MLA).
        type_k: F32, F16, BF16, Q8_0, Q4_0, Q4_1, IQ4_NL, Q5_0 or Q5_1.
        type_v: The same choice.
        head_size_k: Elements of a key row.
        head_size_v: Elements of a value.
    """

    k: Array
    v: Array
    type_k: QuantType
    type_v: QuantType
    head_size_k: int
    head_size_v: int

    @property
    def n_kv_heads(self) -> int:
        """Key/value heads."""
        return int(self.k.shape[1])

    @property
    def capacity(self) -> int:
        """Cells per slot."""
        return int(self.k.shape[2])

    @property
    def has_values(self) -> bool:
        """Whether values are kept beside the keys, and not in them."""
        return self.v is not self.k

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        return int(self.k.nbytes + (self.v.nbytes if self.has_values else 0))


@dataclass(frozen=True, eq=False)
class AttentionSpec:
    """What is fixed about an attention operation.

    Attributes:
        n_heads: Query heads; query head h reads key/value head ⌊h / (n_heads / n_kv_heads)⌋.
        scale: Factor on q·k before the softmax.
        window: Keys with position ≤ query position - window are hidden; 0 = no window.
        sinks: `[n_heads]` float32, one extra logit per head without a value, or None.
        chunk: Keys before the query's chunk are hidden, chunks being this many positions from 0 on; 0 = no chunks. Not
            together with a window.
        softcap: c·tanh(s/c) on the scaled scores s when c > 0.
    """

    n_heads: int
    scale: float
    window: int = 0
    sinks: Array | None = None
    chunk: int = 0
    softcap: float = 0.0

    def start(self, position: int) -> int:
        """The first position that a query at `position` sees."""
        if self.chunk:
            return position - position % self.chunk
        return max(0, position - self.window + 1) if self.window else 0


@dataclass(frozen=True, eq=False)
class RecurrentLayer:
    """What a gated delta net layer remembers, per slot, in rings over positions.

    Nothing is overwritten until its ring comes round, so a sequence may be cut back by up to `n_states - 1` tokens and
    goes on from there. Before position 0 everything counts as zero.

    Attributes:
        inputs: `[n_slots, n_inputs, width]` float32; what the convolution read at position p lies at p mod n_inputs.
        states: `[n_slots, n_states, n_heads, S, S]` float32, axes (key, value); the state before position p lies at
            p mod n_states.
    """

    inputs: Array
    states: Array

    @property
    def n_inputs(self) -> int:
        """Inputs kept."""
        return int(self.inputs.shape[1])

    @property
    def n_states(self) -> int:
        """States kept: the newest, and one per token that can be taken back."""
        return int(self.states.shape[1])

    @property
    def n_heads(self) -> int:
        """Value heads."""
        return int(self.states.shape[2])

    @property
    def head_size(self) -> int:
        """Elements of a key and of a value head, S."""
        return int(self.states.shape[3])


@dataclass(frozen=True, eq=False)
class RoutingSpec:
    """How experts are chosen and weighted (docs/targets.md §2.6).

    Attributes:
        gating: Logits to probabilities.
        is_normalised: Weights are divided by their sum (at least `MIN_WEIGHT_SUM`).
        scale: Factor on the weights after that.
        n_groups: Groups of neighbouring experts; a group's score is the sum of its two best.
        n_groups_used: Groups that experts are chosen from.
        bias: `[n_expert]` float32 on the scores that choose, not on the weights; or None.
        expert_scales: `[n_expert]` float32, factor on the weight of each expert at the very end; or None.
    """

    gating: Gating
    is_normalised: bool
    scale: float = 1.0
    n_groups: int = 1
    n_groups_used: int = 1
    bias: Array | None = None
    expert_scales: Array | None = None


MIN_WEIGHT_SUM = 2.0**-14  # smallest normal half


class Ops(ABC):
    """One method per operation. `out` buffers are written; everything else is read. All float work is float32.

    Row counts: an operation runs over the live rows of its `out` buffer; inputs of the same extent use the same rows.
    """

    @abstractmethod
    def repeat(self, body: Callable[[], None]) -> None:
        """A part of the trace that runs several times in a row, as often as `Program.run` says; at most one of a trace.

        It is traced once, however often it runs. So what differs from one time to the next lies in buffers, which
        `body` moves on (`increment`) and finds its place in (`gather`, `scatter`).
        """

    @abstractmethod
    def embed(self, out: Buffer, table: Weight, ids: Buffer, *, scale: float = 1.0) -> None:
        """Row lookup: `out[t] = scale · table[ids[t]]`; `ids` is `[·, 1]` int32, inside the table."""

    @abstractmethod
    def rms_norm(self, out: Buffer, x: Buffer, weight: Array | None, *, eps: float) -> None:
        """`out = x / sqrt(mean(x²) + eps) ⊙ weight`; may be in place.

        `weight` is `[G]` float32 with G dividing the width: each run of G elements (a head) is normalised by itself.
        None: the whole row, no weight. Use `rms_norm_heads` for weightless per-head norms.
        """

    @abstractmethod
    def rms_norm_heads(self, out: Buffer, x: Buffer, *, head_size: int, eps: float) -> None:
        """Weightless RMS norm of each run of `head_size` elements; may be in place."""

    @abstractmethod
    def linear(
        self,
        outs: Sequence[Buffer],
        x: Buffer,
        weights: Sequence[Weight],
        *,
        biases: Sequence[Array | None] | None = None,
        accumulate: bool = False,
    ) -> None:
        """`outs[i] (+)= x · weights[i]ᵀ + biases[i]`; several outputs share one pass over x.

        Weights are `(n_out, n_in)` with n_in = x.width and n_out = outs[i].width. `accumulate` adds to `outs[i]`
        (the residual stream) instead of overwriting it.
        """

    @abstractmethod
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
        """`out = act(x · gateᵀ + gate_bias, x · upᵀ + up_bias)`."""

    @abstractmethod
    def linear_rows(self, out: Buffer, x: Buffer, table: Weight, ids: Buffer) -> None:
        """Products with chosen rows only: `out[t, j] += x[t] · table[ids[t, j]]`.

        `ids` is int32 of the shape of `out`, inside the table.
        """

    @abstractmethod
    def convolve(self, out: Buffer, x: Buffer, kernel: Array, weights: Buffer, *, group: int, block: int) -> None:
        """Short convolution along the rows of draft blocks, each of `block` rows, the first from row 0; not in place.

        `out[t, c] = Σ_j (kernel[j, c] + weights[t, j, ⌊c / group⌋]) · x[t - j, c]`, rows before a block's first being
        zero. `kernel` is `[K, width]` float32, `weights` `[·, K · width / group]`.
        """

    @abstractmethod
    def rope(self, x: Buffer, positions: Buffer, table: RopeTable, *, head_size: int) -> None:
        """Rotates every head of `x` in place by its row's position; `positions` is `[·, 1]` int32."""

    @abstractmethod
    def rotate(self, x: Buffer, *, block: int) -> None:
        """Multiplies each run of `block` elements by the orthonormal Walsh-Hadamard matrix of that order, in place."""

    @abstractmethod
    def store(self, layer: KVLayer, k: Buffer, v: Buffer | None, positions: Buffer, slots: Buffer) -> None:
        """Writes the rows' keys and values to cell (slot, position) in the layer's types (docs/quant-types.md §4).

        `v` is None where the layer's values lie in its keys.
        """

    @abstractmethod
    def join_heads(self, out: Buffer, a: Buffer, b: Buffer, *, n_heads: int) -> None:
        """Puts each head of `b` behind the same head of `a`: `out[t] = [a_0 | b_0 | a_1 | b_1 | …]`; not in place."""

    @abstractmethod
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
        """Softmax attention of every query row over the cells of its slot.

        A row sees cells `spec.start(position) … end - 1`. `end` is position + 1 (causal), or the row's entry
        of `ends` (`[·, 1]` int32) when given: for non-causal draft blocks and drafts over a foreign cache. Cells of
        rows in the same call count: they must have been stored before. `out` is `[·, n_heads·head_size_v]`.

        `paths` (`[·, 1 + N]` int32) is for rows of a draft tree, whose latest ancestors lie in scattered cells: the
        first number of a row is a position, and what belongs to that position and the N - 1 behind it is read from the
        cells that the other numbers name. A number that is not below `end` leaves the row as it is. Cells are summed
        over in the order of positions, so the result has the bits of the same tokens in a row.
        """

    @abstractmethod
    def add(self, out: Buffer, x: Buffer) -> None:
        """`out += x`."""

    @abstractmethod
    def add_row(self, out: Buffer, row: Array) -> None:
        """`out += row`, the same `[width]` float32 vector for every row."""

    @abstractmethod
    def multiply(self, out: Buffer, x: Buffer) -> None:
        """`out *= x`."""

    @abstractmethod
    def scale(self, out: Buffer, factor: float) -> None:
        """`out *= factor`."""

    @abstractmethod
    def sigmoid(self, out: Buffer) -> None:
        """`out = 1 / (1 + exp(-out))`."""

    @abstractmethod
    def centre(self, out: Buffer) -> None:
        """`out -= mean(out)`, the mean of each row; with an RMS norm behind it a layer norm."""

    @abstractmethod
    def gelu(self, out: Buffer) -> None:
        """The tanh form of GELU, as in `Activation.GELU` with up = 1."""

    @abstractmethod
    def softcap(self, out: Buffer, cap: float) -> None:
        """`out = cap · tanh(out / cap)`."""

    @abstractmethod
    def copy(self, out: Buffer, x: Buffer) -> None:
        """`out = x`; same width and dtype. Used for taps and concatenation into `columns` views."""

    @abstractmethod
    def gather(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        """`out[n] = x[rows[n]]`; `rows` is `[·, 1]` int32 with the extent of `out`, `x` may have another extent."""

    @abstractmethod
    def scatter(self, out: Buffer, x: Buffer, rows: Buffer) -> None:
        """`out[rows[n]] = x[n]` for the live rows of `x`; `rows` is `[·, 1]` int32 without doubles."""

    @abstractmethod
    def increment(self, out: Buffer) -> None:
        """`out += 1`, int32: positions and row numbers of the next step of a draft."""

    @abstractmethod
    def top_k(self, values: Buffer, ids: Buffer, x: Buffer) -> None:
        """The K largest entries of each row, descending, lowest id first on ties; K = `ids.width`, ids int32."""

    @abstractmethod
    def log_softmax(self, values: Buffer, x: Buffer) -> None:
        """`values -= log Σ exp(x)`, row by row; `values` begins with the largest entry of `x`, as `top_k` leaves it."""

    @abstractmethod
    def map_ids(self, out: Buffer, ids: Buffer, table: Array) -> None:
        """`out = table[ids]`, int32; `table` is `[n]` int32 (draft vocabulary → target ids)."""

    @abstractmethod
    def take(self, out: Buffer, x: Buffer, places: Buffer) -> None:
        """`out[t, j] = x[t, places[t, j]]`, all int32; `out` may be `places`."""

    @abstractmethod
    def join(self, out: Buffer, x: Buffer, activation: Activation) -> None:
        """`out = act(out, x)`: `out` is the gate, `x` the other factor."""

    @abstractmethod
    def route(self, weights: Buffer, experts: Buffer, logits: Buffer, spec: RoutingSpec) -> None:
        """Chooses each row's experts by score, best first, lowest id first on ties.

        `experts` is `[·, n_used]` int32, `weights` `[·, n_used]` float32, `logits` `[·, n_expert]`.
        """

    @abstractmethod
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
        """`gated_linear` with the matrices of each chosen expert.

        `out` is `[·, n_used·n_out]`: the results of a row's experts side by side, in the order of `experts`. `gate` and
        `up` are stacks `(n_expert, n_out, n_in)`; up None: `gate` is `(2·n_expert, n_out, n_in)`, an expert's gate
        before its up. Biases are `[n_expert, n_out]`.
        """

    @abstractmethod
    def expert_linear(
        self, out: Buffer, x: Buffer, experts: Buffer, weight: Weight, *, bias: Array | None = None
    ) -> None:
        """`linear` with the matrix of each chosen expert on its own part of the row.

        `x` is `[·, n_used·n_in]` and `out` `[·, n_used·n_out]`, side by side in the order of `experts`; `weight` is
        `(n_expert, n_out, n_in)`, `bias` `[n_expert, n_out]`.
        """

    @abstractmethod
    def weighted_sum(self, out: Buffer, x: Buffer, weights: Buffer, *, accumulate: bool = False) -> None:
        """`out (+)= Σ_i weights[i] · x[i]` with n parts of x side by side, `weights` `[·, n]`; added in that order."""

    @abstractmethod
    def causal_convolve(
        self, out: Buffer, x: Buffer, layer: RecurrentLayer, positions: Buffer, slots: Buffer, kernel: Array
    ) -> None:
        """Causal depthwise convolution over time, then SiLU: `out_t[c] = silu(Σ_j kernel[c, j] · x_{t-K+1+j}[c])`.

        `kernel` is `[width, K]` float32. Earlier inputs come from the layer, where those of these rows are written. The
        rows of a slot follow each other in order of position, in this call and from call to call.
        """

    @abstractmethod
    def decay(self, out: Buffer, rates: Array) -> None:
        """`out = exp(rates ⊙ ln(1 + e^out))`, `rates` `[width]` float32, negative: what a state keeps, 0 … 1."""

    @abstractmethod
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
        """The gated delta rule, row after row of a slot (docs/targets.md §3.8).

        Per value head, with state M `(S, S)`: `M ← decay·M; d = beta·(v - Mᵀk); M ← M + k dᵀ; out = Mᵀq`. `v` and `out`
        are `[·, n_heads·S]`, `beta` and `decay` `[·, n_heads]`; `q` and `k` have n_key_heads of S, value head j using
        number j mod n_key_heads; where `is_grouped`, number ⌊j · n_key_heads / n_heads⌋. Rows are ordered as for
        `causal_convolve`.
        """


class Program(ABC):
    """A trace made ready to run."""

    @abstractmethod
    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        """Runs the trace. Inputs lie in the buffers.

        Args:
            tokens: Live TOKENS rows.
            outputs: Live OUTPUTS rows.
            sequences: Live SEQUENCES rows.
            steps: How often the part runs that the trace gave to `Ops.repeat`.
        """


_LAZY_BYTES = 1 << 20


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeroed storage in main memory. Pages of large ones take no memory before they are written.

    A cache has room for the whole context, most of which a short run never reaches.

    Raises:
        MemoryError: There is not that much address space.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < _LAZY_BYTES:
        return np.zeros(shape, dtype)
    try:
        pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{n_bytes} bytes") from error
    return np.frombuffer(pages, dtype).reshape(shape)


class Executor(ABC):
    """Allocates what programs work on and compiles traces. One per model; owns its threads.

    Attributes:
        name: `reference`, `graph` or `cpu`.
        device: Where buffers, weights and caches live: `cpu`, `cuda:0`, ….
        shares_weights: A matrix that is taken twice is kept once.
        reads_weights: It looks at the numbers of weights.
    """

    name: str
    device: str
    shares_weights = False
    reads_weights = True

    @abstractmethod
    def weight(self, tensor: QuantTensor) -> Weight:
        """Takes a matrix in the layout this executor multiplies fastest. Loading may release the mapped pages."""

    @abstractmethod
    def compile(self, trace: Callable[[Ops], None]) -> Program:
        """Makes a program of a trace."""

    @abstractmethod
    def describe(self) -> str:
        """One line: which kernels run here and why (instruction set, thread count, or what is missing)."""

    @abstractmethod
    def array(self, values: npt.NDArray[Any]) -> Array:
        """Constants where the kernels read them."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Zeroed storage."""

    @abstractmethod
    def outline(self, tensor: QuantTensor) -> tuple[Weight, str, int]:
        """What `weight` would give, without the numbers, the device where it would lie, and the bytes it would take."""

    def packed_bytes(self, sizes: Iterable[int]) -> int:
        """What matrices of these sizes, in the order in which they are taken, occupy together."""
        return sum(sizes)

    @abstractmethod
    def program_bytes(self, trace: Callable[[Ops], None]) -> int:
        """What `compile` would take besides the buffers that the trace asks for."""

    def for_layer(self, index: int) -> Executor:
        """What allocates for a layer of the network: another executor where that layer lies on another device."""
        return self

    def home_of(self, name: str) -> str:
        """The device where a small tensor of this name lies."""
        return self.device

    @property
    def notes(self) -> list[str]:
        """What the user should know about the weights taken so far, one line each."""
        return []

    def buffer(self, rows: int, width: int, extent: Extent, dtype: npt.DTypeLike = np.float32) -> Buffer:
        """A zeroed buffer of `rows` × `width`."""
        return Buffer(self.zeros((rows, width), dtype), extent)

    def vector(self, tensor: QuantTensor) -> Array:
        """A small tensor as `[n]` float32 on the device (norm weights, biases, factors)."""
        return self.array(tensor.dequantise().reshape(-1).copy())

    def kv_layer(
        self,
        n_slots: int,
        n_kv_heads: int,
        capacity: int,
        head_size_k: int,
        head_size_v: int,
        type_k: QuantType,
        type_v: QuantType,
        *,
        has_values: bool = True,
    ) -> KVLayer:
        """An empty cache layer; without `has_values` a value is the first `head_size_v` elements of its key."""
        k = self.zeros((n_slots, n_kv_heads, capacity, type_k.row_bytes(head_size_k)), np.uint8)
        if not has_values:
            return KVLayer(k, k, type_k, type_k, head_size_k, head_size_v)
        v = self.zeros((n_slots, n_kv_heads, capacity, type_v.row_bytes(head_size_v)), np.uint8)
        return KVLayer(k, v, type_k, type_v, head_size_k, head_size_v)

    def recurrent_layer(
        self, n_slots: int, n_states: int, n_inputs: int, width: int, n_heads: int, head_size: int
    ) -> RecurrentLayer:
        """An empty memory of a delta net layer."""
        inputs = self.zeros((n_slots, n_inputs, width), np.float32)
        states = self.zeros((n_slots, n_states, n_heads, head_size, head_size), np.float32)
        return RecurrentLayer(inputs, states)

    def close(self) -> None:  # noqa: B027
        """Releases threads and native memory."""
