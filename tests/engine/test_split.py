"""Layers split over several devices: the same bits as on one, a copy per border, and a memory plan per device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from specli.cli.options.kinds import parse_devices, parse_shares
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import open_engine
from specli.engine.memory import measure_growth
from specli.engine.placement import executor_of, layer_devices, placement_lines, with_shares
from specli.errors import ResourceError, UsageError
from specli.gguf.file import GGUFFile
from specli.kernels.counting import CountingExecutor
from specli.kernels.placement import Placement
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.reference.graph import GraphExecutor
from specli.models import ARCHITECTURES, load_model
from specli.models.base import ModelOptions
from tests.support.running import all_logits, open_model
from tests.support.runs import GREEDY, ONE_THREAD, speculation
from tests.support.second_device import second_device
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import NETWORK_TYPES, tiny_pair, tiny_target

TOKENS = [5, 6, 7, 8, 9]
WIDTH = 64
TWO, THREE = "meta:1,meta:2", "meta:1,meta:2,meta:3"


def load(path: Path = Path("m.gguf"), device: str = TWO, **fields: Any) -> ModelLoadConfig:
    return ModelLoadConfig(path, device=device, kernels="reference", threads=ONE_THREAD, **fields)


def devices(n_layers: int, n_devices: int, shares: str = "", **fields: Any) -> str:
    """The number of each layer's device, the head's last."""
    names = [f"cuda:{number}" for number in range(n_devices)]
    asked = load(device=",".join(names), tensor_split=parse_shares(shares) if shares else (), **fields)
    return "".join(name[-1] for name in layer_devices(asked, n_layers))


@pytest.mark.parametrize(
    ("n_layers", "shares", "fields", "expected"),
    [
        (3, "1,1", {}, "0011"),
        (4, "1,1", {}, "00011"),  # 2/5 < 1/2
        (4, "3,1", {}, "00001"),
        (4, "3/1", {}, "00001"),
        (3, "3,1", {}, "0001"),
        (4, "0,1", {}, "11111"),
        (4, "1,0", {}, "00000"),
        (4, "1", {}, "00000"),  # missing shares are 0
        (4, "", {}, "00011"),  # nothing is known of free memory
        (4, "1,1,9", {}, "00011"),  # shares beyond the devices do not count
        (6, "1,1", {"n_gpu_layers": 4}, "0000011"),  # layers 3 to 5 and the head are split, and the others' caches on 0
        (6, "1,1", {"n_gpu_layers": 0}, "0000000"),
        (4, "1,1", {"split_mode": "none"}, "00000"),
        (4, "1,1", {"split_mode": "none", "main_gpu": 1}, "11111"),
        (4, "1,1", {"split_mode": "row"}, "00011"),
    ],
)
def test_layers_are_parted_as_llama_cpp_parts_them(
    n_layers: int, shares: str, fields: dict[str, Any], expected: str
) -> None:
    """Layer i of n, the head among them, is on the first device whose cumulated share is above i / n."""
    assert devices(n_layers, 2, shares, **fields) == expected


def test_more_devices_than_layers(tmp_path: Path) -> None:
    """A layer and a head: 0 and 1/2 of five equal shares."""
    assert devices(1, 5) == "02"
    with GGUFFile.open(tiny_gguf(tmp_path / "m.gguf", n_layer=1)) as file:
        lines = list(placement_lines(load(device="cuda:0,cuda:1,cuda:2"), file, "cuda:1"))
    assert lines == [
        "placement: m.gguf is split: layer 0 on cuda:0, nothing but the head on cuda:1",
        "placement: no layer of m.gguf on cuda:2",
    ]


def test_free_memory_is_the_share_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"cuda:0": 3, "cuda:1": 1}
    monkeypatch.setattr("specli.engine.placement.available_bytes", free.__getitem__)
    for shares in ((), (0.0, 0.0)):
        asked = with_shares(load(device="cuda:0,cuda:1", tensor_split=shares))
        assert layer_devices(asked, 3) == ["cuda:0"] * 3 + ["cuda:1"]
    assert with_shares(load(device="cuda:0,cuda:1", tensor_split=(0.0, 1.0))).tensor_split == (0.0, 1.0)
    assert with_shares(load(device="cuda:0")).tensor_split == ()


def test_main_gpu_beyond_the_devices() -> None:
    with pytest.raises(UsageError, match=r"invalid value for main_gpu: 2 \(available devices: 2\)"):
        devices(4, 2, split_mode="none", main_gpu=2)
    assert layer_devices(load(split_mode="none", main_gpu=-1), 1) == ["cpu", "cpu"]
    assert layer_devices(load(device="cpu", split_mode="none", main_gpu=1), 1) == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stof"), ("a", "stof"), (",1", "stof"), ("1,x", "stof"), ("1e39", "stof"),
        ("-1,1", "invalid share: -1"), ("nan", "invalid share: nan"), ("inf,1", "invalid share: inf"),
        (",".join("1" * 16), "got 16 input configs, but system only has 16 devices"),
    ],
)  # fmt: skip
def test_wrong_shares(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_shares(text)


def test_shares_and_devices_are_read() -> None:
    assert parse_shares("3,1") == parse_shares("3/1") == parse_shares("3,/1,") == (3, 1)
    assert parse_devices("CUDA0,cuda:1") == "cuda:0,cuda:1"
    assert parse_devices("none") == "cpu"
    for text, message in (("cuda:0,auto", "invalid device: auto"), ("cuda:0,CUDA0", "cuda:0 is named twice"),
                          ("cuda:0,", "invalid device: ")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            parse_devices(text)


def test_what_was_asked_for_in_vain_is_told(tmp_path: Path) -> None:
    with GGUFFile.open(tiny_gguf(tmp_path / "m.gguf", n_layer=3)) as file:

        def lines(**fields: Any) -> list[str]:
            return list(placement_lines(load(**fields), file, "meta:2"))

        split = "placement: m.gguf is split: layers 0 to 1 on meta:1, layer 2 on meta:2"
        assert lines() == [split]
        assert lines(split_mode="row") == [
            "placement: --split-mode row splits m.gguf by whole layers, as layer does",
            split,
        ]
        assert lines(main_gpu=1) == ["placement: --main-gpu has no effect without --split-mode none", split]
        assert lines(split_mode="none") == []
        assert lines(device="cuda:0", tensor_split=(1.0,)) == [
            "placement: --tensor-split has no effect on one device; --device names several, as cuda:0,cuda:1"
        ]
        assert lines(tensor_split=(1.0, 1.0, 1.0)) == ["placement: --tensor-split has 3 shares for 2 devices", split]


def opened(path: Path, device: str, **fields: Any) -> ReferenceExecutor:
    with GGUFFile.open(path) as file:
        executor = executor_of(load(path, device, **fields), file)
    assert isinstance(executor, ReferenceExecutor)
    return executor


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_families_give_the_same_bits(tmp_path: Path, family: str) -> None:
    """Logits, caches and captured states of two layers: the border is between them, and on three before the head, too.

    Of the four layers of gemma4 the last two read the cells of the first two.
    """
    path = tiny_target(tmp_path / "m.gguf", family)
    options = {"taps": (0, 1, 2), "nextn": True}
    whole = open_model(path, **options)
    expected = all_logits(whole, TOKENS)
    with second_device() as device:
        for names, shares in ((TWO, (1.0, 3.0)), (THREE, (6.0, 5.0, 9.0))):
            split = open_model(path, opened(path, names, tensor_split=shares), **options)
            assert torch.equal(all_logits(split, TOKENS).cpu(), expected)
            for of, to in zip(whole.cache.arrays(0, len(TOKENS)), split.cache.arrays(0, len(TOKENS)), strict=True):
                assert torch.equal(of, to.cpu())
            for name, buffer in whole.features.items():
                assert torch.equal(buffer.data, split.features[name].data.cpu())
            assert set(names.split(",")) == set(device.products)
            device.products.clear()


@pytest.mark.parametrize(("names", "borders"), [(TWO, 1), (THREE, 2)])
def test_a_forward_copies_the_stream_once_per_border(tmp_path: Path, names: str, borders: int) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama", n_layer=5)
    whole = all_logits(open_model(path), TOKENS, chunk=3)
    with second_device() as device:
        model = open_model(path, opened(path, names, tensor_split=(1.0, 1.0, 1.0)))
        device.copies.clear()
        logits = all_logits(model, TOKENS, chunk=3)
        found = Counter({key: n for key, n in device.copies.items() if "cpu" not in key})
        assert torch.equal(logits.cpu(), whole)
    places = names.split(",")
    assert found == Counter({(of, to, (n, WIDTH)): 1 for of, to in pairwise(places) for n in (3, 2)})
    assert sum(found.values()) == 2 * borders


def test_slots_and_quantised_caches(tmp_path: Path) -> None:
    """Each stage has its own numbers of slots."""
    path = tiny_gguf(tmp_path / "m.gguf", "llama", n_layer=3, head_size=32)
    with second_device():
        models = [open_model(path, executor, n_slots=2) for executor in (None, opened(path, TWO))]
        for slot, tokens in ((1, TOKENS), (0, TOKENS[::-1])):
            rows = [
                model.forward(*(torch.tensor(x, dtype=torch.int32).numpy() for x in
                                (tokens, range(5), [slot] * 5, range(5)))).logits.cpu()
                for model in models
            ]  # fmt: skip
            assert torch.equal(*rows)


PAIRS = [
    *((name, "llama") for name in NETWORK_TYPES),
    ("draft-mtp", "gemma4"),
    ("draft-mtp", "qwen35"),
    ("ngram-mod", ""),
]


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_drafters_on_top(tmp_path: Path, name: str, family: str) -> None:
    """They run where the head is, and texts and drafts are those of one device; half of the layers are elsewhere."""
    if family:
        target, draft = tiny_pair(tmp_path, name, family)
    else:
        target, draft = tiny_gguf(tmp_path / "m.gguf", tied=True), None
    found = []
    request = RequestConfig(n_predict=6, sampling=GREEDY)
    for device in ("cpu", TWO):
        drafts = load(draft, device) if draft else None
        config = RunConfig(load(target, device, tensor_split=(1.0, 2.0)), drafts, speculation([name], 4), n_ctx=256)
        with second_device() if device == TWO else nullcontext(), open_engine(config) as run:
            tokens = [event.id for event in run.generate([5, 6, 5, 6], request)]
            timings = run.result().to_dict()["timings"]
            found.append((tokens, timings["draft_n"], timings["draft_n_accepted"]))
            assert any("is split" in line for line in run.start_lines()) == (device == TWO)
    assert found[0] == found[1]
    assert len(found[0][0]) == 6


@contextmanager
def allocated() -> Iterator[Counter[str]]:
    """Bytes that reference executors allocate, by device; stacks of experts stay in the file."""
    found: Counter[str] = Counter()

    def counting(name: str) -> Any:
        real = getattr(ReferenceExecutor, name)

        def call(self: ReferenceExecutor, *args: Any) -> Any:
            made = real(self, *args)
            tensor = getattr(made, "matrix", made)
            if isinstance(tensor, torch.Tensor):
                found[str(tensor.device)] += tensor.nbytes
            return made

        return patch.object(ReferenceExecutor, name, call)

    with counting("weight"), counting("array"), counting("zeros"):
        yield found


@pytest.mark.parametrize("family", ["llama", "gemma4", "qwen35", "qwen3moe"])
def test_the_plan_of_each_device_is_what_is_allocated(tmp_path: Path, family: str) -> None:
    path = tiny_target(tmp_path / "m.gguf", family)
    options = ModelOptions(capacity=512, max_tokens=16, max_outputs=4, max_rewind=3)

    def count(n_ctx: int) -> list[CountingExecutor]:
        counting = CountingExecutor(opened(path, TWO))
        load_model(file, counting, ModelOptions(n_ctx, max_tokens=16, max_outputs=4, max_rewind=3))
        return [counting]

    with second_device(), GGUFFile.open(path) as file:
        (plan,) = measure_growth(count)
        with allocated() as found:
            model = load_model(file, opened(path, TWO), options)
            all_logits(model, TOKENS, chunk=4)
    assert plan.devices == {"meta:1", "meta:2"} == set(found)
    for device, n_bytes in found.items():
        assert plan.needed(device, 512, with_experts=False) == n_bytes
    assert plan.per_step("meta:1") > 0


def test_kernels_of_one_device_say_that_layers_are_split() -> None:
    with pytest.raises(ResourceError, match=r"graph kernels read no weights on cuda:0 \(layers are split\)"):
        GraphExecutor("cuda:1", placement=Placement(layers=["cuda:0", "cuda:1"]))
