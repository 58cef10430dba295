"""The kernel tests on a library built with the address and undefined-behaviour sanitizers.

Without the portable kernels, which are the same headers over plain C vectors: with checks they take minutes to compile.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "specli" / "kernels" / "cpu"
FLAGS = (
    "-std=gnu11 -O1 -g -fPIC -shared -pthread -ffp-contract=off -DNO_UNROLLING -Dkernels_portable=kernels_avx2 "
    "-fno-sanitize-recover=all -fsanitize=address,undefined"
)


def runtime() -> str:
    """The sanitizer's library, which has to be loaded before Python's own allocations."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    path = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    if not Path(path.strip()).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    return path.strip()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kernels_are_clean(tmp_path: Path) -> None:
    preload = runtime()
    target = tmp_path / "sanitized.so"
    sources = set(SOURCES.glob("*.c")) - {SOURCES / "kernels_portable.c"}
    subprocess.run(["gcc", *FLAGS.split(), *sources, "-lm", "-o", target], check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",  # CPython's
        "SPECLI_NATIVE_LIBRARY": str(target),
    }
    here = Path(__file__).parent
    names = ("test_products.py", "test_operations.py", "test_attention.py")
    shared = ("test_expert_ops.py", "test_recurrent_ops.py")
    chain = here.parents[1] / "sampling" / "test_native.py"
    tests = [str(here / name) for name in names] + [str(here.parent / name) for name in shared] + [str(chain)]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
