"""Where weights lie: rules, what the user is told, and products computed where their matrices are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import open_engine
from specli.engine.placement import placement_lines, placement_of
from specli.errors import SpecliError
from specli.gguf.file import GGUFFile
from specli.kernels import open_executor
from specli.kernels.placement import Placement, PlacementRule
from specli.kernels.reference import ReferenceExecutor
from tests.support.running import all_logits, open_model
from tests.support.runs import GREEDY, ONE_THREAD, executors
from tests.support.second_device import NAME, second_device
from tests.support.tiny_families import N_USED
from tests.support.tiny_gguf import tiny_gguf

TOKENS = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers with experts."""
    return tiny_gguf(tmp_path_factory.mktemp("placement") / "moe.gguf", "qwen3moe")


def load(path: Path = Path("m.gguf"), **fields: Any) -> ModelLoadConfig:
    return ModelLoadConfig(path, threads=ONE_THREAD, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"cpu_moe": True}, {"blk.0.ffn_up_exps.weight": "cpu", "blk.3.ffn_gate_up_exps.weight": "cpu"}),
        ({"n_cpu_moe": 2}, {"blk.0.ffn_up_exps.weight": "cpu"}),
        ({"n_cpu_moe": 99}, {"blk.0.ffn_up_exps.weight": "cpu", "blk.3.ffn_gate_up_exps.weight": "cpu"}),
        ({"n_cpu_ffn": 4}, {"blk.3.ffn_down.weight": "cpu"}),
        ({"n_gpu_layers": 2}, {"blk.0.ffn_up_exps.weight": "cpu", "blk.2.attn_q.weight": "cpu"}),
        ({"n_gpu_layers": 5}, {}),
        ({"n_gpu_layers": -2}, {}),
        ({"overrides": (("exps", "cuda:1"), ("blk", "cpu")), "cpu_moe": True},
         {"blk.0.ffn_up_exps.weight": "cuda:1", "blk.2.attn_q.weight": "cpu", "blk.3.ffn_down.weight": "cpu",
          "blk.3.ffn_gate_up_exps.weight": "cuda:1"}),
    ],
)  # fmt: skip
def test_first_rule_that_matches_decides(fields: dict[str, Any], expected: dict[str, str]) -> None:
    """Of 4 layers and a head; `-ngl 2` means the head and layer 3."""
    names = ("blk.0.ffn_up_exps.weight", "blk.2.attn_q.weight", "blk.3.ffn_down.weight",
             "blk.3.ffn_gate_up_exps.weight", "blk.0.ffn_gate_inp.weight", "output.weight")  # fmt: skip
    placement = placement_of(load(**fields), 4)
    placed = {name: placement.device_of(name, "here") for name in names}
    others = {"blk.0.ffn_gate_inp.weight": "cpu"} if "n_gpu_layers" in fields or "overrides" in fields else {}
    expected = expected | (others if expected else {})
    assert placed == dict.fromkeys(names, "here") | expected


def test_no_layer_on_the_gpu_places_everything() -> None:
    placement = placement_of(load(n_gpu_layers=0), 4)
    assert {placement.device_of(name, "here") for name in ("token_embd.weight", "output.weight")} == {"cpu"}


def test_lines_say_what_lies_where(moe: Path) -> None:
    """Per layer 3 stacks of 6 x 64 x 64 float32 (98304 bytes each, 0.09 MiB) and 5 other matrices; embedding, head."""
    with GGUFFile.open(moe) as file:
        asked = load(cpu_moe=True, overrides=(("attn_[qk]", "cpu"), ("nothing", "cpu")))
        on_gpu = list(placement_lines(asked, file, "cuda:0"))
        on_cpu = list(placement_lines(load(n_cpu_moe=1, n_gpu_layers=7), file, "cpu"))
        assert list(placement_lines(load(n_gpu_layers=0), file, "cpu")) == []
        assert list(placement_lines(load(), file, "cuda:0")) == []
        size = sum(t.nbytes for t in file.tensors.values() if len(t.shape) > 1) - 6 * 98304 - 2 * (16384 + 8192)
    assert on_gpu == [
        "placement: 4 matrices (0.0 MiB) of moe.gguf on cpu (names with attn_[qk])",
        "placement: no matrix of moe.gguf on cpu (names with nothing)",
        "placement: 6 matrices (0.6 MiB) of moe.gguf on cpu (experts)",
        f"placement: 8 matrices ({size / 2**20:.1f} MiB) of moe.gguf on cuda:0",
    ]
    assert on_cpu[:2] == [
        "placement: moe.gguf runs on the cpu as a whole, layers on the GPU (-ngl) need a GPU",
        "placement: 3 matrices (0.3 MiB) of moe.gguf on cpu (experts of 1 layers), where the model runs",
    ]


