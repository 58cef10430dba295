"""draft-simple: a smaller model of the same vocabulary writes ahead.

llama.cpp `common/speculative.cpp`, `common_speculative_state_draft`. There the draft model reads every batch after the
target, rejected tokens included, and what it evaluated while drafting is thrown away. Kernels are batch-invariant here,
so what is in its cache already is kept as far as it agrees with the sequence, and what is missing is evaluated together
with the first token of the next draft: same drafts, about half the work. A greedy draft of fixed length is one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specli.drafters import FilePair, NetworkParts
from specli.drafters.base import DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig
from specli.drafters.stepping import DraftCandidates, Floats, Ints, NetworkDrafter
from specli.drafters.vocabulary import check_vocabularies
from specli.errors import IncompatibleError
from specli.models import DRAFT_ARCHITECTURES, load_model, model_class
from specli.models.base import Model
from specli.models.draft import N_CANDIDATES
from specli.models.writer import Beginning, Writer

UNKNOWN_AS = 0  # what the draft model reads for a token that only the target has


@dataclass
class _Sequence:
    """What is known of the sequence in a slot.

    Attributes:
        told: The target's tokens as `process` showed them.
        cached: The tokens in the draft model's cache.
        n_agreed: Leading cached tokens known to be the sequence's.
        is_generating: Its prompt has been read.
    """

    told: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    n_agreed: int = 0
    is_generating: bool = False


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


class DraftSimple(NetworkDrafter):
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
        super().__init__(config, math.exp if model.options.log_probabilities else None)
        self.max_draft = config.n_max
        self._model = model
        self._writer = writer(
            model,
            n_steps=self.max_draft,
            n_logits=min(n_vocab, model.config.n_vocab),
            n_candidates=N_CANDIDATES if config.is_stepwise else 1,
        )
        self._sequences = [_Sequence() for _ in range(model.options.n_slots)]

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """The prompt is in the cache once `process` saw it; whatever is missing is evaluated now."""
        super().begin(slot, prompt)
        sequence = self._sequences[slot]
        sequence.is_generating = True
        sequence.n_agreed = 0
        self._read({slot: self._agree(slot, prompt)})

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Reads prompts along; the rounds of a generation are caught up with when the next draft is wanted."""
        missing = {}
        for part in parts:
            sequence = self._sequences[part.slot]
            del sequence.told[int(part.positions[0]) :]
            sequence.told += part.tokens.tolist()
            if not sequence.is_generating:
                missing[part.slot] = self._agree(part.slot, sequence.told)
        if missing:
            self._read(missing)

    def rewind(self, slot: int, length: int) -> None:
        """Forgets what lies beyond `length`. A new prompt follows."""
        sequence = self._sequences[slot]
        del sequence.told[length:]
        self._cut(slot, min(length, len(sequence.cached)))
        sequence.is_generating = False

    def close(self) -> None:
        """Releases the draft model."""
        self._model.close()

    def _write(self, requests: Sequence[DraftRequest], n_steps: int) -> tuple[Floats, Ints]:
        wanted = self._catch_up(requests)
        values, ids = self._writer.write(self._beginnings(wanted), n_steps)
        for row, (slot, tokens) in enumerate(wanted.items()):
            self._sequences[slot].cached += [*tokens, *ids[row, :-1, 0].tolist()]
        return values, ids

    def _start(self, requests: Sequence[DraftRequest]) -> list[DraftCandidates | None]:
        return list(self._step(self._catch_up(requests)).values())

    def _advance(
        self, requests: Sequence[DraftRequest], index: int, tokens: Sequence[int | None]
    ) -> list[DraftCandidates | None]:
        fed = zip(requests, tokens, strict=True)
        found = self._step({request.slot: [token] for request, token in fed if token is not None})
        return [found.get(request.slot) for request in requests]

    def _step(self, wanted: Mapping[int, list[int]]) -> dict[int, DraftCandidates | None]:
        """What follows tokens behind each slot's cache, which takes them in."""
        values, ids = self._writer.write(self._beginnings(wanted), 1)
        found = {}
        for row, (slot, tokens) in enumerate(wanted.items()):
            self._sequences[slot].cached += tokens
            found[slot] = self._sampler(slot).best(values[row, 0], ids[row, 0])
        return found

    def _catch_up(self, requests: Sequence[DraftRequest]) -> dict[int, list[int]]:
        """The newest tokens of each slot, which its cache lacks; evaluates what does not fit into one forward."""
        most = self._model.options.max_tokens // len(requests)
        late = {r.slot: [*self._agree(r.slot, r.history), r.last_token] for r in requests}
        early = {slot: tokens[:-most] for slot, tokens in late.items() if len(tokens) > most}
        if early:
            self._read(early)
            late = {slot: tokens[-most:] for slot, tokens in late.items()}
        return late

    def _beginnings(self, wanted: Mapping[int, list[int]]) -> list[Beginning]:
        return [
            Beginning(slot, self._shared(tokens), len(self._sequences[slot].cached)) for slot, tokens in wanted.items()
        ]

    def _agree(self, slot: int, tokens: Sequence[int]) -> list[int]:
        """Cuts a cache to what it has in common with the sequence `tokens`; returns the tokens it then lacks."""
        sequence = self._sequences[slot]
        cached = sequence.cached
        end = min(len(cached), len(tokens))
        keep = min(sequence.n_agreed, end)
        while keep < end and cached[keep] == tokens[keep]:
            keep += 1
        self._cut(slot, keep)
        sequence.n_agreed = len(tokens)
        return list(tokens[len(cached) :])

    def _cut(self, slot: int, length: int) -> None:
        """Cuts a cache, to nothing where recurrent layers no longer know the state at `length`."""
        sequence = self._sequences[slot]
        if not self._model.cache.can_truncate(slot, length):
            length = 0
        del sequence.cached[length:]
        self._model.cache.truncate(slot, length)
        sequence.n_agreed = min(sequence.n_agreed, length)

    def _read(self, missing: Mapping[int, list[int]]) -> None:
        """Evaluates tokens behind the caches of slots, as many at a time as the model takes."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for slot, lacking in missing.items():
            cached = self._sequences[slot].cached
            positions += range(len(cached), len(cached) + len(lacking))
            slots += [slot] * len(lacking)
            tokens += self._shared(lacking)
            cached += lacking
        size = self._model.options.max_tokens
        flat = np.array([tokens, positions, slots], dtype=np.int32)
        for at in range(0, len(tokens), size):
            chunk = flat[:, at : at + size]
            self._model.forward(chunk[0], chunk[1], chunk[2], chunk[0, :0])

    def _shared(self, tokens: list[int]) -> list[int]:
        """The tokens as the draft model knows them."""
        n_vocab = self._model.config.n_vocab
        return [token if token < n_vocab else UNKNOWN_AS for token in tokens]
