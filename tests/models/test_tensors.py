"""Strict loading: everything wrong with a file's tensors is one error, and no weight has been read by then."""

from pathlib import Path

import numpy as np
import pytest

from specli.errors import FormatError, IncompatibleError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.cpu.executor import CpuExecutor
from specli.kernels.reference import ReferenceExecutor, ReferenceWeight
from specli.models.tensors import Parameter, Tensors
from tests.support.running import open_model
from tests.support.tiny_gguf import tiny_gguf


class Recorder(ReferenceExecutor):
    """Notes what is read, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def weight(self, tensor: QuantTensor) -> ReferenceWeight:
        self.read.append(tensor.name)
        return super().weight(tensor)


def test_all_faults_are_listed_before_anything_is_read(tmp_path: Path) -> None:
    faults = {
        "blk.0.attn_k.weight": None,
        "blk.1.ffn_down.weight": np.zeros((64, 64), np.float32),
        "blk.1.ffn_norm.weight": None,
        "blk.1.extra.weight": np.zeros((2, 64), np.float32),
    }
    path = tiny_gguf(tmp_path / "m.gguf", "llama", tensors=faults)
    executor = Recorder()
    with pytest.raises(FormatError) as error:
        open_model(path, executor)
    assert str(error.value) == (
        f"{path}: tensors do not fit architecture llama: blk.0.attn_k.weight is missing; blk.1.ffn_down.weight has "
        "shape [64, 64], expected [64, 128]; blk.1.ffn_norm.weight is missing; blk.1.extra.weight is not part of the "
        "architecture"
    )
    assert executor.read == []


def test_a_cache_type_that_does_not_fit_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama")  # heads of 16
    executor = Recorder()
    with pytest.raises(IncompatibleError, match=r"^cache type q8_0 needs head sizes in multiples of 32, found 16$"):
        open_model(path, executor, type_k=QuantType.Q8_0)
    assert executor.read == []


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("qwen2", "blk.0.ffn_down.bias"),
        ("qwen2", "blk.1.attn_output.bias"),
        ("qwen3", "rope_freqs.weight"),
        ("llama", "output.bias"),
        ("gemma3", "blk.0.attn_sinks.weight"),
    ],
)
def test_a_tensor_the_family_does_not_have_is_refused(tmp_path: Path, architecture: str, name: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, tensors={name: np.zeros(64, np.float32)})
    with pytest.raises(FormatError, match=f"{name} is not part of the architecture$"):
        open_model(path)


def test_tensors_are_read_once_in_file_order(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "gemma3", tied=True)
    executor = Recorder()
    open_model(path, executor)
    with GGUFFile.open(path) as file:
        assert executor.read == [tensor.name for tensor in file.tensors.values() if len(tensor.shape) == 2]


def test_optional_and_unwanted_claims_give_none(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "qwen2")
    with GGUFFile.open(path) as file:
        tensors = Tensors(file)
        assert tensors.vector("output.bias", 5, "optional") is None
        assert tensors.vector("blk.0.attn_q.bias", 64, "no") is None
        tensors.skip("blk.")
        tensors.matrix("token_embd.weight", (1, *file.tensors["token_embd.weight"].shape))  # leading ones do not count
        tensors.vector("output_norm.weight", 64)
        with pytest.raises(FormatError, match=r"qwen2: output\.weight is not part of the architecture$"):
            tensors.check()


@pytest.mark.parametrize("executor", [ReferenceExecutor, CpuExecutor])
def test_a_matrix_of_one_row_may_be_stored_as_a_vector(
    tmp_path: Path, executor: type[ReferenceExecutor] | type[CpuExecutor]
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama")
    with GGUFFile.open(path) as file:
        tensors = Tensors(file)
        row = tensors.matrix("output_norm.weight", (1, 64))
        tensors.load(executor())
    assert row.value.shape == (1, 64)


def test_a_borrowed_parameter_has_its_value_at_once() -> None:
    assert Parameter.of(3).value == 3
