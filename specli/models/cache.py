"""What a model remembers of the tokens it has seen, per slot (docs/targets.md §4).

The cell of a token is its position in its slot. A forward writes cells; nothing is cleared: a cell counts only while
its position is below the slot's length, so cutting a sequence short costs nothing. Cells are moved only where the
accepted path of a draft tree was written apart, and copied for a request that begins with the prompt of another.

Recurrent layers keep a state per token, in a ring: their sequences can be cut back by as many tokens as the ring has
room for, likewise at no cost, or to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specli.errors import IncompatibleError
from specli.gguf.quant import QuantType
from specli.gguf.types import CACHE_TYPES
from specli.kernels.ops import Array, Executor, KVLayer, RecurrentLayer
from specli.models.architecture import DeltaConfig, LayerConfig

if TYPE_CHECKING:
    from specli.models.base import ModelOptions

_ROTATION = 64  # elements; order of the smallest Walsh-Hadamard matrix, and the one for values


@dataclass(frozen=True, eq=False)
class CacheLayer:
    """One layer's storage and how its rows are turned before they are quantised (docs/targets.md §4.2).

    Attributes:
        storage: Keys and values, or the states of a recurrent layer.
        rotation_k: Block size of the Hadamard rotation of queries and keys; 0 = none.
        rotation_v: The same for values and for the attention output.
    """

    storage: KVLayer | RecurrentLayer
    rotation_k: int = 0
    rotation_v: int = 0

    @property
    def kv(self) -> KVLayer:
        """Keys and values; the layer is known to have them."""
        assert isinstance(self.storage, KVLayer), "the layer has no attention"
        return self.storage

    @property
    def recurrent(self) -> RecurrentLayer:
        """States; the layer is known to have them."""
        assert isinstance(self.storage, RecurrentLayer), "the layer is not recurrent"
        return self.storage

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        if isinstance(self.storage, KVLayer):
            return self.storage.nbytes
        return int(self.storage.inputs.nbytes + self.storage.states.nbytes)


class KVCache:
    """The cache layers of one network.

    Args:
        executor: Allocates the storage, each layer's where its layer runs.
        layers: Sizes, one record per layer. Layers that read an earlier one's keys and values share its storage.
        n_slots: Sequences.
        capacity: Cells per slot.
        type_k: Storage of keys, one of `CACHE_TYPES`.
        type_v: Storage of values.
        max_rewind: Tokens that `truncate` can take back from recurrent layers.

    Attributes:
        layers: One `CacheLayer` per record.
        n_slots: Sequences.
        capacity: Cells per slot.
        type_labels: Names of the storage types of keys and values.

    Raises:
        IncompatibleError: A type that caches do not have, or a head that is not a whole number of quant blocks.
    """

    @classmethod
    def of(cls, executor: Executor, layers: Sequence[LayerConfig], options: ModelOptions) -> KVCache:
        """The cache of a draft network, with the slots, cells and types of its options."""
        return cls(
            executor,
            layers,
            n_slots=options.n_slots,
            capacity=options.capacity,
            type_k=options.type_k,
            type_v=options.type_v,
        )

    def __init__(
        self,
        executor: Executor,
        layers: Sequence[LayerConfig],
        *,
        n_slots: int,
        capacity: int,
        type_k: QuantType,
        type_v: QuantType,
        max_rewind: int = 0,
    ) -> None:
        for type in (type_k, type_v):
            if type not in CACHE_TYPES:
                known = ", ".join(t.label for t in CACHE_TYPES)
                raise IncompatibleError(f"cache type {type.label} does not exist, expected one of {known}")
        attention = [layer for layer in layers if layer.delta is None]
        if type_k is not type_v and any(layer.latent is not None for layer in attention):
            raise IncompatibleError(
                f"cache types {type_k.label} and {type_v.label} differ, but values lie in the keys",
                hint=f"give -ctk and -ctv the same type, such as {type_k.label}",
            )
        for layer in attention:
            for size, type in ((layer.head_size_k, type_k), (layer.head_size_v, type_v)):
                if size % type.block_size:
                    raise IncompatibleError(
                        f"cache type {type.label} needs head sizes in multiples of {type.block_size}, found {size}"
                    )
        self.n_slots = n_slots
        self.capacity = capacity
        self.layers: list[CacheLayer] = []
        for index, layer in enumerate(layers):
            here = executor.for_layer(index)
            if layer.kv_source is not None:
                self.layers.append(self.layers[layer.kv_source])
            elif layer.delta is not None:
                self.layers.append(CacheLayer(_recurrent_layer(here, layer.delta, n_slots, max_rewind)))
            else:
                kv = here.kv_layer(
                    n_slots,
                    layer.n_kv_heads,
                    capacity,
                    layer.head_size_k,
                    layer.head_size_v,
                    type_k,
                    type_v,
                    has_values=layer.latent is None,
                )
                can_turn = layer.latent is None  # llama.cpp never rotates latent vectors
                rotation_k = _rotation_k(layer, attention) if can_turn and type_k.block_size > 1 else 0
                can_turn_v = can_turn and type_v.block_size > 1 and layer.head_size_v % _ROTATION == 0
                self.layers.append(CacheLayer(kv, rotation_k, _ROTATION if can_turn_v else 0))
        self.type_labels = (type_k.label, type_v.label)
        self._lengths = [0] * n_slots
        self._max_rewind = max_rewind if len(attention) < len(layers) else capacity
        self._oldest = [0] * n_slots  # lowest position that recurrent layers can go on from, besides 0

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum({id(layer): layer.nbytes for layer in self.layers}.values())

    @property
    def max_rewind(self) -> int:
        """Most tokens that `truncate` can take back at once."""
        return self._max_rewind

    def length(self, slot: int = 0) -> int:
        """Tokens of the slot's sequence."""
        return self._lengths[slot]

    def can_truncate(self, slot: int, length: int) -> bool:
        """Whether `truncate` can cut the slot to `length`: yes, unless recurrent layers have forgotten so far back."""
        return length == 0 or length >= self._oldest[slot]

    def truncate(self, slot: int, length: int) -> None:
        """Forgets the slot's tokens from position `length` on; `can_truncate` says where that is possible."""
        assert 0 <= length <= self._lengths[slot], f"cannot cut {self._lengths[slot]} tokens to {length}"
        assert self.can_truncate(slot, length), f"states before position {self._oldest[slot]} are gone"
        self._lengths[slot] = length
        self._oldest[slot] = min(self._oldest[slot], length)

    def move(self, slot: int, source: int, target: int) -> None:
        """Copies cell `source` of the slot to cell `target`; not with recurrent layers."""
        for layer in {id(layer): layer for layer in self.layers}.values():
            for cells in (layer.kv.k, layer.kv.v) if layer.kv.has_values else (layer.kv.k,):
                cells[slot, :, target] = cells[slot, :, source]

    def copy(self, source: int, target: int, length: int) -> None:
        """Gives slot `target` the first `length` tokens of slot `source`, which can be cut to that many."""
        assert self.can_truncate(source, length), f"states before position {self._oldest[source]} are gone"
        for of, to in zip(self.arrays(source, length), self.arrays(target, length), strict=True):
            to[:] = of
        self._lengths[target], self._oldest[target] = length, min(self._oldest[source], length)

    def oldest(self, slot: int) -> int:
        """The lowest position that recurrent layers can go on from, besides 0."""
        return self._oldest[slot]

    def restored(self, slot: int, length: int, oldest: int) -> None:
        """Notes that `arrays` of the slot were filled with `length` tokens."""
        self._lengths[slot], self._oldest[slot] = length, oldest

    def arrays(self, slot: int, length: int) -> Iterator[Array]:
        """Views of all that the slot holds of its first `length` tokens: cells, and the rings of recurrent layers."""
        for layer in {id(layer): layer for layer in self.layers}.values():
            storage = layer.storage
            if isinstance(storage, KVLayer):
                yield storage.k[slot, :, :length]
                if storage.has_values:
                    yield storage.v[slot, :, :length]
            else:
                yield from (storage.inputs[slot], storage.states[slot])

    def written(self, positions: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
        """Notes that a forward wrote the cells `(slots[t], positions[t])`; positions ascend within a slot."""
        if self.n_slots == 1:
            self.extended(0, max(positions.tolist()) + 1)
            return
        for slot, last in dict(zip(slots.tolist(), positions.tolist(), strict=True)).items():
            self.extended(slot, last + 1)

    def extended(self, slot: int, end: int) -> None:
        """Notes that the slot's cells below `end` are written."""
        self._lengths[slot] = max(self._lengths[slot], end)
        self._oldest[slot] = max(self._oldest[slot], end - self._max_rewind)


def bytes_per_token(layers: Sequence[LayerConfig], type_k: QuantType, type_v: QuantType) -> int:
    """What a token takes of a cache of these layers; states of recurrent layers do not grow with tokens."""
    n_bytes = 0
    for layer in layers:
        if layer.kv_source is None and layer.delta is None:
            sizes = type_k.row_bytes(layer.head_size_k) + (0 if layer.latent else type_v.row_bytes(layer.head_size_v))
            n_bytes += layer.n_kv_heads * sizes
    return n_bytes


def _recurrent_layer(executor: Executor, delta: DeltaConfig, n_slots: int, max_rewind: int) -> RecurrentLayer:
    """Room for a state before each token that may be taken back and one after the last; for inputs likewise."""
    n_inputs = max_rewind + delta.n_taps
    return executor.recurrent_layer(
        n_slots, 1 + max_rewind, n_inputs, delta.width, n_heads=delta.n_heads, head_size=delta.head_size
    )


def _rotation_k(layer: LayerConfig, layers: Sequence[LayerConfig]) -> int:
    """The largest 64·2^j that divides the key head size; 0 when the layers of its kind differ in that size.

    Sliding and full layers have caches of their own upstream, which decide separately. Examples: 64 → 64, 96 → 0,
    192 → 64, 256 → 256.
    """
    sizes = {other.head_size_k for other in layers if bool(other.window) == bool(layer.window)}
    size = layer.head_size_k
    if len(sizes) > 1 or size % _ROTATION:
        return 0
    return size & -size
