"""The loop with scripted models: what is drafted, accepted, emitted and remembered can be counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specli.drafters.chain import DrafterChain
from specli.engine.config import RequestConfig, SamplingConfig
from specli.engine.loop import Engine
from specli.engine.sequence import TokenLogprob
from specli.engine.verify import lossless_rule
from specli.errors import IncompatibleError, SpecliError
from tests.support.scripted import LetterTokenizer, ScriptedDrafter, ScriptedTarget, count_up

GREEDY = SamplingConfig(temperature=0.0, seed=1)


def make(drafters: list[Any], *, target: ScriptedTarget | None = None, n_ctx: int = 256) -> Engine:
    target = target or ScriptedTarget(count_up)
    tokenizer: Any = LetterTokenizer()
    model: Any = target
    return Engine(model, tokenizer, DrafterChain(drafters), lossless_rule(tokenizer.eog_ids), n_ctx=n_ctx)


def request(n_predict: int = 10, **fields: Any) -> RequestConfig:
    return RequestConfig(n_predict=n_predict, sampling=GREEDY, **fields)


def right(tokens: list[int], most: int) -> list[int]:
    draft: list[int] = []
    for _ in range(most):
        draft.append(count_up([*tokens, *draft]))
    return draft


def wrong(tokens: list[int], most: int) -> list[int]:
    return [45] * most


def half_right(tokens: list[int], most: int) -> list[int]:
    draft = right(tokens, most)
    return draft[:2] + [45] * (most - 2)


def nothing(tokens: list[int], most: int) -> list[int]:
    return []


@pytest.mark.parametrize(
    ("rule", "n_rounds", "accepted"),
    [
        (nothing, 9, 0),
        (wrong, 9, 0),
        (right, 2, 7),  # tokens 1 | 2-6 | 7-10: the second draft is capped at 10 - 6 - 1 = 3
        (half_right, 3, 6),  # 1 | 2-4 | 5-7 | 8-10
    ],
)
def test_output_and_counts_by_what_is_drafted(rule: Any, n_rounds: int, accepted: int) -> None:
    engine = make([ScriptedDrafter(rule)])
    generation = engine.generate([0], request())
    events = list(generation)
    assert generation.tokens == list(range(1, 11))
    assert generation.text == "bcdefghijk"
    assert [event.id for event in events] == generation.tokens
    assert events[-1].round == n_rounds
    assert generation.timings.draft_n_accepted == accepted
    assert sum(event.from_draft == "scripted" for event in events) == accepted
    assert generation.stop == "limit"


def test_cache_and_drafters_hold_exactly_the_sequence_after_rejections() -> None:
    drafter = ScriptedDrafter(half_right)
    target = ScriptedTarget(count_up)
    engine = make([drafter], target=target)
    list(engine.generate([3, 4], request(7)))
    assert engine.slots[0].history == [3, 4, 5, 6, 7, 8, 9, 10]
    assert target.cells == drafter.seen == engine.slots[0].history
    assert drafter.verdicts == [2, 2]


def test_a_round_that_fails_leaves_what_was_there_before_it() -> None:
    drafter, target = ScriptedDrafter(half_right), ScriptedTarget(count_up)
    engine = make([drafter], target=target)
    events = engine.generate([3, 4], request(7))
    next(events)
    judge, engine.rule = engine.rule, lambda *_: 1 // 0  # type: ignore[return-value, assignment]
    with pytest.raises(ZeroDivisionError):
        next(events)
    assert drafter.seen == engine.slots[0].history == [3, 4]
    engine.rule = judge
    generation = engine.generate([3, 4, 5, 6], request(7))
    list(generation)
    assert generation.tokens == [7, 8, 9, 10, 11, 12, 13]
    assert drafter.seen == engine.slots[0].history


def test_end_token_inside_a_draft_ends_the_request_as_plain_decoding_does() -> None:
    def rule(tokens: list[int]) -> int:
        return 49 if tokens[-1] == 5 else (tokens[-1] + 1) % 49

    def draft(tokens: list[int], most: int) -> list[int]:
        return [tokens[-1] + 1, tokens[-1] + 2, 49, 7][:most]

    plain = make([], target=ScriptedTarget(rule)).generate([3], request())
    drafted = make([ScriptedDrafter(draft)], target=ScriptedTarget(rule)).generate([3], request())
    assert list(plain)[-1].stop == list(drafted)[-1].stop == "eos"
    assert plain.tokens == drafted.tokens == [4, 5, 49]
    assert plain.text == drafted.text == "ef"


@pytest.mark.parametrize("n_ctx", [6, 7, 8, 9, 10, 11])
def test_context_end_inside_a_draft_gives_the_tokens_of_plain_decoding(n_ctx: int) -> None:
    plain = make([], n_ctx=n_ctx).generate([0, 1, 2], request(-1))
    drafted = make([ScriptedDrafter(right)], n_ctx=n_ctx).generate([0, 1, 2], request(-1))
    assert list(plain)[-1].stop == list(drafted)[-1].stop == "context"
    assert plain.tokens == drafted.tokens
    assert len(plain.tokens) == n_ctx - 3


@pytest.mark.parametrize("n_predict", [1, 2, 5])
def test_never_more_tokens_than_asked_for(n_predict: int) -> None:
    generation = make([ScriptedDrafter(right)]).generate([0], request(n_predict))
    assert len(list(generation)) == n_predict


def test_no_tokens_asked_for_evaluates_the_prompt_only() -> None:
    engine = make([ScriptedDrafter(right)])
    generation = engine.generate([0, 1, 2], request(0))
    assert list(generation) == []
    assert engine.slots[0].history == [0, 1, 2]
    assert generation.stop == "limit"


@pytest.mark.parametrize("rule", [nothing, right])
def test_stop_string_cuts_text_and_tokens_alike(rule: Any) -> None:
    generation = make([ScriptedDrafter(rule)]).generate([0], request(10, stop=("de",)))
    assert list(generation)[-1].stop == "stop"
    assert generation.text == "bc"
    assert generation.tokens == [1, 2, 3, 4]


def test_what_lies_behind_a_stop_string_inside_a_draft_is_not_counted() -> None:
    """Rounds: 1 | draft 2 3 4 5, of which 4 ends the request; all four and one more would have stood."""
    drafter = ScriptedDrafter(right)
    engine = make([drafter])
    generation = engine.generate([0], request(30, stop=("de",), trace=True))
    events = list(generation)
    assert [event.from_draft for event in events] == [None, "scripted", "scripted", "scripted"]
    assert [event.ends_round for event in events] == [True, False, False, True]
    timings, (stats,) = generation.timings, engine.chain.stats
    assert (timings.predicted_n, timings.draft_n, timings.draft_n_accepted) == (4, 4, 3)
    assert (timings.coverage, timings.acceptance, timings.mean_acc_len) == (0.75, 0.75, 4.0)
    assert timings.accepted_per_position == stats.acc_per_pos == [1, 1, 1]
    assert timings.accepted_length_histogram == stats.acc_len_histogram == [0, 0, 0, 1]
    assert (stats.gen_tokens, stats.acc_tokens, stats.conditional_per_pos) == (4, 3, [1.0, 1.0, 1.0])
    (only,) = generation.rounds
    assert (only.draft, only.tokens, only.n_accepted) == ((2, 3, 4, 5), (2, 3, 4), 3)
    assert only.record()["target_token"] is None
    assert drafter.verdicts == [4]  # drafters learn from what stood, as in llama.cpp
    assert drafter.seen == engine.slots[0].history == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("draft", [right, half_right, wrong, nothing])
@pytest.mark.parametrize("ends_with", range(2, 12))
@pytest.mark.parametrize("how", ["stop", "eos"])
def test_counts_are_those_of_the_tokens_that_came_out(draft: Any, ends_with: int, how: str) -> None:
    target = ScriptedTarget(lambda tokens: 49 if how == "eos" and tokens[-1] == ends_with else count_up(tokens))
    generation = make([ScriptedDrafter(draft)], target=target).generate(
        [0], request(30, stop=(chr(97 + ends_with),) if how == "stop" else (), trace=True)
    )
    events = list(generation)
    assert generation.stop == how
    timings = generation.timings
    assert generation.tokens == [event.id for event in events] == [*range(1, ends_with + 1), *[49] * (how == "eos")]
    assert timings.predicted_n == len(events)
    assert timings.draft_n_accepted == sum(event.from_draft is not None for event in events)
    assert timings.draft_n_accepted == sum(r.n_accepted for r in generation.rounds)
    assert sum(len(r.tokens) for r in generation.rounds) == len(events) - 1
    assert timings.n_rounds == len(generation.rounds) == events[-1].round


def test_a_consumer_that_leaves_within_a_round_finds_the_whole_round_counted() -> None:
    engine = make([ScriptedDrafter(right)])
    generation = engine.generate([0], request(20))
    assert next(generation).ends_round
    assert not next(generation).ends_round
    generation.close()
    assert (generation.tokens, generation.text) == ([1, 2, 3, 4, 5, 6], "bcdefg")
    assert (generation.timings.predicted_n, generation.timings.draft_n_accepted) == (6, 4)


@pytest.mark.parametrize("draft", [right, half_right, wrong, nothing])
@pytest.mark.parametrize("last", range(1, 9))
def test_an_error_inside_a_draft_comes_behind_the_text_of_plain_decoding(draft: Any, last: int) -> None:
    """The target has no number to give behind the token `last`."""

    class Failing(ScriptedTarget):
        def forward(self, tokens: Any, positions: Any, slots: Any, outputs: Any) -> Any:
            out = super().forward(tokens, positions, slots, outputs)
            for row, place in enumerate(outputs.tolist()):
                if tokens[place] == last:
                    out.logits[row] = np.nan
            return out

    engine = make([ScriptedDrafter(draft)], target=Failing(count_up))
    generation = engine.generate([0], request())
    found: list[int] = []
    with pytest.raises(SpecliError, match=r"^the model's logits are not numbers$"):
        found.extend(event.id for event in generation)
    assert found == generation.tokens == list(range(1, last + 1))
    assert generation.stop == "interrupt"
    assert engine.slots[0].history[: last + 1] == list(range(last + 1))[: len(engine.slots[0].history)]
    assert [event.id for event in engine.generate([30, 31], request(3))] == [32, 33, 34]


def test_second_request_reuses_the_common_prefix() -> None:
    drafter = ScriptedDrafter(right)
    engine = make([drafter])
    list(engine.generate([0, 1, 2], request(3)))
    second = engine.generate([0, 1, 2, 3, 9], request(2))
    list(second)
    assert second.timings.cache_n == 4
    assert second.timings.prompt_n == 1
    assert second.tokens == [10, 11]
    assert drafter.rewinds == [0, 4]


def test_one_token_more_is_evaluated_again_for_drafters_that_read_features() -> None:
    engine = make([ScriptedDrafter(right, reads_features=True)])
    list(engine.generate([0, 1, 2], request(3)))
    second = engine.generate([0, 1, 2, 3, 9], request(2))
    list(second)
    assert second.timings.cache_n == 3


def test_same_prompt_again_gives_the_same_tokens() -> None:
    engine = make([ScriptedDrafter(half_right)])
    first = [event.id for event in engine.generate([0, 1, 2], request(6))]
    second = [event.id for event in engine.generate([0, 1, 2], request(6))]
    assert first == second


def test_consumer_that_leaves_early_leaves_a_consistent_engine() -> None:
    engine = make([ScriptedDrafter(right)])
    generation = engine.generate([0], request(20))
    for event in generation:
        if event.id == 4:
            break
    generation.close()
    assert generation.stop == "interrupt"
    assert engine.slots[0].history[:4] == [0, 1, 2, 3]
    assert [event.id for event in engine.generate([0, 1], request(3))] == [2, 3, 4]


def test_prompt_longer_than_a_batch_is_evaluated_in_chunks() -> None:
    target = ScriptedTarget(count_up, max_tokens=4)
    engine = make([ScriptedDrafter(right, max_draft=3)], target=target)
    generation = engine.generate(list(range(11)), request(4))
    assert [event.id for event in generation] == [11, 12, 13, 14]


def test_first_drafter_with_a_draft_wins_and_alone_hears_of_the_verdict() -> None:
    first, second = ScriptedDrafter(nothing, name="first"), ScriptedDrafter(right, name="second")
    engine = make([first, second])
    events = list(engine.generate([0], request(6)))
    assert {event.from_draft for event in events} == {None, "second"}
    assert first.verdicts == []
    assert second.verdicts == [4]


def test_logprobs_are_those_of_plain_decoding() -> None:
    plain = make([]).generate([0], request(6, logprobs=2))
    drafted = make([ScriptedDrafter(half_right)]).generate([0], request(6, logprobs=2))
    list(plain)
    list(drafted)
    assert plain.logprobs == drafted.logprobs
    best = 5.0 - np.log(np.exp(5.0) + 49)  # one logit of 5, 49 of 0
    assert plain.logprobs[0].logprob == pytest.approx(best)
    assert plain.logprobs[0].top[0] == (1, pytest.approx(best))


def test_prompt_logprobs_cover_every_token_but_the_first() -> None:
    generation = make([], target=ScriptedTarget(count_up, max_tokens=3)).generate(
        [0, 1, 2, 9], request(1, prompt_logprobs=True)
    )
    list(generation)
    norm = np.log(np.exp(5.0) + 49)
    values = [item.logprob for item in generation.prompt_logprobs]
    assert [item.id for item in generation.prompt_logprobs] == [0, 1, 2, 9]
    assert values[0] is None
    assert values[1:] == pytest.approx([5 - norm, 5 - norm, -norm])


def test_logprob_of_one_row() -> None:
    row = np.log(np.asarray([0.5, 0.25, 0.25], dtype=np.float32))
    found = TokenLogprob.of(row, 2, 2)
    assert found.logprob == pytest.approx(np.log(0.25))
    assert [token for token, _ in found.top] == [0, 1]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([0] * 16, "the prompt has 16 tokens, the context holds 16"),
        ([0, 77], "prompt token 77 is outside the vocabulary of 50"),
    ],
)
def test_impossible_prompts_are_refused(prompt: list[int], message: str) -> None:
    with pytest.raises(IncompatibleError, match=message):
        make([], n_ctx=16).generate(prompt, request())


def test_trace_records_every_round() -> None:
    generation = make([ScriptedDrafter(half_right)]).generate([0], request(7, trace=True))
    list(generation)
    assert [(r.position, r.draft, r.tokens, r.n_accepted) for r in generation.rounds] == [
        (1, (2, 3, 45, 45), (2, 3, 4), 2),
        (4, (5, 6), (5, 6, 7), 2),
    ]


def test_the_time_of_the_consumer_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by 1 ns a reading and, while the consumer has a token, by an hour."""
    hour, now = 3600 * 10**9, 0

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    monkeypatch.setattr("time.perf_counter_ns", clock)
    generation = make([ScriptedDrafter(half_right)]).generate([0], request(10))
    for _ in generation:
        now += hour
    timings = generation.timings
    assert 0 < timings.draft_ns + timings.verify_ns + timings.sample_ns <= timings.predicted_ns < hour


@pytest.mark.parametrize(("draft", "n_plain"), [(nothing, 9), (wrong, 1), (right, 0)])
def test_plain_steps_are_those_of_the_rounds_without_a_draft(draft: Any, n_plain: int) -> None:
    """The last token of a limited request is never drafted for."""
    generation = make([ScriptedDrafter(draft)]).generate([0], request(10))
    list(generation)
    assert len(generation.plain_steps) == n_plain == generation.timings.n_rounds - generation.timings.n_rounds_drafted
    assert all(0 < step <= generation.timings.predicted_ns for step in generation.plain_steps)
