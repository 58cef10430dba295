"""What drafting brought, in one line, and the better setting when it lost (docs/architecture.md §1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from specli.engine.stats import Timings

ENOUGH_ROUNDS = 8  # rounds without a draft that say what plain decoding costs in this very run
NOISE = 0.97  # a smaller difference in speed is not called a loss


def plain_step(timings: Timings, steps: Sequence[int], measure: Callable[[], float]) -> float:
    """Nanoseconds of a token without drafting: a forward of one row and sampling; no time of the text's consumer.

    Args:
        timings: Of the request.
        steps: That time in its rounds without a draft; the median counts if they are enough.
        measure: Gives the time of a forward of one row; used if they are not, with the run's sampling per token.

    Returns:
        0 if nothing was drafted, so that there is nothing to compare.
    """
    if not timings.draft_n:
        return 0.0
    return median(steps) if len(steps) >= ENOUGH_ROUNDS else measure() + timings.sample_ns / max(1, timings.n_steps)


def drafting_line(
    timings: Timings, steps: Sequence[int], plain_step_ns: float, length_option: str | None
) -> str | None:
    """Compares the run with plain decoding.

    Rounds without a draft stand on both sides with the time they took, so that one that was held up does not count
    against drafting.

    Args:
        timings: Of a request with drafters.
        steps: Nanoseconds of forward and sampling in its rounds without a draft.
        plain_step_ns: What any other token costs without drafting: a forward of one row, and sampling.
        length_option: Option that bounds the drafts, or None if their length is fixed.

    Returns:
        The line; None when there is nothing to compare.
    """
    if not timings.n_steps or not timings.predicted_ns:
        return None
    if not timings.draft_n:
        return f"drafting: no draft in {timings.n_rounds} round{'s' * (timings.n_rounds > 1)}, so decoding was plain"
    chosen = ""
    if timings.n_rounds_skipped:
        chosen = f"; no drafter asked in {timings.n_rounds_skipped} of {timings.n_rounds} rounds, as no draft would pay"
    speed = timings.n_steps * 1e9 / timings.predicted_ns
    plain_ns = sum(steps) + max(0, timings.n_steps - len(steps)) * plain_step_ns
    plain = timings.n_steps * 1e9 / plain_ns
    shares = ", ".join(
        f"{name} {100 * ns / timings.predicted_ns:.0f} %"
        for name, ns in (
            ("draft", timings.draft_ns),
            ("verify", timings.verify_ns),
            ("sample", timings.sample_ns),
            ("other", timings.other_ns),
        )
    )
    line = (
        f"drafting: {speed:.1f} tokens/s, plain decoding about {plain:.1f}: {speed / plain:.2f} x; "
        f"mean accepted length {timings.mean_acc_len:.2f}, {100 * (timings.coverage or 0):.0f} % of the tokens from "
        f"drafts{chosen}; time {shares}"
    )
    return (
        line
        if speed >= NOISE * plain
        else f"{line}; drafting lost, better: {_better(timings, plain_step_ns, length_option)}"
    )


def _better(timings: Timings, plain_step_ns: float, length_option: str | None) -> str:
    """The draft length whose last token still pays, or no drafting.

    A draft token pays if it stands more often than its share of the round's extra time, in plain steps. Example: a
    plain step takes 5 ms, rounds with 3 draft tokens take 9.5 ms: 0.3 steps per token. With acceptance .6 .4 .2 per
    position two tokens pay.
    """
    rounds = timings.n_rounds_drafted
    extra_ns = timings.predicted_ns - timings.undrafted_ns - rounds * plain_step_ns
    cost = extra_ns / timings.draft_n / plain_step_ns
    paying = sum(1 for count in timings.accepted_per_position if count / rounds > cost)
    return f"{length_option} {paying}" if paying and length_option else "--spec-type none"
