"""Whole runs through the Python API: open an engine, generate, keep what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import open_engine
from specli.errors import ResourceError, UnsupportedError
from specli.kernels.cpu.library import native_library
from specli.kernels.threads import ThreadConfig

GREEDY = SamplingConfig(temperature=0.0, seed=1)
ONE_THREAD = ThreadConfig(n_threads=1)


def executors() -> list[str]:
    """Kernels that run here."""
    try:
        native_library()
    except ResourceError:
        return ["reference"]
    return ["reference", "cpu"]


def speculation(types: Sequence[str], length: int, **draft: Any) -> SpeculationConfig:
    """Drafters of the given types whose drafts have at most `length` tokens; n-gram keys of one or two tokens."""
    return SpeculationConfig(
        types=tuple(types),
        draft=DraftConfig(n_max=length, **draft),
        tables={
            **{key: {"size_n": 1, "size_m": length} for key in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")},
            "ngram-mod": {"n_match": 2, "n_min": 0, "n_max": length},
        },
    )


@contextmanager
def skipping_unsupported() -> Iterator[None]:
    """Skips what kernels do not handle, with their reason."""
    try:
        yield
    except UnsupportedError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Outcome:
    """What a request left."""

    tokens: list[int]
    text: str
    stop: str
    record: dict[str, Any]
    lines: list[str]

    @property
    def n_accepted(self) -> int:
        return int(self.record["timings"]["draft_n_accepted"])

    @property
    def n_drafted(self) -> int:
        return int(self.record["timings"]["draft_n"])


def run(
    target: Path,
    prompts: Sequence[Sequence[int]],
    *,
    draft: Path | None = None,
    spec: SpeculationConfig | None = None,
    request: RequestConfig | None = None,
    n_predict: int = 40,
    kernels: str = "reference",
    n_ctx: int = 0,
    n_batch: int = 512,
    **load: Any,
) -> list[Outcome]:
    """Generates from each prompt in turn with one engine."""
    model = ModelLoadConfig(target, device="cpu", kernels=kernels, threads=ONE_THREAD, **load)
    config = RunConfig(
        target=model,
        draft=replace(model, path=draft) if draft else None,
        speculation=spec or SpeculationConfig(types=("none",)),
        n_ctx=n_ctx,
        n_batch=n_batch,
    )
    request = request or RequestConfig(n_predict=n_predict, sampling=GREEDY)
    outcomes = []
    with open_engine(config) as engine:
        for prompt in prompts:
            generation = engine.generate(prompt, request)
            for _ in generation:
                pass
            result = engine.result()
            outcomes.append(
                Outcome(generation.tokens, generation.text, generation.stop, result.to_dict(), result.lines())
            )
    return outcomes
