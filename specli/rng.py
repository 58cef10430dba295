"""MT19937 streams equal to C++ `std::mt19937(seed)`: a seed means the same as in llama.cpp (docs/speculation.md §6.4).

A stream is a position in the word sequence of its seed. The words are made in blocks by NumPy's legacy generator, which
seeds exactly like `std::mt19937`, and are shared by all copies: copying or rewinding a stream costs nothing.

Example: seed 5489 starts with the words 3499211612, 581869302; the first double is
(3499211612 + 581869302·2³²) / 2⁶⁴ = 0.13547700671...
"""

from __future__ import annotations

import math
import os
from array import array
from struct import Struct

RANDOM_SEED = 0xFFFFFFFF  # `--seed -1`: take a seed from the operating system
REJECTION_SALT = 0x9E3779B9  # the decisions of rejection sampling
DRAFT_SALT = 0x85EBCA6B  # probabilistic drafting

_WORD = 2.0**32
_BELOW_ONE = math.nextafter(1.0, 0.0)
_BELOW_ONE_SINGLE = 1.0 - 2.0**-24
_SINGLE = Struct("f")  # rounds to float32
_BLOCK_WORDS = 624  # one turn of the generator


def resolve_seed(seed: int) -> int:
    """The seed itself modulo 2³², or one from the operating system for `RANDOM_SEED` (which is never returned)."""
    seed &= 0xFFFFFFFF
    while seed == RANDOM_SEED:
        seed = int.from_bytes(os.urandom(4), "little")
    return seed


class _Words:
    """The word sequence of one seed, as far as it was needed. Append-only."""

    __slots__ = ("_source", "made")

    def __init__(self, seed: int) -> None:
        from numpy.random import RandomState  # options name seeds, and `specli --help` imports no NumPy

        self._source = RandomState(seed)
        self.made = array("I")

    def extend(self) -> None:
        self.made.frombytes(self._source.bytes(4 * _BLOCK_WORDS))


class MersenneTwister:
    """One stream of random numbers.

    Args:
        seed: 32-bit seed; already resolved.
    """

    __slots__ = ("_next", "_words", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed & 0xFFFFFFFF
        self._words = _Words(self.seed)
        self._next = 0

    def word(self) -> int:
        """The next 32-bit word."""
        position = self._next
        made = self._words.made
        if position == len(made):
            self._words.extend()
        self._next = position + 1
        return made[position]

    def double(self) -> float:
        """The next double in [0, 1): two words a, b give (a + b·2³²) / 2⁶⁴."""
        low = self.word()
        return min((low + self.word() * _WORD) / (_WORD * _WORD), _BELOW_ONE)

    def single(self) -> float:
        """The next float32 in [0, 1), one word / 2³², as a Python float."""
        rounded: float = _SINGLE.unpack(_SINGLE.pack(self.word()))[0]
        return min(rounded / _WORD, _BELOW_ONE_SINGLE)

    def rewind(self) -> None:
        """Back to the first word of the seed."""
        self._next = 0
