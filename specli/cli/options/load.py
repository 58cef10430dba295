"""Options of `specli stats` for many requests at once: in one engine, and at a server."""

from __future__ import annotations

from functools import partial

from specli.cli.options.kinds import JSON_OBJECT, Kind, number, path, read_float, read_int, text
from specli.cli.options.option import Option

MAX_PARALLEL = 256
MAX_CLIENTS = 4096

load = partial(Option, panel="Many requests at once", commands=("stats",))


def read_counts(value: str, most: int) -> tuple[int, ...]:
    """Reads a comma list of numbers of requests, each once."""
    counts = tuple(read_int(part) for part in value.split(","))
    if not all(1 <= count <= most for count in counts):
        raise ValueError(f"expected numbers from 1 to {most}")
    return tuple(dict.fromkeys(counts))


def read_rates(value: str) -> tuple[float, ...]:
    """Reads a comma list of rates, each once."""
    rates = tuple(read_float(part) for part in value.split(","))
    if not all(0 < rate < 1e6 for rate in rates):
        raise ValueError("expected rates above 0")
    return tuple(dict.fromkeys(rates))


OPTIONS = (
    load(
        ("-np", "-npl", "--parallel"),
        "compare drafters with so many requests at once, a level each; the most of them share --ctx-size",
        field="study.levels", kind=Kind("N,N,…", lambda value: read_counts(value, MAX_PARALLEL)), default_text="off",
    ),
    load(
        ("-kvu", "--kv-unified"), "each of the requests of --parallel may use all of --ctx-size",
        negative=("-no-kvu", "--no-kv-unified"), field="study.is_unified", needs=("study.levels",),
    ),
    load(
        ("--server",), "put load on a running server with OpenAI's routes instead of loading a model",
        field="client.server", kind=text("URL"),
    ),
    load(
        ("--concurrency",), "requests that are kept under way at the server, a level each",
        field="client.concurrency", kind=Kind("N,N,…", lambda value: read_counts(value, MAX_CLIENTS)),
        excludes="client.rates", needs=("client.server",),
    ),
    load(
        ("--rate",), "requests that arrive at the server per second on average, at random, a level each",
        field="client.rates", kind=Kind("R,R,…", read_rates), excludes="client.concurrency", needs=("client.server",),
        default_text="off",
    ),
    load(
        ("--api-key",), "key that the server asks for",
        field="client.api_key", kind=text("KEY"), env="LLAMA_API_KEY", needs=("client.server",), default_text="none",
    ),
    load(
        ("--server-model",), "name of the model in requests, for servers that have several",
        field="client.model", kind=text("NAME"), needs=("client.server",), default_text="none",
    ),
    load(
        ("-to", "--timeout"), "seconds that a request may take, waiting for a busy server included",
        field="client.timeout", kind=number(above=0, finite=True, metavar="S"), needs=("client.server",),
    ),
    load(
        ("--stream",), "have answers come token by token, so that times of tokens are seen",
        negative=("--no-stream",), field="client.streams", needs=("client.server",),
    ),
    load(
        ("--extra-inputs",), "further members of every request, a JSON object",
        field="client.extra", kind=JSON_OBJECT, needs=("client.server",), default_text="{}",
    ),
    load(
        ("--speed-bench-json",), "write the results of one level in the schema of llama.cpp's SPEED-Bench client",
        field="client.speed_bench", kind=path("FILE.json"), needs=("client.server",),
    ),
)  # fmt: skip
