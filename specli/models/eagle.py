"""EAGLE-1, EAGLE-2 and HASS: one layer that reads a token beside the target's last state.

arXiv 2401.15077 and 2406.16858, SafeAILab/EAGLE `eagle/model/cnets1.py`; the three differ in training and in how drafts
are searched, the network is the same. A state is what the target's head multiplies, so that head gives the draft's
logits. The pair of token t_{P+1} and state g_P has cell P; the layer's output is the estimate of g_{P+1}: it predicts
t_{P+2} and is the state of the next step. Nothing is normed before attention. llama.cpp has no such architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Executor, Ops, Weight
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model, ModelOptions
from specli.models.cache import KVCache
from specli.models.draft import taps_of
from specli.models.feedback import FeedbackNetwork, Step
from specli.models.layers import Attention, FeedForward, RMSNorm, Rows
from specli.models.rope import rope_table
from specli.models.tensors import Matrix, Tensors, value_of

ARCHITECTURE = "eagle"


@dataclass(frozen=True)
class EagleConfig:
    """Shape and constants.

    Attributes:
        network: Widths and the one layer, of the draft network.
        taps: The boundary behind the target's last layer, alone.
    """

    network: ModelConfig
    taps: tuple[int, ...]

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> EagleConfig:
        """Reads and checks the metadata of a draft file.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
        """
        keys, network, taps = Keys(file), ModelConfig.from_gguf(file), taps_of(file)
        if network.n_layers != 1:
            raise keys.error("block_count", network.n_layers, "1")
        if len(taps) != 1:
            raise keys.error("target_layers", list(taps), "one layer")
        layer = network.layers[0]
        layer = replace(layer, rope=replace(layer.rope, interleaved=True))  # rows are stored for adjacent pairs
        return cls(replace(network, layers=(layer,)), taps)


class EagleWeights:
    """The tensors of a draft file.

    Args:
        file: The open file.
        config: Its shape.

    Attributes:
        tensors: The claims.
        token_embd: The network's own embeddings; None = it reads the target's.

    Raises:
        FormatError: Tensors do not fit.
    """

    def __init__(self, file: GGUFFile, config: EagleConfig) -> None:
        network, prefix = config.network, "blk.0."
        layer, width, eps = network.layers[0], network.n_embd, network.rms_eps
        self.tensors = tensors = Tensors(file)
        self.token_embd = tensors.matrix("token_embd.weight", (network.n_vocab, width), "optional")
        self.fc = tensors.matrix("fc.weight", (width, 2 * width))
        self.fc_bias = tensors.vector("fc.bias", width, "optional")
        self.attention = Attention(tensors, prefix, layer, width, eps=eps)
        self.ffn_norm = RMSNorm(tensors, f"{prefix}ffn_norm.weight", width, eps=eps)
        self.feed_forward = FeedForward(tensors, prefix, width, layer.n_ff, network.activation)
        self.rope_factors = tensors.vector("rope_freqs.weight", layer.rope.n_rot // 2, "optional")
        tensors.check()


class EagleNetwork(FeedbackNetwork):
    """An EAGLE-1 draft network, bound to a target.

    Args:
        file: The open draft file.
        executor: Runs it.
        options: Capacity and cache types.
        target: Whose states it reads, and whose norm and head it borrows; its embedding where the file has none.
        n_draft: Tokens of a draft.
        steps: Also make the programs for single steps.

    Raises:
        FormatError: Metadata or tensors do not fit the architecture; found before weights are read.
    """

    cell_offset = -1  # a pair lies where its state does

    def __init__(
        self,
        file: GGUFFile,
        executor: Executor,
        options: ModelOptions,
        target: Model,
        *,
        n_draft: int,
        steps: bool = False,
    ) -> None:
        self.config = config = EagleConfig.from_gguf(file)
        self._weights = weights = EagleWeights(file, config)
        network, self._target = config.network, target
        super().__init__(
            executor,
            options,
            features=target.features["layers"],
            width=network.n_embd,
            n_draft=n_draft,
            steps=steps,
            n_logits=network.n_vocab,
        )
        self.cache = KVCache.of(executor, network.layers, options)
        weights.tensors.load(executor)
        self._token_embd = weights.token_embd or Matrix.of(target.token_embd)
        factors = value_of(weights.rope_factors)
        self._rope = rope_table(network.layers[0].rope, options.capacity, executor, factors=factors)
        self._compile()

    def _trace_states(self, ops: Ops) -> None:
        ops.gather(self._at, self._features, self._feature_rows)
        self._target.output_norm.trace(ops, self._at, self._at)

    def _trace_cells(self, ops: Ops) -> None:
        x = self._rows.scratch.buffer("stream", self._before.width)
        self._trace_input(ops, x, self._tokens, self._before, self._rows)
        self._weights.attention.inject(ops, x, self._rows, self.cache.layers[0], self._rope)

    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        weights, rows, out = self._weights, step.rows, step.after
        x, normed = (rows.scratch.buffer(name, out.width) for name in ("stream", "normed"))
        self._trace_input(ops, x, step.tokens, step.before, rows)
        ops.copy(out, x)
        weights.attention.trace(ops, out, x, rows, self.cache.layers[0], self._rope, accumulate=True)
        weights.ffn_norm.trace(ops, normed, out)
        weights.feed_forward.trace(ops, out, normed, rows, accumulate=True)
        ops.copy(self._last, out)

    def _trace_input(self, ops: Ops, out: Buffer, tokens: Buffer, states: Buffer, rows: Rows) -> None:
        """`[T, E]`: embeddings and states side by side, through `fc`."""
        width = states.width
        pair, embedded = rows.scratch.buffer("pair", 2 * width), rows.scratch.buffer("embedded", width)
        ops.embed(embedded, self._token_embd.value, tokens)
        ops.copy(pair.columns(0, width), embedded)
        ops.copy(pair.columns(width, 2 * width), states)
        ops.linear([out], pair, [self._weights.fc.value], biases=[value_of(self._weights.fc_bias)])

    def _head(self, index: int) -> Weight:
        return self._target.output
