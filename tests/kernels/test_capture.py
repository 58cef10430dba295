"""The reference as a captured run has it: fixed calls and addresses, no host, rows behind the live ones.

What a run must give is what the same executor gives call by call, which other tests hold against formulas.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.gguf.quant import QuantType
from specli.kernels.ops import Buffer, Extent, KVLayer, tensor_of
from specli.kernels.reference.executor import ReferenceExecutor, ReferenceOps
from specli.kernels.reference.frame import TILE, places_of
from specli.kernels.threads import ThreadConfig
from specli.models.base import Model
from tests.support.capture import Discipline
from tests.support.running import all_logits, open_model
from tests.support.tiny_gguf import tiny_gguf

FAMILIES = ("llama", "qwen3", "gemma3", "gpt-oss", "glm4moe", "qwen35moe")
LIVE = (1, 5, TILE)
CPU = torch.device("cpu")


def opened(tmp_path: Path, family: str, **options: object) -> Model:
    executor = ReferenceExecutor(threads=ThreadConfig(n_threads=1), captured=True)
    return open_model(tiny_gguf(tmp_path / "m.gguf", family), executor, capacity=300, **options)


def place(model: Model, tokens: list[int], start: int) -> None:
    n = len(tokens)
    numbers = np.arange(n, dtype=np.int32)
    model.place(np.array(tokens, np.int32), numbers + start, np.zeros(n, np.int32), numbers)


def captured(model: Model, n_live: int) -> Counter[str]:
    """Runs the trace for a tile of rows of which some are live, as a graph would; gives its calls."""
    ops = ReferenceOps()
    ops.counts = dict.fromkeys(Extent, TILE)
    live = torch.tensor(n_live, dtype=torch.int32)
    ops.is_captured = True
    with torch.inference_mode(), Discipline() as calls:
        ops.places = {extent: places_of(TILE, live, CPU) for extent in Extent}
        model.trace(ops)
    return calls


@torch.inference_mode()
def poison(model: Model) -> None:
    """No buffer of numbers holds any from before."""
    (stage,) = model._stages
    for buffer in (stage.x, model._last, model.logits, *stage.rows.scratch._buffers.values()):
        if buffer.storage.dtype == torch.float32:
            buffer.storage.fill_(torch.nan)


def memory(model: Model) -> list[torch.Tensor]:
    """All that outlasts a run."""
    found = []
    for layer in model.cache.layers:
        kept = layer.storage
        found += [kept.k, kept.v] if isinstance(kept, KVLayer) else [kept.inputs, kept.states]
    return [tensor_of(array) for array in found]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_captured_run_equals_a_run_call_by_call(tmp_path: Path, family: str) -> None:
    """Any number of live rows of a tile, whatever lies behind them, in buffers that stay where they are."""
    model = opened(tmp_path, family)
    tokens = [7 * i % 61 + 1 for i in range(9 + sum(LIVE))]
    expected = all_logits(model, tokens)
    expected_memory = [each.clone() for each in memory(model)]
    for each in memory(model):
        each.zero_()
    place(model, tokens[:9], 0)
    model._program.run(9, 9)
    at, addresses, calls = 9, [each.data_ptr() for each in memory(model)], []
    for n in LIVE:
        place(model, tokens[at : at + n], at)
        poison(model)
        calls.append(captured(model, n))
        torch.testing.assert_close(model.logits.storage[:n], expected[at : at + n], rtol=0, atol=0)
        at += n
    for found, wanted in zip(memory(model), expected_memory, strict=True):
        assert torch.equal(found, wanted)
    assert addresses == [each.data_ptr() for each in memory(model)]
    assert calls[0] == calls[1] == calls[2]


@pytest.mark.parametrize(("family", "per_layer"), [("llama", 78), ("qwen3", 86), ("gemma3", 102)])
def test_calls_of_a_dense_layer(tmp_path: Path, family: str, per_layer: int) -> None:
    """Whatever the number of rows, up to a tile: so many, and 20 for the embedding, the head and what is live."""
    model = opened(tmp_path, family, type_k=QuantType.F16, type_v=QuantType.F16)
    place(model, [1], 0)
    assert captured(model, 1).total() <= model.config.n_layers * per_layer + 20


@pytest.mark.parametrize("type", [QuantType.Q8_0, QuantType.Q4_0, QuantType.Q4_1, QuantType.IQ4_NL, QuantType.Q5_1])
def test_quantised_caches_are_written_and_read_without_the_host(type: QuantType) -> None:
    executor = ReferenceExecutor()
    layer = executor.kv_layer(1, 2, 24, 64, 64, type, type)
    rows = Buffer(torch.randn(TILE, 128, generator=torch.Generator().manual_seed(1)), Extent.TOKENS)
    zeros = executor.buffer(TILE, 1, Extent.TOKENS, np.int32)
    ops = ReferenceOps()
    ops.counts, ops.is_captured = dict.fromkeys(Extent, TILE), True
    live = torch.tensor(3)
    with Discipline():
        ops.places = {Extent.TOKENS: places_of(TILE, live, CPU)}
        ops.store(layer, rows, rows, zeros, zeros)
    assert layer.k[0, :, 0].any()
    assert not layer.k[0, :, 1:].any()
