"""Which kernels run a model: `open_executor` picks an executor by device and says why.

| kernels | module | where |
|---|---|---|
| `cpu` | `specli.kernels.cpu` | native library, CPU |
| `graph` | `specli.kernels.reference.graph` | the reference as CUDA graphs, CUDA devices |
| `triton` | `specli.kernels.triton` | the same with matrices as they are stored, CUDA devices with Triton |
| `reference` | `specli.kernels.reference` | plain torch, any device |
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from specli.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from specli.kernels.ops import Executor
    from specli.kernels.placement import Placement
    from specli.kernels.threads import ThreadConfig

KERNELS = ("auto", "reference", "cpu", "graph", "triton")

# Fast kernels by device type, the usual ones first: name, module, class. The class takes (device, threads=, exact=,
# placement=) and raises ResourceError when it cannot run here (library not built, CPU too old, weights elsewhere).
_FAST = {
    "cpu": [("cpu", "specli.kernels.cpu.executor", "CpuExecutor")],
    "cuda": [
        ("graph", "specli.kernels.reference.graph", "GraphExecutor"),
        ("triton", "specli.kernels.triton.executor", "TritonExecutor"),
    ],
}


def open_executor(
    device: str,
    *,
    kernels: str = "auto",
    threads: ThreadConfig | None = None,
    exact: bool = False,
    placement: Placement | None = None,
) -> Executor:
    """The executor for one model.

    Args:
        device: `cpu`, `cuda:0`, … or `auto`: the CPU, which alone has kernels of its own.
        kernels: One of `KERNELS`. `auto` takes the device's fast kernels and, where they cannot run, the reference,
            whose `describe` gives the reason.
        threads: Its threads; None = defaults.
        exact: float32 activations in the native kernels (debugging).
        placement: Which weights and layers lie on another device.

    Raises:
        UsageError: Unknown kernels or device, or kernels that do not run on this device.
        ResourceError: The device, or the kernels asked for by name, are missing.
    """
    if kernels not in KERNELS:
        raise UsageError(f"unknown kernels {kernels!r}, expected one of {', '.join(KERNELS)}")
    where = _device(device)
    if placement:
        for other in dict.fromkeys([*(rule.device for rule in placement.rules), *placement.layers]):
            _device(other)
    if kernels == "reference":
        return _open_reference(where, threads, placement)
    found = [fast for fast in _FAST.get(where.partition(":")[0], []) if kernels in ("auto", fast[0])]
    if kernels != "auto" and not found:
        raise UsageError(f"{kernels} kernels do not run on device {where}")
    if not found:
        reason = f"no other kernels for device {where}"
        return _open_reference(where, threads, placement, reason)
    try:
        return _open_fast(found[0], where, threads, exact, placement)
    except ResourceError as error:
        if kernels != "auto":
            raise
        return _open_reference(where, threads, placement, str(error))


def _open_reference(
    device: str, threads: ThreadConfig | None, placement: Placement | None, reason: str = "requested"
) -> Executor:
    from specli.kernels.reference import ReferenceExecutor

    return ReferenceExecutor(device, threads=threads, reason=reason, placement=placement)


def _open_fast(
    fast: tuple[str, str, str],
    device: str,
    threads: ThreadConfig | None,
    exact: bool,
    placement: Placement | None,
) -> Executor:
    name, module, class_name = fast
    if not _is_installed(module):
        raise ResourceError(f"{name} kernels are not installed")
    executor: Executor = getattr(import_module(module), class_name)(
        device, threads=threads, exact=exact, placement=placement
    )
    return executor


def _is_installed(module: str) -> bool:
    package = module.rpartition(".")[0]
    return find_spec(package) is not None and find_spec(module) is not None


def _device(name: str) -> str:
    """The device's full name; torch, which is slow to import, is asked only for others than the CPU."""
    if name in ("cpu", "auto"):
        return "cpu"
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"unknown device {name!r}, expected auto, cpu or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ResourceError(
            f"device {name}: not found, {torch.cuda.device_count()} CUDA devices are there", hint=_cuda_fault()
        )
    return str(device)


def _cuda_fault() -> str | None:
    """Why torch finds no CUDA device, if it can tell."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install a build with it"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # no driver, or one that is too old
        return str(error).split(". ")[0].splitlines()[0]
    return None
