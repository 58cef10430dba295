"""Draft lengths chosen by expected tokens per time, against brute force and hand-worked numbers."""

import itertools
import math
import random
from itertools import islice

import pytest

from specli.drafters.adaptive import (
    FIRST_PROBE,
    LAST_PROBE,
    PROBE_LENGTH,
    Acceptance,
    AdaptiveLengths,
    Belief,
    Choice,
    DraftCosts,
    DrafterTraits,
)
from specli.drafters.base import Draft
from specli.drafters.costs import RowCosts


def lengths(costs: dict[int, float], *traits: DrafterTraits, ordered: bool = False) -> AdaptiveLengths:
    return AdaptiveLengths(RowCosts(costs), traits, ordered=ordered)


def test_acceptance_follows_the_worked_example() -> None:
    found = Acceptance()
    assert list(islice(found.survival(), 2)) == pytest.approx([0.5, 0.25])
    found.observe(1, 2)
    assert list(islice(found.survival(), 3)) == pytest.approx([2 / 3, 2 / 3 * 4 / 9, 2 / 3 * (4 / 9) ** 2])


def test_acceptance_converges_to_the_true_rates_and_forgets_old_ones() -> None:
    draw, found = random.Random(1), Acceptance()
    for rates in ((0.9, 0.5, 0.2), (0.2, 0.9, 0.9)):
        estimates = []
        for _ in range(600):
            n = next((k for k, rate in enumerate(rates) if draw.random() >= rate), len(rates))
            found.observe(n, len(rates))
            estimates.append(next(found.survival()))
        mean = sum(estimates[200:]) / 400
        assert mean == pytest.approx(rates[0], abs=0.06)


def test_draft_costs_grow_with_every_token_of_a_chain_and_not_with_those_of_a_block() -> None:
    chain, block = DraftCosts(is_block=False), DraftCosts(is_block=True)
    for costs in (chain, block):
        costs.observe(3, 9000.0)  # the first round prepares things, and is not counted
        assert costs(3) == 0
        costs.observe(3, 40.0)
    assert [chain(1), chain(3), chain(7)] == [20.0, 40.0, 80.0]
    assert [block(1), block(3), block(7)] == [40.0, 40.0, 40.0]
    for _ in range(20):
        block.observe(3, 40.0)
    block.observe(3, 9000.0)  # held up: counts as four times the estimate, with a tenth of the weight
    assert block(3) == pytest.approx(52.0)


def test_row_costs_interpolate_and_follow_what_is_observed() -> None:
    assert [RowCosts({2: 10.0, 4: 14.0})(rows) for rows in (3, 6)] == [12.0, 18.0]
    assert [RowCosts({1: 15.0, 2: 10.0, 4: 14.0})(rows) for rows in (1, 2)] == [10.0, 10.0]  # one row was held up
    costs = RowCosts({1: 10.0, 8: 20.0})
    for _ in range(60):
        costs.observe(4, 30.0)
    assert costs(4) == pytest.approx(30.0, rel=0.02)
    assert costs(1) > 10.0  # the machine is slower than it was measured, so plain steps are thought slower, too


def test_one_pause_of_the_machine_hardly_moves_a_cost() -> None:
    costs = RowCosts({1: 10.0, 4: 16.0})
    costs.observe(4, 1e6)
    assert costs(4) < 16.0 * 1.25
    assert costs(1) < 10.0 * 1.15


