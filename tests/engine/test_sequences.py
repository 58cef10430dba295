"""Many requests in the steps of one engine: each gets, bit for bit, what it gets alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import Run, open_engine
from specli.engine.loop import PROMPT_SHARE, Engine
from specli.engine.sequence import Sequence as Request
from specli.engine.verify import lossless_rule
from specli.models import ARCHITECTURES
from tests.support.runs import GREEDY, ONE_THREAD, executors, speculation
from tests.support.scripted import LetterTokenizer, ScriptedDrafter, ScriptedTarget, count_up
from tests.support.tiny_pairs import NETWORK_TYPES, TABLE_TYPES, tiny_pair, tiny_target

FASTEST = executors()[-1]
N_CTX = 256
SYSTEM = [(5 * i * i + i) % 150 + 20 for i in range(14)]  # what all prompts begin with
Job = tuple[list[int], RequestConfig]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sequences")


@contextmanager
def opened(
    target: Path, draft: Path | None, types: Sequence[str], n_slots: int, *, n_batch: int = 512, **draft_fields: Any
) -> Iterator[Run]:
    model = ModelLoadConfig(target, device="cpu", kernels=FASTEST, threads=ONE_THREAD)
    spec = speculation(types, 5, **draft_fields)
    draft_load = replace(model, path=draft) if draft else None
    with open_engine(RunConfig(model, draft_load, spec, n_ctx=N_CTX, n_batch=n_batch, n_slots=n_slots)) as run:
        yield run


def jobs(n: int, seed: int = 3) -> list[Job]:
    """Greedy and sampled, short and longer than a batch, most of them with something for n-gram drafters to find."""
    rng = random.Random(seed)
    made = []
    for number in range(n):
        words = [rng.randrange(5, 40) for _ in range(rng.randrange(2, 9))]
        prompt = [*SYSTEM, 40 + number, *words * rng.randrange(1, 6), *[words[-1]] * 4]
        sampling = GREEDY if number % 3 < 2 else SamplingConfig(temperature=0.7, seed=number, repeat_penalty=1.1)
        made.append(
            (
                prompt,
                RequestConfig(
                    n_predict=rng.choice([1, 12, 25, 40]),
                    sampling=replace(sampling, ignore_eos=True),
                    logprobs=2 * (number % 2),
                    prompt_logprobs=number % 5 == 4,
                    stop=("th",) if number % 4 == 3 else (),
                    trace=True,
                ),
            )
        )
    return made


def outcome(request: Request) -> dict[str, Any]:
    """All that a request left, times aside."""
    assert request.is_done
    assert request.error is None
    assert [event.id for event in request.events] == request.tokens
    assert "".join(event.text for event in request.events) == request.text
    return {
        "tokens": request.tokens,
        "text": request.text,
        "stop": request.stop,
        "logprobs": request.logprobs,
        "prompt_logprobs": request.prompt_logprobs,
        "rounds": [(r.drafter, r.position, r.draft, r.tokens, r.n_accepted) for r in request.rounds],
        "timings": counted(asdict(request.timings), "cache_n", "prompt_n"),
        "drafters": [counted(asdict(stats)) for stats in request.drafters],
    }


def counted(record: dict[str, Any], *left_out: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith("_ns") and name not in left_out}


def alone(run: Run, job: Job) -> dict[str, Any]:
    """What a request gives that meets an engine without any other."""
    run.engine.reset()
    request = run.engine.sequence(*job)
    while run.engine.step([request]):
        pass
    return outcome(request)


def serve(engine: Engine, wanted: Sequence[Job], rng: random.Random, doomed: Sequence[Job] = ()) -> list[Request]:
    """Steps with requests that arrive at random; those of `doomed` are cancelled at random, wherever they are."""
    requests = [engine.sequence(*job) for job in wanted]
    leaving = [engine.sequence(*job) for job in doomed]
    coming = [*requests, *leaving]
    rng.shuffle(coming)
    here: list[Request] = []
    while coming or here:
        while coming and rng.random() < 0.4:
            here.append(coming.pop())
        for request in here:
            if request in leaving and rng.random() < 0.1:
                request.end()
        engine.step(here)
        here = [request for request in here if not request.is_done]
    assert all(slot.sequence is None for slot in engine.slots)
    return requests


class Informed:
    """Drafts an answer's next tokens, and from some place on wrong ones; the place depends on the position alone."""

    name, max_draft, reads_features, reads_batches = "informed", 5, False, True

    def __init__(self, texts: Sequence[list[int]]) -> None:
        self.texts = texts

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = []
        for request in requests:
            so_far = [*request.history, request.last_token]
            text = next(text for text in self.texts if text[: len(so_far)] == so_far)
            n_right = 7 * len(so_far) % 11 % 6
            known = text[len(so_far) : len(so_far) + n_right]
            drafts.append(Draft((known + [5] * 5)[: len(so_far) % 7]))
        return drafts

    def begin(self, slot: int, prompt: Sequence[int]) -> None: ...
    def process(self, parts: Sequence[TargetBatch]) -> None: ...
    def accept(self, slot: int, n_accepted: int) -> None: ...
    def rewind(self, slot: int, length: int) -> None: ...
    def close(self) -> None: ...


