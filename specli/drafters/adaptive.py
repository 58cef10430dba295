"""How long to draft: the length that brings most tokens per time, chosen before every round, 0 included.

A round with L draft tokens costs a target forward of L + 1 rows and the draft, and brings one token and those drafted
tokens that are accepted. Acceptance is estimated by drafter and position from the rounds so far, costs are measured
(`specli.drafters.costs`). The text never depends on drafts, so the choice is free. Published relatives of the rule:
SmartSpec (arXiv 2406.14066) and D-Cut (arXiv 2607.14647).

What is chosen depends on earlier rounds only, never on the tokens of the draft it is chosen for. Rejection sampling
keeps the target's distribution under such a rule, and would not under one that looks at drawn tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specli.drafters.costs import SURPRISE, RowCosts

MEMORY = 0.97  # weight of a round one round later: about the last 33 rounds count
PRIOR = 0.5  # acceptance of a position before anything is known
TABLE_PRIOR = 0.7  # a table proposes only where it has seen the newest n-gram before
PRIOR_ROUNDS = 2.0  # how many rounds that belief weighs; deeper positions start from the one before them
HYSTERESIS = 1.03  # another length must be so much better than the one in force
NEGLIGIBLE = 0.01  # longer drafts are not looked at when all they add is so small a share
FIRST_PROBE = 16  # rounds without a draft before one is tried again …
LAST_PROBE = 512  # … twice as many after every try that changed nothing, at most so many …
NEW_PROBE = 64  # … and at most so many in a new request
REVIEW = 8  # rounds after which lengths are chosen again although no draft was verified
PROBE_LENGTH = 2  # draft tokens of such a try
DRAFT_WEIGHT = 0.2  # how far one draft moves the estimate of its drafter's time


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

    def observe(self, n_accepted: int, n_draft: int) -> None:
        """Takes in a verified draft of `n_draft` tokens."""
        missing = n_draft - len(self._reached)
        self._accepted += [0.0] * missing
        self._reached += [0.0] * missing
        for position in range(min(n_accepted + 1, n_draft)):
            self._accepted[position] = MEMORY * self._accepted[position] + (position < n_accepted)
            self._reached[position] = MEMORY * self._reached[position] + 1.0

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

        A drafter's first round is not counted, as it also prepares what later ones repeat. Any other counts as at most
        a factor of `SURPRISE` off, so that one pause of the machine does not end drafting.
        """
        unit = ns / self._size(n_draft)
        if self._n_seen > 1:
            unit = self._unit + DRAFT_WEIGHT * (min(unit, SURPRISE * self._unit) - self._unit)
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
    """

    drafter: int
    length: int


@dataclass(frozen=True)
class DrafterTraits:
    """What the choice needs to know of a drafter.

    Attributes:
        max_draft: Its configured longest draft, tokens; the choice never exceeds it.
        min_draft: Its configured shortest draft, tokens, ≥ 1; the choice is 0 or not below it.
        is_block: A draft takes the same time whatever its length.
        prior: Chance that its first token is accepted, before anything is known.
    """

    max_draft: int
    min_draft: int = 1
    is_block: bool = False
    prior: float = PRIOR


class AdaptiveLengths:
    """Chooses drafters and draft lengths round by round.

    Args:
        costs: Of the target's forwards.
        drafters: Traits of the drafters, in the chain's order.
        ordered: Keep the chain's order; if not, the drafter that promises most is asked first.

    Attributes:
        costs: As given.
        traits: As given.
    """

    def __init__(self, costs: RowCosts, drafters: Sequence[DrafterTraits], *, ordered: bool = False) -> None:
        self.costs = costs
        self.traits = tuple(drafters)
        self._ordered = ordered
        self._acceptance = [Acceptance(traits.prior) for traits in drafters]
        self._draft_costs = [DraftCosts(is_block=traits.is_block) for traits in drafters]
        self._lengths = [0] * len(self.traits)  # in force
        self._idle = [FIRST_PROBE] * len(self.traits)  # rounds since the last try, so that the first round is one
        self._patience = [FIRST_PROBE // 2] * len(self.traits)
        self._kept: list[Choice] = []  # the latest choice, which stays for `_n_kept` rounds if no verdict comes
        self._n_kept = self._n_sequences = self._longest = 0

    def begin(self) -> None:
        """A new request: another text may suit a drafter that lost on the last one, so it is tried sooner."""
        self._patience = [min(patience, NEW_PROBE) for patience in self._patience]
        self._n_kept = 0

    def choose(self, max_tokens: int, *, n_sequences: int = 1) -> list[Choice]:
        """Which drafters to ask, in order, and for how many tokens each.

        Args:
            max_tokens: Most draft tokens that can be used.
            n_sequences: Sequences that draft in this step, b ≥ 1; all get the same length.

        Returns:
            The drafters worth asking, and those whose turn it is to be tried again; empty for a plain round.
        """
        if self._n_kept > 0 and self._n_sequences == n_sequences and max_tokens >= self._longest:
            self._n_kept -= 1
            return self._kept
        self.costs.refresh()
        found: list[tuple[float, Choice]] = []
        n_kept = REVIEW
        for index, traits in enumerate(self.traits):
            limit = min(max_tokens, traits.max_draft)
            length, gain = self._best(index, limit, n_sequences)
            self._lengths[index] = length
            if length:
                self._patience[index] = FIRST_PROBE
            else:
                self._idle[index] += 1
                if limit <= 0 or self._idle[index] < self._patience[index]:
                    n_kept = min(n_kept, self._patience[index] - self._idle[index] - 1)
                    continue
                n_kept = 0
                self._patience[index] = min(2 * self._patience[index], LAST_PROBE)
                length, gain = min(limit, max(PROBE_LENGTH, traits.min_draft)), float("inf")  # a try comes first
            found.append((gain, Choice(index, length)))
        if not self._ordered:
            found.sort(key=lambda item: -item[0])
        self._kept = [choice for _, choice in found]
        self._n_kept, self._n_sequences = max(0, n_kept), n_sequences
        self._longest = max((choice.length for choice in self._kept), default=0)
        self._idle = [idle + self._n_kept for idle in self._idle]
        return self._kept

    def observe_draft(self, choice: Choice, ns: float) -> None:
        """Takes in what drafting took in one round, asking and showing tokens together."""
        self._draft_costs[choice.drafter].observe(choice.length, ns)
        self._idle[choice.drafter] = 0

    def observe_verdict(self, drafter: int, n_accepted: int, n_draft: int) -> None:
        """Takes in what became of a draft of `n_draft` ≥ 1 tokens."""
        self._acceptance[drafter].observe(n_accepted, n_draft)
        self._n_kept = 0
        if self._lengths[drafter] == 0 and n_accepted == n_draft:  # a try could not go better: the next at once
            self._patience[drafter] = max(FIRST_PROBE, self._patience[drafter] // 2)
            self._idle[drafter] = self._patience[drafter]

    def _best(self, index: int, limit: int, b: int) -> tuple[int, float]:
        """The best length up to `limit` for b sequences, and its tokens per nanosecond."""
        costs, draft = self.costs, self._draft_costs[index]
        current, current_gain = min(self._lengths[index], max(0, limit)), 0.0
        shortest = self.traits[index].min_draft
        best, best_gain, accepted = 0, b / costs(b), 0.0
        if current == 0:
            current_gain = best_gain
        for length, chance in zip(range(1, limit + 1), self._acceptance[index].survival(), strict=False):
            accepted += chance
            gain = b * (1 + accepted) / (costs(b + b * length) + draft(length))
            if gain > best_gain and length >= shortest:  # all lengths are looked at: costs are a staircase, not convex
                best, best_gain = length, gain
            if length == current:
                current_gain = gain
            if length >= current and chance * (limit - length) < NEGLIGIBLE * (1 + accepted):
                break
        if best_gain < HYSTERESIS * current_gain:
            return current, current_gain
        return best, best_gain
