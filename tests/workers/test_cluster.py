"""Workers on a Ray cluster: what is said when it cannot be used, and the same results as one process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specli._version import __version__
from specli.cli import main
from specli.errors import ResourceError
from specli.kernels.threads import ThreadConfig
from specli.workers.cluster import RayPool, remote_threads
from specli.workers.config import WorkersConfig, read_workers
from specli.workers.dispatch import Dispatcher
from specli.workers.pool import Answer, Death, Failure, Job, Ready
from tests.cli.test_batch import n_lines, settled
from tests.workers.test_side_by_side import N_PROMPTS, compared, generate

RUN = SimpleNamespace(
    files=(), engine=SimpleNamespace(target=SimpleNamespace(executor=SimpleNamespace(describe=lambda: "k")), n_ctx=64),
    drafter_names=(), has_template=False,
)  # fmt: skip


@dataclass(frozen=True)
class Doubling:
    """A role without models; the word `die` ends a worker."""

    def divided(self, worker: int, n_workers: int) -> Doubling:
        return self

    @contextmanager
    def open(self) -> Iterator[Any]:
        yield RUN

    def lines(self, run: Any) -> list[str]:
        return []

    def answer(self, run: Any, task: str) -> str:
        return task * 2


class RayError(Exception):
    pass


class RayTaskError(RayError):
    cause: Exception = OSError("torn\napart")


@dataclass
class FakeRay:
    """As much of Ray's interface as the pool uses; calls are made when they are asked for.

    Attributes:
        on_init: What `init` does.
        n_cpus: Of the cluster.
        versions: What actors say of themselves, instead of the truth.
        error: Raised once by a call of this name.
    """

    on_init: Callable[[], None] = lambda: None
    n_cpus: int = 4
    versions: dict[str, str | None] | None = None
    error: dict[str, Exception] = field(default_factory=dict)
    n_actors: int = 0
    is_shut: bool = False
    __version__ = "9.9"
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def init(self, *arguments: Any, **more: Any) -> None:
        self.on_init()

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.n_cpus)}

    def shutdown(self) -> None:
        self.is_shut = True

    def kill(self, handle: object) -> None:
        pass

    def wait(self, calls: list[Any], **more: Any) -> tuple[list[Any], list[Any]]:
        return calls, []

    def get(self, call: tuple[Callable[..., Any], str, Any]) -> Any:
        method, name, arguments = call
        if name in self.error:
            raise self.error.pop(name)
        if name == "versions" and self.versions is not None:
            return self.versions
        return method(*arguments)

    def remote(self, **options: Any) -> Callable[[type], Any]:
        def handle(actor: Any) -> Any:
            self.n_actors += 1
            return SimpleNamespace(**{
                name: SimpleNamespace(remote=lambda *a, n=name: (getattr(actor, n), n, a))
                for name in ("versions", "open", "answer")
            })  # fmt: skip

        return lambda kind: SimpleNamespace(remote=lambda: handle(kind()))


def pool(monkeypatch: pytest.MonkeyPatch, ray: FakeRay, where: str = "ray,2", n_cpus: int = 1) -> RayPool:
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    return RayPool(Doubling(), read_workers(where), n_cpus=n_cpus)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", WorkersConfig(3)),
        ("ray", WorkersConfig(None, "local")),
        ("ray,2", WorkersConfig(2, "local")),
        ("ray://head:10001", WorkersConfig(None, "ray://head:10001")),
        ("ray://[::1]:10001,16", WorkersConfig(16, "ray://[::1]:10001")),
    ],
)
def test_where_workers_run(text: str, expected: WorkersConfig) -> None:
    assert read_workers(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "0", "257", "-1", "two", "ray,", "ray,0", "ray:2", "ray://head", "ray://:1",
                                  "rayon", "ray://head:0", "ray://head:x", "2,ray", "²"])  # fmt: skip
def test_what_is_no_place_for_workers(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|is named"):
        read_workers(text)


def test_threads_are_those_of_each_worker() -> None:
    assert remote_threads(ThreadConfig()) == ThreadConfig(1, 1)
    assert remote_threads(ThreadConfig(4, 2)) == ThreadConfig(4, 2)


def test_jobs_are_answered_and_a_lost_actor_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One actor is lost at a prompt, and another fails as none should; both prompts are tried again."""
    for error, how in ((RayError(), "its process or machine was lost"), (RayTaskError(), "OSError: torn")):
        ray, results, lines = FakeRay(error={"answer": error}), dict[int, str](), list[str]()

        def take(worker: int, found: Answer | Failure, results: dict[int, str] = results) -> None:
            assert isinstance(found, Answer)
            assert found.index not in results
            results[found.index] = found.result

        work = Dispatcher(pool(monkeypatch, ray), lambda ready: None, take, lines.append, pause=0)
        work.run([Job(i, f"prompt {i}", "ab"[i % 2]) for i in range(5)], lambda: False)
        assert results == {0: "aa", 1: "bb", 2: "aa", 3: "bb", 4: "aa"}
        assert ray.n_actors == 3
        assert [line.partition(" at ")[0] for line in lines] == [f"worker 1 died ({how})"]


