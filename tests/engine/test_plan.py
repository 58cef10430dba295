"""Memory: reckoned before anything is loaded, by hand and against what is allocated; context that fits; refusals."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import resource
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specli.demo import MODELS
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SpeculationConfig
from specli.engine.load import open_engine, open_target
from specli.engine.memory import Growth, NetworkMemory, measure_growth
from specli.engine.placement import placement_of
from specli.engine.plan import MemoryPlan, cgroup_room, check_memory, fit_context
from specli.errors import ResourceError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from specli.kernels import open_executor
from specli.kernels.counting import CountingExecutor
from specli.kernels.cpu.executor import CpuExecutor, NativeProgram
from specli.kernels.reference import ReferenceExecutor
from specli.models import ARCHITECTURES, load_model, model_class
from specli.models.base import ModelOptions
from specli.models.cache import bytes_per_token
from tests.support.runs import GREEDY, ONE_THREAD, executors, speculation
from tests.support.tiny_drafters import tiny_mtp
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_pairs import NETWORK_TYPES, tiny_pair

GIB, MIB = 2**30, 2**20
F16, Q8_0 = QuantType.F16, QuantType.Q8_0


def memory(path: Path, *, kernels: str = "cpu", **fields: Any) -> NetworkMemory:
    """What the target in a file takes, with 32 rows, 8 of them with logits."""
    options = ModelOptions(capacity=1, **{"max_tokens": 32, "max_outputs": 8, "max_rewind": 5, **fields})
    with GGUFFile.open(path) as file, closing(open_executor("cpu", kernels=kernels, threads=ONE_THREAD)) as executor:

        def count(n_ctx: int) -> list[CountingExecutor]:
            counting = CountingExecutor(executor)
            load_model(file, counting, replace(options, capacity=n_ctx))
            return [counting]

        return measure_growth(count)[0]


@pytest.mark.parametrize("kernels", executors())
def test_numbers_worked_by_hand(tmp_path: Path, kernels: str) -> None:
    """Two layers of 2 key and value heads of 16 in f16; a vocabulary of V tokens of width 64, used as the head, too.

    Native weights are strips of 16 rows in q8_0 (34 bytes per 32 numbers), each matrix with 64 bytes to align it, in
    large pages.
    """
    path = tiny_gguf(tmp_path / "m.gguf", "llama", quant="q8_0", tied=True)
    with GGUFFile.open(path) as file:
        n_vocab = file.tensors["token_embd.weight"].shape[0]
    found = memory(path, kernels=kernels)
    assert (found.cache.base, found.cache.per_step) == (0, 256 * 2 * 2 * (16 + 16) * 2)
    rows = 2 * (64 * 2 + 32 * 2 + 128 * 2) * 64 + 2 * 64 * 128 + -(-n_vocab // 16) * 16 * 64
    n_norms = 4 * 5 * 64
    if kernels == "reference":
        padding = (-(-n_vocab // 16) * 16 - n_vocab) * 64
        assert found.weights == {"cpu": 4 * (rows - padding) + n_norms}
    else:
        used = rows // 32 * 34 + 64 * (2 * 7 + 1)
        assert found.weights == {"cpu": -(-used // 2**21) * 2**21 + n_norms}
    assert found.buffers.per_step >= 256 * 16 * 4  # angles of 16 numbers
    assert found.buffers.base > 4 * 8 * n_vocab
    assert found.experts == {}


def test_states_worked_by_hand(tmp_path: Path) -> None:
    """qwen35: layer 0 is a delta net of 4 heads of 16 with 2 key heads, 4 taps; 5 tokens can be taken back."""
    found = memory(tiny_gguf(tmp_path / "m.gguf", "qwen35"), kernels="reference", n_slots=3)
    assert found.cache.base == 3 * 4 * ((1 + 5) * 4 * 16 * 16 + (4 + 5) * (2 * 2 + 4) * 16)
    assert found.cache.per_step == 256 * 3 * 2 * (16 + 16) * 2  # layer 1 has attention


def test_cells_of_latent_attention_hold_no_values(tmp_path: Path) -> None:
    """Two layers, a latent vector of 64 and 32 rotated elements; 4 heads of 64 and 16 would be 320 numbers."""
    path = tiny_gguf(tmp_path / "m.gguf", "deepseek2")
    assert memory(path, kernels="reference").cache.per_step == 256 * 2 * 96 * 2
    with GGUFFile.open(path) as file:
        layers = model_class(file).configure(file).layers
    assert bytes_per_token(layers, F16, F16) == 2 * 96 * 2
    assert bytes_per_token(layers, Q8_0, Q8_0) == 2 * 3 * 34


def test_cells_of_quantised_caches_and_windows(tmp_path: Path) -> None:
    """Head size 64: q8_0 takes 2 blocks of 34 bytes. A layer with a window of 16 keeps every cell, too."""
    found = memory(tiny_gguf(tmp_path / "m.gguf", "gemma3", head_size=64), kernels="reference", type_k=QuantType.Q8_0)
    assert found.cache.per_step == 256 * 2 * 2 * (2 * 34 + 64 * 2)


def test_placed_weights_count_where_they_lie(tmp_path: Path) -> None:
    """Stacks of experts stay as they are stored, here in f32."""
    path = tiny_gguf(tmp_path / "m.gguf", "qwen3moe")
    placement = placement_of(ModelLoadConfig(path, overrides=(("attn", "meta"),)), 2)
    with GGUFFile.open(path) as file:
        counting = CountingExecutor(ReferenceExecutor(placement=placement))
        load_model(file, counting, ModelOptions(capacity=256))
        elsewhere = sum(4 * t.n_elements for n, t in file.tensors.items() if "attn" in n and len(t.shape) == 2)
    assert counting.experts == {"cpu": 2 * 3 * 6 * 64 * 64 * 4}
    assert counting.weights["meta"] == elsewhere
    found = NetworkMemory("cpu", counting.weights, counting.experts, Growth(100, 256), Growth(1000))
    assert found.needed("meta", 512) == elsewhere
    assert found.needed("cpu", 512) == counting.weights["cpu"] + counting.experts["cpu"] + 100 + 512 + 1000


NUMPY_DOMAIN = 389047  # of tracemalloc; arrays that are made by NumPy, and nothing else


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Bytes of NumPy arrays, strips of weights and lists of operations that the block makes and leaves."""
    found = {"arrays": 0, "strips": 0, "programs": 0}
    storage = CpuExecutor._storage

    def counted(self: CpuExecutor, n_bytes: int) -> Any:
        found["strips"] += n_bytes
        return storage(self, n_bytes)

    make = NativeProgram.__init__

    def counted_program(self: NativeProgram, *args: Any) -> None:
        make(self, *args)
        found["programs"] += ctypes.sizeof(self._ops)

    monkeypatch.setattr(CpuExecutor, "_storage", counted)
    monkeypatch.setattr(NativeProgram, "__init__", counted_program)
    monkeypatch.setattr("specli.kernels.cpu.executor._large_pages", lambda n: np.frombuffer(mmap.mmap(-1, n), np.uint8))
    monkeypatch.setattr("specli.kernels.ops._LAZY_BYTES", 1 << 40)  # all storage is made by NumPy
    gc.collect()
    tracemalloc.start(1)
    try:
        yield found
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)])
        found["arrays"] = sum(trace.size for trace in snapshot.traces)
    finally:
        tracemalloc.stop()


