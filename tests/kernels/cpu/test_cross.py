"""The NEON kernels, by a cross compiler and an emulator: every operation gives the portable kernels' bits."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "specli" / "kernels" / "cpu"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
FLAGS = "-std=gnu11 -O1 -ffp-contract=off -pthread -static"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"needs {COMPILER} and {EMULATOR}")
def test_neon_kernels_equal_portable_ones(tmp_path: Path) -> None:
    target = tmp_path / "compare_kernels"
    sources = [Path(__file__).with_name("compare_kernels.c"), *SOURCES.glob("*.c")]
    subprocess.run([COMPILER, *FLAGS.split(), f"-I{SOURCES}", *sources, "-lm", "-o", target], check=True)
    run = subprocess.run([EMULATOR, "-cpu", "max", target], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == ["NEON dot product", "portable C"]