def test_without_a_number_there_are_as_many_as_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool(monkeypatch, FakeRay(n_cpus=9), "ray", n_cpus=2).n_workers == 4


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(n_cpus=3)
    with pytest.raises(ResourceError) as caught:
        pool(monkeypatch, ray, "ray,2", n_cpus=2)
    assert str(caught.value) == "--workers ray,2: the Ray cluster has 3 CPUs, 2 workers need 2 CPUs each"
    assert ray.is_shut


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"specli": None, "node": "far"}, f"worker 1 on far has no specli, here is {__version__}"),
        ({"specli": "0.0.1", "node": "far"}, f"worker 1 on far has specli 0.0.1, here is {__version__}"),
    ],
)
def test_other_versions_on_the_cluster_are_refused(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str | None], message: str
) -> None:
    workers = pool(monkeypatch, FakeRay(versions=said))
    workers.start(0)
    [(_, event)] = workers.events(0)
    assert isinstance(event, Failure)
    assert (str(event.error), event.index) == (message, None)


def raising(error: Exception) -> Callable[[], None]:
    def init() -> None:
        raise error

    return init


MISMATCH = (
    "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.8.1\n"
    "This process on Ray Client was started with:\n    Ray: 9.9\n    Python: 3.11.7\n"
)


def test_other_ray_or_python_on_the_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is Ray's (`ray/_private/utils.py`, 2.60)."""
    monkeypatch.setattr("specli.workers.cluster._check_port", lambda where: None)
    with pytest.raises(
        ResourceError, match=r"^ray://h:1: the cluster has Ray: 2.9.0, Python: 3.8.1; here are Ray: 9.9, P"
    ):
        pool(monkeypatch, FakeRay(on_init=raising(RuntimeError(MISMATCH))), "ray://h:1")
    with pytest.raises(ResourceError, match=r"^ray://h:1: no Ray cluster answers: ray client connection timeout$"):
        pool(monkeypatch, FakeRay(on_init=raising(ConnectionError("ray client connection timeout"))), "ray://h:1")


def test_cluster_lost_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = pool(monkeypatch, FakeRay(error={"versions": ConnectionError("gone")}))
    workers.start(0)
    with pytest.raises(ResourceError, match="the Ray cluster: lost on the way: gone"):
        workers.events(0)


def test_a_model_that_a_machine_does_not_have_is_said_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doubling, "open", lambda self: raising(ResourceError("m.gguf: not found"))())
    workers = pool(monkeypatch, FakeRay())
    workers.start(0)
    assert workers.events(0) == []
    [(_, event)] = workers.events(0)
    assert isinstance(event, Failure)
    assert str(event.error).endswith(": m.gguf: not found")


def test_events_travel_as_bytes() -> None:
    for event in (Ready((), "k", 1, (), (), False, ()), Answer(1, "x"), Death("x")):
        assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("ray", "error: --workers ray needs Ray, which is not installed\nhint: pip install 'specli[ray]'\n"),
        ("ray://127.0.0.1:9", "error: ray://127.0.0.1:9: no Ray cluster answers: "),
    ],
)
def test_no_ray_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workers: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text('"one"\n')
    monkeypatch.setitem(sys.modules, "ray", None if workers == "ray" else FakeRay())  # type: ignore[arg-type]
    assert main(["generate", "-m", "demo", "--prompts", "p.jsonl", "--workers", workers]) == 1
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert err.count("\n") == 2


def test_cpus_of_this_machine_are_not_for_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text('"one"\n')
    assert main(["generate", "-m", "demo", "--prompts", "p.jsonl", "--workers", "ray", "-C", "1"]) == 2
    assert "--workers ray does not go with --cpu-mask" in capsys.readouterr().err


# A real cluster on this machine, only for its own user


@pytest.fixture
def real_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(pytest.importorskip("ray", reason="Ray is not installed"), "init"):
        pytest.skip("Ray is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.mark.slow
@pytest.mark.usefixtures("real_ray")
def test_two_actors_give_what_one_process_gives(tmp_path: Path) -> None:
    options = ("-md", "demo", "--spec-type", "draft-eagle3,ngram-mod", "--temp", "0.8", "--seed", "3")
    assert compared(tmp_path / "ray", *options, "--workers", "ray,2") == compared(tmp_path / "one", *options)


def actors_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes of the actors, which hang below Ray's own."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    parents = {int(row[0]): int(row[1]) for row in rows}

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != process.pid:
            pid = parents.get(pid, 0)
        return pid == process.pid

    return [int(row[0]) for row in rows if row[2].startswith("ray::Actor") and is_ours(int(row[0]))]


@pytest.mark.slow
@pytest.mark.usefixtures("real_ray")
def test_a_killed_actor_loses_no_prompt(tmp_path: Path) -> None:
    options = ("--temp", "0", "--spec-type", "ngram-mod", "-n", "200", "--ignore-eos", "-c", "512")
    expected, killed = compared(tmp_path / "one", *options)[0], list[int]()

    def kill_one(process: subprocess.Popen[str]) -> None:
        if not killed and n_lines(tmp_path / "out.jsonl.part") >= 1 and (found := actors_of(process)):
            killed.append(found[0])
            os.kill(found[0], signal.SIGKILL)
        time.sleep(0.02)

    code, _, errors = generate(tmp_path, *options, "--workers", "ray,2", during=kill_one)
    assert code == 0, errors
    assert killed
    assert settled(tmp_path / "out.jsonl") == expected
    assert len(expected) == N_PROMPTS


@pytest.mark.slow
@pytest.mark.usefixtures("real_ray")
def test_interrupt_ends_actors(tmp_path: Path) -> None:
    def interrupt(process: subprocess.Popen[str]) -> None:
        if n_lines(tmp_path / "out.jsonl.part") >= 1:
            os.kill(process.pid, signal.SIGINT)
            process.wait()

    code, _, errors = generate(
        tmp_path, "-n", "400", "--ignore-eos", "-c", "512", "--workers", "ray,2", during=interrupt
    )
    assert code == 130
    assert errors.splitlines()[-2].endswith("of 10 prompts are done; --resume does the rest")