def check(run: Run, work: Sequence[Job], expected: list[dict[str, Any]], n_slots: int) -> None:
    """Random arrivals, cancellations, prompts that share their beginning, batches smaller than prompts."""
    found = serve(run.engine, work, random.Random(n_slots), doomed=jobs(3, seed=9))
    assert [outcome(request) for request in found] == expected
    is_recurrent = run.engine.target.cache.max_rewind < N_CTX
    assert is_recurrent or any(request.timings.cache_n for request in found)


def n_drafted(outcomes: Sequence[dict[str, Any]]) -> int:
    return sum(each["timings"]["draft_n"] for each in outcomes)


def n_accepted(outcomes: Sequence[dict[str, Any]]) -> int:
    return sum(each["timings"]["draft_n_accepted"] for each in outcomes)


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_every_family(folder: Path, family: str) -> None:
    """Drafts that are right for a while, then wrong: recurrent layers have to go back now and then."""
    target, work = tiny_target(folder / f"{family}.gguf", family, tied=True), jobs(7)
    with opened(target, None, ["none"], 1) as run:
        plain = [alone(run, job) for job in work]
        texts = [[*prompt, *each["tokens"]] for (prompt, _), each in zip(work, plain, strict=True)]
        texts += [[*prompt, *alone(run, job)["tokens"]] for job in jobs(3, seed=9) for prompt in [job[0]]]
    for n_slots in (1, 3, 8):
        with opened(target, None, ["ngram-simple"], n_slots, n_batch=32) as run:  # room for drafts
            run.engine.use(DrafterChain([Informed(texts)]), run.engine.rule)
            if n_slots == 1:
                expected = [alone(run, job) for job in work]
            check(run, work, expected, n_slots)
    assert 0 < n_accepted(expected) < n_drafted(expected)
    for name in ("tokens", "text", "stop", "logprobs", "prompt_logprobs"):
        assert [each[name] for each in expected] == [each[name] for each in plain]


@pytest.mark.parametrize("types", [*([name] for name in TABLE_TYPES), TABLE_TYPES], ids="+".join)
def test_every_n_gram_type(folder: Path, types: Sequence[str]) -> None:
    target, work = tiny_pair(folder, "draft-mtp")[0], jobs(10)  # every token follows from the one before it
    for n_slots in (1, 3, 8):
        with opened(target, None, types, n_slots, n_batch=32) as run:
            if n_slots == 1:
                expected = [alone(run, job) for job in work]
            check(run, work, expected, n_slots)
    assert 0 < n_accepted(expected) <= n_drafted(expected)


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35", "gemma4"])
@pytest.mark.parametrize("name", NETWORK_TYPES)
def test_every_network(folder: Path, name: str, family: str) -> None:
    """Alone and beside an n-gram type; greedy drafts, and sampled ones that end where the drafter is unsure."""
    target, draft = tiny_pair(folder, name, family)
    types, work = [name] if family == "llama" else ["ngram-map-k", name], jobs(7)
    for fields in ({}, {"probabilistic": True, "p_min": 0.2}):
        for n_slots in (1, 3, 8):
            with opened(target, draft, types, n_slots, n_batch=32, **fields) as run:
                if n_slots == 1:
                    expected = [alone(run, job) for job in work]
                check(run, work, expected, n_slots)
        assert sum(each["drafters"][-1]["gen_tokens"] for each in expected) > 0