def assert_is_allocated(networks: Sequence[NetworkMemory], n_ctx: int, found: dict[str, int], slack: float) -> None:
    """Plans against what was allocated."""
    strips = sum(sum(network.weights.values()) + sum(network.experts.values()) for network in networks)
    rest = sum(network.cache.at(n_ctx) + network.buffers.at(n_ctx) for network in networks)
    assert rest + strips == pytest.approx(sum(found.values()), rel=slack)


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
@pytest.mark.parametrize("kernels", executors())
def test_plan_of_a_family_is_what_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, kernels: str
) -> None:
    monkeypatch.setattr("specli.kernels.cpu.executor._LARGE_PAGE", 1)
    n_layer = 4 if family == "gemma4" else 2  # enough for layers that share keys and values
    path = tiny_gguf(tmp_path / "m.gguf", family, n_layer=n_layer, context=256)
    options = {"max_tokens": 64, "max_outputs": 65, "max_rewind": 5}
    plan = memory(path, kernels=kernels, **options)
    with GGUFFile.open(path) as file, measured(monkeypatch) as found:
        executor = open_executor("cpu", kernels=kernels, threads=ONE_THREAD)
        model = load_model(file, executor, ModelOptions(capacity=256, **options))
        tokens = np.array([5, 6], np.int32)
        model.forward(tokens, tokens - 5, 0 * tokens, tokens[:1] - 5)  # buffers of layers are made when first asked for
    assert model.cache.nbytes == plan.cache.at(256)
    if kernels == "reference":
        plan = replace(plan, experts={})  # they are multiplied as they lie in the file
    assert_is_allocated([plan], 256, found, 0.002)
    model.close()


