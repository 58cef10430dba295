"""Options of `specli serve`, and those of llama-server that it does not have."""

from functools import partial
from typing import Any

from specli.cli.options.kinds import FLAG, Kind, concatenate, integer, number, path, text
from specli.cli.options.option import Option
from specli.files import user_path

serve = partial(Option, panel="Server", commands=("serve",))


def read_keys(value: str) -> tuple[str, ...]:
    """Reads a comma list of keys."""
    return tuple(key for part in value.split(",") if (key := part.strip()))


def read_key_file(name: str) -> tuple[str, ...]:
    """Reads a file of keys, one a line; lines that begin with # are comments."""
    try:
        lines = user_path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise ValueError(f"error: failed to open file '{name}'") from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise ValueError(f"no key in {name}")
    return keys


KEYS = Kind("KEY,…", read_keys, merge=concatenate)
KEY_FILE = Kind("FNAME", read_key_file, files="", merge=concatenate)


def refuse(*names: str, why: str, kind: Kind = FLAG, env: str | None = None, **more: Any) -> Option:
    """The row of an option of llama-server that is refused."""
    return Option(names, why, "Not available", kind=kind, env=env, refused=why, commands=("serve",), **more)


def leave(*names: str, why: str, kind: Kind = FLAG, env: str | None = None, **more: Any) -> Option:
    """The row of an option of llama-server that is taken and has no effect."""
    return Option(names, why, "Without effect", kind=kind, env=env, idle=why, commands=("serve",), **more)


ONE_MODEL = "specli serve has one model, which -m names"
NO_EMBEDDINGS = "specli generates text and has no embeddings"
NO_TLS = "put a proxy with TLS before the server"
NO_FILES = "the server has one page of its own and serves no files"

