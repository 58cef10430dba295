"""The one place where commands get their engine from; tests put a scripted one here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specli.engine.config import ModelLoadConfig, RunConfig
    from specli.engine.load import Run
    from specli.files import FileIdentity
    from specli.workers.config import WorkersConfig
    from specli.workers.pool import Role, WorkerPool
    from specli.workers.worker import Answering


def open_run(config: RunConfig, report: Callable[[str], None]) -> AbstractContextManager[Run]:
    """Loads target, drafters and tokenizer; importing torch happens here."""
    from specli.engine.load import open_engine

    return open_engine(config, report)


def open_target(config: RunConfig, report: Callable[[str], None]) -> AbstractContextManager[Run]:
    """Opens target and tokenizer for several sets of drafters; weights are read when the first is built."""
    from specli.engine.load import open_target

    return open_target(config, report)


def open_pool(role: Role, config: RunConfig, where: WorkersConfig) -> WorkerPool:
    """Workers that will load their models when they are started.

    Args:
        role: What they do.
        config: The target and its threads, for the share of a machine that a worker takes.
        where: How many, and where.

    Raises:
        ResourceError: There is no such cluster, or it has no room.
    """
    if where.ray is None:
        from specli.workers.processes import ProcessPool

        return ProcessPool(role, where.n or 1)
    from specli.workers.cluster import RayPool, remote_threads

    threads = remote_threads(config.target.threads)
    n_gpus = sum(device.startswith("cuda") for device in config.target.device.split(","))
    return RayPool(role, where, n_cpus=threads.n_threads or 1, n_gpus=n_gpus)


def answering(config: RunConfig, where: WorkersConfig) -> Answering:
    """The role of workers that answer prompts."""
    from specli.workers.worker import Answering

    return Answering(config if where.ray is None else on_cluster(config))


def on_cluster(config: RunConfig) -> RunConfig:
    """The settings of a worker on a cluster: threads are counted for each, not divided."""
    from specli.workers.cluster import remote_threads

    def remote(load: ModelLoadConfig) -> ModelLoadConfig:
        return replace(load, threads=remote_threads(load.threads))

    return replace(config, target=remote(config.target), draft=None if config.draft is None else remote(config.draft))


def file_identities(config: RunConfig) -> tuple[FileIdentity, ...]:
    """The model files by content; they are read whole."""
    from specli.engine.load import file_identities

    return file_identities(config)
