"""The one place where commands get their engine from; tests put a scripted one here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.files import FileIdentity
    from specli.workers.pool import WorkerPool


def open_run(config: RunConfig, report: Callable[[str], None]) -> AbstractContextManager[Run]:
    """Loads target, drafters and tokenizer; importing torch happens here."""
    from specli.engine.load import open_engine

    return open_engine(config, report)


def open_target(config: RunConfig, report: Callable[[str], None]) -> AbstractContextManager[Run]:
    """Opens target and tokenizer for several sets of drafters; weights are read when the first is built."""
    from specli.engine.load import open_target

    return open_target(config, report)


def open_pool(config: RunConfig, n_workers: int) -> WorkerPool:
    """Workers that will load target, drafters and tokenizer each, when they are started."""
    from specli.workers.processes import ProcessPool

    return ProcessPool(config, n_workers)


def file_identities(config: RunConfig) -> tuple[FileIdentity, ...]:
    """The model files by content; they are read whole."""
    from specli.engine.load import file_identities

    return file_identities(config)
