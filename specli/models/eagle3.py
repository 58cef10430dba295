"""EAGLE-3: one layer that reads a token beside fused hidden states of the target (docs/draft-networks.md §2).

llama.cpp `src/models/eagle3.cpp`. The pair of token t_{P+1} and state g_P has cell P and predicts t_{P+2}. The state
for the next step is the residual stream before the last norm.

Beyond llama.cpp, as trainers publish it (docs/checkpoints.md §4): any number of taps, a norm for each of them, query
and key norms, a sliding window, and the normed state for the next step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Executor, Ops, Weight
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model, ModelOptions
from specli.models.cache import KVCache
from specli.models.draft import draft_vocabulary, taps_of
from specli.models.feedback import FeedbackNetwork, Step
from specli.models.layers import Attention, FeedForward, RMSNorm, Rows
from specli.models.rope import rope_table
from specli.models.tensors import Matrix, Tensors, value_of

ARCHITECTURE = "eagle3"


@dataclass(frozen=True)
class Eagle3Config:
    """Shape and constants.

    Attributes:
        network: Widths and the one layer, of the draft network.
        taps: Boundaries of the target whose hidden states are fused, in this order.
        target_width: Elements of such a state, E_t.
        norm_before_fc: The joined states are normed before they are fused.
        fc_norm: Each of the joined states is normed by itself before they are fused.
        norm_before_residual: The residual stream starts with the normed state instead of the state.
        norm_output: The next step reads the state after the last norm.
    """

    network: ModelConfig
    taps: tuple[int, ...]
    target_width: int
    norm_before_fc: bool
    fc_norm: bool
    norm_before_residual: bool
    norm_output: bool

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Eagle3Config:
        """Reads and checks the metadata of a draft file.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
        """
        keys = Keys(file)
        network = ModelConfig.from_gguf(file)
        if network.n_layers != 1:
            raise keys.error("block_count", network.n_layers, "1")
        layer = network.layers[0]
        if layer.head_size_k != layer.head_size_v:
            raise keys.error("attention.value_length", layer.head_size_v, f"the key length ({layer.head_size_k})")
        # Rows of queries and keys are stored for adjacent pairs, whatever the target does.
        window = keys.integer("attention.sliding_window", 0)
        layer = replace(layer, rope=replace(layer.rope, interleaved=True), window=window)
        names = ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")
        return cls(
            network=replace(network, layers=(layer,)),
            taps=taps_of(file),
            target_width=keys.count("target_hidden_size"),
            **{name: file.metadata.get(keys.full(name), "bool", False) for name in names},
        )


class Eagle3Weights:
    """The tensors of a draft file.

    Args:
        file: The open file.
        config: Its shape.

    Attributes:
        tensors: The claims.
        mapping: `[V_d]` int32, the target's ids of the draft vocabulary; None = the whole vocabulary.
        n_logits: V_d.
        token_embd: The network's own embeddings; None = it reads the target's.
        output: Its own head; None = it uses the target's.

    Raises:
        FormatError: Tensors do not fit.
    """

    def __init__(self, file: GGUFFile, config: Eagle3Config) -> None:
        network, prefix = config.network, "blk.0."
        layer, width, eps, n_vocab = network.layers[0], network.n_embd, network.rms_eps, network.n_vocab
        n_joined = len(config.taps) * config.target_width
        self.tensors = tensors = Tensors(file)
        self.mapping = draft_vocabulary(file, n_vocab)
        self.n_logits = n_vocab if self.mapping is None else len(self.mapping)
        _check_head(file, self.n_logits, n_vocab)
        tensors.skip("d2t")
        self.token_embd = tensors.matrix("token_embd.weight", (n_vocab, width), "optional")
        self.output = tensors.matrix("output.weight", (self.n_logits, width), "optional")
        self.fc = tensors.matrix("fc.weight", (width, n_joined))
        self.enc_norm = RMSNorm.claim(
            tensors, "enc.output_norm.weight", n_joined, "required" if config.norm_before_fc else "no", eps=eps
        )
        self.fc_norms = [
            RMSNorm(tensors, f"fc_norm.{number}.weight", config.target_width, eps=eps)
            for number in range(len(config.taps) if config.fc_norm else 0)
        ]
        self.attn_norm = RMSNorm(tensors, f"{prefix}attn_norm.weight", width, eps=eps)
        self.attn_norm_2 = RMSNorm(tensors, f"{prefix}attn_norm_2.weight", width, eps=eps)
        self.attention = Attention(
            tensors,
            prefix,
            layer,
            width,
            eps=eps,
            n_in=2 * width,
            head_norms="optional",
            biases="no",
            output_bias="no",
        )
        self.ffn_norm = RMSNorm(tensors, f"{prefix}ffn_norm.weight", width, eps=eps)
        self.feed_forward = FeedForward(tensors, prefix, width, layer.n_ff, network.activation)
        self.output_norm = RMSNorm(tensors, "output_norm.weight", width, eps=eps)
        self.rope_factors = tensors.vector("rope_freqs.weight", layer.rope.n_rot // 2, "optional")
        tensors.check()


def _check_head(file: GGUFFile, n_logits: int, n_vocab: int) -> None:
    """Refuses a reduced head whose tokens nobody names, and names without a head (docs/faults.md C8, C13)."""
    head = file.tensors.get("output.weight")
    if head is None and n_logits != n_vocab:
        raise FormatError(
            f"{file.path}: d2t names {n_logits} of {n_vocab} tokens, but output.weight, their head, is missing"
        )
    if head is not None and head.shape[0] != n_logits:
        named = f"d2t names {n_logits}" if "d2t" in file.tensors else f"d2t is missing, the vocabulary has {n_vocab}"
        raise FormatError(f"{file.path}: output.weight has {head.shape[0]} rows, but {named}")


class Eagle3Network(FeedbackNetwork):
    """An EAGLE-3 draft network, bound to a target.

    Args:
        file: The open draft file.
        executor: Runs it.
        options: Capacity and cache types.
        target: Whose states it reads, and whose embedding and head it borrows where the file has none.
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
        self.config = config = Eagle3Config.from_gguf(file)
        self._weights = weights = Eagle3Weights(file, config)
        network = config.network
        layer = network.layers[0]
        super().__init__(
            executor,
            options,
            features=target.features["layers"],
            width=network.n_embd,
            n_draft=n_draft,
            steps=steps,
            n_logits=weights.n_logits,
            mapping=weights.mapping,
        )
        self.cache = KVCache.of(executor, network.layers, options)
        weights.tensors.load(executor)
        self._token_embd = weights.token_embd or Matrix.of(target.token_embd)
        self._output = weights.output or Matrix.of(target.output)
        factors = value_of(weights.rope_factors)
        self._rope = rope_table(layer.rope, options.capacity, executor, factors=factors)
        self._compile()

    def _trace_states(self, ops: Ops) -> None:
        weights = self._weights
        features = self._rows.scratch.buffer("features", self._features.width)
        ops.gather(features, self._features, self._feature_rows)
        if weights.enc_norm is not None:
            weights.enc_norm.trace(ops, features, features)
        width = self.config.target_width
        for number, norm in enumerate(weights.fc_norms):
            apart = features.columns(number * width, (number + 1) * width)
            norm.trace(ops, apart, apart)
        ops.linear([self._at], features, [weights.fc.value])

    def _trace_cells(self, ops: Ops) -> None:
        x = self._trace_pair(ops, self._tokens, self._before, self._rows)
        self._weights.attention.inject(ops, x, self._rows, self.cache.layers[0], self._rope)

    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        weights, rows, out = self._weights, step.rows, step.after
        x = self._trace_pair(ops, step.tokens, step.before, rows)
        if self.config.norm_before_residual:
            ops.copy(out, x.columns(out.width, x.width))  # else it is the state itself, which is there
        weights.attention.trace(ops, out, x, rows, self.cache.layers[0], self._rope, accumulate=True)
        normed = rows.scratch.buffer("normed", out.width)
        weights.ffn_norm.trace(ops, normed, out)
        weights.feed_forward.trace(ops, out, normed, rows, accumulate=True)
        weights.output_norm.trace(ops, self._last, out)
        if self.config.norm_output:
            ops.copy(out, self._last)

    def _trace_pair(self, ops: Ops, tokens: Buffer, states: Buffer, rows: Rows) -> Buffer:
        """`[T, 2E]`: embeddings and states, each normed, side by side."""
        width = states.width
        x, embedded = rows.scratch.buffer("pair", 2 * width), rows.scratch.buffer("embedded", width)
        ops.embed(embedded, self._token_embd.value, tokens)
        self._weights.attn_norm.trace(ops, x.columns(0, width), embedded)
        self._weights.attn_norm_2.trace(ops, x.columns(width, 2 * width), states)
        return x

    def _head(self, index: int) -> Weight:
        return self._output.value
