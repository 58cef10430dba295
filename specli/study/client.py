"""A client that puts load on a server with OpenAI's routes and sees when each token comes.

It works with any such server; what llama.cpp's and specli's say beyond OpenAI (`timings`, with `draft_n` and, from
specli, `drafters`) is taken where it is. Needs httpx.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import httpx

from specli.errors import ResourceError, UsageError
from specli.study.compare import StudyPrompt
from specli.study.load import DraftCount, Level, LoadStudy, Reply

TICK = 0.1  # seconds between looks at whether to stop
BUSY = 503
UNAUTHORIZED = (401, 403)
MAX_ERROR = 200  # characters


@dataclass(frozen=True)
class ServerConfig:
    """A server and how it is asked.

    Attributes:
        url: Its address; scheme and `/v1` may be missing.
        api_key: Shown with every request; None = none.
        model: Name in the requests; None = none.
        timeout: Seconds that a request may take, waiting for a busy server included.
        streams: Answers come token by token, so that times of tokens are known.
        chats: Prompts are messages; else texts to be continued.
        fields: Members of every request, such as `max_tokens` and `temperature`.
    """

    url: str
    api_key: str | None = None
    model: str | None = None
    timeout: float = 600.0
    streams: bool = True
    chats: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """How requests come.

    Attributes:
        concurrency: So many are kept under way; None = they come at a rate.
        rate: So many arrive per second on average, at random and independently (a Poisson process); None = see above.
    """

    concurrency: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class ClientPlan:
    """How a server is measured.

    Attributes:
        loads: One level each.
        repeats: How often the prompts are gone through at each.
        seed: Of the arrivals.
        on_progress: Is told (requests done, requests in all, what runs).
        is_stopped: Asked again and again; true ends the measurement with what there is.
    """

    loads: Sequence[Load]
    repeats: int = 1
    seed: int = 1
    on_progress: Callable[[int, int, str], None] = lambda done, total, what: None
    is_stopped: Callable[[], bool] = lambda: False


def base_url(text: str) -> str:
    """The address without `/v1`, with a scheme.

    Raises:
        UsageError: It is none.
    """
    url = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_right = (
            parts.scheme in ("http", "https") and bool(host) and not any(map(str.isspace, host)) and parts.port != 0
        )
    except ValueError:
        is_right = False
    if not is_right:
        raise UsageError(f"{text}: expected the address of a server, such as http://127.0.0.1:8080")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def measure_server(config: ServerConfig, prompts: Sequence[StudyPrompt], plan: ClientPlan) -> LoadStudy:
    """Asks a server under each load.

    Raises:
        UsageError: The address is none.
        ResourceError: The server cannot be reached, or wants a key.
    """
    return asyncio.run(_measure(replace(config, url=base_url(config.url)), prompts, plan))


async def _measure(config: ServerConfig, prompts: Sequence[StudyPrompt], plan: ClientPlan) -> LoadStudy:
    headers = {} if config.api_key is None else {"Authorization": f"Bearer {config.api_key}"}
    # A connection each: llama-server may close an idle one in the moment in which it is used again.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=config.url, headers=headers, limits=limits, timeout=config.timeout, trust_env=False
    ) as http:
        source = await _until(plan.is_stopped, _greet(http, config)) or {"server": config.url, "model": None}
        request = {**config.fields, "stream": config.streams, "chat": config.chats, "n_prompts": len(prompts)}
        study = LoadStudy(source, {**request, "repeats": plan.repeats, "timeout": config.timeout})
        n_turns = sum(1 + len(prompt.turns) for prompt in prompts) * plan.repeats
        for number, load in enumerate(plan.loads):
            if plan.is_stopped():
                break
            level = Level((source["model"] or "server").rpartition("/")[2], load.concurrency, load.rate)
            study.levels.append(level)
            watched = _Watched(level, number * n_turns, len(plan.loads) * n_turns, plan)
            await _run_level(http, config, load, list(prompts) * plan.repeats, watched)
        return study


@dataclass
class _Watched:
    """A level with the progress of the whole study."""

    level: Level
    n_before: int
    total: int
    plan: ClientPlan

    def take(self, reply: Reply) -> None:
        level = self.level
        level.replies.append(reply)
        under = f"{level.concurrency} at once" if level.rate is None else f"{level.rate:g} per second"
        self.plan.on_progress(self.n_before + len(level.replies), self.total, f"{level.name}: {under}")


async def _greet(http: httpx.AsyncClient, config: ServerConfig) -> dict[str, Any]:
    """Waits until the server has loaded its model; what it says about itself.

    Raises:
        ResourceError: It cannot be reached, or wants a key.
    """
    deadline = time.monotonic() + config.timeout
    found: dict[str, Any] = {"server": config.url, "model": config.model}
    try:
        while (await http.get("/health")).status_code == BUSY and time.monotonic() < deadline:
            await asyncio.sleep(TICK)
        props, models = await http.get("/props"), await http.get("/v1/models")
    except httpx.HTTPError as error:
        raise ResourceError(f"{config.url}: {_words(error)}", hint="--server takes a server that runs") from None
    if models.status_code in UNAUTHORIZED:
        raise ResourceError(f"{config.url}: the server refuses the key", hint="give one with --api-key")
    listed = (_json(models).get("data") or [{}])[0]
    own = _json(props)
    settings = own.get("default_generation_settings") or {}
    types = (settings.get("params") or {}).get("speculative.types")
    named = [name for name in types.split(",") if name != "none"] if isinstance(types, str) else []
    return found | {
        "model": config.model or listed.get("id"),
        "build": own.get("build_info"),
        "n_slots": own.get("total_slots"),
        "n_ctx": settings.get("n_ctx"),
        "drafters": named or None,  # llama-server says none whatever its drafters are
    }


async def _run_level(
    http: httpx.AsyncClient, config: ServerConfig, load: Load, prompts: Sequence[StudyPrompt], watched: _Watched
) -> None:
    level, plan = watched.level, watched.plan
    start = time.perf_counter()
    n_begun = 0

    async def converse(prompt: StudyPrompt) -> None:
        nonlocal n_begun
        messages: list[dict[str, str]] = []
        for turn, text in enumerate((prompt.text, *prompt.turns)):
            messages.append({"role": "user", "content": text})
            n_begun += 1
            asked = _Asked(http, config, start)
            reply = await asked.ask(prompt, turn, messages if config.chats else text)
            watched.take(reply)
            if reply.error is not None:
                break
            messages.append({"role": "assistant", "content": asked.text})

    async def one_after_another(source: Iterator[StudyPrompt]) -> None:
        for prompt in source:
            await converse(prompt)

    async def arriving() -> None:
        chance, tasks, due = random.Random(plan.seed), [], 0.0
        assert load.rate is not None
        try:
            for prompt in prompts:
                due += chance.expovariate(load.rate)
                await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
                tasks.append(asyncio.ensure_future(converse(prompt)))
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def kept_under_way() -> None:
        source = iter(prompts)
        await asyncio.gather(*(one_after_another(source) for _ in range(load.concurrency or 1)))

    await _until(plan.is_stopped, arriving() if load.rate is not None else kept_under_way())
    level.seconds = time.perf_counter() - start
    level.n_cut = n_begun - len(level.replies)


async def _until(is_stopped: Callable[[], bool], work: Any) -> Any:
    """The result of the work; None if it was stopped before."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not is_stopped():
            await asyncio.wait({task}, timeout=TICK)
        return task.result() if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Asked:
    """One request and what has come of its answer.

    Attributes:
        text: The answer so far.
    """

    def __init__(self, http: httpx.AsyncClient, config: ServerConfig, start: float) -> None:
        self.text = ""
        self._http = http
        self._config = config
        self._start = start
        self._came: list[float] = []
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._finish: str | None = None
        self._n_retries = 0

    async def ask(self, prompt: StudyPrompt, turn: int, content: Any) -> Reply:
        """Sends it, again while the server is busy; whatever goes wrong is in the reply."""
        config = self._config
        body = {**config.fields, "stream": config.streams, "messages" if config.chats else "prompt": content}
        if config.streams:
            body["stream_options"] = {"include_usage": True}
        if config.model is not None:
            body["model"] = config.model
        begun, error = time.perf_counter(), None
        try:
            await asyncio.wait_for(self._send(json.dumps(body).encode()), config.timeout)
        except (asyncio.TimeoutError, TimeoutError):
            error = f"no answer within {config.timeout:g} s"
        except httpx.HTTPError as failure:
            error = _words(failure)
        except _AnswerError as failure:
            error = str(failure)
        return self._reply(prompt, turn, begun, error)

    async def _send(self, body: bytes) -> None:
        path = "/v1/chat/completions" if self._config.chats else "/v1/completions"
        while True:
            async with self._http.stream(
                "POST", path, content=body, headers={"Content-Type": "application/json"}
            ) as answer:
                if answer.status_code != BUSY or "retry-after" not in answer.headers:
                    await self._take(answer)
                    return
                await answer.aread()
                pause = _seconds(answer.headers["retry-after"])
            self._n_retries += 1
            await asyncio.sleep(pause)

    async def _take(self, answer: httpx.Response) -> None:
        if answer.status_code != httpx.codes.OK:
            raise _AnswerError(f"status {answer.status_code}: {_message(await answer.aread())}")
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            await answer.aread()
            record = _json(answer)
            if "choices" not in record:
                raise _AnswerError("the answer is no completion")
            self._take_record(record)
            self._came.clear()
            return
        async for event in _events(answer):
            self._take_record(event)
        if self._finish is None:
            raise _AnswerError("the stream ended before the answer did")

    def _take_record(self, record: Mapping[str, Any]) -> None:
        """An answer, or a piece of it."""
        if record.get("error"):
            raise _AnswerError(_message(json.dumps(record).encode()))
        self._usage = record.get("usage") or self._usage
        self._timings = record.get("timings") or self._timings
        for choice in record.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or choice
            text = part.get("content") or part.get("text") or ""
            self.text += text
            if text or part.get("reasoning_content"):
                self._came.append(time.perf_counter())
            self._finish = choice.get("finish_reason") or self._finish

    def _reply(self, prompt: StudyPrompt, turn: int, begun: float, error: str | None) -> Reply:
        usage, timings, came = self._usage, self._timings, self._came
        counts = [
            DraftCount(str(each.get("type")), _count(each, "draft_n"), _count(each, "draft_n_accepted"))
            for each in timings.get("drafters") or ()
        ]
        return Reply(
            prompt=prompt.id,
            category=prompt.category,
            turn=turn,
            begun_ms=1e3 * (begun - self._start),
            latency_ms=1e3 * (time.perf_counter() - begun),
            first_ms=1e3 * (came[0] - begun) if came else None,
            gaps_ms=tuple(1e3 * (after - before) for before, after in pairwise(came)),
            prompt_n=_count(usage, "prompt_tokens") or _count(timings, "prompt_n"),
            predicted_n=_count(usage, "completion_tokens") or _count(timings, "predicted_n") or len(came),
            draft_n=_count(timings, "draft_n"),
            draft_n_accepted=_count(timings, "draft_n_accepted"),
            drafters=tuple(counts),
            prompt_ms=_figure(timings, "prompt_ms"),
            predicted_ms=_figure(timings, "predicted_ms"),
            prompt_per_second=_figure(timings, "prompt_per_second"),
            predicted_per_second=_figure(timings, "predicted_per_second"),
            finish=self._finish,
            n_retries=self._n_retries,
            error=error,
        )


class _AnswerError(Exception):
    """The server answered, and not with a completion."""


async def _events(answer: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
    """The events of a stream."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                try:
                    event = json.loads(data)
                except ValueError:
                    raise _AnswerError("an event of the stream is not valid JSON") from None
                if isinstance(event, dict):
                    yield event


def _json(answer: httpx.Response) -> dict[str, Any]:
    """The body as an object; empty if it is none."""
    try:
        record = answer.json()
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _message(body: bytes) -> str:
    """What an error's body says, in one line."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = error if isinstance(error, str) else str(error["message"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:MAX_ERROR] or "no text"


def _words(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "nothing answers there"
    return " ".join(str(error).split()) or type(error).__name__


def _seconds(text: str) -> float:
    """`Retry-After` in seconds; 1 for a date."""
    return float(text) if text.isdecimal() else 1.0


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _figure(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, int | float) else None
