"""Random damage: an error of ours or a readable file, never a traceback, a hang, or memory beyond the file's size."""

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specli.errors import SpecliError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from tests.support.blocks import random_rows
from tests.support.raw_gguf import ARCHITECTURE, file_bytes, info, pair

SETTINGS = settings(
    max_examples=400,
    deadline=5000,  # ms for each file; they take about 1 on a free machine
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TYPES = (QuantType.F32, QuantType.Q4_0, QuantType.Q8_0, QuantType.IQ4_NL, QuantType.I64)
EDGE_NUMBERS = st.sampled_from([0, 1, 31, 33, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1])
Damage = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with keys of every sort and several quant types."""
    path = tmp_path_factory.mktemp("fuzz") / "valid.gguf"
    rng = np.random.default_rng(0)
    with GGUFWriter(path, "llama") as writer:
        writer.add("general.alignment", "u32", 32)
        writer.add("llama.block_count", "u32", 2)
        writer.add("llama.rope.freq_base", "f32", 1e4)
        writer.add("tokenizer.ggml.tokens", "[str]", ["a", "bc", "", "ü"])
        writer.add("tokenizer.ggml.scores", "[f32]", [0.0, 1.0, 2.0, 3.0])
        writer.add("flags", "[bool]", [True, False])
        writer.add("split.count", "u16", 1)
        for type in TYPES:
            if type is QuantType.I64:
                writer.add_tensor("d2t", type, (4,), np.arange(4).view(np.uint8))
            else:
                writer.add_tensor(f"{type.label}.weight", type, (3, 64), random_rows(type, 3, 64, rng))
    return path.read_bytes()


def read_everything(path: Path) -> list[str]:
    """Opens a file and reads all of it; returns the messages of the errors on the way."""
    errors = []
    try:
        file = GGUFFile.open(path)
    except SpecliError as error:
        return [str(error)]
    for key in file.metadata.keys():  # noqa: SIM118 (not a dict)
        try:
            file.metadata.require(key, file.metadata.kind(key))
        except SpecliError as error:
            errors.append(str(error))
    for tensor in file.tensors.values():
        assert tensor.nbytes <= file.n_bytes
        assert tensor.rows().size == tensor.nbytes
        if tensor.type not in (QuantType.Q8_1, QuantType.Q8_K):  # work formats have no decoder
            assert tensor.dequantise().shape == tensor.shape
    return errors


def check(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    tracemalloc.start()
    try:
        errors = read_everything(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000 + 200 * len(content)
    for error in errors:
        assert error.startswith(f"{path}: ")
        assert "\n" not in error
        assert len(error) < 1000


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    """One change: a number of 1, 4 or 8 bytes overwritten, bytes removed, inserted or doubled."""
    kind = draw(st.sampled_from(["u8", "u32", "u64", "u64", "cut", "remove", "insert"]))
    where = draw(st.floats(0, 1))
    value = draw(EDGE_NUMBERS | st.integers(0, (1 << 64) - 1))
    n = draw(st.integers(1, 40))

    def damage(content: bytearray) -> None:
        at = int(where * len(content))
        if kind == "cut":
            del content[at:]
        elif kind == "remove":
            del content[at : at + n]
        elif kind == "insert":
            content[at:at] = content[at : at + n] or bytes(n)
        else:
            size = {"u8": 1, "u32": 4, "u64": 8}[kind]
            content[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    return damage


@SETTINGS
@given(changes=st.lists(damages(), min_size=1, max_size=4))
def test_damaged_files(tmp_path: Path, valid: bytes, changes: list[Damage]) -> None:
    content = bytearray(valid)
    for change in changes:
        change(content)
    check(tmp_path / "m.gguf", bytes(content))


def test_every_number_of_the_header_at_its_edges(tmp_path: Path, valid: bytes) -> None:
    """Each 8-byte window of the header becomes 0, 2**31, 2**63 and 2**64 - 1 in turn."""
    header = valid.index(b"d2t") + 40
    for at in range(0, header, 2):
        for value in (0, 1 << 31, 1 << 63, (1 << 64) - 1):
            check(tmp_path / "m.gguf", valid[:at] + struct.pack("<Q", value) + valid[at + 8 :])


@SETTINGS
@given(content=st.binary(max_size=300))
@example(content=b"")
def test_random_bytes_after_the_magic(tmp_path: Path, content: bytes) -> None:
    check(tmp_path / "m.gguf", b"GGUF\3\0\0\0" + content)


@SETTINGS
@given(
    type=st.integers(0, 13),
    element=st.integers(0, 13),
    count=EDGE_NUMBERS,
    rest=st.binary(max_size=64),
)
def test_random_values(tmp_path: Path, type: int, element: int, count: int, rest: bytes) -> None:
    value = struct.pack("<IQ", element, count) + rest if type == 9 else rest
    check(tmp_path / "m.gguf", file_bytes([ARCHITECTURE, pair("k", type, value)]))


@SETTINGS
@given(
    extents=st.lists(EDGE_NUMBERS | st.integers(1, 256), max_size=5),
    type=st.integers(0, 43),
    offset=st.just(0) | EDGE_NUMBERS,
    n_bytes=st.integers(0, 4096),
)
def test_random_tensors(tmp_path: Path, extents: list[int], type: int, offset: int, n_bytes: int) -> None:
    content = file_bytes(infos=[info("t", tuple(extents), type, offset)], data=bytes(n_bytes))
    check(tmp_path / "m.gguf", content)
