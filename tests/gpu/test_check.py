"""The script for a GPU, tried with small sizes in the interpreter."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_the_script_runs(tmp_path: Path) -> None:
    out = tmp_path / "table.txt"
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check", str(out), "--tiny"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert out.read_text(encoding="utf-8") == result.stdout
    assert "product q4_k" in result.stdout
    assert "reference: draft-eagle3" in result.stdout
    assert "WRONG" not in result.stdout
