"""Mixed load on `specli serve` for a while: wrong texts, lost slots, and memory.

    python -m tests.benchmarks.soak [--seconds 600] [--clients 6] [SERVE OPTIONS …]

Clients ask for texts that were asked for before, when the server had nothing else to do; every third leaves early.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

N_BODIES = 24
PAUSE = 5  # seconds between looks at the memory
DEFAULT = ("-m", "demo", "--spec-type", "ngram-map-k,ngram-mod", "-np", "4", "-c", "4096", "-t", "1", "--metrics")


def bodies(seed: int = 1) -> list[dict[str, Any]]:
    """Greedy and sampled requests, short and long, with grammars, stop strings and log-probabilities."""
    rng = random.Random(seed)
    made = []
    for number in range(N_BODIES):
        words = [rng.randrange(300, 900) for _ in range(rng.randrange(3, 12))]
        body: dict[str, Any] = {
            "prompt": words * rng.randrange(1, 12),
            "n_predict": rng.choice([1, 8, 40, 120]),
            "temperature": rng.choice([0.0, 0.9]),
            "seed": number,
            "n_probs": rng.choice([0, 0, 3]),
            "stop": rng.choice([[], ["the"]]),
            "stream": rng.random() < 0.5,
        }
        if number % 8 == 7:
            body["json_schema"] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        made.append(body)
    return made


def text_of(port: int, body: dict[str, Any]) -> str:
    """The text of an answer, streamed or not."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/completion", json.dumps(body))
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"status {answer.status}: {raw[:200]!r}")
    if not body["stream"]:
        return str(json.loads(raw)["content"])
    events = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: ")]
    return "".join(each["content"] for each in events)


def leave_early(port: int, body: dict[str, Any], rng: random.Random) -> None:
    """Asks, reads a little or nothing, and goes."""
    raw = json.dumps({**body, "n_predict": 200}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        time.sleep(rng.random() * 0.2)
        if rng.random() < 0.5:
            client.recv(1000)


@contextmanager
def server(arguments: list[str]) -> Iterator[tuple[int, int]]:
    """Starts the server; gives port and process number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "specli", "serve", "--port", str(port), *arguments])
    try:
        end = time.monotonic() + 120
        while True:
            try:
                with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                    connection.request("GET", "/health")
                    if connection.getresponse().status == 200:
                        break
            except OSError:
                pass
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the server does not start")
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def resident(process: int) -> float:
    """Memory of a process, MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def busy_slots(port: int) -> int:
    """Slots at work."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/slots")
        return sum(slot["is_processing"] for slot in json.load(connection.getresponse()))


def soak(seconds: float, n_clients: int, arguments: list[str]) -> dict[str, Any]:
    """Runs the load; returns what was seen."""
    wanted, counts, memory = bodies(), Counter[str](), []
    with server(arguments) as (port, process):
        expected = [text_of(port, body) for body in wanted]
        end = time.monotonic() + seconds

        def work(number: int) -> None:
            rng = random.Random(number)
            while time.monotonic() < end:
                chosen = rng.randrange(len(wanted))
                try:
                    if rng.random() < 1 / 3:
                        leave_early(port, wanted[chosen], rng)
                        counts["left"] += 1
                    elif text_of(port, wanted[chosen]) == expected[chosen]:
                        counts["right"] += 1
                    else:
                        counts["wrong"] += 1
                except OSError as error:
                    print(error, file=sys.stderr)
                    counts["failed"] += 1

        clients = [threading.Thread(target=work, args=(number,)) for number in range(n_clients)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            memory.append(resident(process))
            time.sleep(min(PAUSE, max(0.05, end - time.monotonic())))
        for client in clients:
            client.join()
        end = time.monotonic() + 20
        while (busy := busy_slots(port)) and time.monotonic() < end:
            time.sleep(0.1)
        memory.append(resident(process))
    fifth = len(memory) // 5
    return {
        **{name: counts[name] for name in ("right", "wrong", "failed", "left")},
        "busy_slots": busy,
        "memory_mib": {"early": max(memory[fifth : 2 * fifth + 1]), "late": max(memory[-fifth - 1 :])},
    }


def main() -> None:
    """Reads the command line, runs, prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=6)
    known, others = parser.parse_known_args()
    print(json.dumps(soak(known.seconds, known.clients, others or list(DEFAULT))))


if __name__ == "__main__":
    main()
