"""Writing ahead in one program gives what forward after forward gives, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specli.kernels import open_executor
from specli.kernels.threads import ThreadConfig
from specli.models import ARCHITECTURES
from specli.models.base import Model
from specli.models.writer import Beginning, Writer
from tests.support.running import forward, open_model
from tests.support.runs import executors
from tests.support.tiny_gguf import tiny_gguf

N_STEPS = 5
PROMPT = np.random.default_rng(3).integers(0, 200, 19).tolist()  # with what is written, longer than gemma3's window


def opened(path: Path, kernels: str) -> Model:
    return open_model(path, open_executor("cpu", kernels=kernels, threads=ThreadConfig(n_threads=1)), max_tokens=32)


def stepwise(model: Model, n_logits: int) -> tuple[list[int], list[bytes]]:
    """Tokens and rows of logits, one forward each; the cache is empty before."""
    tokens, rows = list(PROMPT), []
    fed = 0
    for _ in range(N_STEPS):
        logits = forward(model, tokens[fed:], start=fed, outputs=[len(tokens) - fed - 1]).logits[0, :n_logits].numpy()
        fed = len(tokens)
        tokens.append(int(logits.argmax()))
        rows.append(np.sort(logits)[::-1][:10].tobytes())
    return tokens[len(PROMPT) :], rows


@pytest.mark.parametrize("kernels", executors())
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_family_writes_what_its_forwards_give(tmp_path: Path, architecture: str, kernels: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, quant="q8_0")
    tokens, rows = stepwise(opened(path, kernels), 200)
    model = opened(path, kernels)
    writer = Writer(model, n_steps=N_STEPS, n_logits=200)
    forward(model, PROMPT[:7], outputs=[])
    for _ in range(2):  # what lies behind the sequence is of no account
        values, ids = writer.write([Beginning(0, PROMPT[7:], 7)], N_STEPS)
        assert ids[0, :, 0].tolist() == tokens
        assert [row.tobytes() for row in values[0]] == rows
        assert model.cache.length() == len(PROMPT) + N_STEPS - 1
        model.cache.truncate(0, 7)


def test_tokens_beyond_the_shared_ones_are_not_written(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    model = opened(path, "reference")
    _, ids = Writer(model, n_steps=4, n_logits=6).write([Beginning(0, PROMPT, 0)], 4)
    assert ids.shape == (1, 4, 6)
    assert set(ids.ravel().tolist()) == set(range(6))
