"""The native end of a sampler chain against the links that define it: same tokens, same candidates, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.errors import ResourceError, SpecliError
from specli.kernels.cpu.library import Exports, native_exports, native_library
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

Rows = Callable[[np.random.Generator, int], np.ndarray]


def has_library() -> bool:
    try:
        native_library()
    except ResourceError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_library(), reason="the native library is not built")


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return 3 * rng.standard_normal(n)


def tied(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-3, 4, n) / 2 * rng.choice([1.0, -0.0], n)


def banned(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.9, -np.inf, rng.standard_normal(n))


def infinite(rng: np.random.Generator, n: int) -> np.ndarray:
    """Infinite where no bias of the settings below could make it something that is not a number."""
    values = rng.standard_normal(n)
    values[rng.integers(61, n, 3)] = np.inf
    return values


def rising(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linspace(-5, 9, n)


MOST = native_exports().number("limit", "max_candidates") if has_library() else 0

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "hot": {"temperature": 3.0},
    "cold": {"temperature": 0.01},
    "greedy with bias": {"temperature": 0.0, "logit_bias": ((3, 5.0), (11, -np.inf))},
    "bias": {"logit_bias": tuple((i, (-1.0) ** i * i) for i in range(0, 60, 3))},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.1},
    "bias and penalties": {"repeat_penalty": 1.3, "logit_bias": ((5, 2.0),)},
    "one": {"top_k": 1},
    "many": {"top_k": 500, "top_p": 0.999, "min_p": 0.0001},
    "more than there is room for": {"top_k": MOST + 1},
    "no room for the bias": {"top_k": MOST, "logit_bias": ((5, 2.0),)},
    "least to keep": {"min_keep": 7, "top_p": 0.01, "min_p": 0.9},
    "no cut but top-k": {"top_p": 1.0, "min_p": 0.0, "temperature": 1.0},
    "min-p first": {"samplers": ("min_p", "top_k", "temperature")},
    "xtc in the way": {"xtc_probability": 0.5},
    **{
        "-".join(order): {"samplers": order, "top_p": 0.7}
        for order in permutations(("top_k", "top_p", "min_p", "temperature"))
    },
}


def pair(n_vocab: int, seed: int, settings: dict[str, Any]) -> tuple[Sampler, Sampler]:
    """A sampler as it is, and one without the native tail."""
    config = SamplingConfig(seed=seed, **settings)
    native, plain = (Sampler(config, ByteVocabulary(), n_vocab=n_vocab) for _ in range(2))
    plain._tail = None
    return native, plain


@pytest.mark.parametrize("n_vocab", [65, 700, 5003])
@pytest.mark.parametrize("rows", [normal, tied, banned, infinite, rising])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf
def test_both_ways_give_the_same(settings: dict[str, Any], rows: Rows, n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    native, plain = pair(n_vocab, 4, settings)
    for _ in range(6):
        row = rows(rng, n_vocab).astype(np.float32)
        before = row.tobytes()
        token = native.sample(row)
        assert token == plain.sample(row)
        for found, expected in zip(native.distribution(), plain.distribution(), strict=True):
            assert found.tobytes() == expected.tobytes()
        assert row.tobytes() == before
        native.accept(token)
        plain.accept(token)


@pytest.mark.parametrize("place", [0, 39, 40, 100, 703, 1030])
@pytest.mark.parametrize("settings", ["defaults", "one", "bias", "greedy with bias"])
def test_a_logit_that_is_not_a_number_is_an_error(settings: str, place: int) -> None:
    row = np.zeros(1031, np.float32)
    row[place] = np.nan
    for sampler in pair(len(row), 1, SETTINGS[settings]):
        with pytest.raises(SpecliError, match=r"^the model's logits are not numbers$"):
            sampler.sample(row)


def test_a_bias_that_makes_no_number_is_an_error() -> None:
    row = np.zeros(100, np.float32)
    row[3] = np.inf
    for sampler in pair(len(row), 1, {"logit_bias": ((3, -np.inf),)}):
        with pytest.raises(SpecliError, match="not numbers"), np.errstate(invalid="ignore"):
            sampler.sample(row)


def test_the_default_chain_runs_natively() -> None:
    assert pair(100, 1, {})[0]._tail is not None
    assert pair(100, 1, {"xtc_probability": 0.5})[0]._tail is None


def test_without_a_library_the_links_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ResourceError("not built")

    row = np.arange(100, dtype=np.float32)
    expected = pair(100, 1, {})[0].sample(row)
    monkeypatch.setattr("specli.sampling.native.native_library", missing)
    sampler = pair(100, 1, {})[0]
    assert sampler._tail is None
    assert sampler.sample(row) == expected


def test_the_list_has_the_room_that_the_library_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (39, 40):
        numbers = {**native_exports().numbers, ("limit", "max_candidates"): room}
        exports = Exports(Path("other.so"), numbers)
        monkeypatch.setattr("specli.sampling.native.native_exports", lambda exports=exports: exports)
        tail = pair(100, 1, {"top_k": 40})[0]._tail
        assert (tail and len(tail._places)) == (None if room < 40 else 40)
