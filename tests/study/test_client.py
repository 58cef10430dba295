"""Load on a server: what the client sends, what it sees, how it copes with servers that are busy, slow or broken."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra specli[client]")

from specli.errors import ResourceError, UsageError
from specli.study import client
from specli.study.client import ClientPlan, Load, ServerConfig, base_url, measure_server
from specli.study.compare import StudyPrompt
from specli.study.load import DraftCount, Level, LoadStudy
from tests.study.test_load import peer_scripts, stand_ins

ONE = [StudyPrompt("a", "one", "hello")]
MANY = [StudyPrompt(f"p{i}", "one", f"hello {i}") for i in range(12)]


@dataclass
class Script:
    """A server that says what it is told to; keeps what it was asked, and how many were answered at once."""

    answer: Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]
    health: list[int] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    n_open: int = 0
    most: int = 0
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def send(
    handler: BaseHTTPRequestHandler, body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def stream(handler: BaseHTTPRequestHandler, *events: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    for event in events:
        raw = event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
        handler.wfile.write(raw)
        handler.wfile.flush()
    handler.close_connection = True


def piece(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {} if text is None else {"content": text}, "finish_reason": finish}], **more}


USAGE = {"usage": {"prompt_tokens": 5, "completion_tokens": 3}, "choices": []}
TIMINGS: dict[str, Any] = {
    "timings": {
        "prompt_n": 2,
        "prompt_ms": 4.0,
        "prompt_per_second": 500.0,
        "predicted_ms": 20.0,
        "predicted_per_second": 100.0,
        "draft_n": 8,
        "draft_n_accepted": 1,
        "drafters": [{"type": "t", "draft_n": 8, "draft_n_accepted": 1}],
    }
}


def good(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    if body["stream"]:
        events = [piece(""), piece("a "), piece("b "), piece("c"), piece(finish="stop", **TIMINGS), USAGE]
        stream(handler, *events, b": a comment\n\n", b"data: [DONE]\n\n")
    else:
        message = {"message": {"role": "assistant", "content": "a b c"}, "finish_reason": "stop"}
        send(handler, {**USAGE, **TIMINGS, "choices": [message]})


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, dict[str, Any]], None] = good, **more: Any) -> Iterator[Script]:
    script = Script(answer, **more)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/health":
                send(self, {}, script.health.pop(0) if script.health else 200)
            elif self.path == "/v1/models":
                send(self, {"data": [{"id": "the-model"}]})
            else:
                send(self, {"error": "no"}, 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with script.lock:
                script.came.append(time.monotonic())
                script.asked.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                script.n_open += 1
                script.most = max(script.most, script.n_open)
            try:
                script.answer(self, body)
            except OSError:
                self.close_connection = True
            finally:
                with script.lock:
                    script.n_open -= 1

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()


def measure(
    script: Script,
    prompts: list[StudyPrompt],
    loads: tuple[Load, ...] = (Load(concurrency=1),),
    *,
    plan: Mapping[str, Any] | None = None,
    **config: Any,
) -> LoadStudy:
    server = ServerConfig(f"127.0.0.1:{script.port}", **{"timeout": 5.0, **config})
    return measure_server(server, prompts, ClientPlan(loads, **(plan or {})))


def only(study: LoadStudy) -> Level:
    [level] = study.levels
    return level


def test_a_stream_shows_when_tokens_come(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()  # the clock goes on by a second whenever it is read
    clock = SimpleNamespace(perf_counter=lambda: next(seconds), monotonic=time.monotonic)
    monkeypatch.setattr(client, "time", clock)
    with serving() as script:
        study = measure(script, ONE, fields={"max_tokens": 3, "temperature": 0.0}, model="m", api_key="k")
    [reply] = only(study).replies
    assert (reply.prompt_n, reply.predicted_n, reply.draft_n, reply.draft_n_accepted) == (5, 3, 8, 1)
    assert reply.drafters == (DraftCount("t", 8, 1),)
    assert (reply.prompt_ms, reply.predicted_ms, reply.predicted_per_second) == (4.0, 20.0, 100.0)
    assert (reply.finish, reply.error) == ("stop", None)
    assert (reply.begun_ms, reply.first_ms, reply.gaps_ms) == (1e3, 1e3, (1e3, 1e3))  # of three pieces with text
    assert (reply.latency_ms, only(study).seconds) == (4e3, 6)
    [(path, body, headers)] = script.asked
    assert path == "/v1/chat/completions"
    assert body == {
        "max_tokens": 3, "temperature": 0.0, "model": "m", "stream": True, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hello"}],
    }  # fmt: skip
    assert headers["authorization"] == "Bearer k"
    assert study.source["model"] == "m"


def test_whole_answers_and_texts_to_continue() -> None:
    with serving() as script:
        study = measure(script, ONE, streams=False, chats=False)
    [reply] = only(study).replies
    assert (reply.predicted_n, reply.first_ms, reply.gaps_ms, reply.finish) == (3, None, (), "stop")
    assert script.asked[0][:2] == ("/v1/completions", {"stream": False, "prompt": "hello"})
    assert study.source["model"] == "the-model"
    assert only(study).name == "the-model"


def test_turns_follow_their_answers() -> None:
    prompts = [StudyPrompt("a", "one", "first", ("second", "third"))]
    with serving() as script:
        level = only(measure(script, prompts))
    assert [reply.turn for reply in level.replies] == [0, 1, 2]
    assert script.asked[2][1]["messages"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "a b c"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "a b c"},
        {"role": "user", "content": "third"},
    ]


def test_each_request_has_a_connection_of_its_own() -> None:
    """A server may close an idle connection without a word."""
    ports = []

    def closing(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        ports.append(handler.client_address[1])
        good(handler, body)
        handler.close_connection = True

    with serving(closing) as script:
        level = only(measure(script, MANY, (Load(concurrency=2),), streams=False))
    assert level.errors == {}
    assert len(set(ports)) == len(MANY)


def test_as_many_are_under_way_as_asked_for() -> None:
    def slow(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(0.03)
        good(handler, body)

    for n in (1, 4):
        with serving(slow) as script:
            study = measure(script, MANY, (Load(concurrency=n),), streams=False)
        assert script.most == n
        assert len(only(study).replies) == len(MANY)


def test_arrivals_at_a_rate_do_not_wait_for_answers_and_repeat() -> None:
    """Exponential gaps from the seed; all are under way at once while the server sleeps."""

    def slow(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(0.5)
        good(handler, body)

    gaps = []
    for _ in range(2):
        with serving(slow) as script:
            measure(script, MANY[:6], (Load(rate=40.0),), streams=False, plan={"seed": 4})
        assert script.most == 6
        gaps.append([later - script.came[0] for later in script.came])
    assert gaps[0] == pytest.approx(gaps[1], abs=0.1)
    assert gaps[0][-1] > 0.02


def test_a_busy_server_is_asked_again_when_it_says_so() -> None:
    refusals = [("0", 503), ("0", 503)]

    def busy(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if refusals:
            after, status = refusals.pop()
            send(handler, {"error": {"message": "full"}}, status, {"Retry-After": after})
        else:
            good(handler, body)

    with serving(busy) as script:
        [reply] = only(measure(script, ONE)).replies
    assert (reply.n_retries, reply.error, reply.predicted_n) == (2, None, 3)


def test_who_waits_for_a_busy_server_gives_up_in_time() -> None:
    def busy(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        send(handler, {}, 503, {"Retry-After": "60"})

    with serving(busy) as script:
        [reply] = only(measure(script, ONE, timeout=0.3)).replies
    assert reply.error == "no answer within 0.3 s"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda h, b: send(h, {"error": {"code": 400, "message": "bad\n field"}}, 400), "status 400: bad field"),
        (lambda h, b: send(h, {"error": "only text"}, 404), "status 404: only text"),
        (lambda h, b: send(h, b"<html>oh", 502), "status 502: <html>oh"),
        (lambda h, b: send(h, {}, 503), "status 503: {}"),
        (lambda h, b: send(h, {"ok": True}), "the answer is no completion"),
        (lambda h, b: stream(h, piece("a"), {"error": {"message": "it broke"}}), "it broke"),
        (lambda h, b: stream(h, piece("a")), "the stream ended before the answer did"),
        (lambda h, b: stream(h, b"data: {no\n\n"), "an event of the stream is not valid JSON"),
        (lambda h, b: time.sleep(1), "no answer within 0.3 s"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_counted_and_said(
    answer: Callable[[BaseHTTPRequestHandler, dict[str, Any]], None], error: str
) -> None:
    with serving(answer) as script:
        level = only(measure(script, ONE, timeout=0.3))
    assert level.errors == {error: 1}
    assert level.tokens_per_second == 0


def test_the_next_turn_is_not_asked_after_an_error() -> None:
    with serving(lambda handler, body: send(handler, {"error": {"message": "no"}}, 500)) as script:
        level = only(measure(script, [StudyPrompt("a", "one", "x", ("y",)), *ONE]))
    assert len(script.asked) == len(level.replies) == 2


def test_stopped_in_the_middle_the_rest_is_cut_off() -> None:
    def slow(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if body["messages"][0]["content"] != "hello 0":
            time.sleep(2)
        good(handler, body)

    begun = time.monotonic()
    with serving(slow) as script:
        plan = {"is_stopped": lambda: len(script.asked) == 3}
        level = only(measure(script, MANY, (Load(concurrency=2), Load(concurrency=4)), plan=plan))
    assert (len(level.replies), level.n_cut) == (1, 2)
    assert time.monotonic() - begun < 2


def test_a_model_that_is_loading_is_waited_for() -> None:
    with serving(health=[503, 503]) as script:
        assert only(measure(script, ONE)).errors == {}
    assert script.health == []


def test_no_server_and_no_key_end_the_run() -> None:
    with pytest.raises(ResourceError, match=r"http://127\.0\.0\.1:1: nothing answers there"):
        measure_server(ServerConfig("127.0.0.1:1"), ONE, ClientPlan((Load(1),)))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080/v1/", "http://localhost:8080"),
        (" https://x.org/api/v1", "https://x.org/api"),
        ("[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses(given: str, url: str) -> None:
    assert base_url(given) == url


@pytest.mark.parametrize("given", ["", "a b", "http://", "ftp://x", "x:port", "http://[::1", "x:0"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(UsageError, match="expected the address of a server"):
        base_url(given)


# specli's own server


def test_our_server_under_load() -> None:
    """Counts agree with the server's metrics."""
    pytest.importorskip("starlette", reason="needs the extra specli[serve]")
    pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")
    from specli.demo import MODELS
    from specli.serve.config import ServeConfig
    from tests.serve.support import run_config
    from tests.serve.support import serving as serving_model

    target = next(model.path for model in MODELS if model.is_target)
    eagle = next(model.path for model in MODELS if model.spec_type == "draft-eagle3")
    setup = run_config(target, eagle, ("draft-eagle3", "ngram-mod"), n_slots=2)
    prompts = [StudyPrompt(f"p{i}", "one", f"Tell a story of {i} foxes.", ("Go on.",) * (i % 2)) for i in range(5)]
    fields = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
    with serving_model(setup, ServeConfig(port=0, has_metrics=True, api_keys=("k",))) as served:
        address = f"127.0.0.1:{served.port}"
        with pytest.raises(ResourceError, match="the server refuses the key"):
            measure_server(ServerConfig(address), prompts, ClientPlan((Load(1),)))
        config = ServerConfig(address, api_key="k", fields=fields)
        study = measure_server(config, prompts, ClientPlan((Load(1), Load(3))))
        one, three = study.levels
        assert study.source["n_slots"] == 2
        assert set(study.source["drafters"]) == {"draft-eagle3", "ngram-mod"}
        assert one.errors == three.errors == {}
        assert len(one.replies) == len(three.replies) == 7
        replies = [*one.replies, *three.replies]
        assert all(reply.predicted_n == 16 for reply in replies)
        assert all(1 <= len(reply.gaps_ms) <= 15 for reply in replies)
        metrics = served.get("/metrics").body.decode()
        counted = {line.split()[0]: line.split()[1] for line in metrics.splitlines() if not line.startswith("#")}
        assert float(counted["llamacpp:tokens_predicted_total"]) == 16 * 14
        total = sum(reply.draft_n for reply in replies)
        assert total == sum(count.draft_n for reply in replies for count in reply.drafters) > 0


