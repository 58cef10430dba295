"""Triton's kernels compiled ahead of time: next to nothing spilled, and room for three blocks a core."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

MOST_REGISTERS = 136  # three blocks of 128 threads share the 65,536 registers of a core
MOST_STACK = 16  # bytes: a few numbers that the loop does not touch


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_fit_every_architecture() -> None:
    """In a process of its own, because here kernels are for the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.gpu.compile"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert len(lines) == 5 * 11
    for architecture, type, registers, stack, _ in lines:
        assert int(stack) <= MOST_STACK, f"{architecture} {type}: {stack}"
        assert int(registers) <= MOST_REGISTERS, f"{architecture} {type}: {registers}"
