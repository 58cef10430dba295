from __future__ import annotations

import pytest

from specli.engine.advice import drafting_line, plain_step
from specli.engine.stats import Timings

MS = 1_000_000


def timings(rounds: list[tuple[int, int, int]], *, draft_ms: int = 0) -> Timings:
    """Of a run whose rounds have (draft tokens, accepted, milliseconds)."""
    found = Timings(predicted_n=1, draft_ns=draft_ms * MS)
    for n_draft, n_accepted, ms in rounds:
        found.count_round(n_draft, n_accepted, ms * MS)
        found.predicted_n += 1 + n_accepted
        found.predicted_ns += ms * MS
    found.verify_ns = found.predicted_ns - found.draft_ns
    return found


def test_gain_is_stated_with_shares() -> None:
    # 4 rounds of 10 ms emit 16 tokens: 400 tokens/s against 200
    line = drafting_line(timings([(3, 3, 10)] * 4, draft_ms=4), [], 5 * MS, "--spec-draft-n-max")
    assert line == (
        "drafting: 400.0 tokens/s, plain decoding about 200.0: 2.00 x; mean accepted length 4.00, 71 % of the tokens "
        "from drafts; time draft 10 %, verify 90 %, sample 0 %, other 0 %"
    )


def test_loss_names_the_length_whose_last_token_pays() -> None:
    # 10 rounds, 12 ms against 5: 7 ms / 3 tokens = 0.47 steps per draft token; acceptance .6 .2 .0
    rounds = [(3, 2, 12)] * 2 + [(3, 1, 12)] * 4 + [(3, 0, 12)] * 4
    line = drafting_line(timings(rounds), [], 5 * MS, "--spec-draft-n-max")
    assert line is not None
    assert line.endswith("drafting lost, better: --spec-draft-n-max 1")


def test_hopeless_drafts_are_better_switched_off() -> None:
    line = drafting_line(timings([(3, 0, 12)] * 10), [], 5 * MS, "--spec-draft-n-max")
    assert line is not None
    assert line.endswith("drafting lost, better: --spec-type none")


def test_drafters_that_never_drafted_are_told_of() -> None:
    line = drafting_line(timings([(0, 0, 5)] * 3), [], 0, "--spec-draft-n-max")
    assert line == "drafting: no draft in 3 rounds, so decoding was plain"
    assert drafting_line(timings([]), [], 0, "--spec-draft-n-max") is None


def test_a_held_up_step_does_not_count_against_drafting() -> None:
    """9 plain steps of 5 ms and one of 500, then a round of 10 ms with 4 tokens, which would take 20 ms."""
    steps = [5] * 9 + [500]
    found = timings([(0, 0, ms) for ms in steps] + [(3, 3, 10)])
    line = drafting_line(found, [ms * MS for ms in steps], 5 * MS, "--spec-draft-n-max")
    assert line is not None
    assert f"plain decoding about {14e3 / 565:.1f}: {565 / 555:.2f} x" in line  # 14 tokens
    assert "lost" not in line


@pytest.mark.parametrize(("n_undrafted", "expected"), [(7, 5.0 * MS), (8, 6.0 * MS)])
def test_rounds_without_a_draft_say_what_a_plain_step_costs(n_undrafted: int, expected: float) -> None:
    """One of them was held up: the median counts. A bare forward is measured where they are too few, plus sampling."""
    found = timings([(0, 0, 6)] * n_undrafted + [(3, 1, 9)])
    found.sample_ns = found.n_steps * MS
    steps = [6 * MS] * (n_undrafted - 1) + [500 * MS]
    assert plain_step(found, steps, lambda: 4.0 * MS) == expected
    assert plain_step(timings([(0, 0, 6)] * 9), steps, lambda: 4.0 * MS) == 0
