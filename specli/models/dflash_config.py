"""What a `dflash` file says: DFlash, DFlash2 or DSpark, told apart by their tensors (docs/draft-networks.md §3.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specli.errors import FormatError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.gguf.keys import DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE
from specli.kernels.ops import Activation
from specli.models.architecture import Keys, ModelConfig
from specli.models.draft import taps_of

MARKOV_TENSOR = "markov_w1.weight"  # marks DSpark
SELECTOR_TENSOR = "selector_hidden.weight"  # marks DFlash2
CONFIDENCE_TENSOR = "conf_proj.weight"
MASK_KEY = "tokenizer.ggml.mask_token_id"

_ACTIVATIONS = {"silu": Activation.SILU, "gelu": Activation.GELU, "gelu_pytorch_tanh": Activation.GELU}


@dataclass(frozen=True)
class ConvolutionConfig:
    """Short convolutions along the draft block (DFlash2).

    Attributes:
        kernel: Slots that one output reads, K.
        group: Neighbouring channels that share input-dependent weights, G; divides the width.
    """

    kernel: int
    group: int


@dataclass(frozen=True)
class SelectorConfig:
    """The choice among candidates by their predecessor (DFlash2).

    Attributes:
        rank: Width of the codebooks, S.
        top_k: Candidates per position.
    """

    rank: int
    top_k: int


@dataclass(frozen=True)
class DFlashConfig:
    """Shape and constants of a draft network of architecture `dflash`.

    Attributes:
        network: Widths, layers with their windows and scales, activation, embedding scale, soft cap of the logits.
        taps: Boundaries of the target whose hidden states are fused, in this order.
        block_size: Slots the network was trained with, the anchor's included.
        mask_id: Token at the positions that are to be filled.
        causal: By layer, whether a position does not see later ones.
        value_scale: Factor on the attention's output; 1 = none.
        logit_scale: Factor on logits (DFlash2); 1 = none.
        first_position: First position that predicts: 0 if the anchor's does (it then predicts its successor), else 1.
        is_dspark: It has a Markov head.
        markov_rank: Width of that head's embeddings, R; 0 without.
        has_confidence: It has a confidence head, and says so.
        convolution: DFlash2's, or None.
        selector: DFlash2's, or None.
    """

    network: ModelConfig
    taps: tuple[int, ...]
    block_size: int
    mask_id: int
    causal: tuple[bool, ...]
    value_scale: float
    logit_scale: float
    first_position: int
    is_dspark: bool
    markov_rank: int
    has_confidence: bool
    convolution: ConvolutionConfig | None
    selector: SelectorConfig | None

    @property
    def max_draft(self) -> int:
        """Tokens a whole block proposes."""
        return self.block_size - self.first_position

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> DFlashConfig:
        """Reads and checks the metadata of a draft file.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
            UnsupportedError: The backbone is that of DeepSeek-V4.
        """
        keys = Keys(file)
        if keys.integer("hyper_connection.count", 0):
            raise UnsupportedError(f"{file.path}: a DSpark drafter with hyper-connections (DeepSeek-V4) is not handled")
        is_dspark = MARKOV_TENSOR in file.tensors
        convolution, selector = _dflash2(file, keys) if SELECTOR_TENSOR in file.tensors else (None, None)
        network = _network(file, keys)
        if selector is None:  # upstream ignores both keys without a selector, also where they are set
            network = replace(network, logit_softcap=0.0)
        # llama.cpp reads the key for DSpark only; other heads that predict from position 0 need it all the same.
        first_position = int(not file.metadata.get(keys.full("sample_from_anchor"), "bool", is_dspark))
        block_size = keys.count("block_size", None if is_dspark else DEFAULT_BLOCK_SIZE, maximum=MAX_BLOCK_SIZE)
        if block_size <= first_position:
            raise keys.error("block_size", block_size, f"more than {first_position}")
        mask_id = file.metadata.require(MASK_KEY, "u32")
        if mask_id >= network.n_vocab:
            raise FormatError(f"{file.path}: key {MASK_KEY} is {mask_id}, expected an id below {network.n_vocab}")
        says_confident = file.metadata.get(keys.full("has_confidence_head"), "bool", True)
        return cls(
            network=network,
            taps=taps_of(file),
            block_size=block_size,
            mask_id=mask_id,
            causal=_causal(file, keys, network.n_layers),
            value_scale=keys.number("attention.value_scale", 0.0) or 1.0,
            logit_scale=(keys.number("logit_scale", 0.0) or 1.0) if selector is not None else 1.0,
            first_position=first_position,
            is_dspark=is_dspark,
            markov_rank=file.tensors[MARKOV_TENSOR].shape[-1] if is_dspark else 0,
            has_confidence=is_dspark and says_confident and CONFIDENCE_TENSOR in file.tensors,
            convolution=convolution,
            selector=selector,
        )


def draft_limit(file: GGUFFile) -> int:
    """Most tokens of a draft.

    Raises:
        FormatError, UnsupportedError: See `DFlashConfig.from_gguf`.
    """
    return DFlashConfig.from_gguf(file).max_draft


def _network(file: GGUFFile, keys: Keys) -> ModelConfig:
    """The shared keys, with what this architecture reads differently."""
    config = ModelConfig.from_gguf(file)
    if config.n_nextn_layers:
        raise keys.error("nextn_predict_layers", config.n_nextn_layers, "0")
    activation = keys.text("hidden_activation", "silu")
    if activation not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{file.path}: unsupported DFlash hidden activation {activation!r}, expected one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    windows = _windows(file, keys, config.n_layers)
    scale = keys.number("attention.scale", 0.0)
    sections = file.metadata.get(keys.full("rope.dimension_sections"), "[int]", [])
    layers = []
    for layer, window in zip(config.layers, windows, strict=True):
        if layer.head_size_k != layer.head_size_v:
            raise keys.error("attention.value_length", layer.head_size_v, f"the key length ({layer.head_size_k})")
        # Sections belong to multimodal positions, which are all the same for text; upstream then reads no factors.
        rope = replace(layer.rope, uses_factors=not any(sections))
        layers.append(replace(layer, rope=rope, window=window, attention_scale=scale or layer.attention_scale))
    return replace(
        config,
        layers=tuple(layers),
        activation=_ACTIVATIONS[activation],
        embedding_scale=keys.number("embedding_scale", 0.0) or 1.0,
        logit_softcap=keys.number("final_logit_softcapping", 0.0),
    )


def _windows(file: GGUFFile, keys: Keys, n_layers: int) -> tuple[int, ...]:
    """The window of each layer, 0 where it sees everything."""
    window = keys.integer("attention.sliding_window", 0)
    if not window:
        return (0,) * n_layers
    name = "attention.sliding_window_pattern"
    flags = file.metadata.require(keys.full(name), "[int]")
    if len(flags) != n_layers or not any(flags):
        raise keys.error(name, flags, f"{n_layers} flags, at least one of them set")
    return tuple(window if flag else 0 for flag in flags)


def _causal(file: GGUFFile, keys: Keys, n_layers: int) -> tuple[bool, ...]:
    """Causality of each layer: the pattern that `specli convert` writes where layers differ, else one flag for all."""
    name = "attention.causal_pattern"
    if keys.full(name) in file.metadata:
        return tuple(map(bool, keys.per_layer(name, n_layers, 0)))
    return (file.metadata.get(keys.full("attention.causal"), "bool", False),) * n_layers


def _dflash2(file: GGUFFile, keys: Keys) -> tuple[ConvolutionConfig, SelectorConfig]:
    names = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    kernel, group, rank, top_k = (keys.integer(name, 0) for name in names)
    if not (kernel and group and rank and top_k):
        raise FormatError(f"{file.path}: DFlash2 model is missing conv/selector metadata ({', '.join(names)})")
    width = keys.count("embedding_length")
    if width % group:
        raise keys.error("conv_group_size", group, f"a divisor of embedding_length ({width})")
    if top_k > keys.n_vocab():
        raise keys.error("selector_top_k", top_k, f"at most the vocabulary ({keys.n_vocab()})")
    return ConvolutionConfig(kernel, group), SelectorConfig(rank, top_k)
