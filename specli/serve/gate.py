"""What every request passes: keys, origins, loading, the size of the body, and the patience with slow clients."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from specli.serve.config import ServeConfig
from specli.serve.deadline import Within
from specli.serve.errors import RequestError
from specli.serve.records import dump

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FREE = ("/health", "/v1/health", "/")
"""Paths that need no key."""

MAX_BODY = 32 << 20  # bytes
MAX_TARGET = 8192  # bytes of path and query
NOWHERE = "/.."
"""A path that no route has."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class BodyTooLargeError(RequestError):
    """The body has more than `MAX_BODY` bytes."""

    def __init__(self) -> None:
        super().__init__(f"the request body has more than {MAX_BODY} bytes")
        self.headers = {"Connection": "close"}

    @property
    def code(self) -> int:
        """Status 413: the connection is closed after the answer, as nobody reads the rest."""
        return 413


def json_response(record: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(dump(record), status, headers, media_type="application/json; charset=utf-8")


def error_response(error: RequestError) -> Response:
    """An error as its own answer."""
    return json_response(error.record(), error.code, error.headers)


class Gate:
    """Wraps the application.

    Args:
        app: The routes.
        config: Settings.
        is_ready: Whether the model is loaded.
    """

    def __init__(self, app: App, config: ServeConfig, is_ready: Callable[[], bool]) -> None:
        self._app = app
        self._config = config
        self._is_ready = is_ready

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        prefix = self._config.prefix
        if prefix and scope["path"].startswith(f"{prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(prefix)}
        elif prefix:
            scope = {**scope, "path": NOWHERE}
        headers = Headers(scope=scope)
        has_begun = False

        async def send_in_time(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._add_headers(MutableHeaders(scope=message), headers)
                message["headers"] = [(name.title(), value) for name, value in message["headers"]]
            async with Within(self._config.timeout):
                await send(message)

        try:
            refusal = self._refusal(scope, headers)
            app = self._app if refusal is None else refusal
            await app(scope, self._bounded(receive), send_in_time)
        except asyncio.TimeoutError:  # the connection is closed: the client takes too long
            log.debug("a client takes too long")
        except RequestError as error:
            if not has_begun:
                await error_response(error)(scope, receive, send_in_time)
        except Exception as error:
            log.exception("a request failed")
            if has_begun:
                raise
            await error_response(RequestError.of(error))(scope, receive, send_in_time)

    def _refusal(self, scope: Message, headers: Headers) -> Response | None:
        """An answer that needs no route; None if the routes have to give it."""
        if scope["method"] == "OPTIONS":
            allowed = {
                "Access-Control-Allow-Credentials": "true" if self._config.cors_credentials else "false",
                "Access-Control-Allow-Methods": self._config.cors_methods,
                "Access-Control-Allow-Headers": self._config.cors_headers,
            }
            return Response(b"", 200, allowed, media_type="text/html")
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET:
            return error_response(RequestError("the request's path is too long"))
        keys = self._config.api_keys
        if keys and scope["path"] not in FREE and not _is_known(headers, keys):
            return error_response(RequestError("Invalid API Key", "authentication_error"))
        if not self._is_ready() and scope["path"] != "/":
            return error_response(RequestError("Loading model", "unavailable_error"))
        return None

    def _add_headers(self, answer: MutableHeaders, asked: Headers) -> None:
        answer["Server"] = "specli"
        origin = self._config.cors_origins
        if origin == "*" and self._config.cors_credentials:  # browsers send no credentials to a star
            answer["Access-Control-Allow-Origin"] = asked.get("origin", "")
        elif origin == "localhost":
            given = asked.get("origin", "")
            if _host(given) in LOCAL_HOSTS:
                answer["Access-Control-Allow-Origin"] = given
        else:
            answer["Access-Control-Allow-Origin"] = origin

    def _bounded(self, receive: Receive) -> Receive:
        """Counts the body's bytes; waits for them so long and no longer."""
        n_bytes, is_whole = 0, False

        async def receive_bounded() -> Message:
            nonlocal n_bytes, is_whole
            if is_whole:  # only a disconnect can follow, whenever that is
                return await receive()
            async with Within(self._config.timeout):
                message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > MAX_BODY:
                raise BodyTooLargeError
            is_whole = not message.get("more_body", False)
            return message

        return receive_bounded


def _is_known(headers: Headers, keys: tuple[str, ...]) -> bool:
    """Whether the request shows one of the keys; comparing takes the same time whatever the key."""
    given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
    matches = [hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()) for key in keys]
    return any(matches)


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
