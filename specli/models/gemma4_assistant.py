"""`gemma4-assistant`: layers with queries only, on the cache of a Gemma 4 target (docs/draft-networks.md §5.6).

llama.cpp `src/models/gemma4-assistant.cpp`. It takes the target's last state and the newest token, writes nothing, and
stays at the position of that token for a whole draft. The centroids of its vocabulary are ignored, as upstream does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation, Executor, Ops, Weight
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model, ModelOptions
from specli.models.feedback import FeedbackNetwork, Step
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.rope import rope_table
from specli.models.tensors import Tensors, value_of

ARCHITECTURE = "gemma4-assistant"


@dataclass(frozen=True)
class AssistantConfig:
    """Shape and constants.

    Attributes:
        network: Widths and layers of the assistant itself; each layer's `kv_source` is the target's layer it reads.
        target_width: Elements of the target's states, B.
    """

    network: ModelConfig
    target_width: int

    @classmethod
    def from_gguf(cls, file: GGUFFile, n_target_layers: int) -> AssistantConfig:
        """Reads and checks the metadata of a draft file for a target of so many layers.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
        """
        keys = Keys(file)
        network = ModelConfig.from_gguf(file)
        n_blocks = len(network.layers)
        if network.n_nextn_layers != n_blocks:
            raise keys.error("nextn_predict_layers", network.n_nextn_layers, f"block_count ({n_blocks})")
        if not keys.is_array("attention.sliding_window_pattern"):
            raise keys.error("attention.sliding_window_pattern", "missing or no array", "one entry per block")
        slides = keys.sliding(n_blocks, n_blocks, 0)
        window, size = keys.count("attention.sliding_window"), keys.count("attention.key_length_swa")
        base = keys.positive("rope.freq_base_swa", network.layers[0].rope.base)
        n_rot = keys.count("rope.dimension_count_swa", network.layers[0].rope.n_rot)

        def refine(layer: LayerConfig, *, is_sliding: bool) -> LayerConfig:
            layer = replace(layer, attention_scale=1.0, kv_source=n_target_layers - 1)
            if not is_sliding:
                return layer
            rope = replace(layer.rope, n_rot=n_rot, base=base, scaling="none", factor=1.0, uses_factors=False)
            return replace(
                layer, head_size_k=size, head_size_v=size, window=window, rope=rope, kv_source=n_target_layers - 2
            )

        layers = tuple(refine(layer, is_sliding=flag) for layer, flag in zip(network.layers, slides, strict=True))
        return cls(
            network=replace(network, layers=layers, activation=Activation.GELU),
            target_width=keys.count("embedding_length_out"),
        )


class AssistantWeights:
    """The tensors of a draft file.

    Args:
        file: The open file.
        config: Its shape.

    Raises:
        FormatError: Tensors do not fit.
    """

    def __init__(self, file: GGUFFile, config: AssistantConfig) -> None:
        network, width = config.network, config.network.n_embd
        self.tensors = tensors = Tensors(file)
        self.token_embd = tensors.matrix("token_embd.weight", (network.n_vocab, width))
        self.output_norm = RMSNorm(tensors, "output_norm.weight", width, eps=network.rms_eps)
        self.pre_projection = tensors.matrix("nextn.pre_projection.weight", (width, 2 * config.target_width))
        self.post_projection = tensors.matrix("nextn.post_projection.weight", (config.target_width, width))
        full = next((layer for layer in network.layers if not layer.window), None)
        n_pairs = (full or network.layers[0]).rope.n_rot // 2
        self.rope_factors = tensors.vector("rope_freqs.weight", n_pairs, "optional" if full is None else "required")
        self.layers = [_layer(tensors, network, index) for index in range(len(network.layers))]
        tensors.skip("masked_embd_")
        tensors.check()


def _layer(tensors: Tensors, config: ModelConfig, index: int) -> Layer:
    layer, width, eps, prefix = config.layers[index], config.n_embd, config.rms_eps, f"blk.{index}."

    def norm(name: str) -> RMSNorm:
        return RMSNorm(tensors, f"{prefix}{name}.weight", width, eps=eps)

    return Layer(
        attn_norm=norm("attn_norm"),
        attention=Attention(
            tensors, prefix, layer, width, eps=eps, head_norms="required", biases="no", output_bias="no"
        ),
        ffn_norm=norm("ffn_norm"),
        feed_forward=FeedForward(tensors, prefix, width, layer.n_ff, config.activation),
        post_attention_norm=norm("post_attention_norm"),
        post_ffw_norm=norm("post_ffw_norm"),
        layer_output_scale=tensors.scalar(f"{prefix}layer_output_scale.weight"),
    )


class AssistantNetwork(FeedbackNetwork):
    """A Gemma 4 assistant, bound to a target.

    Args:
        weights: The claims on its file.
        config: Its shape.
        executor: Runs it.
        options: Capacity, in tokens.
        target: Whose states, embedding and cache it reads.
        n_draft: Tokens of a draft.
        steps: Also make the programs for single steps.
    """

    has_cells = False

    def __init__(
        self,
        weights: AssistantWeights,
        config: AssistantConfig,
        executor: Executor,
        options: ModelOptions,
        target: Model,
        *,
        n_draft: int,
        steps: bool = False,
    ) -> None:
        self.config = config
        self._weights = weights
        self._target = target
        network = config.network
        super().__init__(
            executor,
            options,
            features=target.features["nextn"],
            width=config.target_width,
            n_draft=n_draft,
            steps=steps,
            n_logits=network.n_vocab,
            head_width=network.n_embd,
        )
        weights.tensors.load(executor)
        factors = value_of(weights.rope_factors)
        tables = {
            rope: rope_table(rope, options.capacity, executor, factors=factors if rope.uses_factors else None)
            for rope in {layer.rope for layer in network.layers}
        }
        self._ropes = [tables[layer.rope] for layer in network.layers]
        self._compile()

    def _trace_states(self, ops: Ops) -> None:
        ops.gather(self._at, self._features, self._feature_rows)

    def _trace_cells(self, ops: Ops) -> None:
        """Nothing: the target has written the only cells."""

    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        weights, rows, network = self._weights, step.rows, self.config.network
        width = self.config.target_width
        pair, x = rows.scratch.buffer("pair", 2 * width), rows.scratch.buffer("stream", network.n_embd)
        ops.embed(pair.columns(0, width), self._target.token_embd, step.tokens, scale=math.sqrt(width))
        ops.copy(pair.columns(width, 2 * width), step.before)
        ops.linear([x], pair, [weights.pre_projection.value])
        for layer, config, rope in zip(weights.layers, network.layers, self._ropes, strict=True):
            assert config.kv_source is not None
            layer.trace(ops, x, rows, self._target.cache.layers[config.kv_source], rope)
        weights.output_norm.trace(ops, self._last, x)
        ops.linear([step.after], self._last, [weights.post_projection.value])

    def _head(self, index: int) -> Weight:
        return self._weights.token_embd.value
