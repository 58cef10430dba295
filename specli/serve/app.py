"""The routes: llama.cpp's server (`tools/server/server.cpp`, b11434) and OpenAI's, on one engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from specli.engine.config import RequestConfig
from specli.engine.load import Run
from specli.engine.loop import Engine
from specli.engine.sequence import Sequence, Slot
from specli.engine.slot_file import model_mark, put_slot, read_slot, take_slot, write_slot
from specli.errors import ResourceError, SpecliError, UnsupportedError
from specli.serve.answer import Answer, stream
from specli.serve.chat import Chat, ChatPrompts
from specli.serve.config import ServeConfig
from specli.serve.errors import RequestError
from specli.serve.fields import Params, flag, read_mix, read_params, read_prompts
from specli.serve.gate import Gate, Receive, Send, json_response
from specli.serve.page import page_response
from specli.serve.records import (
    BUILD,
    ChatForm,
    CompletionForm,
    Context,
    Form,
    NativeForm,
    settings_record,
)
from specli.serve.worker import Worker

Value = TypeVar("Value")

RETRY_AFTER = 1  # seconds
MAX_PROMPTS = 256  # in one request
MAX_NAME = 240  # bytes of the name of a saved slot
N_READERS = 2  # threads that parse bodies, render templates and tokenize
CONSTRAINTS = ("grammar", "json_schema", "response_format", "tools")  # fields that have a grammar compiled

DISABLED = {
    "/infill": "Infill is not supported by this server",
    "/embedding": "This server does not support embeddings. Start it with `--embeddings`",
    "/embeddings": "This server does not support embeddings. Start it with `--embeddings`",
    "/v1/embeddings": "This server does not support embeddings. Start it with `--embeddings`",
    "/rerank": "This server does not support reranking. Start it with `--reranking`",
    "/reranking": "This server does not support reranking. Start it with `--reranking`",
    "/v1/rerank": "This server does not support reranking. Start it with `--reranking`",
    "/v1/reranking": "This server does not support reranking. Start it with `--reranking`",
    "/v1/responses": "The Responses API is not supported by this server",
    "/responses": "The Responses API is not supported by this server",
    "/v1/messages": "The Messages API is not supported by this server",
    "/v1/messages/count_tokens": "The Messages API is not supported by this server",
    "/v1/chat/completions/control": "Running answers cannot be controlled in this server",
    "/v1/audio/transcriptions": "The current model does not support audio input.",
    "/lora-adapters": "LoRA adapters are not supported by this server",
    "/tools": "Built-in tools are not supported by this server",
    "/cors-proxy": "This server has no proxy",
}
"""llama.cpp's routes that specli does not have, and what they answer with status 501."""


def disabled(text: str) -> RequestError:
    """The error of a route that is known, but not at work."""
    return RequestError(text, "not_supported_error")


class ClientGoneError(Exception):
    """The client has closed the connection."""


@dataclass
class Loaded:
    """What routes need of a loaded model.

    Attributes:
        run: The model.
        chat: Renders conversations.
        base: What counts where a request says nothing.
        name: The model's name for clients.
    """

    run: Run
    chat: ChatPrompts
    base: RequestConfig
    name: str

    @cached_property
    def mark(self) -> str:
        """What saved slots belong to."""
        return model_mark(self.run.engine, self.run.loader.file.path)

    @property
    def types(self) -> tuple[str, ...]:
        """Drafter types at work."""
        return self.run.drafter_names

    @property
    def n_slots(self) -> int:
        """Requests that run at once."""
        return len(self.run.engine.slots)


