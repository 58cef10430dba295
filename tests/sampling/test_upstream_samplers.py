"""Every sampler against what llama.cpp's own library picked (tests/golden/samplers.json), token by token."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.sampling import chain
from specli.sampling.dry import Breakers
from specli.sampling.sampler import Sampler
from specli.sampling.settings import SamplingConfig
from tests.support.vocabulary import ByteVocabulary

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "samplers.json").read_text())
N_STEPS = 60


def logits_of(case: str, n_vocab: int) -> np.ndarray:
    source = np.random.RandomState(zlib.crc32(case.encode()))
    return (source.standard_normal((N_STEPS, n_vocab)) * 2).astype(np.float32)


def make_sampler(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """The case's sampler, with the recorded sequence breakers in place of those found in a vocabulary."""
    breakers: Breakers = {}
    for head, *tail in GOLDEN["breakers"]:
        breakers.setdefault(head, []).append(tuple(tail))
    monkeypatch.setattr(chain, "find_breakers", lambda *_: breakers)
    settings = {k: tuple(map(tuple, v)) if k == "logit_bias" else v for k, v in case["config"].items()}
    return Sampler(SamplingConfig(**settings), ByteVocabulary(), n_vocab=case["n_vocab"])


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_picks_the_tokens_that_llama_cpp_picks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = GOLDEN["cases"][name]
    sampler = make_sampler(case, monkeypatch)
    for row, (token, n_left, probability) in zip(logits_of(name, case["n_vocab"]), case["steps"], strict=True):
        assert sampler.sample(row) == token
        ids, p = sampler.distribution()
        assert np.count_nonzero(p) == n_left
        assert p[ids == token] == pytest.approx(probability, rel=2e-6)  # sums of float32, exp within one unit
        assert np.all(p[:-1] >= p[1:])
        sampler.accept(token)
