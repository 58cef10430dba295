"""MTP heads: blocks behind the trunk that read a token beside the target's last state (docs/draft-networks.md §5).

The pair of token t_p and the state at p-1 has cell p and predicts t_{p+1}. What is in a block is the family's business
(`Model.nextn_layer`); around it are two norms, a projection, and a head. A single block is applied to its own output
over and over; of several, each makes one token of a draft and reads the ones before it anew.
"""

from __future__ import annotations

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Executor, Ops, RopeTable, Weight
from specli.models.architecture import ModelConfig
from specli.models.base import Model, ModelOptions
from specli.models.cache import CacheLayer, KVCache
from specli.models.feedback import FeedbackNetwork, Step
from specli.models.latent import LatentAttention
from specli.models.layers import Attention, RMSNorm, Rows
from specli.models.rope import rope_table
from specli.models.tensors import Matrix, Tensors


class MTPBlock:
    """One block.

    Args:
        tensors: Claims.
        family: Class of the target's architecture.
        config: The file's shape.
        index: Number of the block, counted from the first layer of the trunk.

    Attributes:
        embed_tokens: Its own embeddings, or None.
        shared_head_head: Its own head, or None.
        shared_head_norm: The norm before the head, or None: the model's.
    """

    def __init__(self, tensors: Tensors, family: type[Model], config: ModelConfig, index: int) -> None:
        prefix, width, eps = f"blk.{index}.nextn.", config.n_embd, config.rms_eps
        embedding = (config.n_vocab, width)
        self.eh_proj = tensors.matrix(f"{prefix}eh_proj.weight", (width, 2 * width))
        self.enorm = RMSNorm(tensors, f"{prefix}enorm.weight", width, eps=eps)
        self.hnorm = RMSNorm(tensors, f"{prefix}hnorm.weight", width, eps=eps)
        self.embed_tokens = tensors.matrix(f"{prefix}embed_tokens.weight", embedding, "optional")
        self.shared_head_head = tensors.matrix(f"{prefix}shared_head_head.weight", embedding, "optional")
        names = (f"{prefix}shared_head_norm.weight", f"blk.{index}.layer_output_norm.weight")  # mimo2 has the second
        norms = [RMSNorm.claim(tensors, name, width, "optional", eps=eps) for name in names]
        self.shared_head_norm = norms[0] or norms[1]
        self.layer = family.nextn_layer(config, tensors, index)
        assert isinstance(self.layer.attention, Attention | LatentAttention), "MTP blocks have attention"
        assert self.layer.attn_norm is not None, "and a norm before it"
        self.attention, self.attn_norm = self.layer.attention, self.layer.attn_norm

    def trace_input(self, ops: Ops, embeddings: Weight, tokens: Buffer, states: Buffer, rows: Rows) -> Buffer:
        """`[T, D]`: what enters the layer, of tokens and the states before them."""
        width = states.width
        pair, x = rows.scratch.buffer("pair", 2 * width), rows.scratch.buffer("stream", width)
        ops.embed(x, embeddings, tokens)
        self.enorm.trace(ops, pair.columns(0, width), x)
        self.hnorm.trace(ops, pair.columns(width, 2 * width), states)
        ops.linear([x], pair, [self.eh_proj.value])
        return x

    def inject(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Writes only keys and values of the rows to the cache."""
        normed = rows.scratch.buffer("normed", x.width)
        self.attn_norm.trace(ops, normed, x)
        self.attention.inject(ops, normed, rows, cache, rope)


class MTPWeights:
    """The MTP tensors of a file: those of a target with heads, or a file with nothing else.

    Args:
        file: The open file.
        family: Class of its architecture.
        borrows: It is the target's own file, whose embedding and head are loaded already.

    Attributes:
        config: The file's shape.
        tensors: The claims.
        blocks: At least one.
        output_norm: The norm before the head of blocks that have none.
        token_embd: The embedding of blocks that have none; None = the target's.
        output: The head of blocks that have none; None = the target's.

    Raises:
        FormatError: There are no heads, or tensors do not fit.
    """

    def __init__(self, file: GGUFFile, family: type[Model], *, borrows: bool) -> None:
        self.config = config = family.configure(file)
        first = config.n_layers
        if not has_heads(file):
            raise FormatError(f"{file.path}: there are no MTP heads, blk.{first}.nextn.eh_proj.weight is missing")
        self.tensors = tensors = Tensors(file)
        self.blocks = [MTPBlock(tensors, family, config, index) for index in range(first, len(config.layers))]
        has_norms = all(block.shared_head_norm is not None for block in self.blocks)
        self.output_norm = RMSNorm.claim(
            tensors, "output_norm.weight", config.n_embd, "optional" if has_norms else "required", eps=config.rms_eps
        )
        self.token_embd: Matrix | None = None
        self.output: Matrix | None = None
        if borrows:
            tensors.skip("")
        else:
            embedding = (config.n_vocab, config.n_embd)
            self.token_embd = tensors.matrix("token_embd.weight", embedding)
            self.output = tensors.matrix("output.weight", embedding, "optional") or self.token_embd
            for index in range(first):
                tensors.skip(f"blk.{index}.")  # a trunk beside the heads is not needed
        tensors.check()


def has_heads(file: GGUFFile) -> bool:
    """Whether the last block of a file is an MTP block."""
    n_blocks = file.metadata.get(f"{file.architecture}.block_count", "u32", 0)
    return f"blk.{n_blocks - 1}.nextn.eh_proj.weight" in file.tensors


class MTPNetwork(FeedbackNetwork):
    """MTP heads, bound to a target.

    Args:
        weights: The claims on their file.
        executor: Runs them.
        options: Capacity and cache types.
        target: Whose states they read.
        n_draft: Tokens of a draft; at most one per block if there are several.
        steps: Also make the programs for single steps.
    """

    def __init__(
        self,
        weights: MTPWeights,
        executor: Executor,
        options: ModelOptions,
        target: Model,
        *,
        n_draft: int,
        steps: bool = False,
    ) -> None:
        self.config = config = weights.config
        self._blocks = weights.blocks
        self._weights = weights
        assert n_draft <= len(self._blocks) or len(self._blocks) == 1, "one block per token"
        super().__init__(
            executor,
            options,
            features=target.features["nextn"],
            width=config.n_embd,
            n_draft=n_draft,
            steps=steps,
            n_logits=config.n_vocab,
            n_blocks=len(self._blocks),
        )
        layers = config.layers[config.n_layers :]
        self.cache = KVCache.of(executor, layers, options)
        weights.tensors.load(executor)
        self._token_embd = weights.token_embd or Matrix.of(target.token_embd)
        self._output = weights.output or Matrix.of(target.output)
        ropes = {layer.rope for layer in layers}
        tables = {rope: rope_table(rope, options.capacity, executor) for rope in ropes}
        self._ropes = [tables[layer.rope] for layer in layers]
        self._compile()

    def _trace_states(self, ops: Ops) -> None:
        ops.gather(self._at, self._features, self._feature_rows)

    def _trace_cells(self, ops: Ops) -> None:
        for index in range(len(self._blocks)):
            self._trace_injection(ops, index, self._tokens, self._before, self._rows)

    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        for earlier in self._steps[:index]:  # each of several blocks has seen the sequence, but not the draft
            self._trace_injection(ops, index, earlier.tokens, earlier.before, earlier.rows)
        block, rows = self._blocks[index], step.rows
        x = block.trace_input(ops, self._embeddings(index), step.tokens, step.before, rows)
        block.layer.trace(ops, x, rows, self.cache.layers[index], self._ropes[index])
        norm = block.shared_head_norm or self._weights.output_norm
        assert norm is not None
        norm.trace(ops, self._last, x)
        ops.copy(step.after, self._last if self.config.nextn_is_normed else x)

    def _trace_injection(self, ops: Ops, number: int, tokens: Buffer, states: Buffer, rows: Rows) -> None:
        block = self._blocks[number]
        x = block.trace_input(ops, self._embeddings(number), tokens, states, rows)
        block.inject(ops, x, rows, self.cache.layers[number], self._ropes[number])

    def _embeddings(self, number: int) -> Weight:
        return (self._blocks[number].embed_tokens or self._token_embd).value

    def _head(self, index: int) -> Weight:
        return (self._blocks[index].shared_head_head or self._output).value