class Service:
    """The routes and what they share. Everything but reading requests happens on the event loop.

    Args:
        config: Settings of the server.
        base: A generation by the command line's settings.
        variables: Template variables of the command line.

    Attributes:
        worker: The engine's thread; set before the first request.
        loaded: The model; None while it is loading.
    """

    def __init__(self, config: ServeConfig, base: RequestConfig, variables: Mapping[str, Any]) -> None:
        self.worker: Worker
        self.loaded: Loaded | None = None
        self._config = config
        self._base = base
        self._variables = variables
        self._answers: set[Answer] = set()
        self._readers = ThreadPoolExecutor(N_READERS, thread_name_prefix="specli-reader")
        self._compilers = ThreadPoolExecutor(1, thread_name_prefix="specli-compiler")
        self._routes: dict[tuple[str, str], Callable[[Request], Coroutine[Any, Any, Response]]] = {
            ("GET", "/health"): self.health,
            ("GET", "/v1/health"): self.health,
            ("GET", "/"): self.page,
            ("GET", "/models"): self.models,
            ("GET", "/v1/models"): self.models,
            ("GET", "/props"): self.props,
            ("POST", "/props"): self.change_props,
            ("GET", "/slots"): self.slots,
            ("POST", "/slots/"): self.change_slot,
            ("GET", "/metrics"): self.metrics,
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/detokenize"): self.detokenize,
            ("POST", "/apply-template"): self.apply_template,
            ("POST", "/chat/completions/input_tokens"): self.input_tokens,
            ("POST", "/v1/chat/completions/input_tokens"): self.input_tokens,
            ("POST", "/completion"): self.complete,
            ("POST", "/completions"): self.complete,
            ("POST", "/v1/completions"): self.complete_openai,
            ("POST", "/chat/completions"): self.complete_chat,
            ("POST", "/v1/chat/completions"): self.complete_chat,
        }

    def load(self, run: Run) -> None:
        """Takes the model; called in the engine's thread."""
        base = self._base
        sampling = run.sampling(base)
        name = min(self._config.aliases, default=run.loader.file.path.name)
        config = self._config
        chat = ChatPrompts(
            run,
            self._variables,
            prefills=config.prefills,
            reasoning_format=config.reasoning_format,
            is_parsed=config.is_parsed,
        )
        run.engine.similarity = config.similarity or 1.0  # nothing is more than all of a prompt
        self.loaded = Loaded(run, chat, replace(base, sampling=sampling), name)

    def close(self) -> None:
        """Ends the reading threads."""
        for threads in (self._readers, self._compilers):
            threads.shutdown(wait=False, cancel_futures=True)

    def application(self) -> Gate:
        """The ASGI application."""
        return Gate(self._dispatch, self._config, lambda: self.loaded is not None)

    async def _dispatch(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answers a request, or has its error raised."""
        method, path = scope["method"], scope["path"]
        if path.startswith("/slots/"):
            scope = {**scope, "path_params": {"slot": path.removeprefix("/slots/")}}
            path = "/slots/"
        handler = self._routes.get(("GET" if method == "HEAD" else method, path))
        if handler is None:
            text = DISABLED.get(path)
            raise RequestError("File Not Found", "not_found_error") if text is None else disabled(text)
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    # -- what the server is ----------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Whether requests are taken."""
        return json_response({"status": "ok"})

    async def page(self, request: Request) -> Response:
        """The chat page."""
        if not self._config.has_page:
            raise RequestError("File Not Found", "not_found_error")
        return page_response()

    async def models(self, request: Request) -> Response:
        """The one model, as OpenAI and Ollama list theirs."""
        loaded = self._loaded()
        run, config = loaded.run, loaded.run.engine.target.config
        record = run.loader.record
        info = {
            "id": loaded.name,
            "aliases": sorted(self._config.aliases),
            "tags": sorted(self._config.tags),
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": int(time.time()),
            "owned_by": "llamacpp",
            "meta": {
                "vocab_type": {"spm": 1, "bpe": 2}.get(run.tokenizer.kind, 2),
                "n_vocab": config.n_vocab,
                "n_ctx": run.engine.n_ctx,
                "n_ctx_train": config.n_ctx_train,
                "n_embd": config.n_embd,
                "n_params": record["n_params"],
                "size": record["bytes"],
                "ftype": record["quant"],
            },
        }
        other = {
            "name": loaded.name,
            "model": loaded.name,
            "modified_at": "",
            "size": "",
            "digest": "",
            "type": "model",
            "description": "",
            "tags": [""],
            "capabilities": ["completion"],
            "parameters": "",
            "details": {
                "parent_model": "",
                "format": "gguf",
                "family": "",
                "families": [""],
                "parameter_size": "",
                "quantization_level": "",
            },
        }
        return json_response({"models": [other], "object": "list", "data": [info]})

    async def props(self, request: Request) -> Response:
        """Settings of server and model."""
        loaded, config = self._loaded(), self._config
        run, tokenizer = loaded.run, loaded.run.tokenizer
        defaults = Params(loaded.base, ping_interval=config.ping_interval)
        settings = settings_record(defaults, loaded.base.sampling.settings(), loaded.types, run.tokenizer.eog_ids)
        return json_response(
            {
                "default_generation_settings": {"params": settings, "n_ctx": run.engine.n_ctx},
                "total_slots": loaded.n_slots,
                "model_alias": loaded.name,
                "model_ftype": run.loader.record["quant"],
                "model_path": str(run.loader.file.path),
                "modalities": {"vision": False, "video": False, "audio": False},
                "endpoint_slots": config.has_slots,
                "endpoint_props": config.has_props,
                "endpoint_metrics": config.has_metrics,
                "ui": config.has_page,
                "chat_template": loaded.chat.template.source,
                "bos_token": _token_text(tokenizer.texts, tokenizer.bos_id),
                "eos_token": _token_text(tokenizer.texts, tokenizer.eos_id),
                "build_info": BUILD,
                "is_sleeping": False,
            }
        )

    async def change_props(self, request: Request) -> Response:
        """Nothing can be changed; llama.cpp has the route all the same."""
        if not self._config.has_props:
            raise disabled("This server does not support changing global properties. Start it with `--props`")
        return json_response({"success": True})

    async def slots(self, request: Request) -> Response:
        """What each slot does."""
        if not self._config.has_slots:
            raise disabled("This server does not support slots endpoint. Start it with `--slots`")
        loaded = self._loaded()
        records = []
        for slot in loaded.run.engine.slots:
            sequence = slot.sequence
            record: dict[str, Any] = {
                "id": slot.index,
                "n_ctx": loaded.run.engine.n_ctx,
                "speculative": bool(loaded.types),
                "is_processing": sequence is not None,
            }
            if sequence is not None:
                record["id_task"] = sequence.number
                n_predict, n_decoded = sequence.request.n_predict, len(sequence.tokens)
                record |= {
                    "n_prompt_tokens": len(sequence.prompt),
                    "n_prompt_tokens_processed": sequence.timings.prompt_n,
                    "n_prompt_tokens_cache": sequence.timings.cache_n,
                    "params": settings_record(
                        Params(sequence.request),
                        sequence.request.sampling.settings(),
                        loaded.types,
                        loaded.run.tokenizer.eog_ids,
                    ),
                    "next_token": [
                        {
                            "has_next_token": not sequence.is_done,
                            "has_new_line": "\n" in sequence.text,
                            "n_remain": -1 if n_predict < 0 else n_predict - n_decoded,
                            "n_decoded": n_decoded,
                        }
                    ],
                }
            records.append(record)
        if request.query_params.get("fail_on_no_slot") and all(record["is_processing"] for record in records):
            raise RequestError("no slot available", "unavailable_error")
        return json_response(records)

    async def change_slot(self, request: Request) -> Response:
        """Saves, restores or erases what a slot holds."""
        folder, loaded = self._config.slot_path, self._loaded()
        if folder is None:
            raise disabled("This server does not support slots action. Start it with `--slot-save-path`")
        number, action = request.path_params["slot"], request.query_params.get("action", "")
        if not (number.isdecimal() and number.isascii() and len(number) < 10):
            raise RequestError("Invalid slot ID")
        if action not in ("save", "restore", "erase"):
            raise RequestError("Invalid action")
        if int(number) >= loaded.n_slots:
            raise RequestError("Invalid slot ID")
        if action == "erase":
            return json_response({"id_slot": int(number), "n_erased": await self._with_slot(int(number), _erase)})
        path = folder / await self._read(request, read_filename)
        begun, threads = time.perf_counter(), asyncio.get_running_loop()
        record: dict[str, Any] = {"id_slot": int(number), "filename": path.name}
        try:
            mark = await threads.run_in_executor(None, lambda: loaded.mark)
            if action == "save":
                state = await self._with_slot(int(number), lambda engine, slot: take_slot(engine, slot, mark))
                record["n_saved"] = len(state.tokens)
                record["n_written"] = await threads.run_in_executor(None, write_slot, path, state)
            else:
                state = await threads.run_in_executor(None, read_slot, path, mark)
                await self._with_slot(int(number), lambda engine, slot: put_slot(engine, slot, state))
                record["n_restored"] = len(state.tokens)
                record["n_read"] = path.stat().st_size
        except UnsupportedError as error:
            raise RequestError(str(error), "not_supported_error") from None
        except ResourceError as error:
            raise RequestError(f"Unable to save slot: {error}", "server_error") from None
        except SpecliError as error:
            raise RequestError(f"Unable to restore slot: {error}") from None
        return json_response({**record, "timings": {f"{action}_ms": (time.perf_counter() - begun) * 1e3}})

    async def _with_slot(self, number: int, work: Callable[[Engine, Slot], Value]) -> Value:
        result: Value = await asyncio.wrap_future(self.worker.call(number, work))
        return result

    async def metrics(self, request: Request) -> Response:
        """Counters as Prometheus text."""
        if not self._config.has_metrics:
            raise disabled("This server does not support metrics endpoint. Start it with `--metrics`")
        open_sequences = [each for answer in self._answers for each in answer.sequences if not each.is_done]
        n_processing = sum(each.slot is not None for each in open_sequences)
        counted = self.worker.metrics
        text = counted.text(n_processing, len(open_sequences) - n_processing)
        headers = {"Process-Start-Time-Unix": str(int(counted.started))}
        return Response(text, 200, headers, media_type="text/plain; version=0.0.4")

    # -- texts and tokens ------------------------------------------------------------------------------------------

    async def tokenize(self, request: Request) -> Response:
        """Text to token ids."""
        loaded = self._loaded()
        return json_response(await self._read(request, lambda body: _tokenize(loaded.run, body)))

    async def detokenize(self, request: Request) -> Response:
        """Token ids to text."""
        loaded = self._loaded()
        return json_response(await self._read(request, lambda body: _detokenize(loaded.run, body)))

    async def apply_template(self, request: Request) -> Response:
        """A conversation as the model gets it."""
        loaded = self._loaded()
        return json_response({"prompt": await self._read(request, loaded.chat.render)})

    async def input_tokens(self, request: Request) -> Response:
        """How many tokens a conversation has."""
        loaded = self._loaded()
        ids = await self._read(request, lambda body: loaded.run.tokenizer.encode_chat(loaded.chat.render(body)))
        return json_response({"object": "response.input_tokens", "input_tokens": len(ids)})

    # -- completions -----------------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Response:
        """llama.cpp's own completion."""
        return await self._answer(request, self._from_prompts, NativeForm)

    async def complete_openai(self, request: Request) -> Response:
        """OpenAI's completion."""
        return await self._answer(request, self._from_openai, CompletionForm)

    async def complete_chat(self, request: Request) -> Response:
        """OpenAI's chat."""
        return await self._answer(request, self._from_chat, ChatForm)

    def _from_prompts(self, body: Mapping[str, Any]) -> tuple[list[Sequence], Params]:
        if body.get("prompt") is None:
            raise RequestError('"prompt" is required')
        loaded = self._loaded()
        return self._sequences(read_prompts(body["prompt"], loaded.run.tokenizer), body)

    def _from_openai(self, body: Mapping[str, Any]) -> tuple[list[Sequence], Params]:
        if flag(body, "echo"):
            raise RequestError("Only no echo is supported")
        for name in ("best_of", "suffix"):
            if body.get(name) is not None:
                raise RequestError(f"Unsupported param: {name}")
        return self._from_prompts(body)

    def _from_chat(self, body: Mapping[str, Any]) -> tuple[list[Sequence], Params]:
        loaded = self._loaded()
        chat = loaded.chat.read(body)
        return self._sequences([loaded.run.tokenizer.encode_chat(chat.prompt)], chat.fields, chat)

    def _sequences(
        self, prompts: list[list[int]], body: Mapping[str, Any], chat: Chat | None = None
    ) -> tuple[list[Sequence], Params]:
        """The generations of a request, in the order of its answer."""
        loaded = self._loaded()
        engine, tokenizer = loaded.run.engine, loaded.run.tokenizer
        params = read_params(
            body,
            loaded.base,
            tokenizer,
            n_slots=loaded.n_slots,
            ping_interval=self._config.ping_interval,
            is_verbose=self._config.is_verbose,
            reuses=self._config.reuses,
            n_vocab=engine.target.config.n_vocab,
        )
        if chat is not None:
            params = chat.applied(params)
        if len(prompts) * params.n > MAX_PROMPTS:
            raise RequestError(
                f"{len(prompts) * params.n} answers are asked for at once, at most {MAX_PROMPTS} are given"
            )
        sequences: list[Sequence] = []
        for prompt in prompts:
            if len(prompt) >= engine.n_ctx:
                raise RequestError(
                    f"request ({len(prompt)} tokens) exceeds the available context size ({engine.n_ctx} tokens), "
                    "try increasing it",
                    "exceed_context_size_error",
                    n_prompt_tokens=len(prompt),
                    n_ctx=engine.n_ctx,
                )
            for number in range(params.n):
                sequence = engine.sequence(prompt, params.numbered(number))
                sequence.reuses = params.reuses
                if number:
                    sequence.twin = sequences[-number]
                elif params.slot >= 0:
                    sequence.wanted_slot = params.slot
                sequences.append(sequence)
        return sequences, params

    async def _answer(
        self,
        request: Request,
        read: Callable[[Mapping[str, Any]], tuple[list[Sequence], Params]],
        form_type: type[NativeForm] | type[CompletionForm] | type[ChatForm],
    ) -> Response:
        loaded = self._loaded()
        self._check_queue(1)
        sequences, params = await self._read(request, read)
        self._check_queue(len(sequences))
        form: Form = form_type(Context(params, loaded.name, loaded.types, loaded.run.tokenizer))
        is_told = params.has_progress and params.is_stream
        answer = Answer(sequences, self.worker, streams=params.is_stream, tells_progress=is_told)
        self._answers.add(answer)
        is_handed_on = False
        try:
            self.worker.submit(answer.tickets)
            first = await _unless_gone(request.receive, answer.next())
            if params.is_stream:
                is_handed_on = True
                return EventStream(stream(answer, form, params, first), lambda: self._leave(answer))
            await _unless_gone(request.receive, answer.wait(first))
            return json_response(form.whole(sequences))
        except ClientGoneError:
            return Response(status_code=499)
        finally:
            if not is_handed_on:
                self._leave(answer)

    def _leave(self, answer: Answer) -> None:
        """The request is over, one way or another."""
        self._answers.discard(answer)
        if not all(each.is_done for each in answer.sequences):
            answer.cancel()

    def _check_queue(self, n_more: int) -> None:
        """Refuses what would wait too long.

        Raises:
            RequestError: The queue is full.
        """
        n_open = sum(not each.is_done for answer in self._answers for each in answer.sequences)
        if n_open + n_more > self._loaded().n_slots + self._config.n_queue:
            raise QueueFullError

    # -- reading ---------------------------------------------------------------------------------------------------

    def _loaded(self) -> Loaded:
        if self.loaded is None:
            raise RequestError("Loading model", "unavailable_error")
        return self.loaded

    async def _read(self, request: Request, read: Callable[[Mapping[str, Any]], Value]) -> Value:
        """Reads a body in another thread, so that long prompts hold nobody up, and grammars only each other.

        Raises:
            RequestError: It is no JSON object, or something in it is wrong.
        """
        try:
            raw = await request.body()
        except ClientDisconnect:
            raise RequestError("the client has left") from None

        def work(body: Mapping[str, Any]) -> Value:
            try:
                return read(body)
            except Exception as error:
                raise RequestError.of(error) from error

        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._readers, parse, raw)
        is_long = any(body.get(name) for name in CONSTRAINTS)
        return await loop.run_in_executor(self._compilers if is_long else self._readers, work, body)


