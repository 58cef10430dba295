"""How much memory networks take: reckoned from metadata and tensor tables, before weights are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from specli.engine.config import ModelLoadConfig
from specli.engine.placement import n_blocks, placement_of
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.cpu.executor import NATIVE_TYPES
from specli.models import DRAFT_ARCHITECTURES, model_class
from specli.models.base import ModelOptions
from specli.models.config import DeltaConfig, LayerConfig, ModelConfig
from specli.models.dflash_config import DFlashConfig


@dataclass(frozen=True)
class NetworkMemory:
    """What one network, or a drafter without one, takes, in bytes.

    Attributes:
        device: Where it runs.
        weights: Device → its matrices as the kernels keep them, experts aside.
        experts: The same for stacks of experts, which are read when a row first needs them.
        per_cell: Keys and values of one token of the context.
        angles: Rotary angles of one position, which all sequences share.
        states: States of recurrent layers of one sequence, which do not grow with the context.
        buffers: What a forward works on, captured hidden states included.
        extra_cells: Cells beyond the context.
        n_slots: Sequences with a cache each.
        tables: What a drafter without a network takes from the start.
    """

    device: str
    weights: Mapping[str, int]
    experts: Mapping[str, int]
    per_cell: int
    angles: int
    states: int
    buffers: int
    extra_cells: int = 0
    n_slots: int = 1
    tables: int = 0

    @property
    def cell_bytes(self) -> int:
        """Keys and values of all sequences, and angles, of one token more of context."""
        return self.n_slots * self.per_cell + self.angles

    @classmethod
    def of_tables(cls, n_bytes: int) -> NetworkMemory:
        """A drafter without a network."""
        return cls("cpu", {}, {}, per_cell=0, angles=0, states=0, buffers=0, tables=n_bytes)

    def cache(self, n_ctx: int) -> int:
        """Keys, values, angles and states when the context is full."""
        return self.cell_bytes * (n_ctx + self.extra_cells) + self.n_slots * self.states

    def needed(self, device: str, n_ctx: int, *, with_experts: bool = True) -> int:
        """Bytes on one device."""
        weights = self.weights.get(device, 0) + (self.experts.get(device, 0) if with_experts else 0)
        return weights + (self.cache(n_ctx) + self.buffers + self.tables if device == self.device else 0)


@dataclass(frozen=True)
class Sizes:
    """How large a network's batches and drafts are.

    Attributes:
        n_slots: Sequences.
        n_tokens: Most rows of a forward.
        n_outputs: Most rows with logits.
        n_logits: Elements of such a row.
        n_states: Captured hidden states of the network's width.
        max_rewind: Tokens that recurrent layers can take back.
    """

    n_slots: int
    n_tokens: int
    n_outputs: int
    n_logits: int
    n_states: int = 0
    max_rewind: int = 0


def target_memory(
    load: ModelLoadConfig, file: GGUFFile, options: ModelOptions, *, kernels: str, device: str
) -> NetworkMemory:
    """A target, or a draft model that is a whole model.

    Args:
        load: Cache types and placement.
        file: Its file.
        options: Batches and captured states; the capacity does not count.
        kernels: Name of its executor; the reference keeps float32.
        device: Where it runs.
    """
    config = model_class(file).configure(file)
    sizes = Sizes(
        options.n_slots,
        options.max_tokens,
        options.max_outputs,
        config.n_vocab,
        len(options.taps) + options.nextn,
        options.max_rewind,
    )
    layers = config.layers[: config.n_layers]
    tensors = [tensor for name, tensor in file.tensors.items() if not _is_behind(name, config.n_layers)]
    return _network_memory(load, file, config, layers, tensors, sizes, kernels, device)


def draft_memory(
    name: str,
    load: ModelLoadConfig,
    target_file: GGUFFile,
    file: GGUFFile,
    options: ModelOptions,
    n_draft: int,
    *,
    kernels: str,
    device: str,
) -> NetworkMemory:
    """A draft network of type `name`.

    Args:
        name: Drafter type.
        load: How the network is loaded.
        target_file: The target's file.
        file: The network's, which is the target's for heads in it.
        options: The target's sizes; what a whole draft model gets besides is the room to take back a draft.
        n_draft: Tokens of a draft.
        kernels: As for a target.
        device: As for a target.
    """
    extra_cells = n_draft + 1
    if name == "draft-simple":
        plain = replace(options, taps=(), nextn=False)
        found = target_memory(load, file, plain, kernels=kernels, device=device)
        return replace(found, extra_cells=extra_cells)
    tensors: Iterable[QuantTensor] = file.tensors.values()
    if file.architecture == "dflash":
        config = DFlashConfig.from_gguf(file).network
        layers = config.layers
    elif file.architecture in DRAFT_ARCHITECTURES:
        config = ModelConfig.from_gguf(file)
        layers = config.layers if file.architecture == "eagle3" else ()  # an assistant reads the target's cache
    else:
        config = model_class(target_file).configure(file)
        layers = config.layers[config.n_layers :]
        of_trunk = [f"blk.{index}." for index in range(config.n_layers)]
        if file is target_file:
            tensors = [tensor for name, tensor in file.tensors.items() if _is_behind(name, config.n_layers)]
        else:
            tensors = [tensor for name, tensor in file.tensors.items() if not name.startswith(tuple(of_trunk))]
    mapping = file.tensors.get("d2t")
    n_logits = config.n_vocab if mapping is None else mapping.n_elements
    sizes = Sizes(options.n_slots, options.max_tokens, options.n_slots * n_draft, n_logits)
    found = _network_memory(load, file, config, layers, tensors, sizes, kernels, device)
    return replace(found, extra_cells=extra_cells)


def cell_bytes(layers: Sequence[LayerConfig], type_k: QuantType, type_v: QuantType) -> int:
    """Bytes of one token in the caches of all layers.

    Layers with a sliding window keep every token, too. Recurrent layers and those that read another one's cache keep
    none. Heads count as whole quant blocks; the cache itself refuses types that do not divide them.
    """

    def row_bytes(n: int, type: QuantType) -> int:
        return -(-n // type.block_size) * type.block_bytes

    own = [layer for layer in layers if layer.delta is None and layer.kv_source is None]
    return sum(
        layer.n_kv_heads * (row_bytes(layer.head_size_k, type_k) + row_bytes(layer.head_size_v, type_v))
        for layer in own
    )


def _network_memory(
    load: ModelLoadConfig,
    file: GGUFFile,
    config: ModelConfig,
    layers: Sequence[LayerConfig],
    tensors: Iterable[QuantTensor],
    sizes: Sizes,
    kernels: str,
    device: str,
) -> NetworkMemory:
    """Adds up layers and tensors."""
    placement = placement_of(load, n_blocks(file))
    weights: Counter[str] = Counter()
    experts: Counter[str] = Counter()
    for tensor in tensors:
        if len(tensor.shape) > 1:
            of_kind = experts if len(tensor.shape) == 3 else weights
            of_kind[placement.device_of(tensor.name, device)] += _kept_bytes(tensor, kernels)
    type_k, type_v = QuantType.from_label(load.type_k), QuantType.from_label(load.type_v)
    return NetworkMemory(
        device,
        weights,
        experts,
        cell_bytes(layers, type_k, type_v),
        4 * sum(rope.n_rot for rope in {layer.rope for layer in layers}),
        sum(_state_bytes(layer.delta, sizes.max_rewind) for layer in layers if layer.delta is not None),
        _buffer_bytes(config, layers, sizes),
        n_slots=sizes.n_slots,
    )


def _state_bytes(delta: DeltaConfig, max_rewind: int) -> int:
    """A state per token that can be taken back and one more; the inputs of the convolution likewise."""
    states = (1 + max_rewind) * delta.n_heads * delta.head_size**2
    return 4 * (states + (delta.n_taps + max_rewind) * delta.width)


def _kept_bytes(tensor: QuantTensor, kernels: str) -> int:
    """A matrix as kernels keep it; stacks stay quantised."""
    if kernels == "reference":
        return tensor.nbytes if len(tensor.shape) == 3 else 4 * tensor.n_elements
    return tensor.nbytes if tensor.type in NATIVE_TYPES else 2 * tensor.n_elements


def _buffer_bytes(config: ModelConfig, layers: Sequence[LayerConfig], sizes: Sizes) -> int:
    """Rows of a forward: residual stream and its norm, the widest layer, int8 images, logits, captured states."""

    def layer_width(layer: LayerConfig) -> int:
        width = 0
        if layer.delta is not None:
            width += 2 * layer.delta.width + 2 * layer.delta.n_values
        else:
            n_values = layer.n_kv_heads * layer.head_size_v
            width += (layer.n_heads + layer.n_kv_heads) * layer.head_size_k + n_values
            width += layer.n_heads * layer.head_size_v
        if layer.experts is not None:
            width += layer.experts.n_experts + layer.experts.n_used * (layer.experts.n_ff + config.n_embd)
        return width + layer.n_ff

    widest = max(map(layer_width, layers), default=0)
    per_token = (3 + sizes.n_states) * config.n_embd + 2 * config.n_layer_input * len(layers)
    per_token += widest + (widest + config.n_embd) // 2
    return 4 * (sizes.n_tokens * per_token + sizes.n_outputs * (sizes.n_logits + config.n_embd))


def _is_behind(name: str, n_layers: int) -> bool:
    """Whether a tensor belongs to a block behind the trunk."""
    block = re.match(r"blk\.([0-9]{1,9})\.", name)
    return block is not None and int(block[1]) >= n_layers
