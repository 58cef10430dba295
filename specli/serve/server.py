"""The server's life: it listens, loads, serves, and drains when it is asked to end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from specli.engine.config import RequestConfig
from specli.engine.load import Run
from specli.errors import ResourceError, UsageError
from specli.serve.app import Service
from specli.serve.config import ServeConfig
from specli.serve.worker import Worker

BACKLOG = 1024
HEADER_TIME = 20  # seconds
LAST_WORDS = 2  # seconds for error events after the grace


UNIX = ".sock"
"""How a host ends that is the path of a Unix socket."""


def listen_all(config: ServeConfig) -> list[socket.socket]:
    """A listening socket for each address, or none at all.

    Raises:
        UsageError: One port is to be chosen freely for several addresses.
        ResourceError: As `listen`.
    """
    if not config.port and sum(not host.endswith(UNIX) for host in config.hosts) > 1:
        raise UsageError("--port 0 is not supported with multiple TCP addresses")
    found: list[socket.socket] = []
    try:
        for host in config.hosts:
            found.append(listen(replace(config, host=host), is_alone=len(config.hosts) == 1))
    except ResourceError:
        for each in found:
            each.close()
        raise
    return found


def listen(config: ServeConfig, *, is_alone: bool = True) -> socket.socket:
    """A socket that listens on the one address; clients may connect from now on.

    Args:
        config: Names the address.
        is_alone: An IPv6 address may stand for IPv4, too.

    Raises:
        ResourceError: The address is not there, or in use.
    """
    if config.host.endswith(UNIX):
        return _listen_unix(Path(config.host))
    where = f"{config.host}:{config.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)  # without its name asyncio holds small pieces back
    except (OSError, UnicodeError) as error:
        raise ResourceError(
            f"cannot listen on {where}: {error}", hint="--host takes an address of this machine"
        ) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not is_alone:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        found.close()
        raise ResourceError(
            f"cannot listen on {where}: {error}", hint="choose another --port, or 0 for a free one"
        ) from None
    return found


def _listen_unix(path: Path) -> socket.socket:
    """A Unix socket; one that a server left behind which is no more is replaced.

    Raises:
        ResourceError: The path cannot be bound, or somebody listens there.
    """
    found = socket.socket(socket.AF_UNIX)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            if path.is_socket() and probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()
        found.bind(str(path))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ResourceError(f"cannot listen on {path}: {error}", hint="choose another path for --host") from None
    return found


class Server:
    """Serves a model until `stop`.

    Args:
        config: Settings.
        base: A generation by the command line's settings.
        variables: Template variables of the command line.
        open_run: Opens the model; called in the engine's thread.
        on_ready: Called with the model once it is loaded, in the engine's thread.
    """

    def __init__(
        self,
        config: ServeConfig,
        base: RequestConfig,
        variables: Mapping[str, Any],
        open_run: Callable[[], AbstractContextManager[Run]],
        on_ready: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self._config = config
        self._service = Service(config, base, variables)
        self._open_run = open_run
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: _Http | None = None

    def run(self, *listening: socket.socket) -> None:
        """Serves; returns when the server has drained.

        Raises:
            SpecliError: The model cannot be loaded.
        """
        asyncio.run(self._run(list(listening)))

    def stop(self) -> None:
        """Takes no more requests and lets those under way finish; may be called from any thread."""
        if self._loop is not None and self._http is not None:
            http = self._http
            with suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._drain, http)

    async def _run(self, listening: list[socket.socket]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        application = self._service.application()
        self._http = http = _Http(
            uvicorn.Config(
                application,
                loop="asyncio",
                http=partial(_Connection, patience=min(HEADER_TIME, self._config.timeout or HEADER_TIME)),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(self._config.grace) + LAST_WORDS,
            )
        )
        ended = asyncio.Event()

        def end() -> None:
            ended.set()
            http.should_exit = True

        worker = self._service.worker = Worker(self._opened, loop, end)
        with _signals(loop, lambda: self._drain(http)):
            worker.start()
            await http.serve(sockets=listening)
            worker.stop()
            if self._service.loaded is not None or worker.error is not None:
                await ended.wait()
        self._service.close()
        if worker.error is not None:
            raise worker.error

    @contextmanager
    def _opened(self) -> Iterator[Run]:
        with self._open_run() as run:
            self._on_ready(run)
            self._service.load(run)
            yield run

    def _drain(self, http: _Http) -> None:
        """The first time requests get their grace, the second time none."""
        assert self._loop is not None
        if http.should_exit:
            http.force_exit = True
            self._service.worker.stop()
            return
        http.should_exit = True
        self._loop.call_later(self._config.grace, self._service.worker.stop)


class _Connection(H11Protocol):
    """A connection that has to send a request's headers in time; the body's time is the gate's.

    Args:
        patience: Seconds from the first byte, or from the connection, to the end of the headers.
        settings: Of the base class.
    """

    def __init__(self, *, patience: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The time begins."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """The time ends with the headers, and begins again with the next request's."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is waited for."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._forget()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._patience, self.transport.abort)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Http(uvicorn.Server):
    """uvicorn without signal handlers of its own, which would raise the signal again at the end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, drain: Callable[[], None]) -> Iterator[None]:
    """While entered, SIGTERM and SIGINT drain; only in the main thread, which is the one that gets signals."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            loop.add_signal_handler(number, drain)
    except (RuntimeError, ValueError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, previous[number])
