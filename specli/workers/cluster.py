"""Workers that are actors of a Ray cluster, on this machine or on many (extra `specli[ray]`).

The actor's class is pickled by value and takes bytes, so that a node without specli, or with another version, can say
so. Ray does not restart actors: the dispatcher does, as it does with processes.
"""

from __future__ import annotations

import logging
import pickle
import platform
import socket
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from specli._version import __version__
from specli.errors import ResourceError, SpecliError
from specli.kernels.threads import ThreadConfig
from specli.workers.config import WorkersConfig
from specli.workers.pool import Death, Event, Failure, Job, Role

CONNECT_SECONDS = 5.0
"""For a cluster's port to answer at all; Ray itself gives up after half a minute."""


def remote_threads(threads: ThreadConfig) -> ThreadConfig:
    """The threads of each worker on a cluster, whose machines may have other cores than this one: one unless given."""
    n = threads.n_threads
    n = n if n is not None and n > 0 else 1
    batch = threads.n_threads_batch
    return ThreadConfig(n, batch if batch is not None and batch > 0 else n, poll=threads.poll)


@dataclass
class _Actor:
    """One worker.

    Attributes:
        handle: Ray's.
        call: The call under way; None if it has none.
        stage: What the call is: `versions`, `open` or `answer`.
    """

    handle: Any
    call: Any
    stage: str = "versions"


