"""Options of context, memory, device and threads, each with its draft twin."""

from functools import partial

from specli.cli.options.kinds import (
    CACHE_TYPE,
    CPU_MASK,
    CPU_RANGE,
    DEVICE,
    DEVICES,
    GPU_LAYERS,
    OVERRIDES,
    SHARES,
    Kind,
    choice,
    integer,
    on_off,
    text,
)
from specli.cli.options.option import Option
from specli.kernels import KERNELS
from specli.kernels.threads import MAX_THREADS

context = partial(Option, panel="Context and memory")
device = partial(Option, panel="Device and threads")
drafter = partial(Option, panel="Draft model")

ZERO_ONE = choice("0", "1")
ONE_POOL = "one set of threads serves prompts and single tokens; use {}"
SWITCH = Kind("0|1", lambda text: ZERO_ONE.parse(text) == "1", values=("0", "1"))
PRIORITY = integer(-1, 3)
DRAFT_PRIORITY = integer(0, 3)
POLL = integer(0, 100, metavar="0..100")
THREADS = integer(high=MAX_THREADS, error=f"{{}} threads, at most {MAX_THREADS} are possible")

OPTIONS = (
    context(
        ("-c", "--ctx-size"), "context size in tokens; 0 = as trained",
        field="n_ctx", kind=integer(0), env="LLAMA_ARG_CTX_SIZE",
    ),
    context(
        ("-n", "--predict", "--n-predict"), "most tokens to generate; -1 = until the context is full, 0 = none",
        field="request.n_predict", kind=integer(-2), env="LLAMA_ARG_N_PREDICT",
    ),
    context(
        ("-b", "--batch-size"), "bounds --ubatch-size",
        field="n_batch", kind=integer(1), env="LLAMA_ARG_BATCH",
    ),
    context(
        ("-ub", "--ubatch-size"), "prompt tokens evaluated at once",
        field="n_ubatch", kind=integer(1), env="LLAMA_ARG_UBATCH",
    ),
    context(
        ("-ctk", "--cache-type-k"), "type of cached keys",
        field="target.type_k", kind=CACHE_TYPE, env="LLAMA_ARG_CACHE_TYPE_K",
    ),
    context(
        ("-ctv", "--cache-type-v"), "type of cached values",
        field="target.type_v", kind=CACHE_TYPE, env="LLAMA_ARG_CACHE_TYPE_V",
    ),
    context(
        ("--keep",), "prompt tokens kept when the context shifts", kind=integer(), satisfied=("0",),
        idle="the context does not shift",
    ),
    context(
        ("--context-shift",), "forget old tokens when the context is full", negative=("--no-context-shift",),
        env="LLAMA_ARG_CONTEXT_SHIFT", satisfied=("off",), refused="generation ends when the context is full",
    ),
    context(
        ("-np", "--parallel"), "sequences at once", kind=integer(), env="LLAMA_ARG_N_PARALLEL", satisfied=("1",),
        commands=("chat", "synth"), idle="one sequence is generated at a time",
    ),
    context(
        ("--swa-full",), "full cache for sliding-window layers", env="LLAMA_ARG_SWA_FULL", satisfied=("on",),
        idle="the cache of sliding-window layers is always full",
    ),
    context(
        ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"), "context checkpoints", kind=integer(),
        env="LLAMA_ARG_CTX_CHECKPOINTS", idle="it belongs to the server's slots",
    ),
    context(
        ("-cms", "--checkpoint-min-step"), "distance of checkpoints", kind=integer(),
        env="LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", idle="it belongs to the server's slots",
    ),
    context(
        ("-cram", "--cache-ram"), "prompt cache of the server", kind=integer(), env="LLAMA_ARG_CACHE_RAM",
        satisfied=("0",), idle="it belongs to the server's slots",
    ),
    context(
        ("-kvo", "--kv-offload"), "keep the cache on the model's device", negative=("-nkvo", "--no-kv-offload"),
        env="LLAMA_ARG_KV_OFFLOAD", satisfied=("on",), idle="the cache lies on the model's device",
    ),
    context(
        ("-fit", "--fit"), "shrink settings until they fit", kind=on_off(auto=False), env="LLAMA_ARG_FIT",
        satisfied=("off",), idle="settings stay as given; the memory plan is checked before weights are read",
    ),
    context(
        ("-fitt", "--fit-target"), "memory to leave free", kind=text("MiB"), env="LLAMA_ARG_FIT_TARGET",
        idle="settings stay as given; use -c or --cache-type-k",
    ),
    context(
        ("-fitc", "--fit-ctx"), "smallest context --fit may choose", kind=integer(), env="LLAMA_ARG_FIT_CTX",
        idle="settings stay as given; use -c or --cache-type-k",
    ),
    context(
        ("-lm", "--load-mode"), "how files are read", kind=choice("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"),
        env="LLAMA_ARG_LOAD_MODE", satisfied=("auto", "mmap"), idle="files are always mapped, and not locked",
    ),
    context(
        ("-lzm", "--lazy-mode"), "read some tensors on demand", kind=on_off(), env="LLAMA_ARG_LAZY_MODE",
        satisfied=("auto",), idle="files are always mapped",
    ),
    device(
        ("-dev", "--device"), "device of the target: auto, cpu (or none), cuda:N; or several, to split layers over",
        field="target.device", kind=DEVICES, env="LLAMA_ARG_DEVICE",
    ),
    device(
        ("-ngl", "--gpu-layers", "--n-gpu-layers"), "layers of the target on the GPU; 0 = run on the CPU",
        field="target.n_gpu_layers", kind=GPU_LAYERS, env="LLAMA_ARG_N_GPU_LAYERS", default_text="auto",
    ),
    device(
        ("--kernels",), "implementation of the operations",
        field="target.kernels", kind=choice(*KERNELS), env="SPECLI_KERNELS",
    ),
    device(
        ("--exact",), "float32 activations in the native kernels, for comparisons",
        field="target.exact",
    ),
    device(
        ("-t", "--threads"), "CPU threads; 0 or less = all hardware threads",
        field="target.threads.n_threads", kind=THREADS, env="LLAMA_ARG_THREADS", default_text="physical cores",
    ),
    device(
        ("-tb", "--threads-batch"), "CPU threads for prompts and verification",
        field="target.threads.n_threads_batch", kind=THREADS, default_text="as --threads",
    ),
    device(
        ("-C", "--cpu-mask"), "CPUs to run on, a hexadecimal mask; adds to --cpu-range",
        field="target.threads.cpu_mask", kind=CPU_MASK, default_text="all",
    ),
    device(
        ("-Cr", "--cpu-range"), "CPUs to run on",
        field="target.threads.cpu_mask", kind=CPU_RANGE, default_text="all",
    ),
    device(
        ("--cpu-strict",), "pin each thread to one CPU of the mask",
        field="target.threads.strict", kind=SWITCH,
    ),
    device(
        ("--prio",), "priority of the threads: -1 low … 3 realtime",
        field="target.threads.priority", kind=PRIORITY,
    ),
    device(
        ("--poll",), "how eagerly idle threads wait for work",
        field="target.threads.poll", kind=POLL,
    ),
    device(("-Cb", "--cpu-mask-batch"), "CPUs for batches", kind=CPU_MASK, idle=ONE_POOL.format("-C")),
    device(("-Crb", "--cpu-range-batch"), "CPUs for batches", kind=CPU_RANGE, idle=ONE_POOL.format("-Cr")),
    device(("--cpu-strict-batch",), "pinning for batches", kind=SWITCH, idle=ONE_POOL.format("--cpu-strict")),
    device(("--prio-batch",), "priority for batches", kind=DRAFT_PRIORITY, idle=ONE_POOL.format("--prio")),
    device(("--poll-batch",), "waiting for batches", kind=SWITCH, idle=ONE_POOL.format("--poll")),
    device(
        ("-fa", "--flash-attn"), "fused attention", env="LLAMA_ARG_FLASH_ATTN", satisfied=("on", "auto"),
        kind=on_off("error: unknown value for --flash-attn: '{}'"), idle="attention is always fused",
    ),
    device(
        ("-ot", "--override-tensor"), "device of the weights in whose names a pattern is found",
        field="target.overrides", kind=OVERRIDES, env="LLAMA_ARG_OVERRIDE_TENSOR", default_text="as --device",
    ),
    device(
        ("-cmoe", "--cpu-moe"), "keep all experts on the CPU",
        field="target.cpu_moe", env="LLAMA_ARG_CPU_MOE",
    ),
    device(
        ("-ncmoe", "--n-cpu-moe"), "keep the experts of the first N layers on the CPU",
        field="target.n_cpu_moe", kind=integer(0), env="LLAMA_ARG_N_CPU_MOE",
    ),
    device(
        ("-ncffn", "--n-cpu-ffn"), "keep the dense feed-forwards of the first N layers on the CPU",
        field="target.n_cpu_ffn", kind=integer(0), env="LLAMA_ARG_N_CPU_FFN",
    ),
    device(
        ("-sm", "--split-mode"), "one of several devices, or layers split over them; row and tensor split layers, too",
        field="target.split_mode", kind=choice("none", "layer", "row", "tensor"), env="LLAMA_ARG_SPLIT_MODE",
    ),
    device(
        ("-ts", "--tensor-split"), "shares of several devices in the layers",
        field="target.tensor_split", kind=SHARES, env="LLAMA_ARG_TENSOR_SPLIT", default_text="as memory is free",
    ),
    device(
        ("-mg", "--main-gpu"), "which of several devices -sm none means, from 0",
        field="target.main_gpu", kind=integer(), env="LLAMA_ARG_MAIN_GPU",
    ),
    device(
        ("--op-offload",), "run operations of host tensors on the device", negative=("--no-op-offload",),
        satisfied=("off",), idle="a product is computed where its weights lie; -ot places them",
    ),
    device(
        ("--repack",), "rearrange weights for the kernels", negative=("-nr", "--no-repack"), env="LLAMA_ARG_REPACK",
        satisfied=("on",), idle="the kernels need their layout; --kernels reference reads weights as stored",
    ),
    device(("--no-host",), "bypass host buffers", env="LLAMA_ARG_NO_HOST", idle="there are no host buffers"),
    device(
        ("--warmup",), "an empty run first", negative=("--no-warmup",), satisfied=("off",),
        idle="there is no empty run before the prompt",
    ),
    drafter(
        ("-ctkd", "--spec-draft-type-k", "--cache-type-k-draft"), "type of the draft model's cached keys",
        field="draft.type_k", kind=CACHE_TYPE, env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    ),
    drafter(
        ("-ctvd", "--spec-draft-type-v", "--cache-type-v-draft"), "type of the draft model's cached values",
        field="draft.type_v", kind=CACHE_TYPE, env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    ),
    drafter(
        ("-devd", "--spec-draft-device", "--device-draft"), "device of the draft model",
        field="draft.device", kind=DEVICE, default_text="as --device",
    ),
    drafter(
        ("-ngld", "--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"),
        "layers of the draft model on the GPU; 0 = run on the CPU",
        field="draft.n_gpu_layers", kind=GPU_LAYERS, env="LLAMA_ARG_N_GPU_LAYERS_DRAFT", default_text="auto",
    ),
    drafter(
        ("-td", "--spec-draft-threads", "--threads-draft"), "CPU threads of the draft model",
        field="draft.threads.n_threads", kind=THREADS, default_text="as --threads",
    ),
    drafter(
        ("-tbd", "--spec-draft-threads-batch", "--threads-batch-draft"), "CPU threads of the draft model for prompts",
        field="draft.threads.n_threads_batch", kind=THREADS, default_text="as --threads-batch",
    ),
    drafter(
        ("-Cd", "--spec-draft-cpu-mask", "--cpu-mask-draft"), "CPUs of the draft model, a hexadecimal mask",
        field="draft.threads.cpu_mask", kind=CPU_MASK, default_text="as --cpu-mask",
    ),
    drafter(
        ("-Crd", "--spec-draft-cpu-range", "--cpu-range-draft"), "CPUs of the draft model",
        field="draft.threads.cpu_mask", kind=CPU_RANGE, default_text="as --cpu-range",
    ),
    drafter(
        ("--spec-draft-cpu-strict", "--cpu-strict-draft"), "pin each thread of the draft model",
        field="draft.threads.strict", kind=SWITCH, default_text="as --cpu-strict",
    ),
    drafter(
        ("--spec-draft-prio", "--prio-draft"), "priority of the draft model's threads",
        field="draft.threads.priority", kind=DRAFT_PRIORITY,
    ),
    drafter(
        ("--spec-draft-poll", "--poll-draft"), "how eagerly idle threads of the draft model wait",
        field="draft.threads.poll", kind=POLL, default_text="as --poll",
    ),
    drafter(
        ("-Cbd", "--spec-draft-cpu-mask-batch", "--cpu-mask-batch-draft"), "CPUs for batches", kind=CPU_MASK,
        idle=ONE_POOL.format("-Cd"),
    ),
    drafter(
        ("-Crbd", "--spec-draft-cpu-range-batch", "--cpu-range-batch-draft"), "CPUs for batches", kind=CPU_RANGE,
        idle=ONE_POOL.format("-Crd"),
    ),
    drafter(
        ("--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"), "pinning for batches", kind=SWITCH,
        idle=ONE_POOL.format("--spec-draft-cpu-strict"),
    ),
    drafter(
        ("--spec-draft-prio-batch", "--prio-batch-draft"), "priority for batches", kind=DRAFT_PRIORITY,
        idle=ONE_POOL.format("--spec-draft-prio"),
    ),
    drafter(
        ("--spec-draft-poll-batch", "--poll-batch-draft"), "waiting for batches", kind=SWITCH,
        idle=ONE_POOL.format("--spec-draft-poll"),
    ),
    drafter(
        ("-otd", "--spec-draft-override-tensor", "--override-tensor-draft"),
        "device of the draft model's weights in whose names a pattern is found",
        field="draft.overrides", kind=OVERRIDES, default_text="as --spec-draft-device",
    ),
    drafter(
        ("-cmoed", "--spec-draft-cpu-moe", "--cpu-moe-draft"), "keep all experts of the draft model on the CPU",
        field="draft.cpu_moe", env="LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
    ),
    drafter(
        ("-ncmoed", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "--n-cpu-moe-draft"),
        "keep the experts of the draft model's first N layers on the CPU",
        field="draft.n_cpu_moe", kind=integer(0), env="LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
    ),
)  # fmt: skip
