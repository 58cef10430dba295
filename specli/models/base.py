"""What all target models share: loading, buffers, the trace around the layers, one forward.

A family (`llama.py`, …) says how its configuration is read and what a layer is made of; everything else is here. The
trace is written once as operations on buffers that are allocated at construction, and compiled by the executor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specli.errors import IncompatibleError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.ops import Array, Buffer, Executor, Extent, Ops, RopeTable, Weight, host, tensor_of
from specli.models.architecture import ModelConfig, RopeConfig
from specli.models.cache import KVCache
from specli.models.layers import Layer, Norm, RMSNorm, Rows, Scratch
from specli.models.rope import rope_table
from specli.models.tensors import Need, Tensors, Vector, value_of

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ModelOptions:
    """How a model is set up; fixed for its life.

    Attributes:
        capacity: Cache cells per slot, tokens.
        n_slots: Sequences.
        type_k: Cache type of keys.
        type_v: Cache type of values.
        taps: Boundaries whose hidden state is captured: k = what enters layer k, N = what leaves the last one.
        nextn: Capture the hidden state that MTP heads read.
        max_tokens: Most tokens per forward.
        max_outputs: Most rows with logits per forward.
        max_rewind: Most tokens that recurrent layers can take back; each costs them the size of a state.
        tree_depth: Levels of a draft tree that a forward can take; 0 = drafts are chains.
        log_probabilities: A draft network that makes whole drafts gives log-probabilities of its tokens, not logits.
    """

    capacity: int
    n_slots: int = 1
    type_k: QuantType = QuantType.F16
    type_v: QuantType = QuantType.F16
    taps: tuple[int, ...] = ()
    nextn: bool = False
    max_tokens: int = 128
    max_outputs: int = 128
    max_rewind: int = 16
    tree_depth: int = 0
    log_probabilities: bool = False


@dataclass(frozen=True, eq=False)
class Stage:
    """Neighbouring layers on one device.

    Attributes:
        layers: Their numbers; none where only the head lies there.
        x: Their residual stream.
        rows: What else they work on.
    """

    layers: range
    x: Buffer
    rows: Rows


@dataclass(frozen=True, eq=False)
class ForwardOutput:
    """Results of one forward; views that the next forward overwrites, so forwards of a size share one.

    Attributes:
        outputs: `[N, V]` float32, logits of the wanted outputs.
        features: `"layers"`: `[T, n_taps·D]`, taps side by side in the order of `ModelOptions.taps`; `"nextn"`:
            `[T, D]`. Only those asked for.
    """

    outputs: Array
    features: dict[str, Buffer] = field(default_factory=dict)

    @property
    def logits(self) -> torch.Tensor:
        """The outputs as a tensor."""
        return tensor_of(self.outputs)

    def read(self) -> npt.NDArray[np.float32]:
        """The logits on the host; a view where they lie there."""
        return host(self.outputs)


class Model(ABC):
    """A target model, or a plain draft model.

    Args:
        file: The open GGUF file.
        executor: Runs it.
        options: Sizes, cache types, captured states.

    Attributes:
        config: Shape and constants.
        options: As given.
        executor: As given.
        cache: Keys and values; `forward` appends, the engine truncates.
        logits: `[·, V]` float32, one row per output of the latest forward.

    Raises:
        FormatError: Metadata or tensors do not fit the architecture; found before weights are read.
        UnsupportedError: A variant of the architecture that is not implemented.
        IncompatibleError: Taps beyond the last layer, or a cache type that the heads do not allow.
    """

    rope_factors: Need = "no"  # whether the family reads rope_freqs.weight
    output_bias: Need = "no"  # whether the head may have a bias

    def __init__(self, file: GGUFFile, executor: Executor, options: ModelOptions) -> None:
        self.options = options
        self.executor = executor
        tensors, rope_factors = self._claim(file)
        config = self.config
        for tap in options.taps:
            if not 0 <= tap <= config.n_layers:
                raise IncompatibleError(f"{file.path}: no hidden state {tap}, the model has 0 to {config.n_layers}")
        self.cache = KVCache(
            executor,
            config.layers[: config.n_layers],
            n_slots=options.n_slots,
            capacity=options.capacity,
            type_k=options.type_k,
            type_v=options.type_v,
            max_rewind=options.max_rewind,
        )
        tensors.load(executor)
        self._ropes = self._rope_tables(value_of(rope_factors))
        self._allocate()
        self._program = executor.compile(self.trace)

    @classmethod
    def check(cls, file: GGUFFile) -> None:
        """Refuses a file whose metadata or tensors do not fit the architecture; nothing is loaded.

        Raises:
            FormatError: Metadata or tensors do not fit the architecture.
            UnsupportedError: The file is a variant of the architecture that is not implemented.
        """
        model = cls.__new__(cls)
        model.options = ModelOptions(capacity=1)
        model._claim(file)

    def _claim(self, file: GGUFFile) -> tuple[Tensors, Vector | None]:
        """Reads the configuration and claims all tensors; gives the claims, and the divisors of rotary angles."""
        self.config = config = self.configure(file)
        if not config.is_causal:
            raise UnsupportedError(f"{file.path}: attention is not causal, so the model cannot generate text")
        tensors = Tensors(file)
        embedding = (config.n_vocab, config.n_embd)
        self._token_embd = tensors.matrix("token_embd.weight", embedding)
        self.claim(tensors)
        self._layers = [self.layer(config, tensors, index) for index in range(config.n_layers)]
        self._output_norm = self.last_norm(config, tensors)
        self._output = tensors.matrix("output.weight", embedding, "optional") or self._token_embd  # absent: tied
        self._output_bias = tensors.vector("output.bias", config.n_vocab, self.output_bias)
        rope_factors = self._claim_rope_factors(tensors)
        for index in range(config.n_layers, len(config.layers)):
            tensors.skip(f"blk.{index}.")  # MTP layers belong to their drafter
        tensors.check()
        return tensors, rope_factors

    @classmethod
    @abstractmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """The configuration of a file of this family."""

    @classmethod
    @abstractmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """Claims the tensors of layer `index` and puts the layer together."""

    @classmethod
    def last_norm(cls, config: ModelConfig, tensors: Tensors) -> Norm:
        """The norm before the head."""
        return RMSNorm(tensors, "output_norm.weight", config.n_embd, eps=config.rms_eps)

    @classmethod
    def nextn_layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """Claims the ordinary layer inside MTP block `index` ≥ n_layers; `specli.models.mtp` adds what is around it."""
        return cls.layer(config, tensors, index)

    def claim(self, tensors: Tensors) -> None:  # noqa: B027
        """Claims what the family has besides embedding, layers and head."""

    def trace_embedded(self, ops: Ops, tokens: Buffer, x: Buffer, rows: Rows) -> None:  # noqa: B027
        """What the family does with the embedded rows `x` of `tokens` before the first layer."""

    def trace_border(self, ops: Ops, before: Stage, after: Stage) -> None:
        """Hands the rows of one device to the next: the residual stream, and what else the family's layers read."""
        ops.copy(after.x, before.x)

    @property
    def token_embd(self) -> Weight:
        """`(V, D)`, the embedding table; draft networks may borrow it."""
        return self._token_embd.value

    @property
    def output(self) -> Weight:
        """`(V, D)`, the head; the embedding table where they are tied."""
        return self._output.value

    @property
    def output_norm(self) -> Norm:
        """The norm before the head; draft networks that read normed states borrow it."""
        return self._output_norm

    @property
    def features(self) -> dict[str, Buffer]:
        """The captured states, as in `ForwardOutput`; the same buffers in every forward, so programs may read them."""
        return self._features

    def forward(
        self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints, paths: Ints | None = None
    ) -> ForwardOutput:
        """Evaluates a flat batch of tokens and appends them to the cache.

        Args:
            tokens: `[T]` ids, 1 ≤ T ≤ max_tokens.
            positions: `[T]`, below the cache's capacity; every earlier position of the slot has been evaluated, or is
                in this batch before it.
            slots: `[T]` cache slots.
            outputs: `[N]` rows whose logits are wanted, 0 ≤ N ≤ max_outputs.
            paths: `[T, 2 + tree_depth]`, if some rows are branches of draft trees: the cell that each row is written
                to, then its row of `Ops.attention`'s `paths`. None = all are chains, their cells are their positions.

        Returns:
            Logits and captured states. Bit for bit the same for a token whatever else the batch holds.
        """
        n_outputs = len(outputs)
        self.place(tokens, positions, slots, outputs)
        if self.options.tree_depth:
            for buffer in self._paths:
                buffer.write(chain_paths(positions, self.options) if paths is None else paths)
        self._program.run(len(tokens), n_outputs)
        self.cache.written(positions if paths is None else paths[:, 0], slots)
        out = self._results.get(n_outputs)
        if out is None:
            out = self._results[n_outputs] = ForwardOutput(self.logits.storage[:n_outputs], self._features)
        return out

    def place(self, tokens: Ints, positions: Ints, slots: Ints, outputs: Ints) -> None:
        """Puts the arguments of `forward` where `trace` reads them."""
        options, n_tokens, n_outputs = self.options, len(tokens), len(outputs)
        assert 1 <= n_tokens <= options.max_tokens
        assert n_outputs <= options.max_outputs
        assert _within(tokens, self.config.n_vocab)
        assert _within(positions, options.capacity)
        assert not n_outputs or _within(outputs, n_tokens)
        self._tokens.fill(tokens)
        for stage in self._stages:
            stage.rows.positions.fill(positions)
        self._outputs.fill(outputs)
        if options.n_slots > 1:  # a single one's number is there already
            assert _within(slots, options.n_slots)
            for stage in self._stages:
                stage.rows.slots.fill(slots)

    def close(self) -> None:
        """Releases the executor's threads and native memory."""
        self.executor.close()

    def _claim_rope_factors(self, tensors: Tensors) -> Vector | None:
        ropes = [layer.rope for layer in self.config.layers]
        rope = next((rope for rope in ropes if rope.uses_factors), ropes[0])
        if rope.scaling != "longrope":
            return tensors.vector("rope_freqs.weight", rope.n_rot // 2, self.rope_factors)
        which = "long" if self.options.capacity > rope.n_ctx_original else "short"
        factors = tensors.vector(f"rope_factors_{which}.weight", rope.n_rot // 2)
        tensors.skip("rope_factors_")
        return factors

    def _rope_tables(self, factors: Array | None) -> list[RopeTable]:
        """One table per layer; layers with equal angles on one device share it."""
        found = []
        tables: dict[tuple[RopeConfig, str], RopeTable] = {}
        for index, layer in enumerate(self.config.layers):
            rope, executor = layer.rope, self.executor.for_layer(index)
            key = rope, executor.device
            if key not in tables:
                applied = factors if rope.uses_factors else None
                tables[key] = rope_table(rope, self.options.capacity, executor, factors=applied)
            found.append(tables[key])
        return found

    def _allocate(self) -> None:
        options, width = self.options, self.config.n_embd
        new = self.executor.buffer
        self._paths: list[Buffer] = []  # of each stage, where drafts can be trees
        self._tokens = self.executor.for_layer(0).buffer(options.max_tokens, 1, Extent.TOKENS, np.int32)
        self._stages = self._new_stages()
        self._outputs = new(options.max_outputs, 1, Extent.OUTPUTS, np.int32)
        self._last = new(options.max_outputs, width, Extent.OUTPUTS)  # its rows that get logits
        self.logits = new(options.max_outputs, self.config.n_vocab, Extent.OUTPUTS)
        self._features: dict[str, Buffer] = {}
        self._results: dict[int, ForwardOutput] = {}  # by number of outputs
        if options.taps:
            self._features["layers"] = new(options.max_tokens, len(options.taps) * width, Extent.TOKENS)
        if options.nextn:
            self._features["nextn"] = new(options.max_tokens, width, Extent.TOKENS)

    def _new_stages(self) -> list[Stage]:
        """A stage per run of layers on one device; the last is where the head is."""
        n_layers = self.config.n_layers
        executors = [*(self.executor.for_layer(index) for index in range(n_layers)), self.executor]
        starts = [index for index in range(n_layers + 1) if index == 0 or executors[index] is not executors[index - 1]]
        ends = [*starts[1:], n_layers]
        return [self._new_stage(executors[start], range(start, end)) for start, end in zip(starts, ends, strict=True)]

    def _new_stage(self, executor: Executor, layers: range) -> Stage:
        new, n = executor.buffer, self.options.max_tokens
        rows = Rows(
            positions=new(n, 1, Extent.TOKENS, np.int32),
            slots=new(n, 1, Extent.TOKENS, np.int32),
            scratch=Scratch(executor, n, Extent.TOKENS),
        )
        if self.options.tree_depth:
            width = 2 + self.options.tree_depth
            paths = new(n, width, Extent.TOKENS, np.int32)
            self._paths.append(paths)
            rows = replace(rows, cells=paths.columns(0, 1), paths=paths.columns(1, width))
        return Stage(layers, new(n, self.config.n_embd, Extent.TOKENS), rows)

    def trace(self, ops: Ops) -> None:
        """A forward of what `place` left, up to `logits`."""
        self._trace_stages(ops, self._tokens, self._stages, is_tapped=True)
        x = self._stages[-1].x
        nextn = self._features.get("nextn")
        if nextn is not None and self.config.nextn_is_normed:
            self._output_norm.trace(ops, nextn, x)
            ops.gather(self._last, nextn, self._outputs)
            self._trace_head(ops, self.logits, self._last)
        else:
            if nextn is not None:
                ops.copy(nextn, x)
            ops.gather(self._last, x, self._outputs)
            self.trace_logits(ops, self.logits, self._last, self._last)

    def trace_stream(self, ops: Ops, tokens: Buffer, x: Buffer, rows: Rows) -> None:
        """Makes `x`, the residual stream behind the last layer, of tokens; on rows of any extent.

        All layers are on the model's device.
        """
        self._trace_stages(ops, tokens, [Stage(range(self.config.n_layers), x, rows)], is_tapped=False)

    def _trace_stages(self, ops: Ops, tokens: Buffer, stages: list[Stage], *, is_tapped: bool) -> None:
        first, *others = stages
        ops.embed(first.x, self._token_embd.value, tokens, scale=self.config.embedding_scale)
        self.trace_embedded(ops, tokens, first.x, first.rows)
        for stage, after in zip_longest(stages, others):
            for index in stage.layers:
                if is_tapped:
                    self._tap(ops, index, stage.x)
                self._layers[index].trace(ops, stage.x, stage.rows, self.cache.layers[index], self._ropes[index])
            if after is not None:
                self.trace_border(ops, stage, after)
        if is_tapped:
            self._tap(ops, self.config.n_layers, stages[-1].x)

    def trace_logits(self, ops: Ops, logits: Buffer, last: Buffer, x: Buffer) -> None:
        """Makes `logits` of rows of the stream; `last` gets the rows normed."""
        self._output_norm.trace(ops, last, x)
        self._trace_head(ops, logits, last)

    def _tap(self, ops: Ops, boundary: int, x: Buffer) -> None:
        width = self.config.n_embd
        for column, tap in enumerate(self.options.taps):
            if tap == boundary:
                ops.copy(self._features["layers"].columns(column * width, (column + 1) * width), x)

    def _trace_head(self, ops: Ops, logits: Buffer, last: Buffer) -> None:
        ops.linear([logits], last, [self._output.value], biases=[value_of(self._output_bias)])
        if self.config.logit_scale != 1:
            ops.scale(logits, self.config.logit_scale)
        if self.config.logit_softcap > 0:
            ops.softcap(logits, self.config.logit_softcap)


def chain_paths(positions: Ints, options: ModelOptions) -> Ints:
    """The `paths` of `Model.forward` for rows that are no branches, `[T, 2 + tree_depth]`."""
    paths = np.zeros((len(positions), 2 + options.tree_depth), np.int32)
    paths[:, 0], paths[:, 1] = positions, np.iinfo(np.int32).max
    return paths


def _within(values: Ints, limit: int) -> bool:
    listed = values.tolist()  # of a round's few numbers four times as fast as NumPy's minimum and maximum
    return bool(min(listed) >= 0 and max(listed) < limit)
