"""The streams against values printed by a C++ program (libstdc++): `std::mt19937 g(seed)`, words 0 to 3 and 1000,
two draws of `std::uniform_real_distribution<double>(0, 1)` and of `<float>(0, 1)`, each from a fresh generator."""

import os

import numpy as np
import pytest

from specli.rng import DRAFT_SALT, RANDOM_SEED, REJECTION_SALT, MersenneTwister, resolve_seed

VECTORS = [
    (
        0,
        (2357136044, 2546248239, 3071714933, 3626093760),
        1333075495,
        (0.59284461651668263, 0.84426574425659828),
        (0.548813522, 0.592844605),
    ),
    (
        1,
        (1791095845, 4282876139, 3093770124, 4005303368),
        375733240,
        (0.99718480823026556, 0.93255736136816547),
        (0.41702199, 0.997184813),
    ),
    (
        42,
        (1608637542, 3421126067, 4083286876, 787846414),
        2998581749,
        (0.79654298428784598, 0.18343478789336848),
        (0.37454012, 0.796543002),
    ),
    (
        5489,
        (3499211612, 581869302, 3890346734, 3586334585),
        2500741117,
        (0.1354770042967805, 0.8350085899945795),
        (0.81472367, 0.135477006),
    ),
    (
        4294967294,
        (2236247450, 437438088, 2243395601, 4071188816),
        3193434938,
        (0.10184899170898529, 0.94789751258733013),
        (0.520666957, 0.10184899),
    ),
]


@pytest.mark.parametrize(("seed", "words", "word_1000", "doubles", "singles"), VECTORS)
def test_draws_equal_libstdcxx(
    seed: int, words: tuple[int, ...], word_1000: int, doubles: tuple[float, ...], singles: tuple[float, ...]
) -> None:
    stream = MersenneTwister(seed)
    drawn = [stream.word() for _ in range(1001)]
    assert tuple(drawn[:4]) == words
    assert drawn[1000] == word_1000
    stream.rewind()
    assert (stream.double(), stream.double()) == doubles
    stream.rewind()
    assert tuple(np.float32([stream.single(), stream.single()])) == tuple(np.float32(singles))


def test_derived_seeds() -> None:
    """First words of `std::mt19937(1 ^ 0x9e3779b9)` and `(1 ^ 0x85ebca6b)`."""
    assert MersenneTwister(1 ^ REJECTION_SALT).word() == 1909002083
    assert MersenneTwister(1 ^ DRAFT_SALT).word() == 833176226


def test_a_stream_that_is_rewound_starts_again() -> None:
    stream = MersenneTwister(7)
    before = [stream.word() for _ in range(1300)]
    stream.rewind()
    assert [stream.word() for _ in range(1300)] == before


def test_a_draw_never_reaches_one() -> None:
    """4294967295/2³² is 1.0 in float32, and (2⁶⁴ − 1)/2⁶⁴ is 1.0 in double: C++ steps below one."""
    stream = MersenneTwister(0)
    stream.word()
    words = stream._words.made
    words[:3] = type(words)("I", [0xFFFFFFFF] * 3)
    stream.rewind()
    assert stream.double() == 1 - 2.0**-53
    assert np.float32(stream.single()) == np.float32(1 - 2.0**-24)


def test_random_seed_comes_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([b"\xff" * 4, b"\x05\0\0\0"])
    monkeypatch.setattr(os, "urandom", lambda n: next(answers))
    assert resolve_seed(-1) == 5
    assert resolve_seed(RANDOM_SEED - 1) == RANDOM_SEED - 1
    assert resolve_seed(2**32 + 3) == 3
