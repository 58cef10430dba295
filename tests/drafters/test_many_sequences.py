"""Drafts of many sequences at once are those of each sequence alone: tokens and probabilities.

So as many are accepted. How many are is decided here by count and not by the target, so that all numbers occur.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from specli.demo import DATA
from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig
from specli.kernels.cpu.executor import CpuExecutor, NativeProgram
from specli.kernels.cpu.recorder import Recorder
from specli.kernels.ops import Ops
from tests.support.drafting import Pair, open_pair
from tests.support.runs import executors
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_assistant, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import tiny_pair

Made = tuple[list[int], list[bytes]]  # a round: the draft; its candidates and their probabilities


@dataclass
class Request:
    """A prompt, so many rounds after it, and how they are sampled."""

    prompt: list[int]
    n_rounds: int
    temperature: float
    seed: int
    rounds: list[Made] = field(default_factory=list)


def scripts(n: int) -> list[list[Request]]:
    """Two requests in turn for each slot, the second starting like the first; every third slot samples its drafts."""
    rng = random.Random(5)
    made = []
    for slot in range(n):
        first = [rng.randrange(5, 190) for _ in range(rng.choice((1, 2, 9, 23)))]
        second = first[: len(first) // 2] + [rng.randrange(5, 190) for _ in range(rng.choice((1, 6, 14)))]
        temperature = 1.5 if slot % 3 == 1 else 0.0
        made.append([Request(first, 4, temperature, slot), Request(second, 3, temperature, slot)])
    return made


class Serving:
    """What an engine does with a target and a drafter, for one slot."""

    def __init__(self, slot: int, requests: Sequence[Request]) -> None:
        self.slot = slot
        self.waiting = list(requests)
        self.history: list[int] = []
        self.request: Request | None = None
        self.last = -1

    def start(self, pair: Pair) -> bool:
        """Takes the next request if the present one is finished; whether there is one."""
        if self.request is None or len(self.request.rounds) == self.request.n_rounds:
            if not self.waiting:
                return False
            self.request = self.waiting.pop(0)
            prompt, before = self.request.prompt, self.history
            most = min(len(before), len(prompt) - 1)
            shared = next((i for i in range(most) if before[i] != prompt[i]), most)
            keep = max(0, shared - 1)
            keep = keep if pair.target.cache.can_truncate(self.slot, keep) else 0
            pair.target.cache.truncate(self.slot, keep)
            pair.drafter.rewind(self.slot, keep)
            del self.history[keep:]
        return True

    @property
    def is_generating(self) -> bool:
        assert self.request is not None
        return len(self.history) >= len(self.request.prompt)


def serve(pair: Pair, slots: Sequence[Sequence[Request]], seed: int | None) -> None:
    """Runs all requests; a seed lets slots join rounds at random, in any order, with prompts in pieces."""
    rng = random.Random(seed)
    every = [Serving(slot, requests) for slot, requests in enumerate(slots)]
    while live := [serving for serving in every if serving.start(pair)]:
        if seed is not None:
            live = rng.sample(live, rng.randrange(1, len(live) + 1))
        generating = [serving for serving in live if serving.is_generating]
        requests = [request_of(serving) for serving in generating]
        drafts = dict(zip((s.slot for s in generating), pair.drafter.draft(requests) if requests else [], strict=True))
        step(pair, live, drafts, most=rng.randrange(1, 7) if seed is not None else 6)


def request_of(serving: Serving) -> DraftRequest:
    assert serving.request is not None
    limit = 2 if len(serving.request.rounds) == 1 else 100
    return DraftRequest(
        serving.slot, serving.history, serving.last, limit, serving.request.temperature, serving.request.seed
    )


def step(pair: Pair, live: Sequence[Serving], drafts: dict[int, Draft], *, most: int) -> None:
    """One forward: `[last, draft …]` of those that generate, a piece of the prompt of the others."""
    fed: list[tuple[Serving, list[int]]] = []
    for serving in live:
        assert serving.request is not None
        if serving.slot in drafts:
            draft = drafts[serving.slot]
            limit = request_of(serving).max_tokens
            fed.append((serving, [serving.last, *draft.tokens[:limit]]))
        else:
            at = len(serving.history)
            fed.append((serving, serving.request.prompt[at : at + most]))
    tokens = np.array([token for _, some in fed for token in some], np.int32)
    positions = np.concatenate([np.arange(len(s.history), len(s.history) + len(some)) for s, some in fed])
    owners = np.concatenate([np.full(len(some), serving.slot) for serving, some in fed])
    rows = np.arange(len(tokens), dtype=np.int32)
    out = pair.target.forward(tokens, positions.astype(np.int32), owners.astype(np.int32), rows)
    best = out.read().argmax(axis=1).tolist()
    parts, verdicts, row = [], [], 0
    for serving, some in fed:
        request, n_kept = serving.request, len(some)
        assert request is not None
        if serving.slot in drafts:
            n_accepted = (len(request.rounds) + len(request.prompt)) % len(some)
            n_kept = 1 + n_accepted
            probabilities = drafts[serving.slot].probabilities or []
            known = [ids.tobytes() + chances.tobytes() for ids, chances in probabilities]
            request.rounds.append((drafts[serving.slot].tokens, known))
            if len(some) > 1:
                verdicts.append((serving.slot, n_accepted))
        start = len(serving.history)
        kept = np.array(some[:n_kept], np.int32)
        at = np.arange(start, start + n_kept, dtype=np.int32)
        parts.append(TargetBatch(serving.slot, kept, at, row, out.features))
        serving.history += some[:n_kept]
        serving.last = best[row + n_kept - 1]
        row += len(some)
    for serving, _ in fed:
        pair.target.cache.truncate(serving.slot, len(serving.history))
    pair.drafter.process(parts)
    for slot, n_accepted in verdicts:
        pair.drafter.accept(slot, n_accepted)
    for serving, _ in fed:
        if serving.slot not in drafts and serving.is_generating:
            assert serving.request is not None
            pair.drafter.begin(serving.slot, serving.request.prompt)


def rounds_of(slots: Sequence[Sequence[Request]]) -> list[list[Made]]:
    return [[made for request in requests for made in request.rounds] for requests in slots]


Files = tuple[Path, Path | None, str]
TINY: dict[str, Callable[[Path], Files]] = {
    **{
        name: lambda folder, name=name: (*tiny_pair(folder, name, follows=False), name)  # type: ignore[misc]
        for name in ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
    },
    "draft-simple, recurrent": lambda folder: (
        tiny_gguf(folder / "t.gguf"), tiny_gguf(folder / "d.gguf", "qwen35", seed=1), "draft-simple",
    ),
    "draft-simple, experts": lambda folder: (
        tiny_gguf(folder / "t.gguf"), tiny_gguf(folder / "d.gguf", "qwen3moe", seed=1), "draft-simple",
    ),
    "draft-mtp, experts": lambda folder: (tiny_mtp(folder / "t.gguf", "glm4moe"), None, "draft-mtp"),
    "draft-mtp, three heads": lambda folder: (
        tiny_mtp(folder / "t.gguf", "qwen3", n_heads=3, own_ends=True), None, "draft-mtp",
    ),
    "draft-mtp, assistant": lambda folder: (
        tiny_gguf(folder / "t.gguf", "gemma4", n_layer=4), tiny_assistant(folder / "d.gguf"), "draft-mtp",
    ),
    "draft-eagle3, recurrent target": lambda folder: (
        *tiny_pair(folder, "draft-eagle3", "qwen35", follows=False),
        "draft-eagle3",
    ),
    "draft-dflash, selector": lambda folder: (
        tiny_gguf(folder / "t.gguf", tied=True),
        tiny_dflash(folder / "d.gguf", selector=6), "draft-dflash",
    ),
}  # fmt: skip
DEMO = {
    "draft-simple": "simple", "draft-eagle3": "eagle3", "draft-dflash": "dflash", "draft-dspark": "dspark",
    "draft-mtp": None,
}  # fmt: skip
CONFIGS = {
    "whole": DraftConfig(n_max=3),
    "p-min": DraftConfig(n_max=3, p_min=0.1),
    "sampled": DraftConfig(n_max=3, probabilistic=True),
}


def assert_alike(files: Files, config: DraftConfig, kernels: str, sizes: Sequence[int]) -> None:
    target, draft, name = files
    alone = scripts(max(sizes))
    with open_pair(target, draft, name, config, kernels=kernels) as pair:
        for requests in alone:
            pair.target.cache.truncate(0, 0)
            serve(pair, [requests], None)
    expected = rounds_of(alone)
    assert any(made[0] for sequence in expected for made in sequence), "nothing was drafted"
    assert config.probabilistic == any(made[1] for sequence in expected for made in sequence)
    for n in sizes:
        with open_pair(target, draft, name, config, kernels=kernels, n_slots=n) as pair:
            served = scripts(n)
            serve(pair, served, seed=n)
        assert rounds_of(served) == expected[:n], f"{n} sequences"


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("pair", TINY)
def test_drafts_do_not_depend_on_the_load(pair: str, config: str, tmp_path: Path) -> None:
    """One, three and eight sequences of mixed lengths, on the fastest kernels."""
    assert_alike(TINY[pair](tmp_path), CONFIGS[config], executors()[-1], (1, 3, 8))


@pytest.mark.parametrize("pair", TINY)
def test_drafts_do_not_depend_on_the_load_on_the_reference(pair: str, tmp_path: Path) -> None:
    assert_alike(TINY[pair](tmp_path), CONFIGS["sampled"], "reference", (3,))


@pytest.mark.parametrize("config", ["whole", "sampled"])
@pytest.mark.parametrize("name", DEMO)
def test_demo_drafters_do_not_depend_on_the_load(name: str, config: str) -> None:
    draft = DEMO[name]
    target = DATA / ("target.gguf" if draft else "mtp.gguf")
    files = target, DATA / f"{draft}.gguf" if draft else None, name
    assert_alike(files, CONFIGS[config], executors()[-1], (1, 3, 8))


@pytest.mark.skipif("cpu" not in executors(), reason="the native library is not built")
@pytest.mark.parametrize("p_min", [0.0, 0.1])
@pytest.mark.parametrize("name", ["draft-simple", "draft-eagle3", "draft-mtp"])
def test_longer_drafts_record_no_more_operations(
    name: str, p_min: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So loading takes no longer: a step is recorded once, whatever `n_max` is."""
    recorded: list[int] = []
    compile = CpuExecutor.compile

    def counting(self: CpuExecutor, trace: Callable[[Ops], None]) -> NativeProgram:
        recorder = Recorder(exact=False)
        trace(recorder)
        recorded.append(len(recorder.ops))
        return compile(self, trace)

    monkeypatch.setattr(CpuExecutor, "compile", counting)
    found = []
    for n_max in (3, 200):
        recorded.clear()
        with open_pair(*tiny_pair(tmp_path, name), name, DraftConfig(n_max=n_max, p_min=p_min), kernels="cpu"):
            found.append(list(recorded))
    assert found[0] == found[1]
    assert len(found[0]) >= 3  # those of the target, and of the network
