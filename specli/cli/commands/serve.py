"""`specli serve`: many clients over HTTP on one engine."""

from __future__ import annotations

import socket
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from specli.cli import opener
from specli.cli.console import DEBUG, Console
from specli.cli.conversation.repl import template_variables
from specli.cli.invocation import Invocation
from specli.cli.prepare import request_config, run_config
from specli.cli.show import show_instead, show_start
from specli.errors import ResourceError
from specli.serve.config import ServeConfig

if TYPE_CHECKING:
    from specli.engine.load import Run

LOCAL = ("127.0.0.1", "localhost", "::1")


def run(invocation: Invocation) -> None:
    """Runs the command until it is told to end.

    Raises:
        ResourceError: The packages of the extra are missing, or the address cannot be listened on.
        SpecliError: The model cannot be loaded.
    """
    if show_instead(invocation):
        return
    check_packages()
    from specli.serve.server import Server, listen_all

    config = invocation.config
    serve = replace(
        config.serve,
        reasoning_format=config.chat.reasoning_format,
        is_parsed=not config.chat.skip_parsing,
        is_verbose=config.log.verbosity >= DEBUG,
    )
    setup = run_config(invocation.settings, config)
    setup = replace(
        setup,
        n_slots=serve.n_slots,
        n_ctx=serve.slot_context(config.n_ctx),
        speculation=replace(setup.speculation, shared_pool=serve.shares_pool),
    )
    with invocation.console() as console:
        listening = listen_all(serve)
        console.info(f"listening on {', '.join(map(address_of, listening))}, loading the model")
        warn_of_strangers(serve, console)

        def ready(run: Run) -> None:
            show_start(run, invocation.settings, console)
            console.info(
                f"ready: {serve.n_slots} slots of {run.engine.n_ctx} tokens each, at most {serve.n_queue} wait"
            )

        Server(
            serve,
            request_config(config),
            template_variables(config),
            lambda: opener.open_run(setup, console.trace),
            ready,
        ).run(*listening)
        console.info("all requests are done")


def address_of(listening: socket.socket) -> str:
    """Where clients find it."""
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def warn_of_strangers(config: ServeConfig, console: Console) -> None:
    """Without a key other machines should not reach the server."""
    strange = [host for host in config.hosts if host not in LOCAL and not host.endswith(".sock")]
    if not config.api_keys and strange:
        console.warn(f"anybody who reaches {', '.join(strange)} can use this server: --api-key asks for a key")


def check_packages() -> None:
    """Whether the extra is installed.

    Raises:
        ResourceError: It is not.
    """
    missing = [name for name in ("starlette", "uvicorn", "h11") if find_spec(name) is None]
    if missing:
        raise ResourceError(f"specli serve needs {' and '.join(missing)}", hint="pip install 'specli[serve]'")