PAIRS = [*((name, "llama") for name in NETWORK_TYPES), ("draft-mtp", "gemma4"), ("draft-simple", "qwen35")]


@pytest.mark.parametrize("n_slots", [1, 3])
@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_plan_with_a_drafter_is_what_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, family: str, n_slots: int
) -> None:
    """The Gemma 4 assistant has no cache: it reads the target's. Medusa heads read no tokens."""
    if "cpu" not in executors():
        pytest.skip("the native library is not built")
    monkeypatch.setattr("specli.kernels.cpu.executor._LARGE_PAGE", 1)
    target, draft = tiny_pair(tmp_path, name, family)
    with open_engine(
        config(target, draft, name, kernels="cpu", n_slots=n_slots)
    ) as run:  # imports, and what is made once
        networks, lines = run.loader.networks, run.start_lines()
    with (
        measured(monkeypatch) as found,
        open_engine(config(target, draft, name, kernels="cpu", n_slots=n_slots)) as run,
    ):
        assert run.loader.networks == networks
        snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)])
        arrays = sum(trace.size for trace in snapshot.traces)
    assert len(networks) == 2
    assert_is_allocated(networks, 256, {**found, "arrays": arrays}, 0.02)
    plan = MemoryPlan.of(networks, 256)
    assert (plan.draft_cache == 0) == (name == "draft-medusa" or (name, family) == ("draft-mtp", "gemma4"))
    assert plan.line() in lines


def config(
    target: Path, draft: Path | None = None, *types: str, kernels: str = "reference", **fields: Any
) -> RunConfig:
    load = ModelLoadConfig(target, device="cpu", kernels=kernels, threads=ONE_THREAD)
    draft_load = replace(load, path=draft) if draft else None
    spec = speculation(types, 4) if types else SpeculationConfig(types=("none",))
    return RunConfig(load, draft_load, spec, **{"n_ctx": 256, **fields})


def test_heads_in_the_target_count_once(tmp_path: Path) -> None:
    path = tiny_mtp(tmp_path / "m.gguf", "qwen3")
    with open_engine(config(path, None, "draft-mtp")) as run:
        plan = MemoryPlan.of(run.loader.networks, 256)
    with GGUFFile.open(path) as file:
        sizes = {name: 4 * t.n_elements for name, t in file.tensors.items()}
    norm = sizes["output_norm.weight"]  # the head keeps one of its own
    assert plan.draft_weights == sum(size for name, size in sizes.items() if name.startswith("blk.2.")) + norm
    assert plan.weights + plan.draft_weights == sum(sizes.values()) + norm


def network(**fields: Any) -> NetworkMemory:
    return NetworkMemory("cpu", **fields)


@pytest.mark.parametrize(
    ("wanted", "expected"), [(1, 256), (256, 256), (257, 512), (8000, 8192), (8193, 8192), (10**6, 8192)]
)
def test_context_asked_for(wanted: int, expected: int) -> None:
    fitted = fit_context(wanted, 8192, [], {})
    assert fitted.n_ctx == expected
    assert (fitted.note is None) == (wanted <= 8192)


def control_group(folder: Path, limit: str, used: int, *, version: int) -> None:
    """Of the memory used 30 bytes are pages of files."""
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, used_name, prefix = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        2: ("memory.max", "memory.current", ""),
    }[version]
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / used_name).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{prefix}active_file 10\n{prefix}inactive_file 20\n")


