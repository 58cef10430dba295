"""A server in this process, on a free port, and a client that sees raw answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig, SamplingConfig
from specli.engine.load import Run, open_engine
from specli.serve.config import ServeConfig
from specli.serve.server import Server, listen
from tests.support.runs import ONE_THREAD, executors, speculation


@dataclass
class Reply:
    """Status, headers and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream; `[DONE]` stays a text."""
        parts = [part for part in self.body.decode().split("\n\n") if part and not part.startswith(":")]
        assert all(part.startswith("data: ") for part in parts)
        return [part[6:] if part[6:] == "[DONE]" else json.loads(part[6:]) for part in parts]


@dataclass
class Served:
    """A running server.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        run: Its model, once it is loaded.
        headers: Sent with every request.
    """

    port: int
    server: Server
    run: list[Run] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 60
    ) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, raw, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any, **more: Any) -> Reply:
        return self.ask("POST", path, body, **more)

    def wait_until(self, holds: Any, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.01)

    def is_idle(self) -> bool:
        return not any(slot["is_processing"] for slot in self.get("/slots").json)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


def run_config(
    target: Path, draft: Path | None = None, types: tuple[str, ...] = ("none",), *, n_slots: int = 2, n_ctx: int = 256
) -> RunConfig:
    model = ModelLoadConfig(target, device="cpu", kernels=executors()[-1], threads=ONE_THREAD)
    load = None if draft is None else ModelLoadConfig(draft, device="cpu", kernels=executors()[-1], threads=ONE_THREAD)
    return RunConfig(model, load, speculation(types, 5), n_ctx=n_ctx, n_slots=n_slots)


@contextmanager
def serving(
    setup: RunConfig, config: ServeConfig | None = None, base: RequestConfig | None = None, *, waits: bool = True,
    opener: Any = None,
) -> Iterator[Served]:  # fmt: skip
    """Runs the server in a thread."""
    config = config or ServeConfig(port=0, has_metrics=True)
    listening = listen(config)
    found: list[Run] = []
    server = Server(
        config,
        base or RequestConfig(n_predict=16, sampling=SamplingConfig(temperature=0.0, seed=1)),
        {},
        opener or (lambda: open_engine(setup)),
        found.append,
    )
    errors: list[BaseException] = []

    def run() -> None:
        try:
            server.run(listening)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    served = Served(listening.getsockname()[1], server, found)
    if config.api_keys:
        served.headers["Authorization"] = f"Bearer {config.api_keys[0]}"
    try:
        if waits:
            served.wait_until(lambda: served.get("/health").status == 200, 60)
        yield served
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive(), "the server does not end"
        if errors:
            raise errors[0]