@pytest.mark.parametrize("seed", range(40))
def test_the_chosen_length_is_the_best_of_all_lengths(seed: int) -> None:
    draw = random.Random(seed)
    limit = draw.randint(1, 12)
    step = draw.choice([1, 4, 8])  # graphs pad rows: the cost is a staircase
    table = {rows: 10.0 + draw.random() * 3 * math.ceil(rows / step) for rows in range(1, limit + 2)}
    table = {rows: max(table[r] for r in range(1, rows + 1)) for rows in table}
    rule = lengths(table, DrafterTraits(limit))
    for _ in range(30):
        n = draw.randint(0, limit)
        rule.observe_verdict(0, n, limit)
    rule.observe_draft(Choice(0, limit), draw.random() * 10)
    chances = list(islice(rule._beliefs[0].positions.survival(), limit))
    unit = rule._draft_costs[0]

    def gain(length: int) -> float:
        """Of a draft of which as much is verified as pays."""
        brought = [1 + sum(chances[:n]) for n in range(length + 1)]
        n = max(range(length + 1), key=lambda n: brought[n] - rule._rate * table[n + 1])
        return brought[n] / (table[n + 1] + (unit(length) if length else 0))

    best = max(map(gain, range(limit + 1)))
    for _ in range(4):  # the rate that time is counted at follows the choice
        rule._n_kept = 0
        found = rule.choose(limit)
    chosen = gain(found[0].length if found and not found[0].is_try else 0)
    assert chosen * 1.05 >= best  # the length in force stays within the hysteresis


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_trimmed_as_brute_force_over_all_beginnings_does(seed: int) -> None:
    draw = random.Random(seed)
    b, step, n_rows = draw.randint(1, 4), draw.choice([1, 2, 4, 8]), draw.randint(0, 6)
    table, cost = {}, 10.0
    for rows in range(1, 40):  # a staircase, steeper and flatter: neither convex nor concave
        cost += draw.random() * 8 if rows % step == 1 or step == 1 else 0.0
        table[rows] = cost
    rule = lengths(table, DrafterTraits(4))
    rule._rate = draw.random() * 2 / table[b]
    survivals = [
        list(itertools.accumulate((draw.random() for _ in range(draw.randint(1, 4))), lambda a, c: a * c))
        for _ in range(b)
    ]

    def value(kept: tuple[int, ...]) -> float:
        brought = sum(sum(survival[:n]) for survival, n in zip(survivals, kept, strict=True))
        return brought - rule._rate * table[b + n_rows + sum(kept)]

    kept = rule.trim(survivals, b + n_rows)
    best = max(map(value, itertools.product(*(range(len(survival) + 1) for survival in survivals))))
    assert value(tuple(kept)) == pytest.approx(best)
    # A request whose tokens become likelier never keeps fewer of them.
    which = draw.randrange(b)
    factor = 1 / survivals[which][0]
    raised = [
        [min(1.0, chance * factor) for chance in survival] if i == which else survival
        for i, survival in enumerate(survivals)
    ]
    assert rule.trim(raised, b + n_rows)[which] >= kept[which]


def test_rows_without_a_gain_are_not_verified_and_steps_of_the_staircase_are_filled() -> None:
    rule = lengths({rows: 10.0 if rows <= 4 else 40.0 for rows in range(1, 9)}, DrafterTraits(7))
    assert rule.trim([[0.01] * 7], 1) == [3]  # free up to four rows, and the fifth would cost three steps
    assert rule.trim([[0.9, 0.8], [0.9, 0.3], [0.5, 0.4]], 3) == [1, 0, 0]
    assert lengths({1: 10.0, 2: 20.0}, DrafterTraits(7)).trim([[0.99] * 7], 1) == [0]


def test_chances_of_a_network_are_corrected_by_what_becomes_of_them() -> None:
    found, draw = Belief(), random.Random(4)
    assert found.survival(Draft([1, 2], confidence=[0.8, 0.5])) == pytest.approx([0.8, 0.4])
    for _ in range(400):  # says .85, is right in 3 of 10; says .35, is right in 6 of 10
        n = (draw.random() < 0.3) + 0
        n += n and draw.random() < 0.6
        found.observe(n, 2, Draft([1, 2], confidence=[0.85, 0.35]))
    assert found.chance(0.85) == pytest.approx(0.3, abs=0.12)
    assert found.chance(0.35) == pytest.approx(0.6, abs=0.15)
    assert found.chance(0.15) == pytest.approx(0.15)


def test_a_correction_follows_the_worked_example() -> None:
    found = Belief()
    found._accepted[8], found._reached[8] = 6.0, 16.0
    assert found.chance(0.85) == pytest.approx((6 + 4 * 0.85) / 20)


