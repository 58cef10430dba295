"""The native executor on one and two threads, or the reason why it is not there."""

import pytest

from specli.errors import ResourceError
from specli.kernels.cpu.library import instruction_sets, native_library
from tests.support.native import Bench


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    try:
        native_library()
    except ResourceError as error:
        pytest.skip(str(error))


@pytest.fixture
def kernels() -> list[str]:
    """Keys of the instruction sets that run here, best first."""
    return list(instruction_sets(native_library()))


@pytest.fixture
def bench() -> Bench:
    """An executor with two threads and random inputs."""
    return Bench.open(n_threads=2)