def test_turns_of_conversations_get_their_slots_back(folder: Path) -> None:
    """Every turn goes on where its conversation is in the cache, however many others there are; text as alone."""
    target = tiny_pair(folder, "draft-simple")[0]
    request = RequestConfig(n_predict=9, sampling=replace(GREEDY, ignore_eos=True))
    with opened(target, None, TABLE_TYPES, 3) as run, opened(target, None, ["none"], 1) as single:
        prompts = [[40 + number, 5, 6, 7, 5, 6, 7, 5, 6] for number in range(3)]
        for turn in range(3):
            requests = [run.engine.sequence(prompt, request) for prompt in prompts]
            while run.engine.step(requests):
                pass
            for number, (prompt, done) in enumerate(zip(prompts, requests, strict=True)):
                assert done.tokens == alone(single, (prompt, request))["tokens"]
                assert done.timings.cache_n == (0 if turn == 0 else len(prompt) - 3)  # all but what is new
                prompts[number] = [*prompt, *done.tokens[:-1], 8, 9, 10]


# --- by hand -------------------------------------------------------------------------------------------------------


def scripted(drafters: Sequence[Any] = (), *, n_slots: int = 3, n_ctx: int = 256, **sizes: int) -> Engine:
    target: Any = ScriptedTarget(count_up, n_slots=n_slots, **{"max_tokens": 32, "max_outputs": 32, **sizes})
    tokenizer: Any = LetterTokenizer()
    return Engine(target, tokenizer, DrafterChain(drafters), lossless_rule(tokenizer.eog_ids), n_ctx=n_ctx)


def right(tokens: list[int], most: int) -> list[int]:
    return [(tokens[-1] + 1 + i) % 40 for i in range(most)]


def greedy(n_predict: int = 8, **fields: Any) -> RequestConfig:
    return RequestConfig(n_predict=n_predict, sampling=GREEDY, **fields)


def batches(engine: Engine) -> list[dict[int, int]]:
    target: Any = engine.target
    return list(target.batches)


def test_one_forward_and_one_draft_call_for_all() -> None:
    """Prompts of 2, 3 and 4 tokens in one forward; then 4 draft tokens and the newest of each; then the rest."""
    drafter = ScriptedDrafter(right)
    engine = scripted([drafter])
    requests = [engine.sequence(list(range(n)), greedy()) for n in (2, 3, 4)]
    while engine.step(requests):
        pass
    assert [request.tokens for request in requests] == [list(range(n, n + 8)) for n in (2, 3, 4)]
    assert batches(engine) == [{0: 2, 1: 3, 2: 4}, {0: 5, 1: 5, 2: 5}, {0: 2, 1: 2, 2: 2}]
    assert drafter.n_calls == 2
    assert [request.timings.draft_n for request in requests] == [5, 5, 5]


def test_answers_go_on_while_prompts_are_read() -> None:
    """Of 32 rows an answer has its own in every step; prompts get a quarter, and all when nobody else is there."""
    engine = scripted()
    answering, long = engine.sequence([0], greedy(6)), engine.sequence(list(range(40)) * 2, greedy(2))
    engine.step([answering])
    for number in range(5):
        assert len(answering.tokens) == 1 + number
        engine.step([answering, long])
    assert answering.is_done
    while engine.step([long]):
        pass
    share = 32 // PROMPT_SHARE
    assert batches(engine) == [{0: 1}, *[{0: 1, 1: share}] * 5, {1: 32}, {1: 8}, {1: 1}]
    assert long.tokens == [0, 1]


def test_prompts_share_a_step_and_none_waits() -> None:
    engine = scripted()
    requests = [engine.sequence([0] * n, greedy(1)) for n in (60, 5, 60)]
    while engine.step(requests):
        pass
    assert batches(engine) == [{0: 13, 1: 5, 2: 14}, {0: 16, 2: 16}, {0: 16, 2: 16}, {0: 15, 2: 14}]


def test_drafts_leave_every_answer_its_row() -> None:
    """Eight rows for three answers: five are left, so one draft token each."""
    engine = scripted([ScriptedDrafter(right)], max_tokens=8, max_outputs=8)
    requests = [engine.sequence([n], greedy(5)) for n in (1, 11, 21)]
    while engine.step(requests):
        pass
    assert [request.tokens for request in requests] == [list(range(n + 1, n + 6)) for n in (1, 11, 21)]
    assert batches(engine) == [{0: 1, 1: 1, 2: 1}, *[{0: 2, 1: 2, 2: 2}] * 2]


def test_all_logits_of_prompts_beside_answers() -> None:
    """Eight rows with logits: an answer has one and every prompt at least one."""
    engine = scripted(max_outputs=8)
    answering = engine.sequence([0], greedy(30))
    engine.step([answering])
    requests = [engine.sequence(list(range(20)), greedy(1, prompt_logprobs=True)) for _ in range(2)]
    while engine.step([answering, *requests]):
        pass
    for request in requests:
        assert [item.id for item in request.prompt_logprobs] == list(range(20))
        logprobs = [item.logprob for item in request.prompt_logprobs[1:]]
        assert logprobs == pytest.approx([5 - math.log(math.exp(5) + 49)] * 19)  # one logit of 5, 49 of 0


