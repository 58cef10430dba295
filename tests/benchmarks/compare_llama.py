"""Speed of whole forwards against llama.cpp on the same machine, alternating.

    python tests/benchmarks/compare_llama.py --llama BIN_DIR MODEL.gguf… [--threads 2] [--repeats 5]

llama.cpp: `llama-bench` for plain decoding (tg32) and prompts (pp128), `llama-batched-bench` for 8 rows at once. Here:
one-row forwards at positions 64…95, 8-row forwards with 8 rows of logits, a 128-token prompt from position 0 with one
row of logits. Each repeat runs one after the other; the table has medians, best in brackets, and the ratio of medians.
Reports only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from specli.gguf.file import GGUFFile
from specli.kernels.cpu.executor import CpuExecutor
from specli.kernels.threads import ThreadConfig
from specli.models import load_model
from specli.models.base import Model, ModelOptions

GOALS = ("plain decoding", "8 rows", "prompt 128")


def llama(binaries: Path, model: Path, n_threads: int) -> dict[str, float]:
    """Rows per second of each goal."""

    def run(name: str, *arguments: str) -> str:
        command = [str(binaries / name), "-m", str(model), "-t", str(n_threads), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    bench = json.loads(run("llama-bench", "-p", "128", "-n", "32", "-r", "1", "-o", "json"))
    rates = {("prompt 128" if test["n_prompt"] else "plain decoding"): test["avg_ts"] for test in bench}
    table = run("llama-batched-bench", "-npp", "8", "-ntg", "16", "-npl", "8", "-c", "1024")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    return {**rates, "8 rows": float(rows[-1][8])}  # S_TG t/s


def ints(start: int, n: int) -> np.ndarray:
    return np.arange(start, start + n, dtype=np.int32)


def rate(model: Model, n_rows: int, n_outputs: int, first: int, repeats: int) -> float:
    """Rows per second over `repeats` forwards that follow each other."""
    slots = np.zeros(n_rows, np.int32)
    outputs = ints(n_rows - n_outputs, n_outputs)
    start = time.perf_counter()
    for i in range(repeats):
        model.forward(ints(100 + i, n_rows), ints(first + i, n_rows), slots, outputs)
    return n_rows * repeats / (time.perf_counter() - start)


def ours(model: Model) -> dict[str, float]:
    measured: dict[str, Callable[[], float]] = {
        "plain decoding": lambda: rate(model, 1, 1, 64, 32),
        "8 rows": lambda: rate(model, 8, 8, 64, 16),
        "prompt 128": lambda: rate(model, 128, 1, 0, 1),
    }
    rate(model, 128, 1, 0, 1)
    return {goal: measure() for goal, measure in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--llama", required=True, type=Path, help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kernels", help="instruction set, as --list-devices -v names it")
    args = parser.parse_args()
    for path in args.models:
        executor = CpuExecutor(threads=ThreadConfig(n_threads=args.threads), kernels=args.kernels)
        model = load_model(GGUFFile.open(path), executor, ModelOptions(capacity=1024))
        found: dict[str, dict[str, list[float]]] = {"llama.cpp": defaultdict(list), "specli": defaultdict(list)}
        for _ in range(args.repeats):
            for who, rates in (("llama.cpp", llama(args.llama, path, args.threads)), ("specli", ours(model))):
                for goal, value in rates.items():
                    found[who][goal].append(value)
        print(f"\n{path.name}, {executor.describe()}, {args.repeats} repeats: rows/s, median (best)")
        print(f"{'':16}{'llama.cpp':>20}{'specli':>20}{'ratio':>8}{'of best':>9}")
        for goal in GOALS:
            theirs, mine = found["llama.cpp"][goal], found["specli"][goal]
            cells = "".join(f"{f'{median(v):.1f} ({max(v):.1f})':>20}" for v in (theirs, mine))
            print(f"{goal:16}{cells}{median(mine) / median(theirs):>8.2f}{max(mine) / max(theirs):>9.2f}")
        for who, rates in found.items():
            steps = [8 * p / r for p, r in zip(rates["plain decoding"], rates["8 rows"], strict=True)]
            print(f"{who}: an 8-row forward takes {median(steps):.2f} plain steps (best {min(steps):.2f})")
        executor.close()


if __name__ == "__main__":
    main()
