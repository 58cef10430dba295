"""Compiles Triton's kernels ahead of time, which needs no GPU, and says what each takes: `python -m tests.gpu.compile`.

A line per architecture and type: registers, bytes of stack (values that did not fit into registers), shared memory.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specli.gguf.quant import QuantType
from specli.kernels.triton.matrix import COLUMNS, OPTIONS, ROWS, STEP, TYPES, project_kernel

ARCHITECTURES = (80, 89, 90, 100, 120)  # A100, RTX 4090, H100 and H200, B200, RTX 5090
TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
POINTERS = {"out": "*fp32", "x": "*fp32", "matrix": "*u8"}
NUMBERS = ("n_rows", "n_in", "n_out", "row_bytes", "x_stride")


def usage(architecture: int, type: QuantType) -> tuple[int, int, int]:
    """Registers, bytes of stack and of shared memory of the product with a matrix of the type."""
    constants = {"TYPE": int(type), "ROWS": ROWS, "COLUMNS": COLUMNS, "STEP": STEP}
    signature = POINTERS | dict.fromkeys(NUMBERS, "i32") | dict.fromkeys(constants, "constexpr")
    aligned = {(project_kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in (*POINTERS, "n_in")}
    source = ASTSource(fn=project_kernel, signature=signature, constexprs=constants, attrs=aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=dict(OPTIONS))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        report = subprocess.run([TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", report)}
    return found["REG"], found["STACK"] + found["LOCAL"], kernel.metadata.shared


def main() -> None:
    """Prints the table."""
    for architecture in ARCHITECTURES:
        for type in sorted(TYPES):
            sys.stdout.write(f"sm_{architecture} {type.label} {' '.join(map(str, usage(architecture, type)))}\n")


if __name__ == "__main__":
    main()
