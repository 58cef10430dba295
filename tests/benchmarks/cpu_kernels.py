"""Products of the native CPU kernels by type and row count: time, bytes of weights and multiplications per second.

    python tests/benchmarks/cpu_kernels.py [--types q4_1,q8_0] [--shape 1536x576] [--threads 2] [--kernels avx2]

Reports only. Small shapes stay in the cache and show the arithmetic, large ones (--shape 65536x576) the memory.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from specli.gguf.quant import QuantType
from specli.kernels.cpu.executor import NATIVE_TYPES, CpuExecutor
from specli.kernels.ops import Buffer, Extent, Program
from specli.kernels.threads import ThreadConfig
from tests.support.native import tensor

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 8, 16, 128)


def product(executor: CpuExecutor, type: QuantType, n_out: int, n_in: int) -> tuple[Program, int]:
    """A program of one product, and the bytes of its weights."""
    weight = executor.weight(tensor(type, n_out, n_in))
    x, out = (executor.buffer(max(ROW_COUNTS), width, Extent.TOKENS) for width in (n_in, n_out))
    x.data.normal_()
    return compiled(executor, out, x, weight), weight.struct.strip_bytes * weight.struct.n_strips


def compiled(executor: CpuExecutor, out: Buffer, x: Buffer, weight: object) -> Program:
    return executor.compile(lambda ops: ops.linear([out], x, [weight]))  # type: ignore[list-item]


def fastest(program: Program, n_rows: int, seconds: float) -> float:
    """Shortest of the runs that fit in `seconds`."""
    program.run(n_rows)
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        program.run(n_rows)
        times.append(time.perf_counter() - start)
    return float(np.min(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=",".join(t.label for t in sorted(NATIVE_TYPES)))
    parser.add_argument("--shape", default="1536x512", help="n_out x n_in")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kernels", help="instruction set, as SPECLI_CPU spells it")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.2, help="per measurement")
    args = parser.parse_args()
    n_out, n_in = (int(n) for n in args.shape.split("x"))
    executor = CpuExecutor(threads=ThreadConfig(n_threads=args.threads), kernels=args.kernels, exact=args.exact)
    print(f"{executor.describe()}, {n_out} x {n_in}: microseconds (GB/s of weights, 10^9 multiplications/s)")
    print(f"{'type':8}" + "".join(f"{f'{n} rows':>22}" for n in ROW_COUNTS))
    for label in args.types.split(","):
        program, n_bytes = product(executor, QuantType.from_label(label), n_out, n_in)
        line = f"{label:8}"
        for n_rows in ROW_COUNTS:
            seconds = fastest(program, n_rows, args.seconds)
            rates = f"({n_bytes / seconds / 1e9:.1f}, {n_rows * n_out * n_in / seconds / 1e9:.0f})"
            line += f"{seconds * 1e6:>10.0f} {rates:>11}"
        print(line)


if __name__ == "__main__":
    main()
