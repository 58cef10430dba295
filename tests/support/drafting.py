"""A target and a drafter step by step, as llama.cpp's speculative-simple runs them: for recorded drafts and oracles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from specli.drafters import DRAFTERS, FilePair, NetworkParts, NetworkSpec
from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels import open_executor
from specli.kernels.ops import Executor
from specli.kernels.threads import ThreadConfig
from specli.models import load_model
from specli.models.base import Model, ModelOptions
from specli.models.draft import Anchor
from specli.tokenizer import Tokenizer

SLOT = 0


@dataclass
class Pair:
    """A target and its drafter, with one sequence.

    Attributes:
        history: Tokens in the target's cache.
    """

    target: Model
    drafter: Drafter
    tokenizer: Tokenizer
    history: list[int] = field(default_factory=list)

    def feed(self, tokens: Sequence[int], n_stand: int | None = None) -> torch.Tensor:
        """Evaluates tokens behind the history and shows the drafter those that stand; logits `[len(tokens), V]`."""
        ids = np.array(tokens, dtype=np.int32)
        positions = np.arange(len(self.history), len(self.history) + len(ids), dtype=np.int32)
        out = self.target.forward(ids, positions, np.zeros_like(ids), np.arange(len(ids), dtype=np.int32))
        self.history += tokens[:n_stand]
        self.drafter.process([TargetBatch(SLOT, ids[:n_stand], positions[:n_stand], features=out.features)])
        return out.logits

    def prompt(self, tokens: Sequence[int], *, chunk: int = 64) -> None:
        """A new sequence."""
        self.history.clear()
        self.drafter.rewind(SLOT, 0)
        for at in range(0, len(tokens), chunk):
            self.feed(tokens[at : at + chunk])
        self.drafter.begin(SLOT, tokens)

    def draft(self, last: int, *, most: int = 100, temperature: float = 0.0, seed: int = 0) -> Draft:
        [draft] = self.drafter.draft([DraftRequest(SLOT, self.history, last, most, temperature, seed)])
        return draft

    def verify(self, last: int, draft: Sequence[int], n_accepted: int) -> torch.Tensor:
        """Evaluates a draft of which `n_accepted` tokens stand; logits as `feed`."""
        logits = self.feed([last, *draft], 1 + n_accepted)
        if draft:
            self.drafter.accept(SLOT, n_accepted)
        return logits


def drafted_by(pair: Pair, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and ids `[N, C]` of the candidates of a whole draft by a network that feeds back its states."""
    network = pair.drafter._network  # type: ignore[attr-defined]
    values, ids = network.draft([Anchor(SLOT, last, len(pair.history))], network.n_draft)
    return values[0].copy(), ids[0].copy()


@contextmanager
def open_pair(
    target: Path,
    draft: Path | None,
    spec_type: str,
    config: DraftConfig,
    *,
    kernels: str = "reference",
    cache: str = "f32",
    capacity: int = 256,
    max_tokens: int = 64,
    n_slots: int = 1,
) -> Iterator[Pair]:
    """Loads a pair as the engine does. Without a draft file the drafter reads the target's."""
    spec = DRAFTERS[spec_type]
    assert isinstance(spec, NetworkSpec)
    speculation = SpeculationConfig(draft=config)

    def executor() -> Executor:
        return open_executor("cpu", kernels=kernels, threads=ThreadConfig(n_threads=1))

    with GGUFFile.open(target) as target_file, GGUFFile.open(draft or target) as draft_file:
        tokenizer = Tokenizer.from_gguf(target_file)
        options = ModelOptions(
            capacity=capacity,
            n_slots=n_slots,
            type_k=QuantType.from_label(cache),
            type_v=QuantType.from_label(cache),
            max_tokens=max_tokens,
            max_outputs=max_tokens,
        )
        files = FilePair(speculation, target_file, tokenizer, draft_file if draft else target_file, tokenizer)
        spec.check(files)
        spec.warn_of_limit(speculation, files.file)
        settings = replace(config, n_max=spec.draft_length(speculation, files.file))
        model = load_model(
            target_file, executor(), replace(options, taps=spec.taps(draft_file), nextn=spec.reads_nextn)
        )
        drafter = spec.build(
            NetworkParts(files, settings, model, executor(), replace(options, capacity=capacity + settings.n_max + 1))
        )
        yield Pair(model, drafter, tokenizer)
        drafter.close()
        model.close()