OPTIONS = (
    serve(
        ("--host",), "address to listen on",
        field="serve.host", kind=text("HOST"), env="LLAMA_ARG_HOST",
    ),
    serve(
        ("--port",), "port to listen on; 0 = any free one",
        field="serve.port", kind=integer(0, 65535), env="LLAMA_ARG_PORT",
    ),
    serve(
        ("--api-key",), "keys of which a request must show one; may be repeated",
        field="serve.api_keys", kind=KEYS, env="LLAMA_API_KEY",
    ),
    serve(
        ("--api-key-file",), "file with such keys, one a line",
        field="serve.api_keys", kind=KEY_FILE, env="LLAMA_ARG_API_KEY_FILE",
    ),
    serve(
        ("-np", "--parallel"), "requests that run at once and share --ctx-size; -1 = 4 of which each may use all of it",
        field="serve.n_parallel", kind=integer(-1, 256), env="LLAMA_ARG_N_PARALLEL",
    ),
    serve(
        ("--queue",), "requests that may wait for a slot; more get status 503",
        field="serve.n_queue", kind=integer(0),
    ),
    serve(
        ("-a", "--alias"), "names of the model for clients; the first in alphabetical order is shown",
        field="serve.aliases", kind=Kind("NAME,…", read_keys, merge=concatenate), env="LLAMA_ARG_ALIAS",
        default_text="the file's name",
    ),
    serve(
        ("--slots",), "GET /slots shows what the slots do",
        negative=("--no-slots",), field="serve.has_slots", env="LLAMA_ARG_ENDPOINT_SLOTS",
    ),
    serve(
        ("--metrics",), "GET /metrics shows counters for Prometheus",
        field="serve.has_metrics", env="LLAMA_ARG_ENDPOINT_METRICS",
    ),
    serve(
        ("--props",), "POST /props answers, though nothing can be changed",
        field="serve.has_props", env="LLAMA_ARG_ENDPOINT_PROPS",
    ),
    serve(
        ("-to", "--timeout"), "seconds a client may take to send a request or to read a piece of its answer; 0 = any",
        field="serve.timeout", kind=integer(0), env="LLAMA_ARG_TIMEOUT",
    ),
    serve(
        ("--sse-ping-interval",), "seconds of silence after which a stream gets a comment; -1 = never",
        field="serve.ping_interval", kind=integer(-1), env="LLAMA_ARG_SSE_PING_INTERVAL",
    ),
    serve(
        ("--grace",), "seconds that requests under way get to finish after SIGTERM or Ctrl-C",
        field="serve.grace", kind=number(0, 86400, finite=True, metavar="S"),
    ),
    serve(
        ("--cors-origins",), "origin of pages that may read answers; * = any, localhost = those of this machine",
        field="serve.cors_origins", kind=text("ORIGIN"), env="LLAMA_ARG_CORS_ORIGINS",
    ),
    serve(
        ("--prefill-assistant",), "a last message of the assistant is continued",
        negative=("--no-prefill-assistant",), field="serve.prefills", env="LLAMA_ARG_PREFILL_ASSISTANT",
    ),
    serve(
        ("--ui", "--webui"), "GET / shows a page to chat with the model",
        negative=("--no-ui", "--no-webui"), field="serve.has_page", env="LLAMA_ARG_UI",
    ),
    leave(
        "-cb", "--cont-batching", negative=("-nocb", "--no-cont-batching"), env="LLAMA_ARG_CONT_BATCHING",
        satisfied=("on",), why="requests always join and leave between steps",
    ),
    leave(
        "-kvu", "--kv-unified", negative=("-no-kvu", "--no-kv-unified"), env="LLAMA_ARG_KV_UNIFIED", satisfied=("off",),
        why="each slot has a cache of its own",
    ),
    leave(
        "--cache-prompt", negative=("--no-cache-prompt",), env="LLAMA_ARG_CACHE_PROMPT", satisfied=("on",),
        why="a request says cache_prompt false if it wants its prompt evaluated anew",
    ),
    leave("-sps", "--slot-prompt-similarity", kind=number(), why="the slot that knows most of a prompt is taken"),
    leave("--threads-http", kind=integer(), env="LLAMA_ARG_THREADS_HTTP", why="one thread serves all connections"),
    leave("--reuse-port", env="LLAMA_ARG_REUSE_PORT", why="one process listens"),
    refuse("--cache-reuse", kind=integer(), env="LLAMA_ARG_CACHE_REUSE", satisfied=("0",),
           why="only a common beginning is reused"),
    refuse("--slot-save-path", kind=path("PATH"), why="slots are not saved"),
    refuse("--path", kind=path("PATH"), env="LLAMA_ARG_STATIC_PATH", why=NO_FILES),
    refuse("--api-prefix", kind=text("PREFIX"), env="LLAMA_ARG_API_PREFIX", why="routes are at the root"),
    refuse("--embedding", "--embeddings", env="LLAMA_ARG_EMBEDDINGS", why=NO_EMBEDDINGS),
    refuse("--rerank", "--reranking", env="LLAMA_ARG_RERANKING", why=NO_EMBEDDINGS),
    refuse("--pooling", kind=text(), env="LLAMA_ARG_POOLING", why=NO_EMBEDDINGS),
    refuse("--ssl-key-file", kind=path(), env="LLAMA_ARG_SSL_KEY_FILE", why=NO_TLS),
    refuse("--ssl-cert-file", kind=path(), env="LLAMA_ARG_SSL_CERT_FILE", why=NO_TLS),
    refuse("--models-dir", kind=path("PATH"), env="LLAMA_ARG_MODELS_DIR", why=ONE_MODEL),
    refuse("--models-preset", kind=path("PATH"), env="LLAMA_ARG_MODELS_PRESET", why=ONE_MODEL),
    refuse("--tools", kind=text("TOOL,…"), env="LLAMA_ARG_TOOLS", why="tools are not run"),
    refuse("--lora-init-without-apply", why="adapters are not applied"),
    refuse("--sleep-idle-seconds", kind=integer(), satisfied=("-1",), why="the model stays loaded"),
)  # fmt: skip