@pytest.mark.parametrize("kernels", executors())
def test_a_run_on_the_cpu_takes_placement_and_says_so(moe: Path, kernels: str) -> None:
    target = load(moe, device="cpu", kernels=kernels, cpu_moe=True)
    draft = load(moe, device="cpu", kernels=kernels, n_cpu_moe=1)
    with open_engine(RunConfig(target, draft)) as run:
        lines = [line for line in run.start_lines() if line.startswith("placement")]
    assert len(lines) == 4
    assert "6 matrices (0.6 MiB) of moe.gguf on cpu (experts), where the model runs" in lines[0]
    assert "3 matrices (0.3 MiB) of moe.gguf on cpu (experts of 1 layers)" in lines[2]


@pytest.mark.parametrize("family", ["qwen3moe", "gemma4", "gpt-oss", "glm4moe", "qwen35moe"])
def test_experts_on_the_cpu_are_multiplied_there(tmp_path: Path, family: str) -> None:
    """What the second device gets back is bit for bit what one device computes."""
    path = tiny_gguf(tmp_path / "m.gguf", family)
    whole = all_logits(open_model(path), TOKENS)
    n_layers = 1 if family == "glm4moe" else 2  # its first one is dense
    with second_device() as device:
        logits = all_logits(open_model(path, placed(cpu_moe=True)), TOKENS)
        assert torch.equal(logits.cpu(), whole)
        assert device.products["cpu"] == n_layers * N_USED * 3  # of all rows together
        assert device.products[NAME] > 0


def placed(**fields: Any) -> ReferenceExecutor:
    return ReferenceExecutor(NAME, threads=ONE_THREAD, placement=placement_of(load(**fields), 2))


@pytest.mark.parametrize(
    ("fields", "n_cpu"),
    [
        ({}, 0),
        ({"overrides": (("attn_v", "cpu"),)}, 2),
        ({"overrides": (("attn_v|token_embd", "cpu"),)}, 2),
        ({"n_cpu_ffn": 1}, 3),
        ({"n_gpu_layers": 1}, 2 * 7),
        ({"n_gpu_layers": 0}, 2 * 7 + 1),
    ],
)
def test_any_matrix_can_lie_elsewhere(tmp_path: Path, fields: dict[str, Any], n_cpu: int) -> None:
    """A dense layer has 7 products, the head is one more; an embedding is looked up, not multiplied."""
    path = tiny_gguf(tmp_path / "m.gguf", "llama")
    whole = all_logits(open_model(path), TOKENS)
    with second_device() as device:
        assert torch.equal(all_logits(open_model(path, placed(**fields)), TOKENS).cpu(), whole)
        assert device.products["cpu"] == n_cpu


def test_p1_a_draft_model_on_another_device_is_told(tmp_path: Path) -> None:
    """P1: it runs, and a line says where each model is; nothing is said when they are together."""
    path = tiny_gguf(tmp_path / "m.gguf", "llama")
    target, draft = (load(path, device=device, kernels="reference") for device in (NAME, "cpu"))
    note = f"drafting: the draft network runs on cpu, the target on {NAME}; -devd chooses its device"
    tokens = []
    with second_device():
        for model in (draft, target):
            with open_engine(RunConfig(target, model, n_ctx=256)) as run:
                assert (note in run.start_lines()) == (model is draft)
                tokens.append([event.id for event in run.generate([5, 6], RequestConfig(n_predict=6, sampling=GREEDY))])
    assert tokens[0] == tokens[1]


def test_devices_of_rules_must_be_there() -> None:
    placement = Placement([PlacementRule("exps", "cuda:99", "names with exps")])
    with pytest.raises(SpecliError, match="device cuda:99: not found"):
        open_executor("cpu", placement=placement)


@pytest.mark.skipif("cpu" not in executors(), reason="native library is not built")
def test_cpu_kernels_leave_weights_on_a_gpu_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    placement = Placement([PlacementRule("exps", "cuda:0", "names with exps")])
    executor = open_executor("cpu", placement=placement)
    assert executor.name == "reference"
    assert executor.describe().endswith("cpu kernels read no weights on cuda:0 (names with exps)")
    with pytest.raises(SpecliError, match="cpu kernels read no weights on cuda:0"):
        open_executor("cpu", kernels="cpu", placement=placement)


@pytest.mark.skipif("cpu" not in executors(), reason="native library is not built")
def test_conversion_of_weights_is_told(tmp_path: Path) -> None:
    """7 matrices of the layer, the embedding and the head, in target and draft model."""
    model = load(tiny_gguf(tmp_path / "t.gguf", "llama", quant="q2_0", n_layer=1), device="cpu", kernels="cpu")
    with open_engine(RunConfig(model, model)) as run:
        lines = [line for line in run.start_lines() if line.startswith("weights:")]
    assert lines == ["weights: t.gguf: 9 matrices of type q2_0 converted to f16 (no cpu kernels for the type)"] * 2
