"""llama.cpp options that have no place in specli: refused or without effect, and those that llama.cpp itself removed.

What would change the text is refused by name with the reason. What only concerns speed, memory or models of another
kind is taken with a warning.
"""

from typing import Any

from specli.cli.options.kinds import FLAG, Kind, integer, number, text
from specli.cli.options.option import Option

INT, FLOAT, TEXT, FILE = integer(), number(), text(), text("FNAME")

ROPE = "rope settings are read from the model file"
ADAPTERS = "adapters are not applied"
GROUPED = "positions are not grouped"
MEDIA = "specli runs text models"
MAPPED = "files are always mapped, and not locked"
PRESET = "name the model with -m or -hf"


def refuse(*names: str, why: str, kind: Kind = FLAG, env: str | None = None, **more: Any) -> Option:
    """The row of an option that is refused."""
    return Option(names, why, "Not available", kind=kind, env=env, refused=why, **more)


def leave(*names: str, why: str, kind: Kind = FLAG, env: str | None = None, **more: Any) -> Option:
    """The row of an option that is taken and has no effect."""
    return Option(names, why, "Without effect", kind=kind, env=env, idle=why, **more)


def remove(*names: str, use: str, kind: Kind = INT, env: str | None = None) -> Option:
    """The row of an option that was removed."""
    return Option(names, use, "Removed by llama.cpp", kind=kind, env=env, removed=use)


OPTIONS = (
    refuse("--numa", kind=TEXT, env="LLAMA_ARG_NUMA", why="memory is placed by the system; start specli with numactl"),
    refuse("--rpc", kind=TEXT, env="LLAMA_ARG_RPC", why="there are no remote devices"),
    refuse("--lora", kind=FILE, why=ADAPTERS),
    refuse("--lora-scaled", kind=FILE, why=ADAPTERS),
    refuse("--control-vector", kind=FILE, why=ADAPTERS),
    refuse("--control-vector-scaled", kind=FILE, why=ADAPTERS),
    refuse("--control-vector-layer-range", kind=text("START END"), why=ADAPTERS),
    refuse("--check-tensors", why="tensor values are not searched"),
    refuse("--rope-scaling", kind=TEXT, env="LLAMA_ARG_ROPE_SCALING_TYPE", why=ROPE),
    refuse("--rope-scale", kind=FLOAT, env="LLAMA_ARG_ROPE_SCALE", why=ROPE),
    refuse("--rope-freq-base", kind=FLOAT, env="LLAMA_ARG_ROPE_FREQ_BASE", satisfied=("0.0",), why=ROPE),
    refuse("--rope-freq-scale", kind=FLOAT, env="LLAMA_ARG_ROPE_FREQ_SCALE", satisfied=("0.0",), why=ROPE),
    refuse("--yarn-orig-ctx", kind=INT, env="LLAMA_ARG_YARN_ORIG_CTX", satisfied=("0",), why=ROPE),
    refuse("--yarn-ext-factor", kind=FLOAT, env="LLAMA_ARG_YARN_EXT_FACTOR", satisfied=("-1.0",), why=ROPE),
    refuse("--yarn-attn-factor", kind=FLOAT, env="LLAMA_ARG_YARN_ATTN_FACTOR", satisfied=("-1.0",), why=ROPE),
    refuse("--yarn-beta-slow", kind=FLOAT, env="LLAMA_ARG_YARN_BETA_SLOW", satisfied=("-1.0",), why=ROPE),
    refuse("--yarn-beta-fast", kind=FLOAT, env="LLAMA_ARG_YARN_BETA_FAST", satisfied=("-1.0",), why=ROPE),
    refuse("-gan", "--grp-attn-n", kind=INT, env="LLAMA_ARG_GRP_ATTN_N", satisfied=("1",), why=GROUPED),
    leave("-gaw", "--grp-attn-w", kind=INT, env="LLAMA_ARG_GRP_ATTN_W", why=GROUPED),
    leave("-dt", "--defrag-thold", kind=FLOAT, env="LLAMA_ARG_DEFRAG_THOLD", why="the cache has no gaps to close"),
    leave("-mm", "--mmproj", kind=FILE, env="LLAMA_ARG_MMPROJ", why=MEDIA),
    leave("-mmu", "--mmproj-url", kind=TEXT, env="LLAMA_ARG_MMPROJ_URL", why=MEDIA),
    leave(
        "--mmproj-auto", negative=("--no-mmproj", "--no-mmproj-auto"), env="LLAMA_ARG_MMPROJ_AUTO",
        satisfied=("off",), why=MEDIA,
    ),
    leave(
        "--mmproj-offload", negative=("--no-mmproj-offload",), env="LLAMA_ARG_MMPROJ_OFFLOAD",
        satisfied=("off",), why=MEDIA,
    ),
    leave("-mmdev", "--mmproj-device", kind=TEXT, env="MTMD_BACKEND_DEVICE", why=MEDIA),
    refuse("--image", "--audio", "--video", kind=FILE, why=MEDIA),
    leave("--image-min-tokens", kind=INT, env="LLAMA_ARG_IMAGE_MIN_TOKENS", why=MEDIA),
    leave("--image-max-tokens", kind=INT, env="LLAMA_ARG_IMAGE_MAX_TOKENS", why=MEDIA),
    leave("--video-fps", kind=FLOAT, env="LLAMA_ARG_VIDEO_FPS", why=MEDIA),
    leave("--video-timestamp-interval", kind=INT, env="LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL", why=MEDIA),
    leave("--video-ffmpeg-dir", kind=FILE, env="LLAMA_ARG_VIDEO_FFMPEG_DIR", why=MEDIA),
    refuse("--vision-gemma-4b-default", "--vision-gemma-12b-default", why=MEDIA),
    refuse("--gpt-oss-20b-default", "--gpt-oss-120b-default", why=PRESET),
    refuse("--fim-qwen-7b-spec", "--fim-qwen-14b-spec", why=PRESET),
    leave("--mmap", negative=("--no-mmap",), env="LLAMA_ARG_MMAP", satisfied=("on",), why=MAPPED),
    leave("--mlock", env="LLAMA_ARG_MLOCK", why=MAPPED),
    leave("--direct-io", why=MAPPED),
    refuse("-cd", "--ctx-size-draft", kind=INT, why="the draft context has the target's size"),
    remove(
        "--draft", "--draft-n", "--draft-max", env="LLAMA_ARG_DRAFT_MAX",
        use="use --spec-draft-n-max or --spec-ngram-mod-n-max",
    ),
    remove(
        "--draft-min", "--draft-n-min", env="LLAMA_ARG_DRAFT_MIN",
        use="use --spec-draft-n-min or --spec-ngram-mod-n-min",
    ),
    remove("--spec-ngram-size-n", use="use the respective --spec-ngram-*-size-n"),
    remove("--spec-ngram-size-m", use="use the respective --spec-ngram-*-size-m"),
    remove("--spec-ngram-min-hits", use="use the respective --spec-ngram-*-min-hits"),
)  # fmt: skip

_OTHER = """
    FIT_ESTIMATE
"""
OTHER_VARIABLES = tuple(f"LLAMA_ARG_{name}" for name in _OTHER.split())
"""Variables of llama.cpp's other programs."""
