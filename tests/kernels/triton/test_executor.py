"""Models whose matrices stay as stored, with Triton's kernels in its interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from specli.errors import ResourceError
from specli.kernels.reference.graph import Graph
from specli.kernels.triton import executor as module
from specli.kernels.triton.executor import TritonExecutor, TritonWeight
from tests.support.running import all_logits, forward, open_model
from tests.support.tiny_gguf import tiny_gguf

TOKENS = [7 * i % 61 + 1 for i in range(10)]


class Again(Graph):
    """Calls what it recorded anew: the interpreter's kernels cannot be noted call by call."""

    def record(self, calls: Callable[[], None]) -> None:
        self._calls = calls

    def replay(self) -> None:
        self._calls()


def interpreted() -> TritonExecutor:
    return TritonExecutor("cpu", new_graph=Again)


@pytest.mark.slow  # the interpreter takes up to a minute
@pytest.mark.parametrize(("family", "quant"), [("llama", "q8_0"), ("qwen3", "f16"), ("gemma3", "q4_0")])
def test_a_model_equals_the_reference(tmp_path: Path, family: str, quant: str) -> None:
    """Up to rounding; and bit for bit itself, however its tokens are divided into forwards."""
    path = tiny_gguf(tmp_path / "m.gguf", family, quant=quant)
    expected = all_logits(open_model(path, capacity=64), TOKENS)
    model = open_model(path, interpreted(), capacity=64)
    assert isinstance(model.output, TritonWeight)
    together = forward(model, TOKENS).logits.clone()
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    at = 0
    for n in (1, 5, 3, 1):
        part = forward(model, TOKENS[at : at + n], start=at).logits
        torch.testing.assert_close(part, together[at : at + n], rtol=0, atol=0)
        at += n


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ResourceError, match="triton kernels need the package triton") as error:
        interpreted()
    assert error.value.hint == "pip install 'specli[gpu]'"
