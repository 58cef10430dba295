"""Settings of a run as frozen records, with llama.cpp's defaults (cli.md §§2-3) and the checks that span fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specli.drafters.config import DraftConfig as DraftConfig
from specli.drafters.config import NgramMapConfig as NgramMapConfig
from specli.drafters.config import NgramModConfig as NgramModConfig
from specli.drafters.config import SpeculationConfig as SpeculationConfig
from specli.drafters.config import SynthConfig as SynthConfig
from specli.kernels.threads import ThreadConfig

RANDOM_SEED = 0xFFFFFFFF
DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@dataclass(frozen=True)
class SamplingConfig:
    """Target sampling, one field per llama.cpp option. A temperature of 0 or less is greedy.

    Attributes:
        explicit: Names of the fields the user set; the model's own sampling defaults (`general.sampling.*`, cli.md
            §3.6) replace the others only.
    """

    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    seed: int = RANDOM_SEED
    temperature: float = 0.80
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.10
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.90
    mirostat: int = 0
    mirostat_lr: float = 0.10
    mirostat_ent: float = 5.00
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    grammar: str | None = None
    json_schema: str | None = None
    min_keep: int = 0
    explicit: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True)
class ModelLoadConfig:
    """How one model file is loaded.

    Attributes:
        path: GGUF file (the first shard of a split model).
        device: `cpu`, `cuda:0`, … or `auto`.
        kernels: `auto`, `reference`, `cpu` or `triton`.
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
    metadata: tuple[tuple[str, int | float | bool | str], ...] = ()


@dataclass(frozen=True)
class RunConfig:
    """Everything an engine is made of.

    Attributes:
        target: The target model.
        draft: The draft file, or None.
        speculation: Drafters.
        n_ctx: Context size in tokens; 0 = the model's trained context.
        n_batch: Most tokens per forward of a prompt (`-ub`; larger `-b` only bounds it).
        chat_template: Template text or built-in name used instead of the model's, or None.
    """

    target: ModelLoadConfig
    draft: ModelLoadConfig | None = None
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    n_ctx: int = 0
    n_batch: int = 512
    chat_template: str | None = None


@dataclass(frozen=True)
class RequestConfig:
    """One generation.

    Attributes:
        n_predict: Most tokens to generate; -1 = until the context is full; 0 = evaluate the prompt only.
        sampling: The target's sampler.
        stop: Stop strings; text from a match on is not emitted.
        special: Emit the text of control tokens.
        logprobs: Top entries to report per generated token; 0 = none.
        prompt_logprobs: Report the prompt's log-probabilities.
        trace: Record every round.
    """

    n_predict: int = -1
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    stop: tuple[str, ...] = ()
    special: bool = False
    logprobs: int = 0
    prompt_logprobs: bool = False
    trace: bool = False
