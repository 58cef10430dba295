"""Draft lengths chosen while running: any choice gives the same text, and the same drafts as far as they are made."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from specli.demo import resolve
from specli.drafters.adaptive import AdaptiveLengths, Choice, DrafterTraits
from specli.drafters.costs import RowCosts
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import Run, open_engine
from specli.engine.measure import measure_rows
from specli.kernels.threads import ThreadConfig
from specli.sampling.settings import SamplingConfig

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [CHAT.format(text) for text in ("Tell me a story about a fox.", "Count from 3 to 12.")]
NETWORKS = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark", "draft-mtp")
TABLES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
GREEDY = SamplingConfig(temperature=0)
SEEDED = SamplingConfig(temperature=0.9, seed=11)
SMALL_KEYS = {
    "ngram-simple": {"size_n": 2, "size_m": 6},
    "ngram-map-k": {"size_n": 2, "size_m": 6},
    "ngram-map-k4v": {"size_n": 2, "size_m": 6},
    "ngram-mod": {"n_match": 2, "n_min": 0, "n_max": 8},
}


class RandomLengths(AdaptiveLengths):
    """Any order, any lengths, now and then nobody; of a draft any beginning is verified."""

    trims = True

    def __init__(self, traits: list[DrafterTraits], seed: int) -> None:
        super().__init__(RowCosts({1: 1.0}), traits)
        self._draw = random.Random(seed)

    def choose(self, max_tokens: int, *, n_sequences: int = 1) -> list[Choice]:
        limits = [min(max_tokens, traits.max_draft) for traits in self.traits]
        choices = [Choice(i, self._draw.randint(1, limit)) for i, limit in enumerate(limits)]
        self._draw.shuffle(choices)
        return choices[: self._draw.randint(0, len(choices))] if self._draw.random() < 0.6 else []

    def skips(self, n_sequences: int) -> bool:
        return False

    def trim(self, survivals: Sequence[Sequence[float]], n_rows: int) -> list[int]:
        return [self._draw.randint(0, len(each)) if self.trims else len(each) for each in survivals]


@contextmanager
def opened(*types: str, adaptive: bool = True, probabilistic: bool = False) -> Iterator[Run]:
    name = "demo-mtp" if "draft-mtp" in types else "demo"
    network = next((type for type in types if type in NETWORKS and type != "draft-mtp"), None)
    model = ModelLoadConfig(resolve(name), device="cpu", threads=ThreadConfig(n_threads=1))
    speculation = SpeculationConfig(
        types=types or ("none",),
        draft=DraftConfig(n_max=4, probabilistic=probabilistic),
        tables={type: SMALL_KEYS[type] for type in types if type in SMALL_KEYS},
        adaptive=adaptive,
    )
    draft = replace(model, path=resolve("demo", network)) if network else None
    with open_engine(RunConfig(model, draft, speculation, n_ctx=512)) as run:
        yield run


def answers(run: Run, sampling: SamplingConfig, n_predict: int = 48) -> list[list[int]]:
    found = []
    for prompt in PROMPTS:
        generation = run.generate(prompt, RequestConfig(n_predict=n_predict, sampling=sampling, trace=True))
        for _ in generation:
            pass
        found.append(generation.tokens)
    return found


@pytest.fixture(scope="module", params=[GREEDY, SEEDED], ids=["greedy", "seeded"])
def plain(request: pytest.FixtureRequest) -> tuple[SamplingConfig, dict[str, list[list[int]]]]:
    expected = {}
    for name in ("demo", "demo-mtp"):
        model = ModelLoadConfig(resolve(name), device="cpu", threads=ThreadConfig(n_threads=1))
        with open_engine(RunConfig(model, speculation=SpeculationConfig(types=("none",)), n_ctx=512)) as run:
            expected[name] = answers(run, request.param)
    return request.param, expected


@pytest.mark.parametrize(
    "types", [*((name,) for name in (*NETWORKS, *TABLES)), ("ngram-map-k", "ngram-cache", "draft-eagle3")], ids="+".join
)
def test_any_choice_of_lengths_gives_the_text_of_plain_decoding(
    plain: tuple[SamplingConfig, dict[str, list[list[int]]]], types: tuple[str, ...]
) -> None:
    sampling, expected = plain
    with opened(*types) as run:
        assert isinstance(run.engine.chain.lengths, AdaptiveLengths)
        run.engine.chain.lengths = RandomLengths(list(run.engine.chain.lengths.traits), seed=len(types[0]))
        assert answers(run, sampling) == expected["demo-mtp" if "draft-mtp" in types else "demo"]
        stats = run.engine.chain.stats
        assert sum(each.gen_drafts for each in stats) > 0
        assert run.result().to_dict()["timings"]["n_rounds_skipped"] > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_a_draft_after_rounds_without_one_is_that_of_a_drafter_that_saw_every_round(name: str) -> None:
    """What is held back and taken in later leaves the bits that taking it in at once leaves."""
    with opened(name, adaptive=False) as run:
        generation = run.generate(PROMPTS[0], RequestConfig(n_predict=40, sampling=GREEDY, trace=True))
        list(generation)
        drafts = {each.position: each.draft for each in generation.rounds}
    with opened(name) as run:
        run.engine.chain.lengths = lengths = RandomLengths([DrafterTraits(4)], seed=3)
        lengths.trims = False
        generation = run.generate(PROMPTS[0], RequestConfig(n_predict=40, sampling=GREEDY, trace=True))
        list(generation)
        n_compared = 0
        for each in generation.rounds:
            known = drafts.get(each.position, ())
            if each.draft and known:
                assert each.draft == known[: len(each.draft)]
                n_compared += 1
    assert n_compared >= 2


def test_synthetic_acceptance_and_fixed_lengths_choose_nothing() -> None:
    with opened("draft-eagle3", adaptive=False) as run:
        assert run.engine.chain.lengths is None
    with opened() as run:
        assert run.engine.chain.lengths is None


def test_costs_are_measured_without_leaving_a_trace() -> None:
    with opened("draft-eagle3") as run:
        target = run.engine.target
        found = measure_rows(target, 5, budget_ns=50_000_000)
        assert sorted(found)[0] == 1
        assert sorted(found)[-1] == 5
        assert all(ns > 0 for ns in found.values())
        assert target.cache.length(0) == 0


def test_a_target_too_slow_for_the_budget_is_measured_at_both_ends() -> None:
    with opened("draft-eagle3") as run:
        assert sorted(measure_rows(run.engine.target, 5, budget_ns=1)) == [1, 5]
