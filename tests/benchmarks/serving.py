"""`specli serve` against `llama-server` under load: same machine, model, prompts, slots and threads, in turn.

    python tests/benchmarks/serving.py --llama BIN_DIR MODEL.gguf… [--streams 1,4,8,16] [--prompts 32] [--tokens 64]

Each server is started for each model and drafter with as many slots as the most streams, and measured with `specli
stats --server`: answers of the same length (`ignore_eos`), no prompt from a cache, greedy. With `--repeats` the servers
take turns; medians count. The table has tokens per second of the whole server, 95 % of the times between tokens, and
ratios. Reports only.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

SERVERS = ("specli", "llama.cpp")
EXTRA = {"ignore_eos": True, "cache_prompt": False}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(name: str, options: argparse.Namespace, model: Path, drafter: str, n_slots: int) -> Iterator[str]:
    """A running server; its address."""
    port = free_port()
    start = [sys.executable, "-m", "specli", "serve"] if name == "specli" else [str(options.llama / "llama-server")]
    command = [
        *start, "-m", str(model), "--port", str(port), "-t", str(options.threads), "-np", str(n_slots),
        "-c", str(options.context * n_slots), "--spec-type", drafter,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait(process, port, command)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def wait(process: subprocess.Popen[bytes], port: int, command: Sequence[str]) -> None:
    """Until the model is loaded."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(command)}: ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{' '.join(command)}: does not get ready")


def measure(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The levels of one server."""
    common = ["--server", url, "-n", str(options.tokens), "--extra-inputs", json.dumps(EXTRA), "--json"]

    def stats(n_prompts: int, streams: str) -> list[dict[str, Any]]:
        command = [
            sys.executable, "-m", "specli", "stats", *common, "--n-prompts", str(n_prompts), "--concurrency", streams,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        levels: list[dict[str, Any]] = json.loads(done.stdout)["levels"]
        return levels

    stats(1, "1")  # warms up
    return stats(options.prompts, options.streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--llama", type=Path, required=True, help="folder with llama-server")
    parser.add_argument("--drafters", default="none,ngram-map-k")
    parser.add_argument("--streams", default="1,4,8,16")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=1024, help="tokens per slot")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers are ended on the way out
    n_slots = max(map(int, options.streams.split(",")))
    print(
        f"{'model, drafter':<44} {'streams':>7} {'specli':>9} {'llama.cpp':>9} {'ratio':>6}   "
        f"{'p95 between':>11} {'llama.cpp':>9} {'ratio':>6}  errors"
    )
    for model in options.models:
        for drafter in options.drafters.split(","):
            found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in SERVERS}
            for _ in range(options.repeats):
                for name in SERVERS:
                    with serving(name, options, model, drafter, n_slots) as url:
                        found[name].append(measure(url, options))
            for number, level in enumerate(found["specli"][0]):
                ours, theirs = ([run[number] for run in found[name]] for name in SERVERS)
                speeds = [median(row["tokens_per_second"] or 0.0 for row in rows) for rows in (ours, theirs)]
                gaps = [median((row["between_ms"] or {}).get("p95", 0.0) for row in rows) for rows in (ours, theirs)]
                n_failed = sum(row["n_failed"] for row in (*ours, *theirs))
                print(
                    f"{f'{model.name}, {drafter}':<44} {level['concurrency']:>7} {speeds[0]:>9.1f} {speeds[1]:>9.1f} "
                    f"{speeds[0] / (speeds[1] or 1):>5.2f}x   {gaps[0]:>8.1f} ms {gaps[1]:>6.1f} ms "
                    f"{gaps[0] / (gaps[1] or 1):>5.2f}x  {n_failed}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
