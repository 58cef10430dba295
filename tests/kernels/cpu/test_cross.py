"""Kernels of other processors, by a cross compiler and an emulator or by instructions that compute the same."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "specli" / "kernels" / "cpu"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
FLAGS = ["-std=gnu11", "-O1", "-ffp-contract=off", "-pthread"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def compare(tmp_path: Path, compiler: str, *flags: str, before: tuple[str, ...] = ()) -> list[str]:
    """Runs every operation with every kernel table; returns the tables' names, and fails where bits differ."""
    target = tmp_path / "compare_kernels"
    sources = [Path(__file__).with_name("compare_kernels.c"), *SOURCES.glob("*.c")]
    subprocess.run([compiler, *FLAGS, *flags, f"-I{SOURCES}", *sources, "-lm", "-o", target], check=True)
    run = subprocess.run([*before, target], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


@pytest.mark.skipif(not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"needs {COMPILER} and {EMULATOR}")
def test_neon_kernels_equal_portable_ones(tmp_path: Path) -> None:
    found = compare(tmp_path, COMPILER, "-static", before=(EMULATOR, "-cpu", "max"))
    assert found == ["NEON dot product", "portable C"]


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("gcc"), reason="needs an x86-64 processor and gcc"
)
def test_all_kernels_of_this_processor_agree_and_avx_vnni_by_the_instruction_of_avx512(tmp_path: Path) -> None:
    found = compare(tmp_path, "gcc", "-DVNNI_OF_AVX512", "-mfma")  # portable C fuses, too, where it can
    assert [name.removesuffix(" (not on this processor)") for name in found] == [
        "AVX-512 VNNI", "AVX-VNNI", "AVX-512", "AVX2", "portable C",
    ]  # fmt: skip
    if "avx512_vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        assert not any(name.endswith("(not on this processor)") for name in found)
