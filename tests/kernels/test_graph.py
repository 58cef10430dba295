"""Traces as graphs, with a stand-in on CPU tensors that fails where CUDA could not capture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specli.engine.config import RequestConfig
from specli.errors import ResourceError
from specli.kernels import open_executor
from specli.kernels.placement import Placement, PlacementRule
from specli.kernels.reference import graph
from specli.kernels.reference.graph import GraphExecutor, captured_rows
from tests.support.fake_graph import FakeGraph, fake_executor
from tests.support.running import all_logits, forward, open_model
from tests.support.runs import GREEDY, run, speculation
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import NETWORK_TYPES, tiny_pair

TOKENS = [7 * i % 61 + 1 for i in range(60)]


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35", "qwen3moe"])
def test_forwards_equal_those_call_by_call(tmp_path: Path, family: str) -> None:
    """Replays with other tokens, positions and numbers of live rows; a graph for each captured number of rows."""
    path = tiny_gguf(tmp_path / "m.gguf", family)
    expected = all_logits(open_model(path, capacity=300), TOKENS)
    graphs: list[FakeGraph] = []
    model = open_model(path, fake_executor(graphs), capacity=300)
    at = 0
    for n in (20, 1, 1, 3, 4, 7, 1, 5, 8, 2, 8):
        out = forward(model, TOKENS[at : at + n], start=at)
        torch.testing.assert_close(out.logits, expected[at : at + n], rtol=0, atol=0)
        at += n
    assert len(graphs) == len({captured_rows(n) for n in (20, 1, 3, 4, 7, 5, 8, 2)})
    assert sorted(each.n_replays for each in graphs) == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("name", NETWORK_TYPES)
def test_drafting_changes_no_token(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Target and draft network in graphs, against the reference without a drafter."""
    target, draft = tiny_pair(tmp_path, name, "llama")
    prompts, request = [[5, 6, 7, 8, 5, 6], TOKENS[:20]], RequestConfig(n_predict=12, sampling=GREEDY)
    plain = run(target, prompts, kernels="reference", request=request)
    monkeypatch.setattr("specli.kernels._open_reference", lambda *args: fake_executor())
    drafted = run(target, prompts, draft=draft, spec=speculation([name], 3), kernels="reference", request=request)
    assert [each.tokens for each in drafted] == [each.tokens for each in plain]
    assert sum(each.n_drafted for each in drafted) > 0


def test_captured_rows() -> None:
    assert [captured_rows(n) for n in (0, 1, 2, 3, 5, 8, 9, 16, 17, 40, 128)] == [0, 1, 2, 4, 8, 8, 16, 16, 32, 48, 128]


def test_weights_on_another_device_are_refused() -> None:
    placement = Placement([PlacementRule("exps", "cpu", "experts")])
    with pytest.raises(ResourceError, match=r"graph kernels read no weights on cpu \(experts\)"):
        GraphExecutor("cuda:0", placement=placement)


def test_a_cuda_device_gets_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless weights lie elsewhere: then the reference, which says why."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(graph, "_warm_up", lambda device: None)
    executor = open_executor("cuda:0")
    assert (executor.name, executor.device) == ("graph", "cuda:0")
    placement = Placement([PlacementRule("exps", "cpu", "experts")])
    assert open_executor("cuda:0", placement=placement).describe().endswith("no weights on cpu (experts)")
    with pytest.raises(ResourceError):
        open_executor("cuda:0", kernels="graph", placement=placement)