def test_requests_wait_for_a_slot_in_their_order() -> None:
    engine = scripted(n_slots=2)
    requests = [engine.sequence([n], greedy(3)) for n in range(4)]
    for _ in range(3):
        engine.step(requests)
    assert [request.is_done for request in requests] == [True, True, False, False]
    while engine.step(requests):
        pass
    assert [request.tokens[0] for request in requests] == [1, 2, 3, 4]


def test_a_request_gets_the_slot_that_knows_most_of_it_or_was_idle_longest() -> None:
    engine = scripted()
    requests = [engine.sequence(prompt, greedy(1)) for prompt in ([1, 2, 3], [1, 2, 9, 9], [7])]
    engine.step(requests)
    assert [slot.history for slot in engine.slots] == [[1, 2, 3], [1, 2, 9, 9], [7]]
    list(engine.generate([1, 2, 9, 8], greedy(1)))
    list(engine.generate([7, 7], greedy(1)))
    list(engine.generate([30], greedy(1)))
    assert [slot.history for slot in engine.slots] == [[30], [1, 2, 9, 8], [7, 7]]


def test_a_cancelled_request_frees_its_slot_and_leaves_its_tokens_for_others() -> None:
    drafter = ScriptedDrafter(right)
    engine = scripted([drafter], n_slots=1)
    leaving = engine.sequence([1, 2, 3], greedy(30))
    engine.step([leaving])
    engine.step([leaving])
    leaving.end()
    assert not engine.step([leaving])
    after = engine.sequence([1, 2, 3, 4, 5, 9], greedy(3))
    while engine.step([after]):
        pass
    assert (after.timings.cache_n, after.tokens) == (5, [10, 11, 12])
    assert drafter.seen == engine.slots[0].history


def test_an_error_ends_the_request_that_met_it_alone() -> None:
    engine = scripted([ScriptedDrafter(right)])
    requests = [engine.sequence([n], greedy()) for n in (1, 11)]
    engine.step(requests)
    judge, victim = engine.rule, requests[0].sampler
    engine.rule = lambda draft, rows, sampler: 1 // 0 if sampler is victim else judge(draft, rows, sampler)  # type: ignore[assignment, return-value]
    while engine.step(requests):
        pass
    assert isinstance(requests[0].error, ZeroDivisionError)
    assert (requests[0].tokens, requests[0].stop) == ([2], "interrupt")
    assert (requests[1].tokens, requests[1].error) == (list(range(12, 20)), None)
    assert engine.slots[0].history == [1]


def test_a_step_that_fails_as_a_whole_ends_its_requests_and_forgets_their_slots() -> None:
    drafter = ScriptedDrafter(right)
    engine = scripted([drafter])
    kept = engine.sequence([5, 6], greedy(1))
    engine.step([kept])
    requests = [engine.sequence([n], greedy()) for n in (1, 11)]
    engine.step(requests)
    drafter.rule = lambda tokens, most: [1 // 0]
    with pytest.raises(ZeroDivisionError):
        engine.step(requests)
    assert all(request.is_done for request in requests)
    assert [slot.history for slot in engine.slots] == [[5, 6], [], []]
    drafter.rule = right
    again = [engine.sequence([n], greedy(3)) for n in (1, 11, 21)]
    while engine.step(again):
        pass
    assert [request.tokens for request in again] == [[2, 3, 4], [12, 13, 14], [22, 23, 24]]


def test_a_generation_that_nobody_reads_makes_room_for_the_next() -> None:
    engine = scripted(n_slots=2)
    first, second, third = (engine.generate([n], greedy()) for n in (1, 11, 21))
    next(first), next(second), next(first)
    assert [event.id for event in third] == list(range(22, 30))
    assert (second.stop, second.is_done, second.slot) == ("interrupt", True, None)
    assert [event.id for event in first] == list(range(4, 10))


def test_the_time_of_who_reads_is_not_the_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    monkeypatch.setattr("time.perf_counter_ns", clock)
    engine = scripted([ScriptedDrafter(right)])
    spent = []
    for pause in (0, 10**6):
        generation = engine.generate([3], greedy())
        for _ in generation:
            now += pause
        spent.append(generation.timings.predicted_ns)
        engine.reset()
    assert 0 < spent[0] == spent[1] < 10**6