class RayPool:
    """One actor per worker.

    Args:
        role: What they do; its threads are those of one worker.
        where: How many, and the cluster.
        n_cpus: CPUs that a worker takes.
        n_gpus: GPUs that a worker takes.

    Attributes:
        n_workers: How many there are.

    Raises:
        ResourceError: Ray is not installed, the cluster cannot be reached, has another version or too few CPUs.
    """

    def __init__(self, role: Role, where: WorkersConfig, *, n_cpus: int, n_gpus: int = 0) -> None:
        self._ray = _import_ray()
        self._where = where
        self._payload = pickle.dumps(role)
        self._actors: dict[int, _Actor] = {}
        self._connect()
        try:
            self.n_workers = self._room(where.n, n_cpus, n_gpus)
        except SpecliError:
            self.close()
            raise
        self._class = self._ray.remote(num_cpus=n_cpus, num_gpus=n_gpus, max_restarts=0, max_task_retries=0)(
            _actor_class()
        )

    def start(self, worker: int) -> None:
        """Starts a worker, or starts it again after its death."""
        with _lost(self._where):
            handle = self._class.remote()
            self._actors[worker] = _Actor(handle, handle.versions.remote())

    def submit(self, worker: int, job: Job) -> None:
        """Gives a job to a worker that has none."""
        actor = self._actors[worker]
        with _lost(self._where):
            actor.stage, actor.call = "answer", actor.handle.answer.remote(pickle.dumps(job))

    def events(self, timeout: float) -> list[tuple[int, Event]]:
        """What workers said; waits for at most `timeout` seconds if there is nothing."""
        calls = [actor.call for actor in self._actors.values() if actor.call is not None]
        if not calls:
            return []
        with _lost(self._where):
            done, _ = self._ray.wait(calls, num_returns=1, timeout=timeout)
        found = [(worker, actor) for worker, actor in self._actors.items() if actor.call in done]
        return [(worker, event) for worker, actor in found if (event := self._event(worker, actor)) is not None]

    def close(self) -> None:
        """Ends all workers at once, and the cluster if it was started here."""
        for actor in self._actors.values():
            self._kill(actor)
        self._actors.clear()
        self._ray.shutdown()

    def _connect(self) -> None:
        ray, where = self._ray, self._where
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they say at length what the error below says in a line
            try:
                if where.ray == "local":
                    ray.init("local", include_dashboard=False, **options)
                else:
                    _check_port(where)
                    ray.init(where.ray, **options)
            except SpecliError:
                raise
            except Exception as error:  # Ray raises what it likes, bare Exceptions and RuntimeErrors among them
                raise _no_cluster(where, error, ray.__version__) from None

    def _room(self, n: int | None, n_cpus: int, n_gpus: int) -> int:
        """How many workers; refuses more than the cluster will ever have room for."""
        with _lost(self._where):
            resources = self._ray.cluster_resources()
        room = int(resources.get("CPU", 0)) // n_cpus
        what = f"{int(resources.get('CPU', 0))} CPUs"
        if n_gpus:
            room = min(room, int(resources.get("GPU", 0)) // n_gpus)
            what += f" and {int(resources.get('GPU', 0))} GPUs"
        if room < (n or 1):
            each = f"{n_cpus} CPU{'s' if n_cpus > 1 else ''}" + (f" and {n_gpus} GPU" if n_gpus else "")
            raise ResourceError(
                f"--workers {self._where}: the Ray cluster has {what}, {n or 1} workers need {each} each",
                hint="with fewer workers, or fewer --threads, it has room",
            )
        return n or room

    def _event(self, worker: int, actor: _Actor) -> Event | None:
        """What the finished call of an actor means; None if it goes on with the next step of starting."""
        errors = self._ray.exceptions
        call, actor.call = actor.call, None
        try:
            said = self._ray.get(call)
        except errors.RayTaskError as error:  # no failure that a worker names
            self._bury(worker)
            return Death(f"{type(error.cause).__name__}: {error.cause}".splitlines()[0])
        except errors.RayError:
            self._bury(worker)
            return Death("its process or machine was lost")
        except ConnectionError as error:
            raise _lost_cluster(self._where, error) from None
        if actor.stage != "versions":
            event: Event = pickle.loads(said)
            return event
        refusal = _refusal(worker, said)
        if refusal is not None:
            self._bury(worker)
            return Failure(None, refusal)
        actor.stage, actor.call = "open", actor.handle.open.remote(self._payload)
        return None

    def _bury(self, worker: int) -> None:
        self._kill(self._actors.pop(worker))

    def _kill(self, actor: _Actor) -> None:
        try:
            self._ray.kill(actor.handle)
        except Exception:
            logging.getLogger(__name__).debug("an actor cannot be ended", exc_info=True)


def _actor_class() -> type:
    """The actor; a local class, which Ray pickles whole and not by the name of its module."""

    class Actor:
        def versions(self) -> dict[str, str | None]:
            import platform
            import socket
            from contextlib import suppress

            version: str | None = None
            with suppress(ImportError):
                from specli._version import __version__ as version
            return {"specli": version, "python": platform.python_version(), "node": socket.gethostname()}

        def open(self, payload: bytes) -> bytes:
            import pickle
            import socket
            from contextlib import ExitStack

            from specli.errors import SpecliError
            from specli.workers.pool import Failure
            from specli.workers.worker import Worker

            self.stack = ExitStack()
            try:
                self.worker = self.stack.enter_context(Worker.open(pickle.loads(payload)))
            except SpecliError as error:
                return pickle.dumps(Failure(None, type(error)(f"{socket.gethostname()}: {error}", hint=error.hint)))
            return pickle.dumps(self.worker.ready())

        def answer(self, payload: bytes) -> bytes:
            import pickle

            return pickle.dumps(self.worker.answer(pickle.loads(payload)))

    return Actor


def _import_ray() -> Any:
    ray: Any = None
    with suppress(ImportError):
        ray = import_module("ray")
    if not hasattr(ray, "init"):  # a folder of that name is a package, too
        raise ResourceError("--workers ray needs Ray, which is not installed", hint="pip install 'specli[ray]'")
    return ray


def _check_port(where: WorkersConfig) -> None:
    assert where.ray is not None
    host, _, port = where.ray.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise _no_cluster(where, error, "") from None


def _no_cluster(where: WorkersConfig, error: Exception, version: str) -> ResourceError:
    """One line for what Ray says in many."""
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        theirs = text.partition("started with: ")[2].partition(" This process")[0].replace(" Python", ", Python")
        return ResourceError(
            f"{where.ray}: the cluster has {theirs}; here are Ray: {version}, Python: {platform.python_version()}",
            hint="all machines need the same Ray and the same minor version of Python",
        )
    if where.ray == "local":
        return ResourceError(f"no Ray cluster can be started here: {text[:200]}")
    if isinstance(error, ImportError) or "grpc" in text:
        return ResourceError(f"{where.ray}: Ray's client is not installed", hint="pip install 'specli[ray]'")
    return ResourceError(
        f"{where.ray}: no Ray cluster answers: {text[:200]}",
        hint="ray start --head starts one, with client port 10001; a cluster that asks for a token wants it here, too",
    )


def _lost_cluster(where: WorkersConfig, error: Exception) -> ResourceError:
    name = "the Ray cluster" if where.ray == "local" else where.ray
    return ResourceError(
        f"{name}: lost on the way: {' '.join(str(error).split())[:200]}", hint="--resume does the rest"
    )


class _lost:  # noqa: N801 - used as a statement
    """Says that the cluster is gone where Ray's client says so."""

    def __init__(self, where: WorkersConfig) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConnectionError):
            raise _lost_cluster(self._where, error) from None


def _refusal(worker: int, said: dict[str, str | None]) -> ResourceError | None:
    """Why a worker's machine cannot be used, if it cannot."""
    if said["specli"] == __version__:
        return None
    has = "no specli" if said["specli"] is None else f"specli {said['specli']}"
    return ResourceError(f"worker {worker + 1} on {said['node']} has {has}, here is {__version__}",
                         hint="install the same version on all machines")  # fmt: skip
