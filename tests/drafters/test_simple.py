"""draft-simple against the plain rule: whatever happened before, it drafts what a fresh model would."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from specli.drafters.base import DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig
from specli.drafters.simple import DraftSimple
from specli.drafters.stepping import CandidateSampler, DraftCandidates, GrowingDraft, collect
from tests.support.recalling_model import RecallingModel, random_tokens

N_VOCAB = 40


def drafter_of(model: RecallingModel, config: DraftConfig | None = None, *, n_vocab: int = N_VOCAB) -> DraftSimple:
    return DraftSimple(
        model,  # type: ignore[arg-type]
        config or DraftConfig(n_max=4),
        n_vocab=n_vocab,
        writer=RecallingModel.writer,  # type: ignore[arg-type]
    )


def show(drafter: DraftSimple, tokens: list[int], start: int) -> None:
    ids = np.array(tokens, dtype=np.int32)
    drafter.process([TargetBatch(0, ids, np.arange(start, start + len(ids), dtype=np.int32))])


def draft_of(drafter: DraftSimple, history: list[int], last: int, limit: int) -> list[int]:
    [draft] = drafter.draft([DraftRequest(0, history, last, limit)])
    return draft.tokens


def expected(history: list[int], last: int, config: DraftConfig, limit: int) -> list[int]:
    model = RecallingModel(n_vocab=N_VOCAB)
    sequence = [*history, last]

    sampler = CandidateSampler(probabilistic=False)

    def candidates() -> DraftCandidates | None:
        values, ids = torch.topk(model.logits(sequence), 10)
        return sampler.best(values.numpy(), ids.numpy().astype(np.int32))

    def advance(tokens: Sequence[int | None]) -> list[DraftCandidates | None]:
        sequence.extend(token for token in tokens if token is not None)
        return [candidates()]

    return collect([GrowingDraft(sampler, config, limit=limit)], [candidates()], advance)[0].tokens


def start_request(drafter: DraftSimple, rng: random.Random, before: list[int], prompt: list[int]) -> None:
    """As the engine starts one: the common prefix is kept, the rest is shown in chunks."""
    limit = min(len(before), len(prompt) - 1)
    keep = next((i for i in range(limit) if before[i] != prompt[i]), limit)
    drafter.rewind(0, keep)
    while keep < len(prompt):
        size = rng.randrange(1, 30)
        show(drafter, prompt[keep : keep + size], keep)
        keep += size
    drafter.begin(0, prompt)


@pytest.mark.parametrize("seed", range(12))
def test_drafts_depend_on_the_sequence_alone(seed: int) -> None:
    """Requests in turn, with rounds that accept part, are won by another drafter, dropped by n_min, or capped."""
    rng = random.Random(seed)
    config = DraftConfig(n_max=rng.choice((1, 3, 6)), p_min=rng.choice((0.0, 0.3)), n_min=rng.choice((0, 0, 2)))
    drafter = drafter_of(RecallingModel(n_vocab=N_VOCAB), config)
    history: list[int] = []
    for _ in range(8):
        prompt = random_tokens(rng, rng.randrange(1, 60), N_VOCAB)
        prompt = rng.choice((history + prompt, history[: len(history) // 2] + prompt, prompt))
        start_request(drafter, rng, history, prompt)
        history = list(prompt)
        for _ in range(rng.randrange(12)):
            last = rng.randrange(N_VOCAB)
            limit = rng.choice((1, 2, 100))
            draft = []
            if rng.random() < 0.7:
                draft = draft_of(drafter, history, last, limit)
                assert draft == expected(history, last, config, limit)
            is_own = bool(draft)
            draft = draft or random_tokens(rng, rng.randrange(4), N_VOCAB)
            show(drafter, [last, *draft], len(history))
            n_accepted = rng.randrange(len(draft) + 1)
            if is_own:
                drafter.accept(0, n_accepted)
            history += [last, *draft[:n_accepted]]


def test_nothing_is_evaluated_twice() -> None:
    """8 tokens of prompt; a draft of 4 feeds the last token and three of its own; all stand, so two are missing."""
    model = RecallingModel(n_vocab=N_VOCAB)
    drafter = drafter_of(model)
    prompt = list(range(8))
    show(drafter, prompt, 0)
    drafter.begin(0, prompt)
    assert model.n_rows == 8
    draft = draft_of(drafter, prompt, 9, 100)
    assert model.n_rows == 8 + 4
    show(drafter, [9, *draft], 8)
    assert model.n_rows == 8 + 4
    draft_of(drafter, [*prompt, 9, *draft], 10, 100)
    assert model.n_rows == 8 + 4 + 2 + 3


def test_prompt_longer_than_a_batch_is_split() -> None:
    model = RecallingModel(max_tokens=8)
    drafter = drafter_of(model)
    show(drafter, list(range(20)), 0)
    assert model.n_forwards == 3
    assert model.cells == list(range(20))


def test_begin_evaluates_what_process_did_not_show() -> None:
    model = RecallingModel()
    drafter_of(model).begin(0, [1, 2, 3])
    assert model.cells == [1, 2, 3]


def test_tokens_that_only_the_target_has_are_read_as_another() -> None:
    """docs/faults.md V2: the context may hold ids beyond the draft vocabulary; they must not reach the draft model."""
    model = RecallingModel(n_vocab=10)
    drafter = drafter_of(model, n_vocab=20)
    show(drafter, [1, 15, 2], 0)
    draft = draft_of(drafter, [1, 15, 2], 19, 100)
    assert model.cells[:4] == [1, 0, 2, 0]
    assert all(token < 10 for token in draft)


def test_tokens_that_only_the_draft_model_has_are_not_proposed() -> None:
    drafter = drafter_of(RecallingModel(n_vocab=40), DraftConfig(n_max=30), n_vocab=2)
    assert set(draft_of(drafter, [1], 0, 100)) == {0, 1}


def test_sampled_drafts_repeat_with_the_request() -> None:
    drafter = drafter_of(RecallingModel(), DraftConfig(n_max=6, probabilistic=True))
    requests = [DraftRequest(0, [1, 2], 3, 100, temperature, 5) for temperature in (1.0, 1.0, 0.0)]
    drafts = []
    for request in requests:
        drafter.begin(0, [1, 2])
        drafts += drafter.draft([request])
    sampled, again, greedy = drafts
    assert sampled.tokens == again.tokens != greedy.tokens
    assert sampled.probabilities is not None
    assert greedy.probabilities is None


def test_close_releases_the_model() -> None:
    model = RecallingModel()
    drafter_of(model).close()
    assert model.is_closed
