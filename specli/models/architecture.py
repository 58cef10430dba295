"""What a network's shape is: GGUF metadata read once into frozen records (docs/targets.md §§1.2, 1.3, 2.3, 2.4).

`ModelConfig.from_gguf` reads the keys all architectures share, with the defaults of llama.cpp
`llama_model::load_hparams`. A family refines the record with its own keys (`dataclasses.replace`), so that layers
never look at raw metadata.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation, Gating

MAX_LAYERS = 512
MAX_EXPERTS = 1024
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary angles of a layer (docs/targets.md §2.3).

    Attributes:
        n_rot: Leading elements of a head that are rotated.
        base: Frequency base.
        interleaved: Pairs (2k, 2k+1) (NORM) instead of (k, k + n_rot/2) (NEOX).
        scaling: One of `ROPE_SCALINGS`.
        factor: Positions are divided by it; 1 = no scaling.
        n_ctx_original: Context before scaling, tokens; YaRN's correction range and longrope's switch refer to it.
        attention_factor: Multiplies cos and sin.
        uses_factors: The angles are divided by the file's `rope_freqs.weight`, where it has one.
        beta_fast: Rotations within the original context from which on YaRN leaves an angle alone.
        beta_slow: Rotations below which YaRN divides the angle by the whole factor.
        temperature: What queries are multiplied by besides, or None.
    """

    n_rot: int
    base: float
    interleaved: bool = False
    scaling: str = "linear"
    factor: float = 1.0
    n_ctx_original: int = 0
    attention_factor: float = 1.0
    uses_factors: bool = True
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    temperature: Temperature | None = None


@dataclass(frozen=True)
class Temperature:
    """A factor on queries that grows with their position p: `1 + scale · ln(1 + ⌊(p + offset) / length⌋)`.

    Attributes:
        scale: Growth.
        length: Positions with the same factor.
        offset: Added to positions.
    """

    scale: float
    length: int
    offset: int = 0


@dataclass(frozen=True)
class ExpertConfig:
    """A layer's mixture of experts (docs/targets.md §2.6).

    Attributes:
        n_experts: Experts to choose from.
        n_used: Experts per token.
        n_ff: Inner width of an expert.
        gating: Router logits to probabilities.
        is_normalised: The weights of the chosen experts are divided by their sum.
        scale: Factor on the weights.
        n_groups: Groups of experts.
        n_groups_used: Groups that experts are chosen from.
        n_ff_shared: Inner width of the shared expert; 0 = there is none.
    """

    n_experts: int
    n_used: int
    n_ff: int
    gating: Gating
    is_normalised: bool
    scale: float = 1.0
    n_groups: int = 1
    n_groups_used: int = 1
    n_ff_shared: int = 0


