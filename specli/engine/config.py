"""Settings of a run as frozen records, with llama.cpp's defaults (`common/common.h`), and checks across fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specli.drafters.settings import DraftConfig as DraftConfig
from specli.drafters.settings import SpeculationConfig as SpeculationConfig
from specli.drafters.settings import SynthConfig as SynthConfig
from specli.kernels.threads import ThreadConfig
from specli.sampling.settings import SamplingConfig as SamplingConfig

CONTEXT_STEP = 256  # context sizes are multiples of it, or the trained context


@dataclass(frozen=True)
class ModelLoadConfig:
    """How one model file is loaded.

    Attributes:
        path: GGUF file (the first shard of a split model).
        device: `cpu`, `cuda:0`, … or `auto`; or several, joined by commas, which layers are split over.
        kernels: `auto`, `reference` or `cpu`.
        exact: float32 activations in the native kernels (debugging).
        type_k: Cache type of keys, by GGUF name in lower case.
        type_v: Cache type of values.
        threads: Its threads.
        n_gpu_layers: Layers on the GPU; -1 = automatic, -2 = all, 0 = none (the CPU runs the model).
        overrides: Patterns of tensor names and where such weights lie, `cpu` or `cuda:N`; the first that is found in a
            name counts, before the fields below.
        cpu_moe: Experts lie on the CPU.
        n_cpu_moe: Experts of so many first layers lie on the CPU.
        n_cpu_ffn: Dense feed-forwards of so many first layers lie on the CPU.
        split_mode: `none` = one of several devices runs the model; `layer` = each runs neighbouring layers. `row` and
            `tensor` do as `layer`.
        tensor_split: Shares of the devices; none, or only zeros = as memory is free.
        main_gpu: Which device `none` means, counted from 0; below 0 = the CPU.
        metadata: Metadata to read in place of what the file has.
    """

    path: Path
    device: str = "auto"
    kernels: str = "auto"
    exact: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    threads: ThreadConfig = field(default_factory=ThreadConfig)
    n_gpu_layers: int = -1
    overrides: tuple[tuple[str, str], ...] = ()
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    n_cpu_ffn: int = 0
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    metadata: tuple[tuple[str, int | float | bool | str], ...] = ()


@dataclass(frozen=True)
class RunConfig:
    """Everything an engine is made of.

    Attributes:
        target: The target model.
        draft: The draft file, or None.
        speculation: Drafters.
        n_ctx: Context size in tokens, of each sequence; 0 = the model's trained context.
        n_batch: Most tokens per forward of a prompt (`-ub`; larger `-b` only bounds it).
        chat_template: Template text or built-in name used instead of the model's, or None.
        n_slots: Sequences that can be under way at once.
    """

    target: ModelLoadConfig
    draft: ModelLoadConfig | None = None
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    n_ctx: int = 0
    n_batch: int = 512
    chat_template: str | None = None
    n_slots: int = 1


@dataclass(frozen=True)
class RequestConfig:
    """One generation.

    Attributes:
        n_predict: Most tokens to generate; -1 = until the context is full; 0 = evaluate the prompt only.
        sampling: The target's sampler.
        stop: Stop strings; text from a match on is not emitted.
        special: Emit the text of control tokens.
        visible: Texts of control tokens to emit in any case.
        logprobs: Top entries to report per generated token; 0 = none.
        prompt_logprobs: Report the prompt's log-probabilities.
        trace: Record every round.
    """

    n_predict: int = -1
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    stop: tuple[str, ...] = ()
    special: bool = False
    visible: tuple[str, ...] = ()
    logprobs: int = 0
    prompt_logprobs: bool = False
    trace: bool = False


def shared_context(n_ctx: int, n_slots: int) -> int:
    """Tokens of context of each of several sequences that share `n_ctx` evenly; 0 stays 0.

    llama.cpp rounds the whole up before it divides (`src/llama-context.cpp`, b11434); the part is rounded up when the
    context is made.
    """
    return -(-n_ctx // CONTEXT_STEP) * CONTEXT_STEP // n_slots or min(n_ctx, 1)
