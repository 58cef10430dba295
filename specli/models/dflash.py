"""DFlash's network: fused states of the target as context, and a block of mask tokens filled in one pass.

llama.cpp `src/models/dflash.cpp`. Two programs: `ingest` writes keys and values of tokens the target has evaluated,
`block` runs the layers over anchor and mask tokens, the head, and what chains the positions. Any number of sequences
have a block each, one after the other. The keys and values of a block stay in cells that the next block or `ingest`
overwrites before anybody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Executor, Extent, Ops, Program, host
from specli.models.base import Model, ModelOptions
from specli.models.cache import KVCache
from specli.models.dflash_config import DFlashConfig
from specli.models.dflash_weights import DFlashWeights
from specli.models.draft import Anchor, Part
from specli.models.layers import Rows, Scratch
from specli.models.positions import BlockPositions, Proposal
from specli.models.rope import rope_table
from specli.models.tensors import Matrix, value_of

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class DFlashNetwork:
    """A draft network of architecture `dflash`, bound to a target.

    Args:
        file: The open draft file.
        executor: Runs it; of the target's kind, so that borrowed weights can be multiplied.
        options: Number of sequences, capacity and cache types.
        target: Whose states it reads, and whose embedding and head it borrows where the file has none.
        n_draft: Tokens to propose, 1 … `config.max_draft`. The block always has this length.
        steps: Also make the programs for drafting position by position (`backbone`, `position`), look at several
            candidates, and predict confidence.

    Attributes:
        config: Shape and constants.
        cache: Context of the draft layers, by position in the sequence.
        block_positions: What the blocks proposed, N rows for each sequence, one after the other.

    Raises:
        FormatError: Metadata or tensors do not fit the architecture; found before weights are read.
    """

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
        self.config = config = DFlashConfig.from_gguf(file)
        self.executor = executor
        assert 1 <= n_draft <= config.max_draft
        self._n_draft = n_draft
        self._weights = weights = DFlashWeights(file, config)
        network = config.network
        rope = network.layers[0].rope
        self.cache = KVCache.of(executor, network.layers, options)
        weights.tensors.load(executor)
        self._token_embd = weights.token_embd or Matrix.of(target.token_embd)
        self._output = weights.output or Matrix.of(target.output)
        factors = value_of(weights.rope_factors) if rope.uses_factors else None
        self._rope = rope_table(rope, options.capacity, executor, factors=factors)
        self._allocate(target.features["layers"], several=steps, is_normed=options.log_probabilities)
        self._ingest = executor.compile(self._trace_ingest)
        self._block = executor.compile(self._trace_block)
        self._backbone: Program | None = None
        self._steps: list[Program] = []
        if steps and weights.head.is_chained:
            self._backbone = executor.compile(self._trace_backbone)
            self._steps = [executor.compile(self._step(index)) for index in range(n_draft)]

    def ingest(self, parts: Sequence[Part]) -> None:
        """Takes the states that the target has just captured into the cache.

        Args:
            parts: Of different slots, at least one; together at most as many tokens as the target takes at once.
        """
        counting, context, start = self._counting, self._context, 0
        for slot, tokens, position, first_row, _ in parts:
            n = len(tokens)
            context.positions.fill(counting[position : position + n], start)
            self._feature_rows.fill(counting[first_row : first_row + n], start)
            if self.cache.n_slots > 1:  # a single one's number is there already
                context.slots.fill(slot, start, start + n)
            self.cache.extended(slot, position + n)
            start += n
        self._ingest.run(start)

    def block(self, anchors: Sequence[Anchor]) -> tuple[Floats, Ints]:
        """Fills the block's positions with the likeliest continuations: one run of one program.

        Args:
            anchors: Of different slots, at least one, B; the cache holds everything before them.

        Returns:
            Logits (or scores) `[B, N, C]` of the candidates, descending, and the target's ids of them (see
            `BlockPositions.values`); views that the next run overwrites.
        """
        self._place(anchors)
        self._run(self._block, len(anchors))
        values, ids = self._by_sequence
        return host(values[: len(anchors)]), host(ids[: len(anchors)])

    def backbone(self, anchors: Sequence[Anchor]) -> None:
        """As `block`, except that the positions are left to `position`, so that tokens may be drawn in between."""
        self._place(anchors)
        self._run(self._backbone or self._block, len(anchors))

    def position(self, index: int, previous: Ints) -> list[Proposal]:
        """What position `index` of the first sequences' blocks proposes; once per `backbone`, in order.

        Args:
            index: Below N.
            previous: `[B]`, the token before it in each of them.
        """
        if self._steps:
            self._previous.fill(previous)
            self._steps[index].run(sequences=len(previous))
        return self.block_positions.of(index).read(len(previous))

    @property
    def predicts(self) -> bool:
        """The head predicts acceptance; see `PositionHead`."""
        return self._weights.head.predicts

    def truncate(self, slot: int, length: int) -> None:
        """Forgets everything of the sequence in a cache slot from position `length` on."""
        self.cache.truncate(slot, min(length, self.cache.length(slot)))

    def close(self) -> None:
        """Releases the executor."""
        self.executor.close()

    def _allocate(self, features: Buffer, *, several: bool, is_normed: bool) -> None:
        new, config, n_draft, n_sequences = self.executor.buffer, self.config, self._n_draft, self.cache.n_slots
        n_logits, mapping = self._weights.n_logits, self._weights.mapping
        n_embd, self._n_block = config.network.n_embd, n_draft + config.first_position
        n_rows, n_predicting = n_sequences * self._n_block, n_sequences * n_draft
        self._features = features
        self._counting = np.arange(max(self.cache.capacity, features.capacity), dtype=np.int32)
        self._context = self._new_rows(features.capacity)
        self._feature_rows = new(features.capacity, 1, Extent.TOKENS, np.int32)
        self._tokens = new(n_rows, 1, Extent.TOKENS, np.int32)
        self._tokens.spread(config.mask_id)
        self._anchors = self._tokens.per_sequence(step=self._n_block)
        self._rows = replace(self._new_rows(n_rows, ends=not all(config.causal)), block=self._n_block)
        self._x = new(n_rows, n_embd, Extent.TOKENS)
        self._predicting = new(n_predicting, 1, Extent.OUTPUTS, np.int32)
        of_block = np.arange(config.first_position, self._n_block, dtype=np.int32)
        starts = np.arange(0, n_rows, self._n_block, dtype=np.int32)
        self._predicting.fill(np.add.outer(starts, of_block).ravel())
        self._previous = new(n_sequences, 1, Extent.SEQUENCES, np.int32)
        n_candidates = self._weights.head.n_candidates(n_logits) if several else 1  # whole drafts are made of the best
        self.block_positions = BlockPositions(
            hidden=new(n_predicting, n_embd, Extent.OUTPUTS),
            logits=new(n_predicting, n_logits, Extent.OUTPUTS),
            values=new(n_predicting, n_candidates, Extent.OUTPUTS),
            ids=new(n_predicting, n_candidates, Extent.OUTPUTS, np.int32),
            confidence=new(n_predicting, 1, Extent.OUTPUTS) if several else None,
            mapping=None if mapping is None else self.executor.array(mapping),
            n_draft=n_draft,
            is_normed=is_normed and n_candidates == 1,
        )
        self._by_sequence = [
            buffer.storage.reshape(n_sequences, n_draft, -1)
            for buffer in (self.block_positions.values, self.block_positions.ids)
        ]
        self._weights.head.allocate(self.executor, self.block_positions)

    def _new_rows(self, n: int, *, ends: bool = False) -> Rows:
        new = self.executor.buffer
        return Rows(
            positions=new(n, 1, Extent.TOKENS, np.int32),
            slots=new(n, 1, Extent.TOKENS, np.int32),
            scratch=Scratch(self.executor, n, Extent.TOKENS),
            ends=new(n, 1, Extent.TOKENS, np.int32) if ends else None,
        )

    def _place(self, anchors: Sequence[Anchor]) -> None:
        n, rows = self._n_block, self._rows
        for number, (slot, token, position) in enumerate(anchors):
            start, end = number * n, position + n
            self._tokens.fill(token, start)
            rows.positions.fill(self._counting[position:end], start)
            if rows.ends is not None:
                rows.ends.fill(end, start, start + n)
            if self.cache.n_slots > 1:
                rows.slots.fill(slot, start, start + n)

    def _run(self, program: Program, n_sequences: int) -> None:
        program.run(n_sequences * self._n_block, n_sequences * self._n_draft, n_sequences)

    def _trace_ingest(self, ops: Ops) -> None:
        features = self._context.scratch.buffer("features", self._features.width)
        fused = self._context.scratch.buffer("fused", self.config.network.n_embd)
        ops.gather(features, self._features, self._feature_rows)
        ops.linear([fused], features, [self._weights.fc.value])
        self._weights.enc_norm.trace(ops, fused, fused)
        for attention, cache in zip(self._weights.attentions, self.cache.layers, strict=True):
            attention.inject(ops, fused, self._context, cache, self._rope)

    def _trace_backbone(self, ops: Ops) -> None:
        network, positions = self.config.network, self.block_positions
        ops.embed(self._x, self._token_embd.value, self._tokens, scale=network.embedding_scale)
        causal_rows = replace(self._rows, ends=None)
        for layer, cache, is_causal in zip(self._weights.layers, self.cache.layers, self.config.causal, strict=True):
            layer.trace(ops, self._x, causal_rows if is_causal else self._rows, cache, self._rope)
        ops.gather(positions.hidden, self._x, self._predicting)
        self._weights.output_norm.trace(ops, positions.hidden, positions.hidden)
        ops.linear([positions.logits], positions.hidden, [self._output.value])
        if self.config.logit_scale != 1:
            ops.scale(positions.logits, self.config.logit_scale)
        if network.logit_softcap > 0:
            ops.softcap(positions.logits, network.logit_softcap)
        self._weights.head.trace(ops, positions)

    def _trace_block(self, ops: Ops) -> None:
        self._trace_backbone(ops)
        previous = self._anchors
        for index in range(self._n_draft):
            self._weights.head.trace_position(ops, self.block_positions, index, previous)
            previous = self.block_positions.of(index).ids.columns(0, 1)

    def _step(self, index: int) -> Callable[[Ops], None]:
        return lambda ops: self._weights.head.trace_position(ops, self.block_positions, index, self._previous)