def _erase(engine: Engine, slot: Slot) -> int:
    n_tokens = len(slot.history)
    engine.forget(slot)
    return n_tokens


def read_filename(body: Mapping[str, Any]) -> str:
    """The name of a file in a folder, without any path.

    Raises:
        RequestError: It is something else.
    """
    name = body.get("filename")
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or any(letter in name for letter in '/\\:*?"<>|')
        or name != name.strip(". ")
        or not 0 < len(name.encode()) < MAX_NAME
    ):
        raise RequestError("Invalid filename")
    return name


class QueueFullError(RequestError):
    """Too many requests wait already."""

    def __init__(self) -> None:
        super().__init__("too many requests are waiting, try again later", "unavailable_error")
        self.headers = {"Retry-After": str(RETRY_AFTER)}


class EventStream(Response):
    """Events to a client, for as long as it is there.

    Args:
        events: What is sent.
        leave: Called at the end, whoever ended it.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._leave = leave

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Sends until the events end or the client has gone."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(ClientGoneError):
                await _unless_gone(receive, self._send(send))
        finally:
            self._leave()

    async def _send(self, send: Send) -> None:
        async for chunk in self._events:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, Value]) -> Value:
    """The result of the work.

    Raises:
        ClientGoneError: The client closed the connection before; the work is cancelled.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError
    finally:
        for task in (working, watching):
            if not task.done():
                task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def parse(raw: bytes) -> Mapping[str, Any]:
    """A body as a JSON object.

    Raises:
        RequestError: It is none.
    """
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestError("the request body must be a JSON object")
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _tokenize(run: Run, body: Mapping[str, Any]) -> dict[str, Any]:
    content = body.get("content")
    if content is None:
        return {"tokens": []}
    items = content if isinstance(content, list) else [content]
    if not all(isinstance(item, str) or (isinstance(item, int) and not isinstance(item, bool)) for item in items):
        raise RequestError("'content' must be a string, or a list of strings and tokens")
    ids = read_mix(
        items,
        run.tokenizer,
        add_special=flag(body, "add_special"),
        parse_special=flag(body, "parse_special", default=True),
    )
    if not flag(body, "with_pieces"):
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _piece(run, token)} for token in ids]}


def _piece(run: Run, token: int) -> str | list[int]:
    _check_token(run, token)
    raw = run.tokenizer.piece(token, special=True)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _detokenize(run: Run, body: Mapping[str, Any]) -> dict[str, Any]:
    tokens = body.get("tokens")
    if tokens is None:
        return {"content": ""}
    if not isinstance(tokens, list) or not all(isinstance(each, int) and not isinstance(each, bool) for each in tokens):
        raise RequestError("'tokens' must be a list of token ids")
    for token in tokens:
        _check_token(run, token)
    return {"content": run.tokenizer.decode(tokens, special=True)}


def _check_token(run: Run, token: int) -> None:
    if not 0 <= token < run.tokenizer.n_vocab:
        raise RequestError(f"token {token} is outside the vocabulary of {run.tokenizer.n_vocab}")


def _token_text(texts: Any, token: int | None) -> str:
    return "" if token is None else str(texts[token])
