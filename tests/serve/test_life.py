"""Loading, failing, draining, full queues, clients that leave, misbehave or do not read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.cli import main
from specli.cli.commands import serve as command
from specli.demo import MODELS
from specli.engine.load import Run, open_engine
from specli.errors import FormatError, ResourceError
from specli.sampling.grammar import Grammar
from specli.serve import answer, gate
from specli.serve.config import ServeConfig
from specli.serve.server import listen
from tests.serve.support import Served, run_config, serving

TARGET = next(model.path for model in MODELS if model.is_target)
LONG = {"prompt": "Hello", "n_predict": -1, "ignore_eos": True}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(run_config(TARGET, n_slots=1, n_ctx=1024), ServeConfig(port=0, n_queue=2, has_metrics=True)) as server:
        yield server


@contextmanager
def long_answer(served: Served, **fields: Any) -> Iterator[socket.socket]:
    """A client in the middle of a long stream."""
    with served.connect() as client:
        raw = json.dumps({**LONG, "stream": True, **fields}).encode()
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        yield client


def test_loading_is_answered_with_503_and_a_failure_ends_the_server() -> None:
    goes_on = threading.Event()

    @contextmanager
    def slow() -> Iterator[Run]:
        goes_on.wait(20)
        raise FormatError("model.gguf: broken")
        yield

    with (  # noqa: PT012 - the error comes when the server is left
        pytest.raises(FormatError, match=r"model\.gguf: broken"),
        serving(run_config(TARGET), waits=False, opener=slow) as served,
    ):
        for path in ("/health", "/v1/models", "/nope"):
            reply = served.get(path)
            error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
            assert (reply.status, reply.json) == (503, {"error": error})
        goes_on.set()


def test_client_that_leaves_frees_its_slot(served: Served) -> None:
    with long_answer(served):
        assert not served.is_idle()
        reply = served.get("/slots?fail_on_no_slot=1")
        assert (reply.status, reply.json["error"]["message"]) == (503, "no slot available")
    served.wait_until(served.is_idle)
    with pytest.raises(TimeoutError):
        served.post("/completion", LONG, timeout=0.2)
    served.wait_until(served.is_idle)


def test_full_queue_refuses_and_says_when_to_come_back(served: Served) -> None:
    short = {"prompt": "a", "n_predict": 1}
    with long_answer(served) as first:
        waiting = [threading.Thread(target=served.post, args=("/completion", short)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        served.wait_until(lambda: b"llamacpp:requests_deferred 2" in served.get("/metrics").body)
        reply = served.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
        assert (reply.status, reply.json["error"]["type"]) == (503, "unavailable_error")
        assert int(reply.headers["retry-after"]) > 0
        first.close()
        for thread in waiting:
            thread.join(20)
            assert not thread.is_alive()
    assert served.post("/completion", short).status == 200


GARBAGE = [
    b"\r\n\r\n\x00\xff" * 50,
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nBLA BLA BLA\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
    b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    b"POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("raw", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_hurts_nobody(served: Served, raw: bytes) -> None:
    with served.connect() as client:
        try:
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        except OSError:  # the server has closed the connection while there was more
            pass
    assert served.get("/health").json == {"status": "ok"}
    assert served.is_idle()


def test_body_that_is_too_large_is_refused_while_it_comes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_BODY", 1000)
    reply = served.post("/completion", {"prompt": "x" * 2000})
    assert (reply.status, reply.json["error"]["type"]) == (413, "invalid_request_error")
    assert served.post("/completion", {"prompt": "x", "n_predict": 1}).status == 200


def test_client_that_does_not_read_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot is free before its answer is whole, and others are not held up."""
    monkeypatch.setattr(answer, "MAX_UNREAD", 5)
    monkeypatch.setattr(answer, "event", lambda record: b"data: " + b"x" * 1_000_000 + b"\n\n")
    with long_answer(served):
        served.wait_until(served.is_idle, 20)
        assert served.post("/completion", {"prompt": "a", "n_predict": 1}).status == 200