@pytest.mark.parametrize("version", [1, 2])
def test_memory_of_control_groups(tmp_path: Path, version: int) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("3:cpu:/\n1:memory:/a/b\n" if version == 1 else "0::/a/b\n")
    mounted = tmp_path / "memory" if version == 1 else tmp_path
    room = partial(cgroup_room, membership, tmp_path)
    assert room() is None
    control_group(mounted / "a/b", "max", 100, version=version)
    assert room() is None
    control_group(mounted / "a", "1000", 400, version=version)  # the group around it
    assert room() == 630
    control_group(mounted / "a/b", "500", 100, version=version)
    assert room() == 430
    control_group(mounted, "300", 400, version=version)  # as a container sees its own group
    assert room() == 0
    assert cgroup_room(tmp_path / "none", tmp_path) is None


def test_context_that_fits() -> None:
    """9 GiB, 1 of them reserved, 4 of weights and experts, 1 of states and buffers: 3 GiB for cells of 96 + 32 KiB."""
    target = network(weights={"cpu": GIB}, experts={"cpu": 3 * GIB}, cache=Growth(GIB // 2, 256 * 96 * 2**10))
    draft = network(cache=Growth(0, 256 * 32 * 2**10), buffers=Growth(GIB // 2))
    fitted = fit_context(0, 131072, [target, draft], {"cpu": 9 * GIB})
    assert fitted.n_ctx == 24576
    assert fitted.note == "context: 24576 of 131072 trained tokens fit into memory (choose with --ctx-size)"
    assert fit_context(0, 131072, [target, draft], {"cpu": 64 * GIB}).n_ctx == 131072
    assert fit_context(0, 131072, [target, draft], {"cpu": 2 * GIB}).n_ctx == 4096
    assert fit_context(0, 131072, [target, draft], {"cpu": None}).n_ctx == 131072
    elsewhere = replace(target, device="cuda:0", weights={"cuda:0": GIB}, experts={})
    assert fit_context(0, 131072, [elsewhere, draft], {"cuda:0": 9 * GIB}).n_ctx == 70912  # 6.5 GiB of 96 KiB


def test_context_that_fits_on_each_of_several_devices() -> None:
    """The second device has 5 - 1 - 1 GiB for cells of 96 KiB, the first 9 - 1 - 1 for cells of 64: that is more."""
    part = NetworkMemory("cuda:1", cache=Growth(0, 256 * 96 * 2**10))
    weights = {"cuda:0": GIB, "cuda:1": GIB}
    target = NetworkMemory("cuda:0", weights, cache=Growth(0, 256 * 64 * 2**10), elsewhere=(part,))
    free = {"cuda:0": 9 * GIB, "cuda:1": 5 * GIB}
    assert fit_context(0, 131072, [target], free).n_ctx == 3 * GIB // (96 * 2**10)
    assert fit_context(0, 131072, [target], {**free, "cuda:0": 3 * GIB}).n_ctx == GIB // (64 * 2**10)
    plan = MemoryPlan.of([target], 512)
    assert (plan.cache, plan.cache_per_token) == (512 * 160 * 2**10, 160 * 2**10)
    assert target.needed("cuda:1", 512) == GIB + 512 * 96 * 2**10


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that devices seem to have; to be filled."""
    room: dict[str, int] = {}
    for module in ("plan", "loader"):
        monkeypatch.setattr(f"specli.engine.{module}.available_bytes", lambda device="cpu": room[device])
    return room


def test_what_cannot_fit_is_refused_before_weights_are_read(
    tmp_path: Path, available: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReferenceExecutor, "weight", lambda self, tensor: pytest.fail("weights were read"))
    available["cpu"] = MIB
    target, draft = tiny_pair(tmp_path, "draft-eagle3")
    with pytest.raises(ResourceError) as caught, open_engine(config(target, draft, "draft-eagle3", n_ctx=512)):
        pass
    message = str(caught.value)
    assert message.startswith(f"{target}: not enough memory on cpu: a context of 512 tokens needs ")
    for part in ("(weights ", ", cache ", ", draft weights ", ", buffers ", "), 1 MiB are available"):
        assert part in message
    assert caught.value.hint is not None


def test_context_leaves_room_for_the_drafters_of_every_group(tmp_path: Path, available: dict[str, int]) -> None:
    """40 MiB of cells do not fit into 30 beside 1 GiB reserved, and share them with the larger of two draft models."""
    target = tiny_gguf(tmp_path / "t.gguf", context=2**17)
    small, large = (tiny_gguf(tmp_path / f"{n}.gguf", n_layer=n) for n in (1, 8))
    available["cpu"] = GIB + 30 * MIB
    groups = [[config(target, n_ctx=0)], *([config(target, path, "draft-simple", n_ctx=0)] for path in (small, large))]
    lines = []
    for n in (1, 2, 3):
        with open_target(groups[0][0]) as run:
            run.loader.fit(groups[:n])
            lines.append(run.loader.line())
            drafters = run.binding.build(groups[n - 1])
            run.binding.use(drafters[0])
            assert any(line.startswith("context: ") for line in run.start_lines())
    sizes = [int(line.rpartition(" ")[2]) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_drafters_that_do_not_fit_leave_the_old_ones_in_use(tmp_path: Path, available: dict[str, int]) -> None:
    available["cpu"] = GIB
    target, draft = tiny_pair(tmp_path, "draft-eagle3")
    with open_engine(config(target)) as run:
        available["cpu"] = 0
        with pytest.raises(ResourceError, match="not enough memory"):
            run.change_drafters(config(target, draft, "draft-eagle3"))
        assert list(run.generate([5, 6], RequestConfig(n_predict=2, sampling=GREEDY)))


def test_experts_alone_are_no_reason_to_refuse(available: dict[str, int]) -> None:
    available.update({"cpu": 5 * GIB})
    networks = [network(weights={"cpu": GIB}, experts={"cpu": 60 * GIB}, cache=Growth(0, 2**28))]
    with GGUFFile.open(MODELS[0].path) as file:
        note = check_memory(file, networks, 1024, MemoryPlan.of(networks, 1024))
        assert note == "memory: of 61440 MiB of experts 3072 MiB fit; they are read when they are first chosen"
        assert check_memory(file, networks[:0], 1024, MemoryPlan.of(networks, 1024)) is None
        with pytest.raises(ResourceError):
            check_memory(file, networks, 8192, MemoryPlan.of(networks, 8192))


@pytest.mark.skipif("cpu" not in executors(), reason="native library is not built")
def test_experts_of_a_huge_file_are_read_when_they_are_chosen(tmp_path: Path) -> None:
    """A mixture of 100 G parameters in a sparse file: opened, and two tokens written, in a fraction of its size."""
    path = huge_mixture(tmp_path / "huge.gguf")
    assert path.stat().st_size > 50 * GIB
    load = ModelLoadConfig(path, device="cpu", kernels="cpu", threads=ONE_THREAD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_engine(RunConfig(load, speculation=SpeculationConfig(types=("none",)), n_ctx=256)) as run:
        assert len(list(run.generate([5, 6], RequestConfig(n_predict=2, sampling=GREEDY)))) == 2
        assert MemoryPlan.of(run.loader.networks, 256).experts > 50 * GIB
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 400 * MIB


class SparseWriter(GGUFWriter):
    """Leaves holes where tensors of at least a MiB would be."""

    def _write(self, file: Any, *rest: Any) -> None:
        write = file.write
        file.write = lambda data: file.seek(len(data), os.SEEK_CUR) if len(data) >= MIB else write(data)
        super()._write(file, *rest)
        file.truncate(file.tell())


def huge_mixture(path: Path) -> Path:
    """The header and the small tensors of a tiny model; 8 layers of 1024 experts which are all zero."""
    n, n_ff, width, n_layer = 1024, 8192, 512, 8
    sizes = {"qwen3moe.expert_count": n, "qwen3moe.expert_feed_forward_length": n_ff}
    small = tiny_gguf(path.with_name("small.gguf"), "qwen3moe", width=width, n_layer=n_layer, quant="q8_0")
    with GGUFFile.open(small) as file, SparseWriter(path, "qwen3moe") as writer:
        for key in file.metadata.keys():  # noqa: SIM118 - no mapping
            kind = file.metadata.kind(key)
            writer.add(key, kind, sizes.get(key) or file.metadata.require(key, kind))
        for name, tensor in file.tensors.items():
            type, shape = tensor.type, tensor.shape
            if "_exps" in name:
                type, shape = QuantType.MXFP4, (n, width, n_ff) if "down" in name else (n, n_ff, width)
            elif "ffn_gate_inp" in name:
                shape = (n, width)
            n_bytes = math.prod(shape[:-1]) * type.row_bytes(shape[-1])
            data = tensor.data if shape == tensor.shape else partial(np.zeros, n_bytes, np.uint8)
            writer.add_tensor(name, type, shape, data)
    return path
