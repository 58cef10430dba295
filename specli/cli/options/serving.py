"""Options of `specli serve`, and those of llama-server that it does not have."""

from functools import partial
from pathlib import Path
from typing import Any

from specli.cli.options.kinds import FLAG, Kind, concatenate, integer, number, path, text
from specli.cli.options.option import Option
from specli.cli.options.refused import MEDIA, PRESET
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


def read_prefix(value: str) -> str:
    """Reads the beginning of paths: with a slash in front and none at the end, or nothing."""
    inner = value.strip("/")
    return f"/{inner}" if inner else ""


def read_folder(value: str) -> Path:
    """Reads the name of a folder that exists."""
    found = user_path(value)
    if not found.is_dir():
        raise ValueError(f"not a directory: {value}")
    return found


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
NO_UI_SETTINGS = "the page is set up in the browser"
NO_TOOLS = "the server runs no tools; clients do"
NO_INFILL = "specli does not fill gaps"

OPTIONS = (
    serve(
        ("--host",), "addresses to listen on, or paths of Unix sockets that end in .sock",
        field="serve.host", kind=text("HOST,…"), env="LLAMA_ARG_HOST",
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
        ("--tags",), "tags of the model for clients, which nothing else looks at",
        field="serve.tags", kind=Kind("TAG,…", read_keys, merge=concatenate), env="LLAMA_ARG_TAGS", default_text="none",
    ),
    serve(
        ("--kv-unified-per-slot",), "most tokens of context that a slot gets",
        field="serve.slot_tokens", kind=integer(1), env="LLAMA_ARG_KV_UNIFIED_PER_SLOT", default_text="any number",
    ),
    serve(
        ("--cache-prompt",), "what a slot holds of a prompt is not evaluated again, unless a request says otherwise",
        negative=("--no-cache-prompt",), field="serve.reuses", env="LLAMA_ARG_CACHE_PROMPT",
    ),
    serve(
        ("-sps", "--slot-prompt-similarity"),
        "share of its prompt that a slot must know to be preferred to the one idle longest; 0 = none is preferred",
        field="serve.similarity", kind=number(0, 1, metavar="S"),
    ),
    serve(
        ("--spec-ngram-mod-shared",),
        "ngram-mod: slots share what they have learnt, so that one profits from what others said",
        negative=("--no-spec-ngram-mod-shared",), field="serve.shares_pool",
    ),
    serve(
        ("--slot-save-path",), "folder of slots that POST /slots/N?action=save and restore write and read",
        field="serve.slot_path", kind=Kind("PATH", read_folder, files=""),
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
        ("--cors-methods",), "methods that pages of other origins may use",
        field="serve.cors_methods", kind=text("METHOD,…"), env="LLAMA_ARG_CORS_METHODS",
    ),
    serve(
        ("--cors-headers",), "headers that pages of other origins may send; * = any",
        field="serve.cors_headers", kind=text("HEADER,…"), env="LLAMA_ARG_CORS_HEADERS",
    ),
    serve(
        ("--cors-credentials",), "pages of other origins may send cookies and keys",
        negative=("--no-cors-credentials",), field="serve.cors_credentials", env="LLAMA_ARG_CORS_CREDENTIALS",
    ),
    serve(
        ("--api-prefix",), "what the path of every route begins with",
        field="serve.prefix", kind=Kind("PREFIX", read_prefix), env="LLAMA_ARG_API_PREFIX", default_text="nothing",
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
        "--cache-idle-slots", negative=("--no-cache-idle-slots",), env="LLAMA_ARG_CACHE_IDLE_SLOTS",
        satisfied=("off",), why="what a slot holds stays there until another request needs the slot",
    ),
    leave("--ui-config", "--webui-config", kind=text("JSON"), env="LLAMA_ARG_UI_CONFIG", why=NO_UI_SETTINGS),
    leave("--ui-config-file", "--webui-config-file", kind=path(), env="LLAMA_ARG_UI_CONFIG_FILE", why=NO_UI_SETTINGS),
    leave("--spm-infill", why=NO_INFILL),
    leave("--embd-normalize", kind=integer(), why=NO_EMBEDDINGS),
    leave("--mtmd-batch-max-tokens", kind=integer(), env="LLAMA_ARG_MTMD_BATCH_MAX_TOKENS", why=MEDIA),
    leave("--models-max", kind=integer(), env="LLAMA_ARG_MODELS_MAX", why=ONE_MODEL),
    leave(
        "--models-autoload", negative=("--no-models-autoload",), env="LLAMA_ARG_MODELS_AUTOLOAD", why=ONE_MODEL,
    ),
    leave("--threads-http", kind=integer(), env="LLAMA_ARG_THREADS_HTTP", why="one thread serves all connections"),
    leave("--reuse-port", env="LLAMA_ARG_REUSE_PORT", why="one process listens"),
    refuse("--cache-reuse", kind=integer(), env="LLAMA_ARG_CACHE_REUSE", satisfied=("0",),
           why="only a common beginning is reused"),
    refuse("--path", kind=path("PATH"), env="LLAMA_ARG_STATIC_PATH", why=NO_FILES),
    refuse("--embedding", "--embeddings", env="LLAMA_ARG_EMBEDDINGS", why=NO_EMBEDDINGS),
    refuse("--rerank", "--reranking", env="LLAMA_ARG_RERANKING", why=NO_EMBEDDINGS),
    refuse("--pooling", kind=text(), env="LLAMA_ARG_POOLING", why=NO_EMBEDDINGS),
    refuse("--ssl-key-file", kind=path(), env="LLAMA_ARG_SSL_KEY_FILE", why=NO_TLS),
    refuse("--ssl-cert-file", kind=path(), env="LLAMA_ARG_SSL_CERT_FILE", why=NO_TLS),
    refuse("--models-dir", kind=path("PATH"), env="LLAMA_ARG_MODELS_DIR", why=ONE_MODEL),
    refuse("--models-preset", kind=path("PATH"), env="LLAMA_ARG_MODELS_PRESET", why=ONE_MODEL),
    refuse("--tools", kind=text("TOOL,…"), env="LLAMA_ARG_TOOLS", why=NO_TOOLS),
    refuse("--tools-runtime", kind=text("RUNTIME"), env="LLAMA_ARG_TOOLS_RUNTIME", satisfied=("none",), why=NO_TOOLS),
    refuse("-ag", "--agent", negative=("-no-ag", "--no-agent"), env="LLAMA_ARG_AGENT", satisfied=("off",),
           why=NO_TOOLS),
    refuse("--mcp-servers-config", kind=path(), env="LLAMA_ARG_MCP_SERVERS_CONFIG", why=NO_TOOLS),
    refuse("--mcp-servers-json", kind=text("JSON"), env="LLAMA_ARG_MCP_SERVERS_JSON", why=NO_TOOLS),
    refuse("--ui-mcp-proxy", "--webui-mcp-proxy", negative=("--no-ui-mcp-proxy", "--no-webui-mcp-proxy"),
           env="LLAMA_ARG_UI_MCP_PROXY", satisfied=("off",), why="the server fetches nothing for others"),
    refuse("--media-path", kind=path("PATH"), why=MEDIA),
    *(
        refuse(f"--{name}-default", why=PRESET)
        for name in ("embd-gemma", "fim-qwen-1.5b", "fim-qwen-3b", "fim-qwen-7b", "fim-qwen-30b")
    ),
    refuse("--lora-init-without-apply", why="adapters are not applied"),
    refuse("--sleep-idle-seconds", kind=integer(), satisfied=("-1",), why="the model stays loaded"),
)  # fmt: skip