def test_failure_of_a_forward_ends_its_requests_only(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = served.run[0].engine
    whole = engine.evaluate

    def failing(parts: Any) -> Any:
        raise RuntimeError("no luck")

    expected = served.post("/completion", {"prompt": "Hello"}).json["content"]
    monkeypatch.setattr(engine, "evaluate", failing)
    reply = served.post("/completion", {"prompt": "Hello", "stream": True})
    assert (reply.status, reply.json["error"]["type"]) == (500, "server_error")
    assert "no luck" in reply.json["error"]["message"]
    monkeypatch.setattr(engine, "evaluate", whole)
    assert served.post("/completion", {"prompt": "Hello"}).json["content"] == expected


def test_error_behind_the_first_token_is_the_last_event(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = served.run[0].engine
    whole, calls = engine.evaluate, []

    def failing(parts: Any) -> Any:
        calls.append(parts)
        if len(calls) > 4:
            raise RuntimeError("no luck")
        return whole(parts)

    monkeypatch.setattr(engine, "evaluate", failing)
    reply = served.post("/v1/completions", {**LONG, "stream": True})
    assert reply.status == 200
    assert reply.events[-1]["error"]["type"] == "server_error"
    assert "[DONE]" not in reply.events


@pytest.mark.parametrize(("grace", "ends_early"), [(100.0, False), (0.0, True)])
def test_draining(grace: float, ends_early: bool) -> None:
    config = ServeConfig(port=0, grace=grace)
    with serving(run_config(TARGET, n_slots=1, n_ctx=512), config) as served:
        with long_answer(served) as client:
            served.server.stop()
            raw = b""
            while part := client.recv(65536):
                raw += part
        assert (b"the server is shutting down" in raw) == ends_early
        assert (b'"stop":true' in raw) != ends_early
        with pytest.raises(OSError, match="refused"):
            served.connect()


def test_address_in_use_and_unknown_address() -> None:
    with listen(ServeConfig(port=0)) as found, pytest.raises(ResourceError, match=r"cannot listen on 127\.0\.0\.1:"):
        listen(ServeConfig(port=found.getsockname()[1]))
    with pytest.raises(ResourceError, match="cannot listen on"):
        listen(ServeConfig(host="256.1.1.1", port=0))


def test_slots_share_a_context_that_is_given_with_their_number() -> None:
    assert ServeConfig().n_slots == 4
    assert ServeConfig().slot_context(4096) == 4096
    assert ServeConfig(n_parallel=3).slot_context(4096) == 1365
    assert ServeConfig(n_parallel=3).slot_context(0) == 0


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "starlette" else name)
    assert main(["serve", "-m", "demo"]) == 1
    assert capsys.readouterr().err == "error: specli serve needs starlette\nhint: pip install 'specli[serve]'\n"


def test_command_serves_warns_and_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    with listen(ServeConfig(port=0)) as free:
        port = free.getsockname()[1]
    arguments = [
        "serve",
        "-m",
        "demo",
        "--host",
        "0.0.0.0",
        "--port",
        str(port),
        "-np",
        "2",
        "-c",
        "512",
        "-n",
        "3",
        "--ignore-eos",
    ]
    environment = {**os.environ, "HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "specli", *arguments], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        served = Served(port, None)  # type: ignore[arg-type]

        def is_ready() -> bool:
            assert process.poll() is None
            try:
                return served.get("/health").status == 200
            except OSError:
                return False

        served.wait_until(is_ready, 60)
        reply = served.post("/completion", {"prompt": "Hello"}).json
        assert (reply["tokens_predicted"], reply["generation_settings"]["temperature"]) == (3, 0.8)
        assert served.get("/props").json["default_generation_settings"]["n_ctx"] == 256
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "anybody who reaches 0.0.0.0 can use this server" in err
    assert "ready: 2 slots of 256 tokens each" in err


def test_engine_is_the_same_one_that_commands_use() -> None:
    """The worker closes what it opens."""
    closed = []

    @contextmanager
    def opened() -> Iterator[Run]:
        with open_engine(run_config(TARGET, n_slots=1)) as run:
            yield run
        closed.append(True)

    with serving(run_config(TARGET, n_slots=1), opener=opened) as served:
        assert served.get("/health").status == 200
    assert closed == [True]


def test_small_pieces_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY only on sockets whose protocol is named.

    Without it each piece of an answer waits for the acknowledgement of the piece before, which systems delay by 40 ms.
    """

    taken: list[int] = []

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def connect() -> int:
        listening = listen(ServeConfig(port=0))
        server = await asyncio.get_running_loop().create_server(Taken, sock=listening)
        async with server:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()
        return taken[0]

    assert asyncio.run(connect())


def test_whole_answers_wake_the_event_loop_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    put = answer.Answer._put
    monkeypatch.setattr(answer.Answer, "_put", lambda self, batch: (batches.append(batch), put(self, batch)))
    body = {"prompt": "Hello", "n_predict": 12, "ignore_eos": True}
    whole = served.post("/completion", body).json
    assert [batch.is_last for batch in batches] == [True]
    batches.clear()
    parts = served.post("/completion", {**body, "stream": True}).events
    assert len(batches) > 6
    assert "".join(part["content"] for part in parts) == whole["content"]


def test_grammar_that_compiles_for_long_holds_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, begun = threading.Event(), threading.Semaphore(0)
    from_config = Grammar.from_config

    def slowly(*arguments: Any) -> Any:
        if arguments[0].grammar:
            begun.release()
            goes_on.wait(20)
        return from_config(*arguments)

    monkeypatch.setattr(Grammar, "from_config", slowly)
    body = {"prompt": "Hello", "n_predict": 3, "grammar": 'root ::= "a"+'}
    slow = [threading.Thread(target=served.post, args=("/completion", body)) for _ in range(4)]
    for thread in slow:
        thread.start()
    assert begun.acquire(timeout=20)
    assert served.post("/completion", {"prompt": "Hello", "n_predict": 3}).json["tokens_predicted"] == 3
    assert served.post("/tokenize", {"content": "Hello"}).status == 200
    goes_on.set()
    for thread in slow:
        thread.join(20)
        assert not thread.is_alive()


def test_hundreds_of_clients_wait_or_are_sent_away(served: Served) -> None:
    """One slot, two places in the queue: everybody gets an answer, and nothing of it stays."""
    raw = b'{"prompt": "Hello", "n_predict": 2}'
    message = (
        b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(raw) + raw
    )
    clients = []
    with long_answer(served) as first:
        for _ in range(300):
            clients.append(served.connect())
            clients[-1].sendall(message)
        first.close()
        answers = []
        for client in clients:
            with client:
                whole = b""
                while part := client.recv(65536):
                    whole += part
            answers.append(whole)
    statuses = [int(each.split(b" ", 2)[1]) for each in answers]
    assert set(statuses) <= {200, 503}
    assert statuses.count(503) > 0
    assert all(
        b"\r\nRetry-After: 1\r\n" in each for each, status in zip(answers, statuses, strict=True) if status == 503
    )
    served.wait_until(served.is_idle)
    assert served.post("/completion", {"prompt": "a", "n_predict": 1}).status == 200


def test_half_closed_connection_gets_its_answer_or_frees_its_slot(served: Served) -> None:
    raw = b'{"prompt": "Hello", "n_predict": 2}'
    with served.connect() as client:
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    served.wait_until(served.is_idle)
    assert served.post("/completion", {"prompt": "a", "n_predict": 1}).status == 200


def test_clients_that_send_too_slowly_are_not_waited_for() -> None:
    """Neither for headers nor for a body, nor for the headers of a second request on the same connection."""
    quick = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    beginnings = [
        b"",
        b"POST /completion HTTP/1.1\r\nHost:",
        b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
        quick + b"GET /health",
    ]
    with serving(run_config(TARGET, n_slots=1), ServeConfig(port=0, timeout=1)) as served:
        clients = [served.connect() for _ in beginnings]
        for client, beginning in zip(clients, beginnings, strict=True):
            client.sendall(beginning)
        for client in clients:
            with client, suppress(ConnectionResetError):
                while client.recv(65536):
                    pass
        assert served.get("/health").status == 200