def test_what_was_cut_does_not_make_positions_seem_better() -> None:
    """Second tokens are kept only where they are sure; the others, which fail, are never seen."""
    found, draw = Belief(), random.Random(2)
    for number in range(600):
        sure = number % 2 == 0
        draft = Draft([1, 2], confidence=[0.999, 0.95 if sure else 0.05])
        if sure:
            found.observe(1 + (draw.random() < 0.95), 2, draft)
        else:
            found.observe(1, 1, draft)
    second = list(islice(found.positions.survival(), 2))[1]
    assert second == pytest.approx(0.5, abs=0.1)


def test_matches_of_a_table_are_told_apart() -> None:
    found = Belief()
    for _ in range(40):
        found.observe(0, 3, Draft([1, 2, 3], match=0))
        found.observe(3, 3, Draft([1, 2, 3], match=2))
    assert found.survival(Draft([1, 2, 3], match=0))[0] < 0.1
    assert found.survival(Draft([1, 2, 3], match=2))[2] > 0.8


def test_drafting_stops_where_it_costs_more_than_it_brings_and_is_tried_ever_more_seldom() -> None:
    rule = lengths({1: 10.0, 2: 19.0, 4: 37.0}, DrafterTraits(3))
    tried = []
    for number in range(1200):
        choices = rule.choose(3)
        if choices:
            assert choices[0].length <= 3
            tried.append(number)
            rule.observe_draft(choices[0], 5.0)
            rule.observe_verdict(0, 0, choices[0].length)
    late = [number for number in tried if number > 20]
    gaps = [b - a for a, b in itertools.pairwise(late)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 2 * FIRST_PROBE
    assert len(late) <= 8  # 1200 plain rounds, 8 tries
    assert max(gaps) <= LAST_PROBE


def test_a_drafter_that_becomes_good_is_taken_up_again() -> None:
    rule = lengths({1: 10.0, 8: 16.0}, DrafterTraits(4))
    for _ in range(52):
        for choice in rule.choose(4):
            rule.observe_draft(choice, 8.0)
            rule.observe_verdict(0, 0, choice.length)
    assert not rule.choose(4)
    rule.begin()
    drafted = 0
    for _ in range(200):
        for choice in rule.choose(4):
            drafted += 1
            rule.observe_draft(choice, 1.0)
            rule.observe_verdict(0, choice.length, choice.length)
    assert drafted > 60  # of 200: the second good try is followed by the next at once
    assert rule.choose(4)[0].length == 4


def try_of(rule: AdaptiveLengths, choice: Choice) -> bool:
    """A round of that choice, of which nothing is accepted."""
    assert choice == Choice(0, PROBE_LENGTH, is_try=True)
    rule.observe_draft(choice, 1.0)
    rule.observe_verdict(0, 0, choice.length)
    return True


def test_a_try_asks_for_few_tokens() -> None:
    rule = lengths({1: 10.0, 2: 30.0}, DrafterTraits(8))
    tries = [number for number in range(4 * FIRST_PROBE) for choice in rule.choose(8) if try_of(rule, choice)]
    assert tries == [0, FIRST_PROBE, 3 * FIRST_PROBE]


def test_configured_lengths_and_room_are_caps() -> None:
    rule = lengths({1: 10.0, 64: 11.0}, DrafterTraits(5))
    assert [choice[:2] for choice in rule.choose(64)] == [(0, 5)]
    assert [choice[:2] for choice in rule.choose(2)] == [(0, 2)]
    assert rule.choose(0) == []


def test_the_drafter_that_promises_most_is_asked_first_unless_the_order_is_kept() -> None:
    for ordered, first in ((False, 1), (True, 0)):
        rule = lengths({1: 10.0, 8: 14.0}, DrafterTraits(4), DrafterTraits(4), ordered=ordered)
        for _ in range(40):
            rule.observe_verdict(0, 2, 4)
            rule.observe_verdict(1, 4, 4)
        assert [choice.drafter for choice in rule.choose(4)] == [first, 1 - first]


def test_more_sequences_share_a_step_and_draft_less() -> None:
    costs = {1: 10.0, 8: 12.0, 16: 30.0, 64: 120.0}
    one, many = (lengths(costs, DrafterTraits(7)) for _ in range(2))
    alone = one.choose(7)[0].length
    together = many.choose(7, n_sequences=8)
    assert not together or together[0].length < alone
