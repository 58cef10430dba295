"""draft-simple: a smaller model of the same vocabulary writes ahead (speculation.md §5.1).

llama.cpp `common/speculative.cpp`, `common_speculative_state_draft`. There the draft model reads every batch after the
target, rejected tokens included, and what it evaluated while drafting is thrown away. Kernels are batch-invariant here,
so what is in its cache already is kept as far as it agrees with the sequence, and what is missing is evaluated together
with the first token of the next draft: same drafts, about half the work. A greedy draft of fixed length is one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specli.drafters import FilePair, NetworkParts
from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.config import DraftConfig
from specli.drafters.stepping import Candidates, CandidateSampler, collect, likeliest
from specli.drafters.vocabulary import check_vocabularies
from specli.errors import IncompatibleError
from specli.models import DRAFT_ARCHITECTURES, load_model, model_class
from specli.models.base import Ints, Model
from specli.models.writer import Writer

SLOT = 0
UNKNOWN_AS = 0  # what the draft model reads for a token that only the target has


def check_simple(pair: FilePair) -> None:
    """Refuses a draft network that reads hidden states, a broken file, and a model with other tokens.

    Raises:
        FormatError: The file is broken.
        IncompatibleError: It does not fit.
    """
    file = pair.file
    if file.architecture in DRAFT_ARCHITECTURES:
        raise IncompatibleError(
            f"{file.path}: architecture {file.architecture} reads hidden states, draft-simple needs a whole model"
        )
    model_class(file).check(file)
    if pair.draft_vocabulary is None:
        raise IncompatibleError(f"{file.path}: there is no tokenizer in this file, draft-simple compares it")
    check_vocabularies(pair.vocabulary, pair.draft_vocabulary, target_path=pair.target_file.path, draft_path=file.path)


def build_simple(parts: NetworkParts) -> DraftSimple:
    """The drafter of a checked pair."""
    model = load_model(parts.pair.file, parts.executor, parts.options)
    return DraftSimple(model, parts.draft, n_vocab=parts.pair.vocabulary.n_vocab)


class DraftSimple:
    """Proposes what a small model would write.

    Args:
        model: The draft model; has room for the whole context. Closed with the drafter.
        config: Draft length and thresholds.
        n_vocab: Tokens of the target; nothing beyond them is proposed.
        writer: Makes what writes with the model.
    """

    name = "draft-simple"
    reads_features = False

    def __init__(
        self, model: Model, config: DraftConfig, *, n_vocab: int, writer: Callable[..., Writer] = Writer
    ) -> None:
        self.max_draft = config.n_max
        self._model = model
        self._config = config
        n_shared = min(n_vocab, model.config.n_vocab)
        self._whole = writer(model, n_steps=self.max_draft, n_logits=n_shared, n_candidates=1)
        self._step = writer(model, n_steps=1, n_logits=n_shared) if config.is_stepwise else self._whole
        self._sampler = CandidateSampler(probabilistic=config.probabilistic)
        self._told: list[int] = []  # the target's tokens as `process` showed them
        self._cached: list[int] = []  # the tokens in the draft model's cache
        self._n_agreed = 0  # leading cached tokens known to be the sequence's
        self._is_generating = False

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """The prompt is in the cache once `process` saw it; whatever is missing is evaluated now."""
        self._sampler.reset()
        self._is_generating = True
        self._n_agreed = 0
        missing = self._agree(prompt)
        self._read(missing)

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Reads a prompt along; the rounds of a generation are caught up with when the next draft is wanted."""
        [batch] = parts
        del self._told[int(batch.positions[0]) :]
        self._told += batch.tokens.tolist()
        if not self._is_generating:
            self._read(self._agree(self._told))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Proposes up to `n_max` tokens; see `specli.drafters.stepping`."""
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        self._sampler.prepare(request)
        tokens = [*self._agree(request.history), request.last_token]
        n_early = len(tokens) - self._model.options.max_tokens
        if n_early > 0:
            self._read(tokens[:n_early])
            del tokens[:n_early]
        if self._sampler.is_greedy and self._config.p_min <= 0:
            values, ids = self._whole.write(self._shared(tokens), len(self._cached))
            self._cached += [*tokens, *ids[:-1, 0].tolist()]
            return likeliest(values, ids, self._config, limit=request.max_tokens)
        return collect(
            self._advance(tokens),
            lambda token: self._advance([token]),
            self._sampler,
            self._config,
            limit=request.max_tokens,
        )

    def accept(self, slot: int, n_accepted: int) -> None:
        """Nothing: the history of the next request holds the verdict."""

    def rewind(self, slot: int, length: int) -> None:
        """Forgets what lies beyond `length`. A new prompt follows."""
        del self._told[length:]
        self._cut(min(length, len(self._cached)))
        self._is_generating = False

    def close(self) -> None:
        """Releases the draft model."""
        self._model.close()

    def _advance(self, tokens: list[int]) -> Candidates | None:
        """What follows the tokens."""
        values, ids = self._step.write(self._shared(tokens), len(self._cached))
        self._cached += tokens
        return self._sampler.best(values[0], ids[0])

    def _agree(self, tokens: Sequence[int]) -> list[int]:
        """Cuts the cache to what it has in common with the sequence `tokens`; returns the tokens it then lacks."""
        end = min(len(self._cached), len(tokens))
        keep = min(self._n_agreed, end)
        while keep < end and self._cached[keep] == tokens[keep]:
            keep += 1
        self._cut(keep)
        self._n_agreed = len(tokens)
        return list(tokens[len(self._cached) :])

    def _cut(self, length: int) -> None:
        """Cuts the cache, to nothing where recurrent layers no longer know the state at `length`."""
        if not self._model.cache.can_truncate(SLOT, length):
            length = 0
        del self._cached[length:]
        self._model.cache.truncate(SLOT, length)
        self._n_agreed = min(self._n_agreed, length)

    def _read(self, tokens: list[int]) -> None:
        """Evaluates tokens behind the cache in batches."""
        size = self._model.options.max_tokens
        for at in range(0, len(tokens), size):
            chunk = self._shared(tokens[at : at + size])
            positions = np.arange(len(self._cached), len(self._cached) + len(chunk), dtype=np.int32)
            self._model.forward(chunk, positions, np.full_like(chunk, SLOT), chunk[:0])
            self._cached += tokens[at : at + size]

    def _shared(self, tokens: list[int]) -> Ints:
        """The tokens as the draft model knows them."""
        n_vocab = self._model.config.n_vocab
        return np.array([token if token < n_vocab else UNKNOWN_AS for token in tokens], dtype=np.int32)
