"""Speed of whole forwards against llama.cpp on the same machine, alternating.

    python tests/benchmarks/compare_llama.py --llama BIN_DIR MODEL.gguf… [--threads 2] [--repeats 5]
        [--prompts 128,512] [--depths 0,4096] [--cache-type q8_0] [--kernels avx2,avx512vnni]

llama.cpp: `llama-bench` for plain decoding (tg32) and prompts, `llama-batched-bench` for 8 rows at once. Here: one-row
forwards, 8-row forwards with 8 rows of logits, both behind `--depths` tokens of context, and prompts from position 0
with one row of logits, in chunks as `generate` takes them. Each repeat runs one after the other; the table has medians,
best in brackets, and the ratio of medians; then what an 8-row forward takes in plain steps, and the share of the
memory's bandwidth (the fastest sum over an array of 256 MiB) that plain decoding uses. Reports only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import torch

from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.cpu.executor import CpuExecutor
from specli.kernels.threads import ThreadConfig
from specli.models import load_model
from specli.models.base import Model, ModelOptions

ROWS = 8
CHUNK = 2048  # tokens of a prompt at once, the default of the commands
PLAIN, BATCH = "plain decoding", f"{ROWS} rows"

Rates = dict[str, float]


def behind(goal: str, depth: int) -> str:
    return f"{goal}, {depth} before" if depth else goal


def llama(args: argparse.Namespace, model: Path) -> Rates:
    """Rows per second of each goal."""
    cache = ["-ctk", args.cache_type, "-ctv", args.cache_type, "-fa", "on"]

    def run(name: str, *arguments: str) -> str:
        command = [str(args.llama / name), "-m", str(model), "-t", str(args.threads), *cache, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    rates: Rates = {}
    for n_tokens in args.prompts:
        [bench] = json.loads(run("llama-bench", "-p", str(n_tokens), "-n", "0", "-r", "1", "-o", "json"))
        rates[f"prompt {n_tokens}"] = bench["avg_ts"]
    for depth in args.depths:
        [bench] = json.loads(run("llama-bench", "-p", "0", "-n", "32", "-d", str(depth), "-r", "1", "-o", "json"))
        rates[behind(PLAIN, depth)] = bench["avg_ts"]
        prompt = max(depth, 8)  # shared by the sequences
        sizes = ["-npp", str(prompt), "-ntg", "16", "-npl", str(ROWS), "-c", str(prompt + 32 * ROWS + 256)]
        table = run("llama-batched-bench", *sizes, "-pps", "-kvu")
        rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
        rates[behind(BATCH, depth)] = float(rows[-1][8])  # S_TG t/s
    return rates


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


def prompt(model: Model, n_tokens: int) -> float:
    """Tokens per second of a prompt."""
    start = time.perf_counter()
    for first in range(0, n_tokens, CHUNK):
        rate(model, min(CHUNK, n_tokens - first), 1, first, 1)
    return n_tokens / (time.perf_counter() - start)


def ours(args: argparse.Namespace, model: Model) -> Rates:
    """Rows per second of each goal."""
    prompt(model, 128)
    rates = {f"prompt {n_tokens}": prompt(model, n_tokens) for n_tokens in args.prompts}
    for depth in sorted(args.depths):
        if depth:
            prompt(model, depth)
        rates[behind(PLAIN, depth)] = rate(model, 1, 1, depth + 8, 32)
        rates[behind(BATCH, depth)] = rate(model, ROWS, ROWS, depth + 8, 16)
    return rates


def bandwidth(n_threads: int) -> float:
    """Bytes per second that this machine reads: the fastest of ten sums."""
    torch.set_num_threads(n_threads)
    data = torch.ones(1 << 26, dtype=torch.float32)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        data.sum()
        times.append(time.perf_counter() - start)
    return data.nbytes / min(times)


def report(title: str, found: dict[str, dict[str, list[float]]], weights: int, n_threads: int) -> None:
    """The table of one model and one set of kernels."""
    print(f"\n{title}: rows/s, median (best)")
    print(f"{'':28}{'llama.cpp':>20}{'specli':>20}{'ratio':>8}{'of best':>9}")
    for goal in found["specli"]:
        theirs, mine = found["llama.cpp"][goal], found["specli"][goal]
        cells = "".join(f"{f'{median(v):.1f} ({max(v):.1f})':>20}" for v in (theirs, mine))
        print(f"{goal:28}{cells}{median(mine) / median(theirs):>8.2f}{max(mine) / max(theirs):>9.2f}")
    for who, rates in found.items():
        for goal in (goal for goal in rates if goal.startswith(BATCH)):
            plain = rates[goal.replace(BATCH, PLAIN)]
            steps = [ROWS * p / r for p, r in zip(plain, rates[goal], strict=True)]
            print(f"{who}: {goal}: a forward takes {median(steps):.2f} plain steps (best {min(steps):.2f})")
    share = max(found["specli"].get(PLAIN, [0])) * weights / bandwidth(n_threads)
    print(f"specli: plain decoding at its best reads weights at {share:.0%} of the memory's bandwidth")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--llama", required=True, type=Path, help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompts", type=numbers, default=[128], help="tokens of the prompts")
    parser.add_argument("--depths", type=numbers, default=[0], help="tokens of context before decoding")
    parser.add_argument("--cache-type", default="f16", help="of keys and values")
    parser.add_argument("--kernels", default="", help="instruction sets, as --list-devices -v names them")
    args = parser.parse_args()
    kind = QuantType.from_label(args.cache_type)
    capacity = max(*args.prompts, *args.depths) + 512
    options = ModelOptions(capacity=capacity, type_k=kind, type_v=kind, max_tokens=CHUNK)
    for path in args.models:
        with GGUFFile.open(path) as file:
            weights = sum(tensor.nbytes for tensor in file.tensors.values())
            executors = [
                CpuExecutor(threads=ThreadConfig(n_threads=args.threads), kernels=kernels or None)
                for kernels in args.kernels.split(",")
            ]
            found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            models = [load_model(file, executor, options) for executor in executors]
            for _ in range(args.repeats):
                measured = {"llama.cpp": llama(args, path)}
                measured |= {model.executor.describe(): ours(args, model) for model in models}
                for who, rates in measured.items():
                    for goal, value in rates.items():
                        found[who][goal].append(value)
            for executor in executors:
                both = {"llama.cpp": found["llama.cpp"], "specli": found[executor.describe()]}
                title = f"{path.name}, {executor.describe()}, {args.cache_type} cache, {args.repeats} repeats"
                report(title, both, weights, args.threads)
                executor.close()


if __name__ == "__main__":
    main()
