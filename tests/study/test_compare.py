"""Comparing, tuning and synthetic acceptance on a tiny model: sums, order, what must be equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from specli.cli.studies.stats_view import verdicts
from specli.drafters.settings import DraftConfig, SpeculationConfig, SynthConfig
from specli.drafters.stats import DrafterStats, add
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import Run, open_target
from specli.engine.stats import Timings, dump_record
from specli.errors import FormatError, SpecliError, UsageError
from specli.rng import MersenneTwister
from specli.study.compare import Entry, Plan, StudyPrompt, compare, encode_prompt, group_by_draft_file
from specli.study.comparison import Comparison, Contender, Sample
from specli.study.counts import Spread
from specli.study.lossless import first_difference
from specli.study.prompts import PROMPTS, spread_over_categories
from specli.study.replay import ReplayText, replay_texts
from specli.study.synth import synthesise
from specli.study.tune import shuffled, tune
from tests.support.runs import GREEDY, ONE_THREAD, speculation
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

TEXTS = [StudyPrompt("a", "one", "the cat sat on the cat"), StudyPrompt("b", "two", "a b a b a b")]
REQUEST = RequestConfig(n_predict=12, sampling=replace(GREEDY, ignore_eos=True))
PLAN = Plan(REQUEST, repeats=2, warmup=1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    path = tiny_gguf(tmp_path_factory.mktemp("compare") / "t.gguf", "llama")
    load = ModelLoadConfig(path, device="cpu", kernels="reference", threads=ONE_THREAD)
    return RunConfig(load, speculation=SpeculationConfig(types=("none",)))


@pytest.fixture
def run(base: RunConfig) -> Iterator[Run]:
    with open_target(base) as run:
        yield run


@pytest.fixture(scope="module")
def eagle3(base: RunConfig) -> RunConfig:
    draft = replace(base.target, path=tiny_eagle3(base.target.path.with_name("e.gguf"), follows_target=True))
    return replace(base, draft=draft, speculation=speculation(["draft-eagle3"], 3))


def ngram(base: RunConfig) -> RunConfig:
    return replace(base, speculation=speculation(["ngram-simple"], 4))


def entries(base: RunConfig, eagle3: RunConfig) -> list[Entry]:
    both = replace(eagle3, speculation=speculation(["ngram-simple", "draft-eagle3"], 3))
    return [
        Entry("plain", base),
        Entry("ngram-simple", ngram(base)),
        Entry("draft-eagle3", eagle3),
        Entry("both", both),
    ]


@pytest.fixture(scope="module")
def comparison(base: RunConfig, eagle3: RunConfig) -> Comparison:
    with open_target(base) as run:
        return compare(run, entries(base, eagle3), TEXTS, PLAN)


def test_every_contender_answers_every_prompt_in_every_repeat(comparison: Comparison) -> None:
    for row in comparison.contenders:
        assert [(s.repeat, s.prompt) for s in row.samples] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
        assert all(sample.timings.predicted_n == 12 for sample in row.samples)
    assert [row.types for row in comparison.contenders] == [
        (), ("ngram-simple",), ("draft-eagle3",), ("ngram-simple", "draft-eagle3"),
    ]  # fmt: skip


def test_answers_are_those_of_plain_decoding_and_repeats_count_alike(comparison: Comparison) -> None:
    for row in comparison.contenders:
        assert row.n_different == 0
        assert all(sample.is_same for sample in row.samples)
        first, second = (row.totals(repeat=repeat).timings for repeat in (0, 1))
        assert (first.draft_n, first.draft_n_accepted) == (second.draft_n, second.draft_n_accepted)
    assert all(row.totals().timings.draft_n > 0 for row in comparison.contenders[1:])


def test_totals_are_the_sum_of_the_samples_in_the_json(comparison: Comparison) -> None:
    record = json.loads(dump_record(comparison.to_dict()))
    for row in record["contenders"]:
        for name in asdict(Timings()):
            values = [sample["timings"][name] for sample in row["samples"]]
            total = row["totals"]["timings"][name]
            if isinstance(total, list):
                padded = [value + [0] * (len(total) - len(value)) for value in values]
                assert total == [sum(column) for column in zip(*padded, strict=True)], name
            else:
                assert total == sum(values), name
        for number, drafter in enumerate(row["totals"]["drafters"]):
            for name in ("n_draft", "gen_tokens", "acc_tokens", "draft_ns"):
                assert drafter[name] == sum(sample["drafters"][number][name] for sample in row["samples"])
            assert drafter["acc_tokens"] <= row["totals"]["timings"]["draft_n_accepted"]
        accepted = sum(drafter["acc_tokens"] for drafter in row["totals"]["drafters"])
        assert accepted == row["totals"]["timings"]["draft_n_accepted"]


def test_saved_comparison_is_read_back_as_it_was(comparison: Comparison) -> None:
    record = json.loads(dump_record(comparison.to_dict()))
    again = Comparison.from_dict(record, "x")
    assert again.title == "x"
    assert dump_record(again.to_dict()) == dump_record(comparison.to_dict())


@pytest.mark.parametrize("record", [{}, [], {"schema": "specli.stats/1"}, {"schema": "specli.run/1"}])
def test_other_records_are_refused(record: object) -> None:
    with pytest.raises(FormatError, match=r"^x: "):
        Comparison.from_dict(record, "x")


def test_damaged_counter_is_named(comparison: Comparison) -> None:
    record = json.loads(dump_record(comparison.to_dict()))
    record["contenders"][0]["samples"][0]["timings"]["draft_n"] = "many"
    with pytest.raises(FormatError, match=r"^x: draft_n is missing or of the wrong type$"):
        Comparison.from_dict(record, "x")


def test_rates_by_hand() -> None:
    """Two prompts, 11 tokens each: plain takes 1 s and 2 s, drafted 0.5 s and 2 s.

    Pooled: 20 / 2.5 s against 20 / 3 s is 1.2; per prompt the mean of 2 and 1 is 1.5. A prompt takes 0.25 s, and twice
    as long with drafters: 22 / 3.5 s against 22 / 3.5 s.
    """

    def sample(prompt: str, seconds: float, *, accepted: int = 0) -> Sample:
        prompt_ns = 500_000_000 if accepted else 250_000_000
        timings = Timings(predicted_n=11, predicted_ns=int(seconds * 1e9), prompt_ns=prompt_ns)
        if accepted:
            timings.count_round(4, accepted, 1)
        return Sample(prompt, 0, timings, (), True)

    plain = Contender("plain", (), [], [sample("a", 1), sample("b", 2)])
    row = Contender("x", ("x",), [], [sample("a", 0.5, accepted=3), sample("b", 2, accepted=1)])
    prompts = [*(p for p in ())]
    study = Comparison({}, "", {}, prompts, [plain, row])
    assert study.speed_up(row) == pytest.approx(1.2)
    assert study.answer_speed_up(row) == pytest.approx(1.0)
    assert [contender.prompt_ms() for contender in study.contenders] == [Spread(250, 250, 250), Spread(500, 500, 500)]
    record = study.to_dict()["contenders"][1]
    assert (record["speed_up_with_prompt"], record["prompt_ms"]["median"]) == (pytest.approx(1.0), 500)
    assert verdicts(study)[1:] == [
        "with the prompts' time: x 1.00×",
        "drafting makes up for its share of the prompts' time in longer answers only",
    ]
    assert row.totals().timings.mean_acc_len == 3.0


def test_nothing_measured_is_no_number() -> None:
    study = Comparison({}, "", {}, [], [Contender("plain", ()), Contender("x", ("x",))])
    assert study.speed_up(study.contenders[1]) is None
    assert study.mean_speed_up(study.contenders[1]) is None
    assert study.answer_speed_up(study.contenders[1]) is None
    assert study.contenders[1].prompt_ms() is None
    assert study.mean_acc_len(study.contenders[1]) is None
    assert study.to_dict()["contenders"][1]["speed"] is None


def test_spread() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([]) is None


def test_counts_add_up_position_by_position() -> None:
    total = DrafterStats("x", gen_tokens=1, acc_per_pos=[1])
    add(total, DrafterStats("x", gen_tokens=2, acc_per_pos=[1, 2]))
    assert (total.name, total.gen_tokens, total.acc_per_pos) == ("x", 3, [2, 2])


def test_entries_with_one_draft_file_share_a_target(base: RunConfig, eagle3: RunConfig) -> None:
    other = replace(eagle3, draft=replace(base.target, path=Path("other.gguf")))
    names = [
        [entry.name for entry in group]
        for group in group_by_draft_file([*entries(base, eagle3), Entry("other", other)])
    ]
    assert names == [["plain", "ngram-simple", "draft-eagle3", "both"], ["plain", "other"]]


def test_stopped_comparison_keeps_what_there_is(run: Run, base: RunConfig) -> None:
    calls = []

    def is_stopped() -> bool:
        calls.append(1)
        return len(calls) > 3

    found = compare(
        run, [Entry("plain", base), Entry("ngram-simple", ngram(base))], TEXTS, replace(PLAN, is_stopped=is_stopped)
    )
    assert [len(row.samples) for row in found.contenders] == [1, 0]


def test_prompt_set_has_five_prompts_in_each_of_eight_categories() -> None:
    assert len(PROMPTS) == len({prompt.id for prompt in PROMPTS}) == 40
    assert len({prompt.category for prompt in spread_over_categories()[:8]}) == 8
    assert sorted(spread_over_categories(), key=lambda p: p.id) == sorted(PROMPTS, key=lambda p: p.id)


def test_template_makes_a_message_of_a_prompt(run: Run) -> None:
    plain = encode_prompt(run, "a cat", applies_template=False)
    message = encode_prompt(run, "a cat", applies_template=True)
    assert len(message) > len(plain)
    assert "a cat" in run.tokenizer.decode(message)


def test_replay_with_and_without_a_network_reads_the_same_text(run: Run, base: RunConfig, eagle3: RunConfig) -> None:
    text = ReplayText("t", text="the cat sat on the mat and the cat sat on the mat and the cat sat")
    alone = replay_texts(run, ngram(base), [text], "ngram-simple")
    assert alone.coverage
    network = replay_texts(run, eagle3, [text], "draft-eagle3")
    assert alone.n_tokens == network.n_tokens > 10
    assert network.drafters[0].gen_tokens > 0
    both = replace(eagle3, speculation=speculation(["ngram-simple", "draft-eagle3"], 3))
    assert replay_texts(run, both, [text, text], "both").n_tokens == 2 * alone.n_tokens
    with pytest.raises(SpecliError, match="outside the vocabulary"):
        replay_texts(run, ngram(base), [ReplayText("t", tokens=(10**6, 1))], "x")


def test_replaying_what_the_target_wrote_gives_what_drafting_got(run: Run, base: RunConfig) -> None:
    config = ngram(base)
    [drafters] = run.binding.build([config])
    run.binding.use(drafters)
    ids = run.encode("the cat sat on the cat")
    generation = run.generate(ids, replace(REQUEST, n_predict=60))
    for _ in generation:
        pass
    live = drafters.chain.stats[0]
    text = ReplayText("t", tokens=(*ids, *generation.tokens), n_prompt=len(ids))
    replayed = replay_texts(run, config, [text], "x").drafters[0]
    assert (replayed.gen_tokens, replayed.acc_tokens) == (live.gen_tokens, live.acc_tokens)


def test_tuning_finds_a_setting_and_is_reproducible(run: Run, base: RunConfig, eagle3: RunConfig) -> None:
    drafts = [("ngram-simple", ngram(base)), ("draft-eagle3", eagle3)]
    plan = replace(PLAN, request=replace(REQUEST, n_predict=8))
    first = tune(run, base, drafts, TEXTS[:1], plan, seconds=6.0)
    assert [result.name for result in first.types] == ["ngram-simple", "draft-eagle3"]
    assert first.types[0].is_replayed
    assert first.types[0].is_complete
    assert first.types[0].trials[0].values == {"--spec-ngram-simple-size-n": 1, "--spec-ngram-simple-size-m": 4}
    assert not first.types[1].is_replayed
    assert first.flags.startswith("--spec-type ")
    assert json.loads(dump_record(first.to_dict()))["flags"] == first.flags
    second = tune(run, base, drafts[:1], TEXTS[:1], plan, seconds=6.0)
    tried = [[trial.values for trial in tuning.types[0].trials][:9] for tuning in (first, second)]
    assert tried[0] == tried[1]
    with pytest.raises(UsageError, match="needs a drafter"):
        tune(run, base, [], TEXTS, plan, seconds=1)


def test_order_of_trials_is_drawn_from_the_seed() -> None:
    orders = [shuffled(range(9), MersenneTwister(seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(9))


def test_synthetic_acceptance_is_what_was_asked_for(run: Run, eagle3: RunConfig) -> None:
    config = replace(eagle3, speculation=replace(eagle3.speculation, synth=SynthConfig(rates=(1.0, 1.0, 0.0))))
    study = synthesise(run, config, TEXTS, replace(PLAN, warmup=0, repeats=1), sweeps=False)
    [point] = study.points
    assert (point.n_max, point.length) == (3, 3.0)
    assert point.totals.timings.mean_acc_len == pytest.approx(3.0, abs=0.6)
    assert point.measured
    assert point.predicted
    record = study.to_dict()
    assert record["note"] == "output is not valid model output"
    assert record["points"][0]["rates"] == [1.0, 1.0, 0.0]
    assert "1" in record["costs"]["verify_ms"]
    assert "4" in record["costs"]["verify_ms"]


def test_sweep_covers_lengths_and_shares(run: Run, base: RunConfig) -> None:
    config = replace(
        base, speculation=SpeculationConfig(types=("ngram-simple",), tables={"ngram-simple": {"size_n": 1}})
    )
    study = synthesise(run, config, TEXTS[:1], replace(PLAN, warmup=0, repeats=1), sweeps=True)
    assert [point.n_max for point in study.points[::5]] == [1, 2, 4, 8, 16]
    assert [round(point.length, 6) for point in study.points[:5]] == [1.0, 1.25, 1.5, 1.75, 2.0]


@pytest.mark.parametrize(
    ("types", "synth", "message"),
    [
        ((), SynthConfig(), "synth needs an acceptance"),
        (("none",), SynthConfig(length=2), "synthetic acceptance requires at least one speculative token"),
        (("ngram-simple",), SynthConfig(rates=(0.5,)), "synthetic acceptance rates must contain 4 values, got 1"),
        (("ngram-simple",), SynthConfig(length=9), "synthetic acceptance length must be finite and within [1, 5]"),
    ],
)
def test_synthetic_settings_that_are_wrong(
    run: Run, base: RunConfig, types: tuple[str, ...], synth: SynthConfig, message: str
) -> None:
    config = replace(base, speculation=replace(speculation(types, 4), synth=synth, draft=DraftConfig()))
    with pytest.raises(UsageError) as caught:
        synthesise(run, config, TEXTS, PLAN, sweeps=False)
    assert str(caught.value) == message


def test_difference_is_found_with_its_gap(run: Run, base: RunConfig) -> None:
    run.binding.use(run.binding.build([base])[0])
    ids = run.encode("the cat")
    generation = run.generate(ids, REQUEST)
    for _ in generation:
        pass
    tokens = list(generation.tokens)
    assert first_difference(run, ids, REQUEST, tokens) is None
    assert first_difference(run, ids, REQUEST, tokens[:5]) is None
    assert first_difference(run, ids, REQUEST, []) is None
    changed = [*tokens[:4], tokens[4] + 1, *tokens[5:]]
    found = first_difference(run, ids, REQUEST, changed)
    assert found is not None
    assert (found.position, found.drafted, found.plain) == (4, tokens[4] + 1, tokens[4])
    assert found.gap is not None
    assert found.gap > 0
