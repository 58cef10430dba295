"""Everything that only a GPU can tell, in one run of a few minutes: `python -m tests.gpu.check OUT`.

Bits first: products of one row alone and among others, the same product many times, drafting against plain decoding.
Then times of products, with the share of the memory bandwidth. One table goes to OUT and to the terminal; the exit code
is 1 if any bit is wrong. `--tiny` tries the script on a CPU, with Triton's interpreter and small sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

ROWS = (1, 2, 5, 8, 16)


def main(arguments: list[str] | None = None) -> int:
    """Runs all checks; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="file for the table")
    parser.add_argument("--tiny", action="store_true", help="small sizes in the interpreter on the CPU")
    options = parser.parse_args(arguments)
    if options.tiny:
        os.environ["TRITON_INTERPRET"] = "1"
    device = "cpu" if options.tiny else "cuda:0"
    n_wrong = 0
    with options.out.open("w", encoding="utf-8") as file:
        for name, is_right, note in checks(device, is_tiny=options.tiny):
            line = f"{name:40} {'' if is_right is None else 'ok' if is_right else 'WRONG':6} {note}\n"
            n_wrong += is_right is False
            for stream in (file, sys.stdout):
                stream.write(line)
                stream.flush()
    return 1 if n_wrong else 0


def checks(device: str, *, is_tiny: bool) -> Iterator[tuple[str, bool | None, str]]:
    """Lines of the table: what, whether its bits are right (None: a measurement), and a note."""
    yield from products(device, *((40, 256, 3) if is_tiny else (4096, 4096, 1000)))
    if not is_tiny:
        yield from speeds(device)
    with tempfile.TemporaryDirectory() as folder:
        for kernels in ("reference",) if is_tiny else ("graph", "triton"):
            yield from drafters(Path(folder), device, kernels)


def products(device: str, n_out: int, n_in: int, n_repeats: int) -> Iterator[tuple[str, bool, str]]:
    """A row alone and among others, repeats, and the error against float64, for every type."""
    import torch

    from specli.gguf.quant import QuantTensor
    from specli.kernels.triton.matrix import TYPES, project
    from tests.support.blocks import random_rows

    x = torch.randn(16, n_in, generator=torch.Generator().manual_seed(1)).to(device)
    for type in sorted(TYPES):
        stored = random_rows(type, n_out, n_in, np.random.default_rng(int(type))).reshape(n_out, -1)
        data = torch.tensor(stored, device=device)
        together = project(data, type, x)
        is_right = all(torch.equal(project(data, type, x[:n].contiguous()), together[:n]) for n in ROWS)
        is_right &= torch.equal(project(data, type, x.roll(5, 0)), together.roll(5, 0))
        is_right &= all(torch.equal(project(data, type, x), together) for _ in range(n_repeats))
        exact = (
            x.double().cpu()
            @ torch.from_numpy(QuantTensor("w", type, (n_out, n_in), stored.reshape(-1)).dequantise()).double().T
        )
        error = float((together.cpu() - exact).norm() / exact.norm())
        yield f"product {type.label}", is_right and error < 1e-4, f"relative error {error:.1e}"


def speeds(device: str) -> Iterator[tuple[str, None, str]]:
    """Time of a product for one row and for 16, as a share of the bandwidth of a copy on the device."""
    import torch

    from specli.gguf.quant import QuantType
    from specli.kernels.triton.matrix import project

    block = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    bandwidth = 2 * block.numel() / _seconds(lambda: other.copy_(block))
    yield "bandwidth of a copy", None, f"{bandwidth / 1e9:.0f} GB/s"
    for type in (QuantType.BF16, QuantType.Q8_0, QuantType.Q4_K, QuantType.Q6_K):
        for n_out, n_in in ((4096, 2560), (9728, 2560), (2560, 9728), (151936, 2560)):
            data = torch.zeros(n_out, type.row_bytes(n_in), dtype=torch.uint8, device=device)
            times = []
            for n in (1, 16):
                x = torch.randn(n, n_in, device=device)
                times.append(_seconds(partial(project, data, type, x)))
            share = data.numel() / times[0] / bandwidth
            note = f"{times[0] * 1e6:.1f} µs, 16 rows {times[1] * 1e6:.1f} µs, {share:.0%} of the bandwidth"
            yield f"speed {type.label} {n_out}×{n_in}", None, note


def _seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Seconds of one call on the device."""
    import torch

    call()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / repeats


def drafters(folder: Path, device: str, kernels: str) -> Iterator[tuple[str, bool, str]]:
    """Every draft network against plain decoding, token by token."""
    from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SpeculationConfig
    from specli.engine.load import open_engine
    from tests.support.runs import GREEDY, speculation
    from tests.support.tiny_pairs import NETWORK_TYPES, tiny_pair

    prompts = [[5, 6, 7, 8, 5, 6], [(7 * i * i + 3 * i) % 190 + 5 for i in range(40)]]
    request = RequestConfig(n_predict=24, sampling=GREEDY)

    def texts(target: Path, draft: Path | None, spec: SpeculationConfig) -> list[list[int]]:
        load = ModelLoadConfig(target, device=device, kernels=kernels)
        found = []
        with open_engine(RunConfig(load, replace(load, path=draft) if draft else None, speculation=spec)) as run:
            for prompt in prompts:
                found.append([event.id for event in run.generate(prompt, request)])
        return found

    for name in NETWORK_TYPES:
        target, draft = tiny_pair(folder, name, "llama")
        plain = texts(target, None, SpeculationConfig(types=("none",)))
        begun = time.perf_counter()
        drafted = texts(target, draft, speculation([name], 3))
        yield f"{kernels}: {name}", drafted == plain, f"{time.perf_counter() - begun:.1f} s with loading"


if __name__ == "__main__":
    raise SystemExit(main())
