"""How much memory a run takes, and the context that fits when none was asked for (llama.cpp `--fit`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from specli.engine.config import ModelLoadConfig
from specli.errors import ResourceError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.models.base import Model
from specli.models.config import ModelConfig

CONTEXT_STEP = 256  # cells; context sizes are multiples of it
MIN_FITTED_CONTEXT = 4096
RESERVE_BYTES = 1 << 30  # left free for everything else


def available_bytes() -> int | None:
    """Main memory that can be used without swapping, or None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - not a path of the user's
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def cache_bytes_per_token(config: ModelConfig, type_k: QuantType, type_v: QuantType) -> int:
    """Bytes that one token takes in the cache of all layers; recurrent ones and those that share take none.

    Heads count as whole quant blocks: this is an estimate, the cache itself refuses types that do not divide them.
    """

    def row_bytes(n: int, type: QuantType) -> int:
        return -(-n // type.block_size) * type.block_bytes

    return sum(
        layer.n_kv_heads * (row_bytes(layer.head_size_k, type_k) + row_bytes(layer.head_size_v, type_v))
        for layer in config.layers[: config.n_layers]
        if layer.delta is None and layer.kv_source is None
    )


def fit_context(
    wanted: int, config: ModelConfig, load: ModelLoadConfig, file_bytes: int, available: int | None
) -> tuple[int, str | None]:
    """The context size in tokens, and a line about it when it is not what one would expect.

    Sizes are rounded up to a multiple of 256 and never exceed the trained context. 0 means the trained context, or as
    much of it as fits into the memory available beside the weights, at least 4096.
    """
    trained = config.n_ctx_train
    if wanted > 0:
        rounded = -(-wanted // CONTEXT_STEP) * CONTEXT_STEP
        if rounded <= trained:
            return rounded, None
        note = f"context: {wanted} tokens asked for, the model was trained with {trained}" if wanted > trained else None
        return trained, note
    if available is None:
        return trained, None
    per_token = cache_bytes_per_token(config, QuantType.from_label(load.type_k), QuantType.from_label(load.type_v))
    room = max(0, available - file_bytes - RESERVE_BYTES)
    fitting = room // max(1, per_token) // CONTEXT_STEP * CONTEXT_STEP
    if fitting >= trained:
        return trained, None
    fitted = min(trained, max(MIN_FITTED_CONTEXT, fitting))
    return fitted, f"context: {fitted} of {trained} trained tokens fit into memory (choose with --ctx-size)"


@contextmanager
def memory_for(file: GGUFFile, what: str, n_ctx: int) -> Iterator[None]:
    """Says which model did not fit when an allocation fails inside.

    Raises:
        ResourceError: It did; other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise ResourceError(
            f"{file.path}: not enough memory for the {what} with a context of {n_ctx} tokens",
            hint="lower --ctx-size, or choose smaller cache types with -ctk and -ctv (-ctkd and -ctvd)",
        ) from None


def _is_out_of_memory(error: Exception) -> bool:
    """Torch has an exception of its own for accelerators, but not for the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose.

    Attributes:
        weights: The target's file.
        cache: The target's keys and values when the context is full.
        draft_weights: The draft file.
        features: Captured hidden states.
    """

    weights: int
    cache: int
    draft_weights: int
    features: int

    @classmethod
    def of(cls, file: GGUFFile, target: Model, draft_file: GGUFFile | None) -> MemoryPlan:
        """Adds up what is loaded."""
        options = target.options
        width = target.config.n_embd * (len(options.taps) + options.nextn)
        return cls(
            weights=file.n_bytes,
            cache=target.cache.nbytes,
            draft_weights=draft_file.n_bytes if draft_file else 0,
            features=4 * options.max_tokens * width,
        )

    def line(self) -> str:
        """The plan in one line, MiB."""
        parts = {
            "weights": self.weights,
            "cache": self.cache,
            "draft": self.draft_weights,
            "features": self.features,
        }
        return "memory: " + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in parts.items() if size)
