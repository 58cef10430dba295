import numpy as np
import pytest

from specli.sampling.candidates import Candidates
from specli.sampling.dry import Breakers, Dry, find_breakers
from tests.support.vocabulary import ByteVocabulary


def slow_costs(history: list[int], allowed: int, window: int, breakers: Breakers) -> dict[int, int]:
    """Token → length of the longest repetition it would continue, by comparing all suffixes."""
    latest = history[-window:]
    n = len(latest)
    limit = n
    for i in range(n):
        head = latest[n - 1 - i]
        behind = latest[n - i :]
        lengths = [
            len(tail) for tail in breakers.get(head, []) if tuple(behind[: len(tail)]) == tail and len(tail) <= i
        ]
        if lengths:
            limit = i - max(lengths)
            break
    longest: dict[int, int] = {}
    for end in range(n - 1):  # a repetition that ends here, followed by latest[end + 1]
        length = 0
        while length <= end and latest[end - length] == latest[n - 1 - length]:
            length += 1
        length = min(length, limit)
        if length >= allowed and n > allowed and limit >= allowed:
            token = latest[end + 1]
            longest[token] = max(longest.get(token, 0), length)
    return {t: length for t, length in longest.items() if () not in breakers.get(t, [])}


@pytest.mark.parametrize("window", [1, 2, 7, 30, 500])
@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_costs_equal_those_of_comparing_all_suffixes(window: int, allowed: int) -> None:
    breakers: Breakers = {0: [()], 1: [(2,), (2, 3)]}
    source = np.random.RandomState(window + allowed)
    dry = Dry(0.5, 1.75, allowed, window, breakers)
    history: list[int] = []
    for step in range(300):
        candidates = Candidates(np.zeros(8, np.float32))
        dry.apply(candidates)
        expected = np.zeros(8)
        for token, length in slow_costs(history, allowed, window, breakers).items():
            expected[token] = -0.5 * 1.75 ** (length - allowed)
        assert candidates.logits == pytest.approx(np.float32(expected), rel=1e-6), step
        token = int(source.randint(8)) if step % 40 < 20 else history[-6]
        dry.accept(token)
        history.append(token)


@pytest.mark.parametrize(("base", "cost"), [(1.75, 1.75**158), (2.0, np.inf), (1.0, 1.0)])
def test_the_cost_of_a_long_repetition_is_capped(base: float, cost: float) -> None:
    """The exponent is cut to ⌊88.72 / ln base⌋: 158 for 1.75, and 128 for 2, which is just beyond float32."""
    dry = Dry(1.0, base, 1, 1000, {})
    for _ in range(900):
        dry.accept(5)
    candidates = Candidates(np.zeros(8, np.float32))
    dry.apply(candidates)
    assert candidates.logits[5] == pytest.approx(-cost)


def test_breakers_are_found_inside_and_across_tokens() -> None:
    vocabulary = ByteVocabulary(words=(b"x\n", b"a:", b"#", b"end#", b"#!rest"))
    breakers = find_breakers(["\n", "#!", ""], vocabulary, 263)
    bang = (ord("!"),)
    assert breakers == {10: [()], 258: [()], ord("#"): [bang], 260: [bang], 261: [bang], 262: [()]}


def test_a_breaker_with_an_overlap_has_all_its_tails() -> None:
    vocabulary = ByteVocabulary(words=(b"aa",))
    breakers = find_breakers(["aaab"], vocabulary, 259)
    a, b = ord("a"), ord("b")
    assert breakers == {a: [(a, a, b)], 258: [(a, b), (a, a, b)]}


def test_breakers_are_cut_to_forty_bytes_and_tails_to_twenty_tokens() -> None:
    breakers = find_breakers(["x" * 100], ByteVocabulary(), 256)
    assert breakers == {ord("x"): [(ord("x"),) * 20]}


def test_a_breaker_inside_a_character_matches_nothing_by_chance() -> None:
    breakers = find_breakers(["é"], ByteVocabulary(), 256)
    assert breakers == {0xC3: [tuple("\ufffd".encode())]}
