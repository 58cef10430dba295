"""Running models in tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.ops import Executor
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig
from specli.models import load_model
from specli.models.base import ForwardOutput, Model, ModelOptions


def open_model(path: Path, executor: Executor | None = None, **options: object) -> Model:
    """The model of a file with an f32 cache of 512 cells, unless the options say otherwise.

    One thread: what tests multiply is small, and barriers among threads are slow on a busy machine.
    """
    merged = {"capacity": 512, "type_k": QuantType.F32, "type_v": QuantType.F32} | options
    with GGUFFile.open(path) as file:
        return load_model(
            file, executor or ReferenceExecutor(threads=ThreadConfig(n_threads=1)), ModelOptions(**merged)
        )  # type: ignore[arg-type]


def forward(
    model: Model, tokens: Sequence[int], *, start: int = 0, slot: int = 0, outputs: Sequence[int] | None = None
) -> ForwardOutput:
    """One forward of consecutive tokens of one slot; logits of all rows unless `outputs` says otherwise."""
    n = len(tokens)
    return model.forward(
        np.array(tokens, np.int32),
        np.arange(start, start + n, dtype=np.int32),
        np.full(n, slot, np.int32),
        np.arange(n, dtype=np.int32) if outputs is None else np.array(outputs, np.int32),
    )


def all_logits(model: Model, tokens: Sequence[int], *, chunk: int = 64) -> torch.Tensor:
    """`[len(tokens), V]` logits of a sequence in slot 0, evaluated in chunks."""
    parts = [
        forward(model, tokens[start : start + chunk], start=start).logits.clone()
        for start in range(0, len(tokens), chunk)
    ]
    return torch.cat(parts)


def negative_log_likelihood(logits: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """`[n-1]` float64: -ln p of every token but the first, given those before it."""
    following = torch.tensor(tokens[1:])
    return torch.nn.functional.cross_entropy(logits[:-1].double(), following, reduction="none")