@dataclass(frozen=True)
class DeltaConfig:
    """A gated delta net in place of attention (docs/targets.md §3.8).

    Attributes:
        n_taps: Length of the convolution, tokens.
        n_key_heads: Query and key heads, H_k.
        n_heads: Value heads, H_v.
        head_size: Elements of a head, S.
    """

    n_taps: int
    n_key_heads: int
    n_heads: int
    head_size: int

    @property
    def width(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return (2 * self.n_key_heads + self.n_heads) * self.head_size

    @property
    def n_values(self) -> int:
        """Elements of all value heads."""
        return self.n_heads * self.head_size


@dataclass(frozen=True)
class LatentConfig:
    """Multi-head latent attention: a cell holds one vector that all heads take keys and values from.

    Attributes:
        n_lora_q: Width that queries are made from; 0 = they are made from the layer's input.
        n_lora_kv: Elements of the latent vector.
        head_size_k: Elements of a query or key head before it is absorbed, the rotated ones at its end included.
        head_size_v: Elements of a value head behind the latent vector.
    """

    n_lora_q: int
    n_lora_kv: int
    head_size_k: int
    head_size_v: int


@dataclass(frozen=True)
class LayerConfig:
    """Sizes of one transformer layer.

    Attributes:
        n_heads: Query heads.
        n_kv_heads: Key/value heads; divides `n_heads`.
        head_size_k: Elements of a query or key head.
        head_size_v: Elements of a value head.
        n_ff: Feed-forward width.
        rope: Its rotary angles.
        attention_scale: Factor on q·k.
        window: Sliding window in positions, the token itself included; 0 = sees everything.
        chunk: Positions that see only each other, counted from 0; 0 = no chunks.
        is_rotated: Queries and keys are rotated; False: attention does not know positions (NoPE).
        attention_softcap: c·tanh(s/c) on the scaled scores when c > 0.
        value_scale: Factor on what attention gives.
        kv_source: The earlier layer whose keys and values it reads, having none itself; None = its own.
        experts: Its mixture of experts; None = dense.
        delta: Its delta net, instead of attention; None = attention.
        latent: Its attention is over latent vectors: a key is the latent vector and the rotated elements
            (`head_size_k`), a value the latent vector (`head_size_v`) inside the key.
    """

    n_heads: int
    n_kv_heads: int
    head_size_k: int
    head_size_v: int
    n_ff: int
    rope: RopeConfig
    attention_scale: float
    window: int = 0
    chunk: int = 0
    is_rotated: bool = True
    attention_softcap: float = 0.0
    value_scale: float = 1.0
    kv_source: int | None = None
    experts: ExpertConfig | None = None
    delta: DeltaConfig | None = None
    latent: LatentConfig | None = None


@dataclass(frozen=True)
class ModelConfig:
    """Shape and constants of a network.

    Attributes:
        architecture: `general.architecture`.
        n_vocab: Entries of the vocabulary, V.
        n_ctx_train: Trained context, tokens.
        n_embd: Hidden width, D.
        n_layers: Layers of the trunk, N; MTP layers are not counted.
        n_nextn_layers: MTP layers after the trunk.
        layers: One record per layer, MTP layers included.
        rms_eps: ε of every norm.
        activation: How feed-forwards join gate and up.
        embedding_scale: Factor on embedding rows.
        residual_scale: Factor on what attention and feed-forward add to the residual stream.
        logit_scale: Factor on the logits.
        logit_softcap: c·tanh(l/c) on the logits when c > 0.
        nextn_is_normed: The hidden state for MTP heads is taken after `output_norm` (gpt-oss: before).
        n_experts: Experts per layer, 0 = dense.
        n_layer_input: Numbers that each layer gets of a token besides the residual stream (gemma4); 0 = none.
        is_causal: A token sees only positions up to its own.
    """

    architecture: str
    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_layers: int
    n_nextn_layers: int
    layers: tuple[LayerConfig, ...]
    rms_eps: float
    activation: Activation = Activation.SILU
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    nextn_is_normed: bool = True
    n_experts: int = 0
    n_layer_input: int = 0
    is_causal: bool = True

    @classmethod
    def from_gguf(cls, file: GGUFFile, *, eps: str = "attention.layer_norm_rms_epsilon") -> ModelConfig:
        """The keys that every architecture shares.

        Args:
            file: An open GGUF file.
            eps: The key of the norms' ε, which is another one for layer norms.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
        """
        keys = Keys(file)
        n_blocks = keys.count("block_count", maximum=MAX_LAYERS)
        n_nextn = keys.integer("nextn_predict_layers", 0)
        if n_nextn > n_blocks:
            raise keys.error("nextn_predict_layers", n_nextn, f"at most block_count ({n_blocks})")
        n_embd = keys.count("embedding_length")
        n_heads = keys.per_layer("attention.head_count", n_blocks, 0)
        n_kv_heads = keys.per_layer("attention.head_count_kv", n_blocks, n_heads)
        n_ff = keys.per_layer("feed_forward_length", n_blocks, 0)
        for heads, kv_heads in zip(n_heads, n_kv_heads, strict=True):
            if heads < 1 or kv_heads < 1 or heads % kv_heads:
                raise keys.error("attention.head_count", heads, f"a multiple of head_count_kv ({kv_heads})")
        head_size = n_embd // n_heads[0]
        head_size_k = keys.count("attention.key_length", head_size)
        head_size_v = keys.count("attention.value_length", head_size)
        rope = _rope(keys, head_size_k)
        return cls(
            architecture=file.architecture,
            n_vocab=keys.n_vocab(),
            n_ctx_train=keys.count("context_length"),
            n_embd=n_embd,
            n_layers=n_blocks - n_nextn,
            n_nextn_layers=n_nextn,
            layers=tuple(
                LayerConfig(heads, kv_heads, head_size_k, head_size_v, width, rope, head_size_k**-0.5)
                for heads, kv_heads, width in zip(n_heads, n_kv_heads, n_ff, strict=True)
            ),
            rms_eps=keys.number(eps),
            n_experts=keys.integer("expert_count", 0),
            is_causal=file.metadata.get(keys.full("attention.causal"), "bool", True),
        )


class Keys:
    """The metadata of a file under its architecture's prefix, with range checks.

    Args:
        file: An open GGUF file.
    """

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self._metadata = file.metadata

    def full(self, name: str) -> str:
        """The key with its prefix, as `llama.block_count`."""
        return f"{self._file.architecture}.{name}"

    def error(self, name: str, found: object, expected: str) -> FormatError:
        """The error for a value out of range: names file, key, what was found and what was expected."""
        return FormatError(f"{self._file.path}: key {self.full(name)} is {found}, expected {expected}")

    def integer(self, name: str, default: int | None = None) -> int:
        """A u32; a default of None makes it required."""
        if default is None:
            return self._metadata.require(self.full(name), "u32")
        return self._metadata.get(self.full(name), "u32", default)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite f32, 0 or more; a default of None makes it required."""
        key = self.full(name)
        value = self._metadata.require(key, "f32") if default is None else self._metadata.get(key, "f32", default)
        if not 0 <= value < math.inf:
            raise self.error(name, value, "a finite number, 0 or more")
        return value

    def positive(self, name: str, default: float) -> float:
        """A finite f32 above 0."""
        value = self.number(name, default)
        if not value:
            raise self.error(name, value, "more than 0")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """The boolean under a key, or `default`."""
        return self._metadata.get(self.full(name), "bool", default)

    def text(self, name: str, default: str) -> str:
        """The string under a key, or `default`."""
        return self._metadata.get(self.full(name), "str", default)

    def count(self, name: str, default: int | None = None, *, maximum: int = 2**31 - 1) -> int:
        """A u32 in 1…maximum."""
        value = self.integer(name, default)
        if not 1 <= value <= maximum:
            raise self.error(name, value, f"1 to {maximum}")
        return value

    def per_layer(self, name: str, n: int, default: int | Sequence[int]) -> Sequence[int]:
        """One integer per block from a u32 or an array of exactly `n` integers or booleans."""
        key = self.full(name)
        if key not in self._metadata:
            return (default,) * n if isinstance(default, int) else default
        if not self.is_array(name):
            return (self.integer(name),) * n
        values = self._metadata.require(key, "[int]")
        if len(values) != n:
            raise self.error(name, f"an array of {len(values)}", f"{n}, one per block")
        return values

    def is_array(self, name: str) -> bool:
        """Whether the key is there and holds an array."""
        key = self.full(name)
        return key in self._metadata and self._metadata.kind(key).startswith("[")

    def sliding(self, n_blocks: int, n_layers: int, default: int) -> tuple[bool, ...]:
        """Which blocks have a sliding window (docs/targets.md §2.4).

        `attention.sliding_window_pattern` is an array used as it is, or a period n (`default` when absent) whose last
        layer sees everything; n = 0: all slide. Blocks after the trunk never do. Example: n = 3 gives yes, yes, no, ….
        """
        name = "attention.sliding_window_pattern"
        if self.is_array(name):
            flags = [bool(flag) for flag in self.per_layer(name, n_blocks, 0)]
        else:
            period = self.integer(name, default)
            flags = [period == 0 or i % period < period - 1 for i in range(n_blocks)]
        return tuple(flag and i < n_layers for i, flag in enumerate(flags))

    def experts(
        self,
        n_blocks: int,
        *,
        gating: Gating,
        is_normalised: bool,
        scale: float = 1.0,
        width: str = "expert_feed_forward_length",
        default_width: int | None = None,
        n_ff_shared: int = 0,
    ) -> tuple[ExpertConfig, ...]:
        """The mixture of experts of every block, from the keys that architectures share.

        Args:
            n_blocks: Blocks.
            gating: The family's.
            is_normalised: The family's.
            scale: The family's; 0 counts as 1, as llama.cpp has it.
            width: Key of an expert's inner width.
            default_width: Inner width without that key; None = the key is required.
            n_ff_shared: Inner width of a shared expert.
        """
        n_experts = self.count("expert_count", maximum=MAX_EXPERTS)
        used = self.per_layer("expert_used_count", n_blocks, 0)
        if default_width is None and self.full(width) not in self._metadata:
            raise self.error(width, "missing", "the inner width of an expert")
        widths = self.per_layer(width, n_blocks, default_width or 0)
        n_groups = self.integer("expert_group_count", 0) or 1
        n_groups_used = self.integer("expert_group_used_count", 0) or 1
        if n_experts % n_groups or not n_groups_used <= n_groups:
            raise self.error("expert_group_count", n_groups, f"a divisor of {n_experts}, at least {n_groups_used}")
        for n_used, n_ff in zip(used, widths, strict=True):
            if not 1 <= n_used <= n_experts // n_groups * n_groups_used:
                raise self.error("expert_used_count", n_used, f"1 to {n_experts // n_groups * n_groups_used}")
            if n_ff < 1:
                raise self.error(width, n_ff, "at least 1")
        return tuple(
            ExpertConfig(
                n_experts=n_experts,
                n_used=n_used,
                n_ff=n_ff,
                gating=gating,
                is_normalised=is_normalised,
                scale=scale or 1.0,
                n_groups=n_groups,
                n_groups_used=n_groups_used,
                n_ff_shared=n_ff_shared,
            )
            for n_used, n_ff in zip(used, widths, strict=True)
        )

    def n_vocab(self) -> int:
        """Length of the token list; a file without one must say `vocab_size`."""
        tokens = "tokenizer.ggml.tokens"
        if tokens in self._metadata:
            return self._metadata.length(tokens)
        return self.count("vocab_size")


def _rope(keys: Keys, head_size: int) -> RopeConfig:
    scaling = keys.text("rope.scaling.type", "linear")
    if scaling not in ROPE_SCALINGS:
        raise keys.error("rope.scaling.type", repr(scaling), f"one of {', '.join(ROPE_SCALINGS)}")
    n_rot = keys.count("rope.dimension_count", head_size)
    if n_rot > head_size or n_rot % 2:
        raise keys.error("rope.dimension_count", n_rot, f"even and at most the head size ({head_size})")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0))
    base = keys.positive("rope.freq_base", 10000.0)
    if scaling == "yarn" and base == 1:
        raise keys.error("rope.freq_base", base, "another base than 1 with yarn")
    return RopeConfig(
        n_rot=n_rot,
        base=base,
        scaling=scaling,
        factor=factor if factor and scaling != "none" else 1.0,
        n_ctx_original=keys.count("rope.scaling.original_context_length", keys.count("context_length")),
        attention_factor=keys.positive("rope.scaling.attn_factor", 1.0),
    )
