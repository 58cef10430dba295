"""Finding the library, threads and their number, taking weights from a mapped file."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.errors import ResourceError, UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from specli.kernels.cpu import library, topology
from specli.kernels.cpu.executor import CpuExecutor
from specli.kernels.cpu.recorder import Recorder
from specli.kernels.ops import Buffer, Extent
from specli.kernels.threads import ThreadConfig
from tests.support.native import Bench, tensor


def test_missing_library_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(ResourceError, match=r"native CPU library is not built \(no C compiler at install time\)"):
        library._path()


def test_broken_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    path.write_bytes(b"no library")
    monkeypatch.setenv("SPECLI_NATIVE_LIBRARY", str(path))
    with pytest.raises(ResourceError, match=r"other\.so: cannot load the native CPU library"):
        library.native_library.__wrapped__()


def exports_of(tmp_path: Path, *changes: tuple[str, str]) -> library.Exports:
    """What exports.c hands out when native.h is changed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    sources = Path(library.__file__).parent
    header = (sources / "native.h").read_text()
    for old, new in changes:
        assert header.count(old) == 1, old
        header = header.replace(old, new)
    (tmp_path / "native.h").write_text(header)
    shutil.copy(sources / "exports.c", tmp_path)
    path = tmp_path / "changed.so"
    subprocess.run([compiler, "-std=gnu11", "-shared", "-fPIC", tmp_path / "exports.c", "-o", path], check=True)
    changed = ctypes.CDLL(str(path))
    changed.specli_exports.restype, changed.specli_exports.argtypes = library._FUNCTIONS["specli_exports"]
    return library.Exports.of(changed, path)


def test_codes_and_limits_are_those_of_the_library(tmp_path: Path) -> None:
    changed = exports_of(
        tmp_path,
        ("X(ADD) ", "X(-) "), ("X(MULTIPLY) ", "X(ADD) "), ("X(-) ", "X(MULTIPLY) "),
        ("X(TOP_P) X(MIN_P)", "X(MIN_P) X(TOP_P)"),
        ("MAX_CANDIDATES 512", "MAX_CANDIDATES 4096"),
    )  # fmt: skip
    present = library.native_exports()
    swapped = {
        ("operation", "add"): present.number("operation", "multiply"),
        ("operation", "multiply"): present.number("operation", "add"),
        ("link", "top_p"): present.number("link", "min_p"),
        ("link", "min_p"): present.number("link", "top_p"),
        ("limit", "max_candidates"): 4096,
    }
    assert len(set(swapped.values())) == 5
    assert changed.numbers == {**present.numbers, **swapped}


def test_a_recorder_takes_its_codes_from_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = library.native_exports().numbers
    other = library.Exports(Path("other.so"), {**numbers, ("operation", "scale"): 77})
    monkeypatch.setattr("specli.kernels.cpu.recorder.native_exports", lambda: other)
    recorder = Recorder(exact=False)
    recorder.scale(Buffer(np.zeros((1, 4), np.float32), Extent.TOKENS), 2.0)
    assert [op.code for op in recorder.ops] == [77]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("int32_t code, extent;", "int32_t extent, code;"), "op.code is 4, expected 0"),
        (("int64_t n[4];\n    float f[2];", "int64_t n[5];\n    float f[2];"), "op is 392, expected 384"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ResourceError) as error:
        exports_of(tmp_path, change)
    assert str(error.value) == f"{tmp_path}/changed.so: native CPU library is of another version ({message})"


def test_an_operation_that_the_library_lacks_is_refused(tmp_path: Path) -> None:
    exports = exports_of(tmp_path, ("X(TAKE) ", "X(GIVE) "))
    assert exports.number("operation", "give") == library.native_exports().number("operation", "take")
    with pytest.raises(ResourceError, match=r"of another version \(it has no operation take\)$"):
        exports.number("operation", "take")


