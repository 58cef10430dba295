"""What is counted per drafter (docs/statistics.md §1). The chain counts and times; drafters do not.

Everything stored is an integer; times are nanoseconds. Rates are derived and are None where their denominator is zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def ratio(numerator: float, denominator: float) -> float | None:
    """`numerator / denominator`, or None when there is nothing to divide by."""
    return numerator / denominator if denominator else None


def add(into: Record, other: Record) -> None:
    """Adds the counts of `other`, lists position by position."""
    for item in fields(into):
        mine, theirs = getattr(into, item.name), getattr(other, item.name)
        if isinstance(mine, list):
            setattr(into, item.name, [a + b for a, b in zip_longest(mine, theirs, fillvalue=0)])
        elif isinstance(mine, int):
            setattr(into, item.name, mine + theirs)


def count_prefix(counts: list[int], n: int) -> None:
    """Adds one to each of the first `n` counts, growing the list as needed."""
    if n:
        if len(counts) < n:
            counts.extend([0] * (n - len(counts)))
        counts[:n] = [count + 1 for count in counts[:n]]


@dataclass
class DrafterStats:
    """Counters of one drafter since the program started.

    Worked example, three rounds with drafts of 3 tokens of which 0, 2 and 3 stood: `acc_per_pos` = [2, 2, 1],
    `acc_len_histogram` = [1, 0, 1, 1], mean acceptance length 1 + 5/3 = 2.67, acceptance per position .67 .67 .33,
    conditional .67 1.0 .5.

    Attributes:
        name: The spec type.
        n_begin: `begin` calls.
        n_draft: Draft calls that reached this drafter, fruitless ones included.
        n_accept: Rounds closed whose draft was this drafter's.
        gen_drafts: Drafts of this drafter that were used (not empty, first in the chain).
        acc_drafts: Rounds in which at least one of its tokens stood.
        gen_tokens: Tokens of the used drafts, after the cap.
        acc_tokens: Tokens that stood.
        acc_per_pos: Entry i: rounds in which the first i + 1 draft tokens stood.
        reached_per_pos: Entry i: rounds whose draft had a token i and the i tokens before it stood.
        acc_len_histogram: Entry i: rounds in which exactly i tokens stood.
        begin_ns: Time in `begin`.
        draft_ns: Time in `draft`.
        accept_ns: Time in `accept` of its own drafts.
        process_ns: Time in `process`.
    """

    name: str
    n_begin: int = 0
    n_draft: int = 0
    n_accept: int = 0
    gen_drafts: int = 0
    acc_drafts: int = 0
    gen_tokens: int = 0
    acc_tokens: int = 0
    acc_per_pos: list[int] = field(default_factory=list)
    reached_per_pos: list[int] = field(default_factory=list)
    acc_len_histogram: list[int] = field(default_factory=list)
    begin_ns: int = 0
    draft_ns: int = 0
    accept_ns: int = 0
    process_ns: int = 0

    def count_begin(self, ns: int) -> None:
        """A request began."""
        self.n_begin += 1
        self.begin_ns += ns

    def count_process(self, ns: int) -> None:
        """A batch of the target was shown."""
        self.process_ns += ns

    def count_call(self, ns: int) -> None:
        """The drafter was asked."""
        self.n_draft += 1
        self.draft_ns += ns

    def count_used(self, n_tokens: int) -> None:
        """`n_tokens` ≥ 1 of its draft are verified."""
        self.gen_drafts += 1
        self.gen_tokens += n_tokens

    def count_accept(self, n_accepted: int, n_draft: int, ns: int) -> None:
        """A round with this drafter's draft of `n_draft` tokens was closed; `n_accepted` of them stood."""
        self.n_accept += 1
        self.accept_ns += ns
        self.acc_drafts += n_accepted > 0
        self.acc_tokens += n_accepted
        count_prefix(self.acc_per_pos, n_accepted)
        count_prefix(self.reached_per_pos, min(n_accepted + 1, n_draft))
        self.acc_len_histogram.extend([0] * (n_accepted + 1 - len(self.acc_len_histogram)))
        self.acc_len_histogram[n_accepted] += 1

    @property
    def mean_acc_len(self) -> float | None:
        """1 + accepted tokens / rounds closed: tokens per round, the target's own included; None without rounds."""
        return 1.0 + self.acc_tokens / self.n_accept if self.n_accept else None

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens / draft tokens; None without drafts."""
        return ratio(self.acc_tokens, self.gen_tokens)

    @property
    def acceptance_per_pos(self) -> list[float]:
        """Entry i: share of all rounds in which the first i + 1 tokens stood; up to the longest run seen."""
        return [count / self.n_accept for count in self.acc_per_pos]

    @property
    def conditional_per_pos(self) -> list[float]:
        """Entry i: share of the rounds that got as far as token i in which it stood, too."""
        accepted = self.acc_per_pos + [0] * (len(self.reached_per_pos) - len(self.acc_per_pos))
        return [a / reached for a, reached in zip(accepted, self.reached_per_pos, strict=True)]
