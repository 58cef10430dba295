"""Which executor is opened, and what it says about the choice."""

import pytest
import torch

from specli.errors import SpecliError
from specli.kernels import KERNELS, open_executor
from specli.kernels.threads import ThreadConfig


def test_the_reference_can_be_asked_for() -> None:
    executor = open_executor("cpu", kernels="reference", threads=ThreadConfig(n_threads=1))
    assert (executor.name, executor.device) == ("reference", "cpu")
    assert executor.describe() == f"reference kernels (torch {torch.__version__}, cpu, 1 thread): requested"


def test_missing_kernels_are_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specli.kernels._is_installed", lambda module: False)
    executor = open_executor("auto")
    assert executor.name == "reference"
    assert executor.describe().endswith(": cpu kernels are not installed")


def test_missing_kernels_asked_for_by_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specli.kernels._is_installed", lambda module: False)
    with pytest.raises(SpecliError) as error:
        open_executor("cpu", kernels="cpu")
    assert str(error.value) == "cpu kernels are not installed"


@pytest.mark.parametrize(
    ("device", "kernels", "message"),
    [
        ("cpu", "fast", f"unknown kernels 'fast', expected one of {', '.join(KERNELS)}"),
        ("cpu", "triton", "triton kernels do not run on device cpu"),
        ("meta", "cpu", "cpu kernels do not run on device meta"),
        ("gpu3", "auto", "unknown device 'gpu3', expected auto, cpu or cuda:N"),
        ("cuda:99", "auto", f"device cuda:99: not found, {torch.cuda.device_count()} CUDA devices are there"),
    ],
)
def test_what_cannot_run_is_an_error(device: str, kernels: str, message: str) -> None:
    with pytest.raises(SpecliError) as error:
        open_executor(device, kernels=kernels)
    assert str(error.value) == message


def test_a_missing_cuda_device_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's build, or by what its driver says."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(SpecliError, match="device cuda:0: not found, 0 CUDA devices are there") as error:
        open_executor("cuda:0")
    assert error.value.hint == f"torch {torch.__version__} is built without CUDA; install a build with it"

    def fail() -> None:
        raise RuntimeError(
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
            "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
        )

    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.init", fail)
    with pytest.raises(SpecliError) as error:
        open_executor("cuda:0")
    assert error.value.hint == "The NVIDIA driver on your system is too old (found version 11040)"