def test_unknown_kernels_are_refused_with_what_there_is(kernels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels[-1] == "portable"
    message = f"this processor has no 'mmx' kernels, expected one of {', '.join(kernels)}"
    with pytest.raises(UsageError, match=f"^{message}$"):
        CpuExecutor(kernels="mmx")
    monkeypatch.setenv("SPECLI_CPU", "mmx")
    with pytest.raises(UsageError, match=f"^SPECLI_CPU: {message}$"):
        CpuExecutor()


def test_a_variable_chooses_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLI_CPU", "portable")
    assert "portable C" in CpuExecutor().describe()
    monkeypatch.setenv("SPECLI_CPU", "")
    assert "portable C" not in CpuExecutor().describe() or len(library.instruction_sets(library.native_library())) == 1


def test_thread_counts_follow_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "physical_cores", lambda: 4)
    monkeypatch.setattr(library, "hardware_threads", lambda: 8)
    assert library.thread_counts(ThreadConfig()) == (4, 4)
    assert library.thread_counts(ThreadConfig(n_threads=3)) == (3, 3)
    assert library.thread_counts(ThreadConfig(n_threads=-1)) == (8, 8)
    assert library.thread_counts(ThreadConfig(n_threads=2, n_threads_batch=6)) == (2, 6)
    assert library.thread_counts(ThreadConfig(n_threads=2, n_threads_batch=0)) == (2, 8)


def test_physical_cores_are_distinct_sibling_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cpu in range(4):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings").write_text("5\n" if cpu % 2 else "a\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert topology.physical_cores(tmp_path) == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert topology.physical_cores(tmp_path / "nowhere") == 6
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert topology.physical_cores(tmp_path / "nowhere") == 3


def test_executors_share_their_threads() -> None:
    a, b = CpuExecutor(threads=ThreadConfig(n_threads=2)), CpuExecutor(threads=ThreadConfig(n_threads=1))
    other = CpuExecutor(threads=ThreadConfig(n_threads=2, poll=0))
    assert a._pool is b._pool
    assert a._pool is not other._pool


@pytest.mark.parametrize(
    "config",
    [
        ThreadConfig(n_threads=4, poll=0),
        ThreadConfig(n_threads=4, poll=100, n_threads_batch=1),
        ThreadConfig(n_threads=2, cpu_mask=frozenset({0}), strict=True),
        ThreadConfig(n_threads=2, priority=-1),
    ],
    ids=str,
)
def test_placement_changes_no_result(config: ThreadConfig) -> None:
    before = os.sched_getaffinity(0)
    result = []

    def work() -> None:  # in a thread of its own: the mask also holds for the caller
        for threads in (config, ThreadConfig(n_threads=1)):
            executor = CpuExecutor(threads=threads)
            weight = executor.weight(tensor(QuantType.Q4_1, 200, 64))
            bench = Bench(executor, None, torch.Generator().manual_seed(1))  # type: ignore[arg-type]
            x, out = bench.rows(64), bench.zeros(200)
            program = executor.compile(lambda ops: ops.linear([out], x, [weight]))  # noqa: B023
            for n in (1, 20, 3, 33):
                program.run(n)
            result.append(out.data)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert torch.equal(result[0], result[1])
    assert os.sched_getaffinity(0) == before


def test_programs_of_two_threads_take_turns(bench: Bench) -> None:
    """Two Python threads on one pool: every result is right."""
    weight, _ = bench.weight(QuantType.Q8_0, 128, 64)
    wrong = []

    def work(seed: int) -> None:
        own = Bench(bench.executor, bench.reference, torch.Generator().manual_seed(seed))
        x, out = own.rows(64), own.zeros(128)
        program = own.executor.compile(lambda ops: ops.linear([out], x, [weight]))
        program.run(33)
        expected = out.data.clone()
        for _ in range(200):
            out.data.zero_()
            program.run(33)
            if not torch.equal(out.data, expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_idle_threads_sleep(bench: Bench) -> None:
    x = bench.rows(16)
    program = bench.executor.compile(lambda ops: ops.scale(x, 1.0))
    program.run(2)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


def resident() -> int:
    """Bytes of this process in memory, mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_weights_and_their_file_are_not_both_resident(bench: Bench, tmp_path: Path) -> None:
    """64 MB of Q8_0: afterwards the copy is in memory, the file's pages are given back, and still readable."""
    path = tmp_path / "big.gguf"
    source = tensor(QuantType.Q8_0, 16384, 4096)
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("w", source.type, source.shape, source.data)
    writer.close()
    file = GGUFFile.open(path)
    mapped = file.tensors["w"]
    checksum = int(mapped.data.sum())  # every page is in memory now
    before = resident()
    weight = bench.executor.weight(mapped)
    grown = resident() - before
    assert weight.storage.nbytes > 60e6
    assert grown < 20e6
    assert int(mapped.data.sum()) == checksum
    ids, out = bench.ints([0, 9999, 16383]), bench.zeros(4096, n_rows=3)
    bench.run(lambda ops: ops.embed(out, weight, ids), 3)
    assert np.array_equal(out.data[1].numpy(), source.dequantise(9999, 10000)[0])
