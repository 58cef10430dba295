"""Acceptance on held-out prompts: greedy rounds replayed over the target's own answers.

A round starts at the newest known token, compares the draft with what the target wrote, and moves on by the accepted
tokens and the bonus token, exactly as the engine does; only speed cannot be measured this way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specli.demo.train.answers import Answer, Batch, with_features
from specli.demo.train.network import Qwen3

Draft = Callable[[Batch], tuple[Tensor, Tensor | None]]
"""Draft tokens `[S, n]` after each token of a batch of one sequence, and their confidence if there is one."""


@dataclass
class Tally:
    """What happened in some rounds."""

    n_rounds: int = 0
    n_accepted: int = 0
    sure: list[tuple[float, bool]] = field(default_factory=list)
    """Confidence of each draft token that was reached, and whether it was accepted."""

    @property
    def length(self) -> float:
        """Mean acceptance length, 1 + accepted tokens / rounds; 1 without a round."""
        return 1 + self.n_accepted / max(self.n_rounds, 1)


def reached(answer: Answer, drafts: Tensor) -> list[list[tuple[int, int, bool]]]:
    """For each round of an answer the draft tokens that were verified up to the first wrong one.

    Args:
        answer: The answer.
        drafts: `[S, n]`; row i follows token i.

    Returns:
        Row, step and whether the token was right.
    """
    tokens, place = answer.tokens, answer.n_prompt
    rows = drafts.tolist()
    rounds = []
    while place + 1 < len(tokens):
        following = tokens[place + 1 :]
        seen: list[tuple[int, int, bool]] = []
        for step, token in enumerate(rows[place][: len(following)]):
            seen.append((place, step, token == following[step]))
            if token != following[step]:
                break
        rounds.append(seen)
        place += sum(is_right for _, _, is_right in seen) + 1
    return rounds


def replay(answer: Answer, drafts: Tensor, sure: Tensor | None, tally: Tally) -> None:
    """Counts the rounds of one answer; row i of `drafts` `[S, n]` follows token i."""
    for seen in reached(answer, drafts):
        tally.n_rounds += 1
        tally.n_accepted += sum(is_right for _, _, is_right in seen)
        if sure is not None:
            tally.sure += [(float(sure[place, step]), is_right) for place, step, is_right in seen]


def measure(target: Qwen3, answers: list[Answer], draft: Draft) -> dict[str, Tally]:
    """Tallies per kind of prompt, and "all"."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for answer in answers:
        batch = with_features(target, [answer])
        drafts, sure = draft(batch)
        for kind in (answer.kind, "all"):
            replay(answer, drafts, sure, tallies[kind])
    return dict(tallies)


def calibration(sure: list[tuple[float, bool]], n_bins: int = 5) -> list[tuple[float, float, int]]:
    """Mean confidence, share accepted and count of each non-empty bin of equal width."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(n_bins)]
    for chance, is_right in sure:
        bins[min(int(chance * n_bins), n_bins - 1)].append((chance, is_right))
    rows = []
    for entries in filter(None, bins):
        chances, rights = zip(*entries, strict=True)
        rows.append((sum(chances) / len(entries), sum(rights) / len(entries), len(entries)))
    return rows


def report(tallies: dict[str, Tally]) -> str:
    """One line: mean acceptance length of all prompts and of each kind, and DSpark's calibration."""
    text = ", ".join(f"{kind} {tally.length:.2f}" for kind, tally in sorted(tallies.items()))
    if tallies["all"].sure:
        rows = calibration(tallies["all"].sure)
        text += " | " + ", ".join(f"{chance:.2f} → {share:.2f} ({n})" for chance, share, n in rows)
    return text


def held_out_right(target: Qwen3, answers: list[Answer]) -> float:
    """Share of answers whose greedy text is a fixed point: the target run over them chooses the same tokens."""
    right = total = 0
    for answer in answers:
        batch = with_features(target, [answer])
        with torch.no_grad():
            best = target.logits(batch.hidden[0, :-1]).argmax(-1)
        use = batch.is_answer[0, 1:]
        right += int((best == batch.tokens[0, 1:])[use].sum())
        total += int(use.sum())
    return right / max(total, 1)
