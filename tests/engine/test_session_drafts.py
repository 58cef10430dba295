"""Chats of several turns with every drafter that has a network: what a turn reuses does not change its drafts."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specli.drafters.settings import SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import Run, open_engine
from specli.engine.loop import Generation
from specli.engine.session import Session
from tests.support.runs import GREEDY, ONE_THREAD, executors, speculation
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import NETWORK_TYPES, TABLE_TYPES, tiny_pair

STATM = Path("/proc/self/statm")
N_CTX = 256
KERNELS = executors()[-1]
BEST = replace(GREEDY, ignore_eos=True)
SAMPLED = SamplingConfig(temperature=0.8, seed=5, ignore_eos=True)
STORY = "the quick brown fox jumps over the lazy dog and then the other dog runs after the fox . "
PAIRS = [  # type, family, whether drafts follow the target: accepted in part, or sensitive to all that was read
    *((name, family, follows) for name in NETWORK_TYPES for family, follows in (("gemma3", False), ("qwen35", True))),
    ("draft-eagle3", "gemma3", True),
    ("draft-mtp", "gemma3", True),
    ("draft-mtp", "gemma4", False),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@contextmanager
def opened(target: Path, draft: Path | None, spec: SpeculationConfig, n_batch: int = 512, **load: Any) -> Iterator[Run]:
    model = ModelLoadConfig(target, device="cpu", kernels=KERNELS, threads=ONE_THREAD, **load)
    config = RunConfig(model, replace(model, path=draft) if draft else None, spec, n_ctx=N_CTX, n_batch=n_batch)
    with open_engine(config) as engine:
        yield engine


def request_for(sampling: SamplingConfig, n_predict: int = 14) -> RequestConfig:
    return RequestConfig(n_predict=n_predict, sampling=sampling, trace=True)


def turn(session: Session, content: str, request: RequestConfig, *, leave_after: int | None = None) -> Generation:
    """A turn, or its beginning."""
    events = session.ask(content, request)
    for number, _ in enumerate(events, 1):
        if number == leave_after:
            break
    events.close()  # type: ignore[attr-defined]
    assert session.last is not None
    return session.last


def resident_bytes() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rounds_of(generation: Generation) -> list[Any]:
    """The trace without times."""
    return [(r.drafter, r.position, r.draft, r.tokens) for r in generation.rounds]


@pytest.mark.parametrize("sampling", [BEST, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(("name", "family", "follows"), PAIRS)
def test_every_turn_drafts_as_a_fresh_process_does(
    folder: Path, name: str, family: str, follows: bool, sampling: SamplingConfig
) -> None:
    """Prompts longer than a batch and than sliding windows, a turn that was cut short, and the end of the context.

    docs/faults.md D1, D13, M4. The fresh process reads the whole conversation in one batch.
    """
    target, draft = tiny_pair(folder, name, family, follows=follows)
    spec = speculation([name], 4, probabilistic=True)
    request = request_for(sampling)
    turns = [
        (STORY, request, None),
        ("and on the hill", request, None),
        ("what then ?", request, 5),  # the reader leaves
        ("the fox", request, None),
        ("and so", request_for(sampling, n_predict=-1), None),  # to the end of the context
    ]
    with opened(target, draft, spec, n_batch=16) as engine:
        session = engine.session()
        done = []
        for content, wanted, leave_after in turns:
            done.append(turn(session, content, wanted, leave_after=leave_after))
        session.clear()
        done.append(turn(session, "a dog", request))  # docs/faults.md D1: short after long
    assert [g.stop for g in done] == ["limit", "limit", "interrupt", "limit", "context", "limit"]
    assert family == "qwen35" or all(g.timings.cache_n > 30 for g in done[1:5])
    for (_, wanted, _), generation in zip([*turns, ("", request, None)], done, strict=True):
        with opened(target, draft, spec) as engine:
            fresh = engine.generate(generation.prompt, wanted)
            for _ in fresh:
                pass
        n_rounds = len(generation.rounds)
        assert n_rounds > 0
        assert rounds_of(generation) == rounds_of(fresh)[:n_rounds]
        assert generation.tokens == fresh.tokens[: len(generation.tokens)]


@pytest.mark.parametrize("name", NETWORK_TYPES)
def test_turns_with_n_gram_types_before_the_network(folder: Path, name: str) -> None:
    """Text is that of plain decoding; the same turn again drafts the same (docs/faults.md D4, D7)."""
    target, draft = tiny_pair(folder, name)
    texts = []
    for types in ([name, *TABLE_TYPES], ["none"]):
        with opened(target, draft if name in types else None, speculation(types, 4)) as engine:
            session = engine.session()
            answers = [turn(session, content, request_for(BEST)) for content in (STORY, "the fox", "the dog")]
            for _ in session.regenerate(request_for(BEST)):
                pass
            assert session.last is not None
            assert session.last.tokens == answers[-1].tokens
            texts.append([g.text for g in answers])
    assert texts[0] == texts[1]


@pytest.mark.skipif(not STATM.exists(), reason="no /proc")
@pytest.mark.parametrize("name", [*NETWORK_TYPES, "quantised caches"])
def test_memory_stays_flat(folder: Path, name: str) -> None:
    """docs/faults.md M8: 150 turns after the first 50 leave the process as big, up to 1 MiB (7 KiB per turn)."""
    if name in NETWORK_TYPES:
        target, draft = tiny_pair(folder, name)
        kind, cache = name, "f16"
    else:
        target = draft = tiny_gguf(folder / "wide.gguf", head_size=64, tied=True)
        kind, cache = "draft-simple", "q8_0"
    with opened(target, draft, speculation([kind], 4), type_k=cache, type_v=cache) as engine:
        session = engine.session()
        for number in range(200):
            if number % 4 == 0:
                session.clear()
            if number == 50:
                before = resident_bytes()
            turn(session, f"and item {number}", request_for(BEST, n_predict=6))
        assert resident_bytes() - before < 1 << 20
