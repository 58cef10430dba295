"""Whether drafting changed a text: the same request without drafters, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specli.engine.config import RequestConfig
from specli.engine.load import Run


@dataclass(frozen=True)
class Difference:
    """The first token that drafting changed.

    Attributes:
        position: Its place among the generated tokens, from 0.
        drafted: Token with drafting; None where that text ended earlier.
        plain: Token without; None where that text ended earlier.
        gap: Log-probability of the best token minus that of the second best there, without drafting; None if unknown.
            A gap near 0 is a tie that rounding decided.
    """

    position: int
    drafted: int | None
    plain: int | None
    gap: float | None


def first_difference(
    run: Run, prompt: Sequence[int], request: RequestConfig, tokens: Sequence[int]
) -> Difference | None:
    """Generates as many tokens without drafting and compares.

    Args:
        run: Its drafters in use must be none.
        prompt: The prompt's tokens.
        request: As it was with drafting; the seed is not random.
        tokens: What it gave.

    Returns:
        The first difference, or None if there is none.
    """
    assert not run.drafter_names
    if not tokens:
        return None
    again = replace(request, n_predict=len(tokens), logprobs=max(2, request.logprobs))
    run.engine.reset()
    generation = run.generate(prompt, again)
    for _ in generation:
        pass
    plain = generation.tokens
    for position in range(max(len(plain), len(tokens))):
        mine = tokens[position] if position < len(tokens) else None
        other = plain[position] if position < len(plain) else None
        if mine != other:
            top = generation.logprobs[position].top if position < len(plain) else ()
            return Difference(position, mine, other, top[0][1] - top[1][1] if len(top) > 1 else None)
    return None