def test_llama_cpp_s_speed_bench_client_runs_against_our_server(tmp_path: Path) -> None:
    scripts = peer_scripts()
    for name in ("requests", "tqdm", "starlette", "uvicorn"):
        pytest.importorskip(name, reason=f"needs {name}")
    from specli.demo import MODELS
    from tests.serve.support import run_config
    from tests.serve.support import serving as serving_model

    target = next(model.path for model in MODELS if model.is_target)
    rows: list[dict[str, Any]] = [
        {"question_id": f"q{i}", "category": ("coding", "qa")[i % 2], "turns": ["Who is it?", "And now?"][: 1 + i % 2]}
        for i in range(6)
    ]
    with serving_model(run_config(target, None, ("ngram-simple",), n_slots=2)) as served:
        done = subprocess.run(
            [
                sys.executable, scripts / "speed_bench.py", "--url", f"127.0.0.1:{served.port}", "--osl", "40",
                "--concurrency", "3", "--output", "out.json", "--extra-inputs",
                '{"temperature": 0, "ignore_eos": true}',
            ],
            cwd=tmp_path, env=stand_ins(tmp_path, rows), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["completed_samples"], record["failed_samples"]) == (6, 0)
    assert [row["category"] for row in record["summary"]] == ["coding", "qa", "overall"]
    assert all(result["completion_tokens"] == 40 * result["turns"] for result in record["results"])
    assert record["summary"][2]["draft_n"] > 0
    assert record["summary"][2]["avg_pred_t_s"] > 0
