"""Writing: layout as gguf-py's, nothing left behind, streaming."""

import os
from pathlib import Path

import gguf
import numpy as np
import pytest

from specli.errors import FormatError, ResourceError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType, quantise
from specli.gguf.write import GGUFWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32).view(np.uint8)


def test_bytes_equal_those_of_gguf_py(tmp_path: Path) -> None:
    """Every kind of value the converter writes, tensors of four types and awkward sizes."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 64)).astype(np.float32)
    tensors = {
        "fc.weight": quantise(QuantType.Q8_0, weights),
        "half.weight": quantise(QuantType.F16, weights[:, :5]),
        "d2t": np.arange(7, dtype=np.int64),
        "norm.weight": np.arange(3, dtype=np.float32),
    }
    theirs = gguf.GGUFWriter(tmp_path / "theirs.gguf", "eagle3")
    theirs.add_uint32("eagle3.block_count", 1)
    theirs.add_float32("eagle3.rope.freq_base", 1e6)
    theirs.add_bool("eagle3.norm_before_fc", True)
    theirs.add_string("tokenizer.ggml.model", "gpt2")
    theirs.add_array("eagle3.target_layers", [2, 8, 13])
    theirs.add_array("tokenizer.ggml.tokens", ["a", "ü", "Ġthe"])
    theirs.add_array("tokenizer.ggml.scores", [0.0, -1.5])
    theirs.add_array("flags", [True, False])
    theirs.add_tensor("fc.weight", tensors["fc.weight"], raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    theirs.add_tensor("half.weight", tensors["half.weight"].view(np.float16))
    theirs.add_tensor("d2t", tensors["d2t"])
    theirs.add_tensor("norm.weight", tensors["norm.weight"])
    theirs.write_header_to_file()
    theirs.write_kv_data_to_file()
    theirs.write_tensors_to_file()
    theirs.close()

    with GGUFWriter(tmp_path / "ours.gguf", "eagle3") as ours:
        ours.add("eagle3.block_count", "u32", 1)
        ours.add("eagle3.rope.freq_base", "f32", 1e6)
        ours.add("eagle3.norm_before_fc", "bool", True)
        ours.add("tokenizer.ggml.model", "str", "gpt2")
        ours.add("eagle3.target_layers", "[i32]", [2, 8, 13])
        ours.add("tokenizer.ggml.tokens", "[str]", ["a", "ü".encode(), "Ġthe"])
        ours.add("tokenizer.ggml.scores", "[f32]", np.array([0.0, -1.5]))
        ours.add("flags", "[bool]", [True, False])
        ours.add_tensor("fc.weight", QuantType.Q8_0, (3, 64), tensors["fc.weight"])
        ours.add_tensor("half.weight", QuantType.F16, (3, 5), lambda: tensors["half.weight"])
        ours.add_tensor("d2t", QuantType.I64, (7,), tensors["d2t"].view(np.uint8))
        ours.add_tensor("norm.weight", QuantType.F32, (3,), tensors["norm.weight"].view(np.uint8))
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_shards_equal_those_of_gguf_py(tmp_path: Path) -> None:
    theirs = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama", split_max_size=100)
    ours = GGUFWriter(tmp_path / "ours.gguf", "llama", split_max_bytes=100)
    theirs.add_uint32("llama.block_count", 1)
    ours.add("llama.block_count", "u32", 1)
    for index, n in enumerate([10, 15, 40, 1, 2]):
        theirs.add_tensor(f"t{index}", np.ones(n, np.float32))
        ours.add_tensor(f"t{index}", QuantType.F32, (n,), ones(n))
    theirs.write_header_to_file()
    theirs.write_kv_data_to_file()
    theirs.write_tensors_to_file()
    theirs.close()
    for path in ours.close():
        twin = path.with_name(path.name.replace("ours", "theirs"))
        assert path.read_bytes() == twin.read_bytes()
    assert len(list(tmp_path.glob("ours*"))) == len(list(tmp_path.glob("theirs*"))) == 3


def test_one_shard_is_an_ordinary_file(path: Path) -> None:
    writer = GGUFWriter(path, "llama", split_max_bytes=1000)
    writer.add_tensor("t", QuantType.F32, (1,), ones(1))
    assert writer.close() == [path]
    assert "split.count" not in GGUFFile.open(path).metadata


def test_a_key_set_twice_keeps_its_place(path: Path) -> None:
    with GGUFWriter(path, "llama") as writer:
        writer.add("a", "u32", 1)
        writer.add("b", "u32", 2)
        writer.add("a", "str", "new")
    metadata = GGUFFile.open(path).metadata
    assert list(metadata.keys()) == ["general.architecture", "a", "b"]
    assert metadata.require("a", "str") == "new"


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("u32", -1, "argument out of range"),
        ("u32", 1 << 32, "'I' format requires 0 <= number <= 4294967295"),
        ("u32", 1.5, "required argument is not an integer"),
        ("u32", None, "required argument is not an integer"),
        ("f32", 1e40, "float too large to pack with f format"),
        ("f32", "x", "required argument is not a float"),
        ("str", 5, "object of type 'int' has no len()"),
        ("str", "\ud800", "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed"),
        ("[i32]", [1 << 31], "values from 2147483648 to 2147483648"),
        ("[u32]", [-1, 3], "values from -1 to 3"),
        ("[i32]", [1.5], "expected integers, got float64"),
        ("[f32]", [1e40], "overflow encountered in cast"),
        ("[i32]", 5, "object of type 'int' has no len()"),
    ],
)
def test_a_value_that_does_not_fit(path: Path, kind: str, value: object, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        GGUFWriter(path, "llama").add("k", kind, value)
    begin = f"{path}: key 'k' cannot be stored as {kind}: "
    assert str(caught.value).startswith(begin)
    if kind != "u32":  # struct's words for integers differ between Python versions
        assert str(caught.value) == begin + reason


def test_tensor_names_and_shapes(path: Path) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("t", QuantType.F32, (1,), ones(1))
    for name, shape, expected in [
        ("t", (1,), "tensor 't' is added twice"),
        ("n" * 64, (1,), f"tensor name '{'n' * 64}' is longer than 63 bytes"),
        ("u", (1, 1, 1, 1, 1), "tensor 'u' has shape (1, 1, 1, 1, 1), expected 1 to 4 axes"),
    ]:
        with pytest.raises(FormatError) as caught:
            writer.add_tensor(name, QuantType.F32, shape, ones(1))
        assert str(caught.value) == f"{path}: {expected}"


def test_tensors_are_made_one_by_one_when_written(path: Path) -> None:
    made: list[str] = []
    writer = GGUFWriter(path, "llama")

    def make(name: str) -> np.ndarray:
        made.append(name)
        return ones(4)

    for name in "abc":
        writer.add_tensor(name, QuantType.F32, (4,), lambda name=name: make(name))
    assert made == []
    written: list[int] = []
    writer.close(lambda n_bytes: written.append(n_bytes) or made.append("written"))
    assert made == ["a", "written", "b", "written", "c", "written"]
    assert written == [16, 16, 16]


def test_a_failure_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    path.write_bytes(b"precious")

    def fail() -> np.ndarray:
        raise KeyboardInterrupt

    writer = GGUFWriter(path, "llama")
    writer.add_tensor("a", QuantType.F32, (4,), ones(4))
    writer.add_tensor("b", QuantType.F32, (4,), fail)
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    assert path.read_bytes() == b"precious"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_in_the_block_writes_nothing(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), GGUFWriter(path, "llama"):
        raise ZeroDivisionError
    assert not path.exists()


def test_wrong_size_is_our_bug(path: Path) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("a", QuantType.F32, (5,), ones(4))
    with pytest.raises(ValueError, match="a: 16 bytes made, 20 needed"):
        writer.close()
    assert not path.exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no" / "m.gguf"
    with pytest.raises(ResourceError) as caught:
        GGUFWriter(path, "llama").close()
    assert str(caught.value) == f"{path}: cannot be written: No such file or directory"


def test_the_file_gets_ordinary_permissions(path: Path) -> None:
    old = os.umask(0o027)
    try:
        GGUFWriter(path, "llama").close()
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640
