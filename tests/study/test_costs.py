"""The cost model's arithmetic, and replays counted by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from specli.drafters import DRAFTERS
from specli.drafters.adaptive import AdaptiveLengths, Choice, DrafterTraits
from specli.drafters.chain import DrafterChain
from specli.drafters.costs import RowCosts
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.errors import FormatError, UsageError
from specli.study.costs import CostModel, expected_length
from specli.study.counts import Totals
from specli.study.replay import read_replay, replay, tokens_only
from specli.study.synth import Synthesis, SynthPoint
from tests.support.scripted import ScriptedDrafter

COSTS = CostModel({1: 10.0, 2: 12.0, 4: 16.0}, sample=1.0, draft=3.0)


@pytest.mark.parametrize(("rows", "cost"), [(1, 10), (2, 12), (3, 14), (4, 16), (6, 20)])
def test_verification_lies_on_straight_lines_between_sizes(rows: int, cost: float) -> None:
    assert COSTS.verification(rows) == cost


def test_one_measured_size_stands_for_all() -> None:
    assert CostModel({1: 5.0}).verification(7) == 5


def test_speed_up_of_a_round() -> None:
    """3 draft tokens, 2.5 tokens per round: 16 + 3 + 2.5 against 2.5 steps of 11."""
    assert COSTS.round(3, 2.5) == 21.5
    assert COSTS.speed_up(3, 2.5) == pytest.approx(2.5 * 11 / 21.5)


def test_break_even() -> None:
    """19 / 10 = 1.9 tokens per round; with 3 draft tokens that is p + p² + p³ = 0.9."""
    assert COSTS.break_even_length(3) == 1.9
    p = COSTS.break_even(3)
    assert p is not None
    assert p + p**2 + p**3 == pytest.approx(0.9)
    assert COSTS.speed_up(3, 1.9) == pytest.approx(1.0)
    assert CostModel({1: 10.0, 2: 30.0}).break_even(1) is None


def test_expected_length() -> None:
    assert expected_length(0.0, 4) == 1
    assert expected_length(1.0, 4) == 5
    assert expected_length(0.5, 2) == 1.75


@pytest.mark.parametrize("name", DRAFTERS)
def test_settings_are_read_back_as_they_were_written(name: str) -> None:
    spec = DRAFTERS[name]
    for setting in spec.settings:
        for value in setting.tries:
            assert spec.values(spec.with_values(SpeculationConfig(), {setting.name: value}))[setting.name] == value


@pytest.mark.parametrize("name", [name for name, spec in DRAFTERS.items() if spec.length])
def test_length_bounds_every_draft(name: str) -> None:
    config = SpeculationConfig(draft=DraftConfig(n_max=9, n_min=5))
    bounded = DRAFTERS[name].with_length(config, 4)
    assert DRAFTERS[name].max_draft(bounded) == 4
    assert DRAFTERS[name].is_sound(bounded)
    unsound = DRAFTERS["draft-simple"].with_values(bounded, {"n_min": 10})
    assert not DRAFTERS["draft-simple"].is_sound(unsound)


def test_a_setting_that_a_table_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="ngram-mod has no setting size_n, expected one of n_match, n_min, n_max"):
        DRAFTERS["ngram-mod"].values(SpeculationConfig(tables={"ngram-mod": {"size_n": 1}}))


def test_replay_counts_rounds_by_hand() -> None:
    """Text 0 1 2 … 9, prompt of two: a drafter that always adds one is right, one that skips is wrong at once.

    Right with 4 tokens a draft: rounds at 2 (3 4 5 6, then 7 is the target's own) and at 7 (8 9 is cut to the one token
    that can be drafted), so 7 tokens in 2 rounds.
    """
    text = list(range(10))
    counting = ScriptedDrafter(lambda tokens, most: [tokens[-1] + 1 + i for i in range(most)])
    chain = DrafterChain([counting])
    found = replay(chain, text, n_prompt=2, feed=tokens_only(chain))
    assert (found.n_tokens, found.n_rounds) == (7, 2)
    assert found.tokens_per_round == 3.5
    assert found.coverage == pytest.approx(5 / 7)
    assert found.rows == {5: 1, 2: 1}
    assert counting.verdicts == [4, 1]
    wrong = ScriptedDrafter(lambda tokens, most: [tokens[-1] + 2])
    chain = DrafterChain([wrong])
    found = replay(chain, text, n_prompt=2, feed=tokens_only(chain))
    assert (found.n_tokens, found.n_rounds, found.coverage) == (7, 7, 0.0)


def test_replay_of_hardly_any_text() -> None:
    for text in ([3], [3, 4]):
        chain = DrafterChain([ScriptedDrafter(lambda tokens, most: [1])])
        found = replay(chain, text, n_prompt=1, feed=tokens_only(chain))
        assert (found.n_tokens, found.n_rounds, found.tokens_per_round) == (0, 0, None)


def test_replay_files(tmp_path: Path) -> None:
    plain, records = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("some text\n")
    records.write_text('{"prompt": {"ids": [1, 2]}, "tokens": [3]}\n\n{"prompt": {"ids": [4]}, "tokens": []}\n')
    assert [text.text for text in read_replay(plain)] == ["some text\n"]
    assert [(text.tokens, text.n_prompt) for text in read_replay(records)] == [((1, 2, 3), 2), ((4,), 1)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", " \n"),
        ("a.jsonl", "\n"),
        ("a.jsonl", "{}"),
        ("a.jsonl", '{"prompt": {"ids": []}, "tokens": [1]}'),
        ("a.json", "["),
    ],
)
def test_replay_files_that_are_none(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError):
        read_replay(tmp_path / name)
    with pytest.raises(FormatError, match="cannot be read"):
        read_replay(tmp_path / "missing")


@pytest.mark.parametrize("seed", range(20))
def test_what_a_study_calls_best_is_what_is_chosen_while_running(seed: int) -> None:
    """The same costs and acceptance, in `specli synth` and in the rule of adaptive lengths."""
    draw = random.Random(seed)
    cost, verify = 10.0, {}
    for rows in range(1, 10):
        verify[rows] = cost
        cost += draw.random() * 6
    chance, unit = draw.random(), draw.random() * 2
    by_length = {k: CostModel(verify, draft=unit * (k + 1)) for k in range(1, 9)}
    speeds = {0: 1.0} | {k: costs.speed_up(k, expected_length(chance, k)) for k, costs in by_length.items()}
    rule = AdaptiveLengths(RowCosts(verify), [DrafterTraits(8, prior=chance)])
    for _ in range(3):
        rule.observe_draft(Choice(0, 8), unit * 9)
    for _ in range(8):
        rule._n_kept = 0
        found = [choice for choice in rule.choose(8) if not choice.is_try]
    chosen = speeds[found[0].length if found else 0]
    assert chosen >= max(speeds.values()) - 0.06


def test_the_break_even_curve_and_the_best_length_by_acceptance() -> None:
    """Forwards of 1, 2, 3 rows cost 10, 12, 14, a draft of k tokens k: even at 1.3 tokens per round and 1.6."""
    verify = {1: 10.0, 2: 12.0, 3: 14.0}
    points = [
        SynthPoint(k, (share,) * k, Totals(), None, None, CostModel(verify, draft=draft))
        for k in (1, 2)
        for share, draft in ((0.0, 1.0 * k), (1.0, 9.0))  # the second was held up
    ]
    study = Synthesis({}, "", (), CostModel(verify), points)
    record = study.to_dict()["break_even"]
    assert [item["length"] for item in record] == pytest.approx([1.3, 1.6])
    assert [item["acceptance"] for item in record] == pytest.approx([0.3, (3.4**0.5 - 1) / 2])
    assert [study.best_length(p) for p in (0.2, 0.35, 0.9)] == [0, 1, 2]
