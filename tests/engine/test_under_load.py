"""Random load on random engines: each request gets, bit for bit, the tokens, text and log-probabilities it gets alone.

Drawn at random: family, drafters, slots, rows of a batch, arrivals, lengths, wanted slots, requests that share a
prompt, how similar a slot has to be, and who leaves when.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from specli.drafters.settings import SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import Run, open_engine
from specli.engine.scheduler import Scheduler
from specli.engine.sequence import Sequence, TokenLogprob
from specli.models import ARCHITECTURES
from tests.support.runs import ONE_THREAD, executors, skipping_unsupported, speculation
from tests.support.tiny_pairs import NETWORK_TYPES, TABLE_TYPES, tiny_pair, tiny_target

N_CTX = 192
FAMILIES = ("llama", "qwen3", "qwen35", "gemma3", "gemma4", "gpt-oss", "qwen3moe")
Job = tuple[list[int], RequestConfig]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("load")


def drawn_engine(rng: random.Random, folder: Path, kernels: str) -> RunConfig:
    tables = tuple(rng.sample(TABLE_TYPES, rng.randrange(3)))
    if rng.random() < 0.5:
        name = rng.choice(NETWORK_TYPES)
        target, draft = tiny_pair(folder, name)
        types = (*tables, name)
    else:
        family = rng.choice([name for name in FAMILIES if name in ARCHITECTURES])
        target, draft, types = folder / f"{family}-alone.gguf", None, tables
        if not target.exists():
            tiny_target(target, family)
    model = ModelLoadConfig(target, device="cpu", kernels=kernels, threads=ONE_THREAD)
    load = None if draft is None else ModelLoadConfig(draft, "cpu", kernels=kernels, threads=ONE_THREAD)
    spec = speculation(types, rng.randrange(1, 6)) if types else SpeculationConfig()
    spec = replace(spec, shared_pool=rng.random() < 0.5)
    n_slots = rng.randrange(1, 9)
    return RunConfig(model, load, spec, n_ctx=N_CTX, n_batch=max(n_slots, rng.choice([16, 32, 64])), n_slots=n_slots)


def drawn_job(rng: random.Random, number: int) -> Job:
    words = [rng.randrange(20, 60) for _ in range(rng.randrange(1, 9))]
    prompt = [*range(20, 20 + rng.randrange(1, 20)), *words * rng.randrange(1, 6)]
    sampling = SamplingConfig(
        temperature=rng.choice([0.0, 0.9]), seed=number, repeat_penalty=rng.choice([1.0, 1.1]), ignore_eos=True
    )
    stop = rng.choice([(), ("th",)])
    return prompt, RequestConfig(
        n_predict=rng.randrange(1, 30), sampling=sampling, logprobs=rng.choice([0, 2]), stop=stop
    )


def alone(run: Run, job: Job) -> tuple[list[int], str, list[TokenLogprob]]:
    run.engine.reset()
    done = run.engine.generate(*job)
    for _ in done:
        pass
    return done.tokens, done.text, done.logprobs


def check_load(seed: int, folder: Path, n_jobs: int, kernels: str) -> None:
    rng = random.Random(seed)
    setup = drawn_engine(rng, folder, kernels)
    with skipping_unsupported(), open_engine(setup) as run:
        engine = run.engine
        jobs = [drawn_job(rng, number) for number in range(n_jobs)]
        for number in rng.sample(range(1, n_jobs), 2):  # several answers to one prompt
            jobs[number] = jobs[number - 1][0], jobs[number][1]
        expected = [alone(run, job) for job in jobs]
        engine.reset()
        engine.similarity = rng.choice([0.0, 0.1, 1.0])
        coming = [engine.sequence(*job) for job in jobs]
        for before, sequence in pairwise(coming):
            sequence.twin = before if sequence.prompt == before.prompt else None
            sequence.reuses = rng.random() < 0.8
            sequence.wanted_slot = rng.choice([None, None, rng.randrange(9)])
        leaving = {id(sequence) for sequence in coming if rng.random() < 0.25}
        scheduler, waiting = Scheduler(engine), list(coming)
        while waiting or scheduler.sequences:
            while waiting and rng.random() < 0.5:
                scheduler.add(waiting.pop(0))
            for sequence in scheduler.sequences:
                if id(sequence) in leaving and rng.random() < 0.1:
                    sequence.end()
            scheduler.step()
        assert all(slot.sequence is None for slot in engine.slots)
        for sequence, (tokens, text, logprobs) in zip(coming, expected, strict=True):
            assert_same(sequence, tokens, text, logprobs, is_cut=id(sequence) in leaving)


def assert_same(
    sequence: Sequence, tokens: list[int], text: str, logprobs: list[TokenLogprob], *, is_cut: bool
) -> None:
    assert sequence.error is None
    if is_cut and sequence.stop == "interrupt":
        assert sequence.tokens == tokens[: len(sequence.tokens)]
        assert text.startswith(sequence.text)
        assert sequence.logprobs == logprobs[: len(sequence.logprobs)]
    else:
        assert (sequence.tokens, sequence.text, sequence.logprobs) == (tokens, text, logprobs)


@pytest.mark.parametrize("seed", range(6))
def test_load_changes_nothing(folder: Path, seed: int) -> None:
    check_load(seed, folder, 8, executors()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("seed", range(100, 150))
def test_load_changes_nothing_at_length(folder: Path, seed: int, kernels: str) -> None:
    check_load(seed, folder, 16, kernels)
