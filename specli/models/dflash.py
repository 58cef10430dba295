"""DFlash's network: fused states of the target as context, and a block of mask tokens filled in one pass.

llama.cpp `src/models/dflash.cpp` (draft-models.md §§3.3-3.5). Two programs: `ingest` writes keys and values of tokens
the target has evaluated, `block` runs the layers over anchor and mask tokens, the head, and whatever chains the slots.
The keys and values of a block stay in cells that the next block or `ingest` overwrites before anybody reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Executor, Extent, Ops, Program
from specli.models.base import Model, ModelOptions
from specli.models.cache import KVCache
from specli.models.dflash_config import DFlashConfig
from specli.models.dflash_weights import DFlashWeights
from specli.models.layers import Rows, Scratch
from specli.models.rope import rope_table
from specli.models.slots import Proposal, Slots
from specli.models.tensors import Matrix, value_of

Ints = npt.NDArray[np.int32]
SLOT = 0  # one sequence


class DFlashNetwork:
    """A draft network of architecture `dflash`, bound to a target.

    Args:
        file: The open draft file.
        executor: Runs it; of the target's kind, so that borrowed weights can be multiplied.
        options: Capacity and cache types.
        target: Whose states it reads, and whose embedding and head it borrows where the file has none.
        n_draft: Tokens to propose, 1 … `config.max_draft`. The block always has this length.
        steps: Also make the programs for drafting slot by slot (`backbone`, `slot`), look at several candidates, and
            predict confidence.

    Attributes:
        config: Shape and constants.
        cache: Context of the draft layers, by position in the sequence.
        slots: What a block proposed.

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
        self.cache = KVCache(
            executor,
            network.layers,
            n_slots=1,
            capacity=options.capacity,
            type_k=options.type_k,
            type_v=options.type_v,
        )
        weights.tensors.load(executor)
        self._token_embd = weights.token_embd or Matrix.of(target.token_embd)
        self._output = weights.output or Matrix.of(target.output)
        factors = value_of(weights.rope_factors) if rope.uses_factors else None
        self._rope = rope_table(rope, options.capacity, executor, factors=factors)
        self._allocate(target.features["layers"], several=steps)
        self._ingest = executor.compile(self._trace_ingest)
        self._block = executor.compile(self._trace_block)
        self._backbone: Program | None = None
        self._steps: list[Program] = []
        if steps and weights.head.is_chained:
            self._backbone = executor.compile(self._trace_backbone)
            self._steps = [executor.compile(self._step(index)) for index in range(n_draft)]

    def ingest(self, n: int, position: int) -> None:
        """Takes the states that the target has just captured of `n` tokens, the first at `position`, into the cache."""
        self._context.positions.fill(self._counting[position : position + n])
        self._ingest.run(n)
        self.cache.extended(SLOT, position + n)

    def block(self, anchor: int, position: int) -> None:
        """Fills `slots` with the likeliest continuation: one run of one program.

        Args:
            anchor: The newest token, not evaluated yet.
            position: Its position; the cache holds everything before it.
        """
        self._place(anchor, position)
        self._block.run(self._tokens.capacity, self._n_draft)

    def backbone(self, anchor: int, position: int) -> None:
        """As `block`, except that the slots are left to `slot`, so that tokens may be drawn in between."""
        self._place(anchor, position)
        (self._backbone or self._block).run(self._tokens.capacity, self._n_draft)

    def slot(self, index: int, previous: int) -> Proposal:
        """What slot `index` proposes after the token `previous`; once per `backbone`, in order."""
        if self._steps:
            self._previous.fill(previous)
            self._steps[index].run(0)
        return self.slots.row(index).read()[0]

    def truncate(self, length: int) -> None:
        """Forgets everything from position `length` on."""
        self.cache.truncate(SLOT, min(length, self.cache.length(SLOT)))

    def close(self) -> None:
        """Releases the executor."""
        self.executor.close()

    def _allocate(self, features: Buffer, *, several: bool) -> None:
        new, config, n_draft = self.executor.buffer, self.config, self._n_draft
        n_logits, mapping = self._weights.n_logits, self._weights.mapping
        n_embd, n_slots = config.network.n_embd, n_draft + config.first_slot
        self._features = features
        self._counting = np.arange(self.cache.capacity, dtype=np.int32)
        self._context = self._new_rows(features.capacity)
        self._tokens = new(n_slots, 1, Extent.TOKENS, np.int32)
        self._tokens.spread(config.mask_id)
        self._rows = self._new_rows(n_slots, ends=not all(config.causal))
        self._x = new(n_slots, n_embd, Extent.TOKENS)
        self._predicting = new(n_draft, 1, Extent.OUTPUTS, np.int32)
        self._predicting.fill(np.arange(config.first_slot, n_slots, dtype=np.int32))
        self._previous = new(1, 1, Extent.ONE, np.int32)
        n_candidates = self._weights.head.n_candidates(n_logits) if several else 1  # whole drafts are made of the best
        self.slots = Slots(
            hidden=new(n_draft, n_embd, Extent.OUTPUTS),
            logits=new(n_draft, n_logits, Extent.OUTPUTS),
            values=new(n_draft, n_candidates, Extent.OUTPUTS),
            ids=new(n_draft, n_candidates, Extent.OUTPUTS, np.int32),
            confidence=new(n_draft, 1, Extent.OUTPUTS) if several else None,
            mapping=None if mapping is None else self.executor.array(mapping),
        )
        self._weights.head.allocate(self.executor, self.slots)

    def _new_rows(self, n: int, *, ends: bool = False) -> Rows:
        new = self.executor.buffer
        return Rows(
            positions=new(n, 1, Extent.TOKENS, np.int32),
            slots=new(n, 1, Extent.TOKENS, np.int32),
            scratch=Scratch(self.executor, n, Extent.TOKENS),
            ends=new(n, 1, Extent.TOKENS, np.int32) if ends else None,
        )

    def _place(self, anchor: int, position: int) -> None:
        n_slots = self._tokens.capacity
        self._tokens.fill(anchor)
        self._rows.positions.fill(self._counting[position : position + n_slots])
        if self._rows.ends is not None:
            self._rows.ends.spread(position + n_slots)

    def _trace_ingest(self, ops: Ops) -> None:
        fused = self._context.scratch.buffer("fused", self.config.network.n_embd)
        ops.linear([fused], self._features, [self._weights.fc.value])
        self._weights.enc_norm.trace(ops, fused, fused)
        for attention, cache in zip(self._weights.attentions, self.cache.layers, strict=True):
            attention.inject(ops, fused, self._context, cache, self._rope)

    def _trace_backbone(self, ops: Ops) -> None:
        network, slots = self.config.network, self.slots
        ops.embed(self._x, self._token_embd.value, self._tokens, scale=network.embedding_scale)
        causal_rows = replace(self._rows, ends=None)
        for layer, cache, is_causal in zip(self._weights.layers, self.cache.layers, self.config.causal, strict=True):
            layer.trace(ops, self._x, causal_rows if is_causal else self._rows, cache, self._rope)
        ops.gather(slots.hidden, self._x, self._predicting)
        self._weights.output_norm.trace(ops, slots.hidden, slots.hidden)
        ops.linear([slots.logits], slots.hidden, [self._output.value])
        if self.config.logit_scale != 1:
            ops.scale(slots.logits, self.config.logit_scale)
        if network.logit_softcap > 0:
            ops.softcap(slots.logits, network.logit_softcap)
        self._weights.head.trace(ops, slots)

    def _trace_block(self, ops: Ops) -> None:
        self._trace_backbone(ops)
        previous = self._tokens.row(0)
        for index in range(self._n_draft):
            self._weights.head.trace_slot(ops, self.slots, index, previous)
            previous = self.slots.ids.row(index).columns(0, 1)

    def _step(self, index: int) -> Callable[[Ops], None]:
        return lambda ops: self._weights.head.trace_slot(ops, self.slots, index, self._previous)
