import numpy as np
import pytest

from specli.errors import SpecliError
from specli.sampling.candidates import Candidates, descending, entropy, reduce


def slow_order(values: np.ndarray) -> list[int]:
    return sorted(range(len(values)), key=lambda i: (-float(values[i]), i))


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 2047, 2048, 5003, 49152])
@pytest.mark.parametrize("k", [1, 2, 5, 40, 700, 10**6])
def test_reduce_finds_the_largest(n: int, k: int) -> None:
    values = np.random.RandomState(n + k).standard_normal(n).astype(np.float32)
    assert reduce(values, k).tolist() == slow_order(values)[:k]


@pytest.mark.parametrize("n", [50, 3000, 20001])
def test_equal_logits_come_in_order_of_their_ids(n: int) -> None:
    values = np.random.RandomState(n).randint(-2, 3, n).astype(np.float32)
    values[::7] = -np.inf
    values[3::11] = -0.0
    for k in (1, 30, n):
        assert reduce(values, k).tolist() == slow_order(values)[:k]
    assert descending(values).tolist() == slow_order(values)


def test_all_logits_equal() -> None:
    assert reduce(np.zeros(10_000, np.float32), 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("place", [0, 1234, 9999])
@pytest.mark.parametrize("k", [1, 40, 5000])
def test_a_logit_that_is_not_a_number_is_an_error(place: int, k: int) -> None:
    values = np.zeros(10_000, np.float32)
    values[place] = np.nan
    with pytest.raises(SpecliError, match=r"^the model's logits are not numbers$"):
        reduce(values, k)


def test_entropy_ignores_impossible_tokens() -> None:
    assert entropy(np.float32([0.5, 0.5, 0])) == pytest.approx(np.log(2), rel=1e-6)


def test_the_row_itself_is_never_changed() -> None:
    row = np.float32([1, 3, 2])
    candidates = Candidates(row)
    candidates.change(np.array([1]), np.float32([-5]))
    candidates.scale(np.float32(2))
    assert row.tolist() == [1, 3, 2]
    candidates = Candidates(row)
    candidates.take(slice(2), is_sorted=False)  # a view of the row
    candidates.change(np.array([0]), np.float32([9]))
    assert row.tolist() == [1, 3, 2]
    assert candidates.logits.tolist() == [9, 3]


def test_tokens_are_found_in_a_shortened_list() -> None:
    candidates = Candidates(np.float32([1, 3, 2, 0]))
    candidates.keep_largest(3)
    assert candidates.token_ids().tolist() == [1, 2, 0]
    where, which = candidates.locate(np.array([3, 0, 1], np.int32))
    assert dict(zip(np.array([3, 0, 1])[which].tolist(), np.array(where).tolist(), strict=True)) == {0: 2, 1: 0}
