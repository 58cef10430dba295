"""Running single operations on the native CPU executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.cpu.executor import CpuExecutor, NativeWeight
from specli.kernels.ops import Buffer, Executor, Extent, Ops
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig
from tests.support.blocks import random_rows

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 33)
T = max(ROW_COUNTS)


def tensor(type: QuantType, *shape: int, seed: int = 0) -> QuantTensor:
    """A random matrix or stack with deviation 1."""
    n_rows = int(np.prod(shape[:-1]))
    return QuantTensor("w", type, shape, random_rows(type, n_rows, shape[-1], np.random.default_rng(seed)).reshape(-1))


@dataclass
class Bench:
    """An executor, the reference, and random numbers."""

    executor: CpuExecutor
    reference: ReferenceExecutor
    generator: torch.Generator

    @classmethod
    def open(cls, *, n_threads: int, exact: bool = False, kernels: str | None = None) -> Bench:
        threads = ThreadConfig(n_threads=n_threads)
        executor = CpuExecutor(threads=threads, exact=exact, kernels=kernels)
        return cls(executor, ReferenceExecutor(threads=ThreadConfig(n_threads=1)), torch.Generator().manual_seed(5))

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def rows(self, width: int, extent: Extent = Extent.TOKENS, n_rows: int = T) -> Buffer:
        return Buffer(self.random(n_rows, width), extent)

    def zeros(self, width: int, dtype: npt.DTypeLike = np.float32, n_rows: int = T) -> Buffer:
        return self.executor.buffer(n_rows, width, Extent.TOKENS, dtype)

    def ints(self, values: list[int], extent: Extent = Extent.TOKENS) -> Buffer:
        return Buffer(torch.tensor(values, dtype=torch.int32)[:, None], extent)

    def weight(self, type: QuantType, *shape: int, seed: int = 0) -> tuple[NativeWeight, torch.Tensor]:
        """A weight of the native executor and its dequantised values."""
        source = tensor(type, *shape, seed=seed)
        return self.executor.weight(source), torch.from_numpy(source.dequantise())

    def run(self, trace: Callable[[Ops], None], tokens: int = T, outputs: int = 0) -> None:
        self.executor.compile(trace).run(tokens, outputs)

    def both(
        self, trace: Callable[[Ops], None], *changed: torch.Tensor, tokens: int = T, sequences: int = 0
    ) -> list[list[torch.Tensor]]:
        """What `trace` makes of the tensors it changes, on the native executor and on the reference."""
        before = [t.clone() for t in changed]
        results = []
        executors: list[Executor] = [self.executor, self.reference]
        for executor in executors:
            for t, value in zip(changed, before, strict=True):
                t.copy_(value)
            executor.compile(trace).run(tokens, sequences=sequences)
            results.append([t.clone() for t in changed])
        return results
