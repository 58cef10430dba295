"""How long to draft, and what of a draft to verify: what brings most tokens per time, chosen in every round.

A round with L draft tokens costs a target forward of L + 1 rows and the draft, and brings one token and those drafted
tokens that are accepted. Costs are measured (`specli.drafters.costs`); the chance that a token is accepted is learnt by
drafter from what it says of the token itself (`Belief`). The text never depends on drafts, so the choice is free.

There are two stages. Before a draft its length is chosen, 0 included (`AdaptiveLengths.choose`). Behind it, with more
known, the rows of the step are chosen over all sequences (`trim`): a row stays if it brings more tokens than its time
would bring elsewhere. Published relatives: SmartSpec (arXiv 2406.14066) and D-Cut (arXiv 2607.14647).

Rejection sampling keeps the target's distribution only if whether a token is verified does not depend on that token or
those behind it. So lengths are chosen from earlier rounds, and a sampled draft is never trimmed nor exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft
from specli.drafters.costs import RowCosts

MEMORY = 0.97  # weight of a round one round later: about the last 33 rounds count
PRIOR = 0.5  # acceptance of a position before anything is known
TABLE_PRIOR = 0.7  # a table proposes only where it has seen the newest n-gram before
PRIOR_ROUNDS = 2.0  # how many rounds that belief weighs; deeper positions start from the one before them
HYSTERESIS = 0.03  # tokens by which another length must be better than the one in force
FIRST_PROBE = 16  # rounds without a draft before one is tried again …
LAST_PROBE = 512  # … twice as many after every try that changed nothing, at most so many …
NEW_PROBE = 64  # … and at most so many in a new request of a drafter that nearly pays
REVIEW = 32  # rounds after which lengths are chosen again; fewer at the start of a request
PLAIN_EVERY = 64  # rounds with a draft before one without, or what that costs would not be known for long
PROBE_LENGTH = 2  # draft tokens of such a try
NEAR = 0.15  # a drafter that fails to pay by fewer tokens a round is tried again at once if all of a try was accepted
DRAFT_WEIGHT = 0.1  # how far one draft moves the estimate of its drafter's time; the first ones more …
DRAFT_SURPRISE = 4.0  # … each counts as at most so many times that estimate
N_GRADES = 10  # classes of a draft network's own chances that are compared with what becomes of their tokens …
GRADE_MEMORY = 0.99  # … each over about its last 100 tokens, …
GRADE_PRIOR = 4.0  # … and believed like so many tokens before
N_REMEMBERED = 32  # drafts whose chances decide about the length of the next
FULL_EVERY = 32  # a draft in so many is verified whole, or what is always cut would never be known better
DRAWN_EVERY = 8  # how often costs are drawn anew before lengths that nothing else has changed are looked for again
SAME_RATE = 0.01  # what was found at a rate is not looked for again at one so near
TABLE_SHARE = 0.01  # of a plain step; a table that takes more to answer …
TABLE_REST = 4  # … and found nothing in so many rounds …
TABLE_REVIEW = 4  # … is asked in one of so many only


class Acceptance:
    """The chance that a draft token is accepted if those before it are, by position.

    Args:
        prior: What is believed before anything is known.

    Worked example: nothing known, `PRIOR` .5 at every position. After a draft of 2 tokens of which one was accepted,
    position 0 is (1 + 2 · .5) / (1 + 2) = .667 and position 1 is (0 + 2 · .667) / (1 + 2) = .444.
    """

    def __init__(self, prior: float = PRIOR) -> None:
        self._prior = prior
        self._accepted: list[float] = []
        self._reached: list[float] = []

    def observe(self, n_accepted: int, n_draft: int, untried: Sequence[float] = ()) -> None:
        """Takes in a verified draft.

        Args:
            n_accepted: Tokens that were accepted.
            n_draft: Tokens that were verified.
            untried: Expected chances of the tokens behind them, which were cut. They count as what is expected of them
                and as far as they would have been reached: what is cut is worse than what is kept, and the positions
                would seem better than they are.
        """
        missing = n_draft + len(untried) - len(self._reached)
        self._accepted += [0.0] * missing
        self._reached += [0.0] * missing
        for position in range(min(n_accepted + 1, n_draft)):
            self._accepted[position] = MEMORY * self._accepted[position] + (position < n_accepted)
            self._reached[position] = MEMORY * self._reached[position] + 1.0
        if untried and n_accepted == n_draft:
            weight = 1.0
            for position, chance in enumerate(untried, n_draft):
                keep = 1 - (1 - MEMORY) * weight
                self._accepted[position] = keep * self._accepted[position] + weight * chance
                self._reached[position] = keep * self._reached[position] + weight
                weight *= chance

    def survival(self) -> Iterator[float]:
        """The chance that the first token is accepted, that the first two are, and so on without end."""
        chance, product = self._prior, 1.0
        for accepted, reached in zip(self._accepted, self._reached, strict=True):
            chance = (accepted + PRIOR_ROUNDS * chance) / (reached + PRIOR_ROUNDS)
            product *= chance
            yield product
        while True:
            product *= chance
            yield product


class Belief:
    """What is known of the acceptance of one drafter's tokens.

    A network's own chance of a token is a good guide but need not be true. It is compared with what becomes of tokens
    with about the same chance, and corrected by that. Tokens of a table are told apart by the grade of its match and
    their position.

    Args:
        prior: Chance that a first token is accepted, before anything is known.
        max_draft: Longest draft, tokens.

    Attributes:
        positions: Acceptance by position alone.
        n_changes: Drafts and verdicts that it was told of.

    Worked example: chances of .85 where 6 of 16 tokens so far were accepted are corrected to
    (6 + 4 · .85) / (16 + 4) = .47.
    """

    def __init__(self, prior: float = PRIOR, max_draft: int = 1) -> None:
        self.positions = Acceptance(prior)
        self.n_changes = 0
        self._prior = prior
        self._by_match: dict[int, Acceptance] = {}
        self._accepted = [0.0] * N_GRADES
        self._reached = [0.0] * N_GRADES
        self._outlook = np.empty((N_REMEMBERED, max_draft))  # survival of the latest drafts, a row each
        self._n_remembered = 0

    def chance(self, own: float) -> float:
        """The corrected chance of a token for which the network says `own`."""
        grade = min(int(own * N_GRADES), N_GRADES - 1)
        return (self._accepted[grade] + GRADE_PRIOR * own) / (self._reached[grade] + GRADE_PRIOR)

    def survival(self, draft: Draft) -> list[float]:
        """The chance that the first token of the draft is accepted, that the first two are, and so on."""
        if draft.confidence is None:
            found = self._by_match.get(draft.match)
            return list(islice((found or self.positions).survival(), len(draft.tokens)))
        accepted, reached = self._accepted, self._reached
        survival, product = [], 1.0
        for own in draft.confidence:  # `chance`, without a call for every token
            grade = int(own * N_GRADES) if own < 1 else N_GRADES - 1
            product *= (accepted[grade] + GRADE_PRIOR * own) / (reached[grade] + GRADE_PRIOR)
            survival.append(product)
        return survival

    def remember(self, survival: list[float]) -> None:
        """Takes in the chances of a draft of a network, whatever becomes of it.

        Behind its end it is as good as the average draft is behind that length.
        """
        row, n = self._outlook[self._n_remembered % N_REMEMBERED], len(survival)
        row[:n] = survival
        if n < len(row):
            mean = list(islice(self.positions.survival(), len(row)))
            before = (survival[-1], mean[n - 1]) if n else (1.0, 1.0)
            factor = before[0] / before[1] if before[1] > 0 else 0.0
            row[n:] = [factor * chance for chance in mean[n:]]
        self._n_remembered += 1
        self.n_changes += 1

    def observe(self, n_accepted: int, n_tried: int, draft: Draft | None) -> None:
        """Takes in what became of the first `n_tried` tokens of a draft; None = nothing else is known of it."""
        self.n_changes += 1
        if draft is None or draft.confidence is None:
            self.positions.observe(n_accepted, n_tried)
            if draft is not None:
                if draft.match not in self._by_match:
                    self._by_match[draft.match] = Acceptance(self._prior)
                self._by_match[draft.match].observe(n_accepted, n_tried)
            return
        own = draft.confidence
        self.positions.observe(n_accepted, n_tried, [self.chance(each) for each in own[n_tried:]])
        for position in range(min(n_accepted + 1, n_tried)):
            grade = min(int(own[position] * N_GRADES), N_GRADES - 1)
            self._accepted[grade] = GRADE_MEMORY * self._accepted[grade] + (position < n_accepted)
            self._reached[grade] = GRADE_MEMORY * self._reached[grade] + 1.0

    def outlook(self, limit: int) -> npt.NDArray[np.float64]:
        """`[N, limit]`, survival of drafts as the latest ones were; of the average draft if none is remembered."""
        if not self._n_remembered:
            return np.array([list(islice(self.positions.survival(), limit))])
        return self._outlook[: self._n_remembered, :limit]


class DraftCosts:
    """Nanoseconds that a drafter takes for a round, by draft length.

    Args:
        is_block: The time does not depend on the length. If not, it grows with every token.
    """

    def __init__(self, *, is_block: bool) -> None:
        self._is_block = is_block
        self._unit = 0.0  # per token and one more, or per block
        self._n_seen = 0

    def _size(self, n_draft: int) -> int:
        return 1 if self._is_block else n_draft + 1

    def observe(self, n_draft: int, ns: float) -> None:
        """Takes in a round: `n_draft` tokens were asked for, and drafting took `ns` in all.

        A drafter's first round is not counted, as it also prepares what later ones repeat. Of any other not more than
        `DRAFT_SURPRISE` times the estimate counts, so that one pause of the machine does not end drafting.
        """
        unit = ns / self._size(n_draft)
        if self._n_seen > 1:
            weight = max(DRAFT_WEIGHT, 1 / self._n_seen)
            unit = self._unit + weight * (min(unit, DRAFT_SURPRISE * self._unit) - self._unit)
        self._unit = unit if self._n_seen else 0.0
        self._n_seen += 1

    def __call__(self, n_draft: int) -> float:
        """The expected time for up to `n_draft` tokens; 0 while nothing is known."""
        return self._unit * self._size(n_draft)


class Choice(NamedTuple):
    """How many tokens one drafter may propose.

    Attributes:
        drafter: Its index in the chain.
        length: Most tokens, ≥ 1.
        value: Tokens that a round with its draft is expected to bring, less what its time brings elsewhere; infinite
            where it is asked whatever another one has proposed.
        is_try: Its draft is verified as it is.
    """

    drafter: int
    length: int
    value: float = float("inf")
    is_try: bool = False


@dataclass(frozen=True)
class DrafterTraits:
    """What the choice needs to know of a drafter.

    Attributes:
        max_draft: Its configured longest draft, tokens; the choice never exceeds it.
        min_draft: Its configured shortest draft, tokens, ≥ 1; the choice is 0 or not below it.
        is_block: A draft takes the same time whatever its length.
        is_table: It has no network: asking it costs microseconds, and it has a draft now and then.
        prior: Chance that its first token is accepted, before anything is known.
    """

    max_draft: int
    min_draft: int = 1
    is_block: bool = False
    is_table: bool = False
    prior: float = PRIOR


class AdaptiveLengths:
    """Chooses drafters, draft lengths and rows to verify, round by round.

    Args:
        costs: Of the target's forwards.
        drafters: Traits of the drafters, in the chain's order.
        ordered: Keep the chain's order, the first that has a draft is used. If not, tables are asked first, and what
            promises most is used.

    Attributes:
        costs: As given.
        traits: As given.
        is_ordered: As `ordered`.
    """

    def __init__(self, costs: RowCosts, drafters: Sequence[DrafterTraits], *, ordered: bool = False) -> None:
        self.costs = costs
        self.traits = tuple(drafters)
        self.is_ordered = ordered
        self._beliefs = [Belief(traits.prior, max(1, traits.max_draft)) for traits in drafters]
        self._draft_costs = [DraftCosts(is_block=traits.is_block) for traits in drafters]
        self._lengths = [0] * len(self.traits)  # in force
        self._idle = [FIRST_PROBE] * len(self.traits)  # rounds since the last try, so that the first round is one
        self._patience = [FIRST_PROBE // 2] * len(self.traits)
        self._ask_ns = [0.0] * len(self.traits)  # of a table, what asking it takes
        self._n_empty = [0] * len(self.traits)  # rounds since a table last had a draft
        self._best_known: list[tuple[tuple[int, ...], float, tuple[int, float, float]] | None] = [None] * len(
            self.traits
        )
        self._n_cut = [0] * len(self.traits)  # drafts since one was last verified whole
        self._kept: list[Choice] = []  # the latest choice, which stays for `_n_kept` rounds
        self._n_kept = self._n_sequences = self._longest = 0
        self._review = 1  # rounds that the next choice stays
        self._n_good = [0] * len(self.traits)  # tries in a row that were accepted whole
        self._is_near = [True] * len(self.traits)  # it hardly fails to pay
        self._n_drafted = 0  # rounds since the latest without a draft
        self._rate = 1 / costs(1)  # tokens per nanosecond that the best choice brings

    def begin(self) -> None:
        """A new request: another text may suit a drafter that hardly lost on the last one, so it is tried sooner."""
        for index, patience in enumerate(self._patience):
            if self._is_near[index]:
                self._patience[index] = min(patience, NEW_PROBE)
        self._n_empty = [0] * len(self.traits)
        self._review = 1
        self._reconsider()

    def _reconsider(self) -> None:
        """Chooses anew in the next round; the rounds that the latest choice was to stay have been counted already."""
        if self._n_kept:
            self._idle = [idle - self._n_kept for idle in self._idle]
            self._n_kept = 0

    # -- before the draft ------------------------------------------------------------------------------------------

    def skips(self, n_sequences: int) -> bool:
        """Whether nobody is asked in this round, as was found in an earlier one; counts the round if so."""
        if self._kept or self._n_kept <= 0 or self._n_sequences != n_sequences:
            return False
        self._n_kept -= 1
        self._n_drafted = 0
        return True

    def choose(self, max_tokens: int, *, n_sequences: int = 1) -> list[Choice]:
        """Which drafters to ask, in order, and for how many tokens each.

        Args:
            max_tokens: Most draft tokens that can be used.
            n_sequences: Sequences that draft in this step, b ≥ 1; all get the same length.

        Returns:
            The drafters worth asking, and those whose turn it is to be tried again; empty for a plain round.
        """
        if self._n_drafted >= PLAIN_EVERY:
            self._n_drafted = 0
            return []
        if self._n_kept > 0 and self._n_sequences == n_sequences and max_tokens >= self._longest:
            self._n_kept -= 1
            return self._kept
        self.costs.refresh()
        b = n_sequences
        rate = b / self.costs(b)
        if b != self._n_sequences:
            self._rate = rate
        tables: list[Choice] = []
        found: list[Choice] = []
        n_kept = LAST_PROBE  # nothing changes while nobody is asked
        for index, traits in enumerate(self.traits):
            limit = min(max_tokens, traits.max_draft)
            if limit <= 0:
                continue
            if traits.is_table:
                is_dear = self._ask_ns[index] > TABLE_SHARE * self.costs(b)
                rests = is_dear and self._n_empty[index] >= TABLE_REST
                if not rests or self._n_empty[index] % TABLE_REVIEW == 0:
                    tables.append(Choice(index, limit))
                    n_kept = 0 if rests else min(n_kept, self._review - 1)
                else:
                    n_kept = min(n_kept, TABLE_REVIEW - 1 - self._n_empty[index] % TABLE_REVIEW)
                self._n_empty[index] += 1
                continue
            key = limit, b, self._beliefs[index].n_changes, self.costs.n_drawn // DRAWN_EVERY
            known = self._best_known[index]
            if known is None or known[0] != key or abs(known[1] - self._rate) > SAME_RATE * self._rate:
                known = self._best_known[index] = key, self._rate, self._best(index, limit, b)
            length, gain, value = known[2]
            self._lengths[index] = length
            self._is_near[index] = value > 1 - self._rate * self.costs(b) / b - NEAR
            if length:
                n_kept = min(n_kept, self._review - 1)
                rate = max(rate, gain)
                self._patience[index] = FIRST_PROBE
                found.append(Choice(index, length, value))
                continue
            self._idle[index] += 1
            if self._idle[index] < self._patience[index]:
                n_kept = min(n_kept, self._patience[index] - self._idle[index] - 1)
                continue
            n_kept = 0
            self._patience[index] = min(2 * self._patience[index], LAST_PROBE)
            found.append(Choice(index, min(limit, max(PROBE_LENGTH, traits.min_draft)), is_try=True))
        self._rate = rate
        if self.is_ordered:
            self._kept = sorted([*tables, *found])
        else:
            self._kept = tables + sorted(found, key=lambda choice: -choice.value)  # a try comes first
        n_kept = max(0, n_kept)
        self._n_kept, self._n_sequences = n_kept, b
        self._review = min(2 * self._review, REVIEW)
        self._longest = max((choice.length for choice in self._kept), default=0)
        self._idle = [idle + n_kept for idle in self._idle]
        for index, traits in enumerate(self.traits):
            if traits.is_table:
                self._n_empty[index] += n_kept
        return self._kept

    def observe_draft(self, choice: Choice, ns: float) -> None:
        """Takes in what drafting took in one round, asking and showing tokens together."""
        self._n_drafted += 1
        self._draft_costs[choice.drafter].observe(choice.length, ns)
        self._idle[choice.drafter] = 0

    def observe_asking(self, drafter: int, ns: float) -> None:
        """Takes in what asking a table took."""
        if self.traits[drafter].is_table:
            known = self._ask_ns[drafter] or ns
            self._ask_ns[drafter] = known + DRAFT_WEIGHT * (min(ns, DRAFT_SURPRISE * known) - known)

    # -- behind the draft ------------------------------------------------------------------------------------------

    def survival(self, drafter: int, draft: Draft) -> list[float]:
        """The chance that the first token of a draft is accepted, that the first two are, and so on; never rising."""
        survival = self._beliefs[drafter].survival(draft)
        if draft.confidence is not None:
            self._beliefs[drafter].remember(survival)
        else:
            self._n_empty[drafter] = 0
        return survival

    def value(self, survival: Sequence[float]) -> float:
        """As `Choice.value`, of a draft that is there; the best of all its beginnings."""
        costs, b, rate = self.costs, max(1, self._n_sequences), self._rate
        gain = best = 1 - rate * costs(b) / b
        accepted = 1.0
        for length, chance in enumerate(survival, 1):
            accepted += chance
            gain = accepted - rate * costs(b + b * length) / b
            if gain > best:
                best = gain
        return best

    def trim(self, survivals: Sequence[Sequence[float]], n_rows: int) -> list[int]:
        """How much of each draft to verify: what brings most tokens, less what the time brings elsewhere.

        All numbers of rows are looked at, since costs are a staircase. Of equals the one with fewer rows is taken, and
        of equal tokens the earlier sequence's.

        Args:
            survivals: Of the drafts, each never rising (`survival`).
            n_rows: Rows of the step without these drafts' tokens, ≥ 1.
        """
        costs, rate = self.costs, self._rate
        start = costs(n_rows)
        kept, best, gained = 0, 0.0, 0.0
        if len(survivals) == 1:
            for n, chance in enumerate(survivals[0], 1):
                gained += chance
                value = gained - rate * (costs(n_rows + n) - start)
                if value > best:
                    kept, best = n, value
            return [kept]
        order = sorted((-chance, i) for i, survival in enumerate(survivals) for chance in survival)
        for n, (chance, _) in enumerate(order, 1):
            gained -= chance
            value = gained - rate * (costs(n_rows + n) - start)
            if value > best:
                kept, best = n, value
        lengths = [0] * len(survivals)
        for _, i in order[:kept]:
            lengths[i] += 1
        return lengths

    def least(self, drafter: int, n_draft: int) -> int:
        """How much of a draft is verified although it does not pay, because it has not been for long."""
        if not self.traits[drafter].is_table:
            self._n_cut[drafter] += 1
            if self._n_cut[drafter] < FULL_EVERY or not self._lengths[drafter]:
                return 0
            self._n_cut[drafter] = 0
            return n_draft
        self._n_cut[drafter] += 1
        if self._n_cut[drafter] < self._patience[drafter]:
            return 0
        self._n_cut[drafter] = 0
        self._patience[drafter] = min(2 * self._patience[drafter], LAST_PROBE)
        return min(n_draft, PROBE_LENGTH)

    def observe_verdict(self, drafter: int, n_accepted: int, n_tried: int, draft: Draft | None = None) -> None:
        """Takes in what became of the first `n_tried` ≥ 1 tokens of a draft.

        Args:
            drafter: Whose it is.
            n_accepted: Of those tokens.
            n_tried: Tokens verified.
            draft: All of it, as it was made.
        """
        self._beliefs[drafter].observe(n_accepted, n_tried, draft)
        if self.traits[drafter].is_table:
            self._n_cut[drafter] = 0
            if n_accepted == n_tried:
                self._patience[drafter] = FIRST_PROBE
            return
        if self._lengths[drafter] == 0:
            self._reconsider()
            if n_accepted < n_tried:
                self._n_good[drafter] = 0
                return
            self._n_good[drafter] += 1  # a try that could not go better
            self._patience[drafter] = max(FIRST_PROBE, self._patience[drafter] // 2)
            if self._is_near[drafter] or self._n_good[drafter] > 1:
                self._idle[drafter] = self._patience[drafter]  # the next at once

    def _best(self, index: int, limit: int, b: int) -> tuple[int, float, float]:
        """The best length up to `limit` for b sequences, its tokens per nanosecond, and the value of one of them.

        Of length 0 the value is that of the best other one, which is less than a plain step's.

        Every remembered draft is trimmed as it would be now, and the mean decides.
        """
        costs, rate, shortest = self.costs, self._rate, self.traits[index].min_draft
        tokens = self._beliefs[index].outlook(limit).cumsum(axis=1)
        time = np.array([(costs(b + b * n) - costs(b)) / b for n in range(1, limit + 1)])
        spent = np.array([self._draft_costs[index](n) / b for n in range(1, limit + 1)])
        values = tokens - rate * time  # more than a plain step
        means = np.maximum.accumulate(values, axis=1).clip(0).mean(axis=0) - rate * spent
        means[: shortest - 1] = -np.inf
        plain = 1 - rate * costs(b) / b
        current, best = min(self._lengths[index], limit), int(means.argmax()) + 1
        if means[best - 1] <= 0:
            best = 0
        if best != current:
            gained, in_force = (means[n - 1] if n else 0.0 for n in (best, current))
            if gained < in_force + HYSTERESIS:
                best = current
        if not best:
            return 0, b / costs(b), plain + float(means.max())
        kept = values[:, :best].argmax(axis=1)
        is_kept = values[np.arange(len(values)), kept] > 0
        brought = 1 + (tokens[np.arange(len(values)), kept] * is_kept).mean()
        elapsed = costs(b) / b + (time[kept] * is_kept).mean() + spent[best - 1]
        return best, float(brought / elapsed), plain + float(means[best - 1])
