"""llama.cpp's server, asked for greedy answers and for the drafts behind them, which stand in its debug log."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

CANDIDATE = re.compile(r"draft candidate +(\d), pos +(\d+): +(\d+) \( *([\d.]+)\)")
DRAFTED = re.compile(r"generate_draft: id=\d+, #tokens=(\d+), #draft=(\d+)")
ENDED = "stop processing: n_tokens"


@dataclass(frozen=True)
class UpstreamDraft:
    """One draft.

    Attributes:
        tokens: What was drafted.
        gaps: For each token, log-probability of the likeliest less that of the next.
    """

    tokens: list[int]
    gaps: list[float]


@dataclass(frozen=True)
class UpstreamAnswer:
    """One answer: its tokens, the two counts of its timings, its drafts by the number of tokens before the newest."""

    tokens: list[int]
    n_drafted: int
    n_accepted: int
    drafts: dict[int, UpstreamDraft]


def upstream_answers(
    program: Path, options: Sequence[str], prompts: Sequence[str], n_tokens: int, log: Path
) -> list[UpstreamAnswer]:
    """Starts the server with `options`, asks it one prompt after the other and ends it; `log` is a file to write."""
    with _serving(program, options, log) as port:
        results = [_complete(port, _request(prompt, n_tokens)) for prompt in prompts]
    drafts = _drafts(log.read_text(encoding="utf-8", errors="replace"))
    return [
        UpstreamAnswer(
            result["tokens"], result["timings"].get("draft_n", 0), result["timings"].get("draft_n_accepted", 0), of
        )
        for result, of in zip(results, drafts, strict=True)
    ]


def upstream_completions(
    program: Path, options: Sequence[str], bodies: Sequence[dict[str, Any]], log: Path, *, route: str = "completion"
) -> list[dict[str, Any]]:
    """The server's answers to completion requests, one after the other."""
    with _serving(program, options, log) as port:
        return [_complete(port, body, route) for body in bodies]


@contextmanager
def _serving(program: Path, options: Sequence[str], log: Path) -> Iterator[str]:
    """Starts the server and ends it; gives its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    own = ("--port", port, "-np", "1", "-t", "1", "-lv", "5", "--log-colors", "off")
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen([program, *options, *own], stdout=output, stderr=output)
    try:
        _wait(server, port, log)
        yield port
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], port: str, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
        except URLError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server does not answer: {log.read_text(errors='replace')[-2000:]}")


def _request(prompt: str, n_tokens: int) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": n_tokens, "temperature": 0, "cache_prompt": False, "return_tokens": True}


def _complete(port: str, body: dict[str, Any], route: str = "completion") -> dict[str, Any]:
    request = Request(f"http://127.0.0.1:{port}/{route}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=300) as response:
        result: dict[str, Any] = json.load(response)
    return result


def _drafts(text: str) -> list[dict[int, UpstreamDraft]]:
    """Drafts of each request. The log tells candidates step by step, then how many tokens the draft kept."""
    requests: list[dict[int, UpstreamDraft]] = []
    drafts: dict[int, UpstreamDraft] = {}
    steps: list[list[tuple[int, float]]] = []
    for line in text.splitlines():
        if candidate := CANDIDATE.search(line):
            rank, step, token, chance = candidate.groups()
            if rank == "0":
                del steps[int(step) :]
                steps.append([])
            steps[-1].append((int(token), float(chance)))
        elif drafted := DRAFTED.search(line):
            before, kept = int(drafted[1]), steps[: int(drafted[2])]
            gaps = [math.log(step[0][1] / max(step[1][1], 0.0005)) for step in kept]  # three decimals are told
            drafts[before] = UpstreamDraft([step[0][0] for step in kept], gaps)
        elif ENDED in line:
            requests.append(drafts)
            drafts = {}
    return requests
