"""`stats --workers`: acceptance is that of one process, whoever found it; speeds stay with their workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specli.cli import main
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.errors import ResourceError
from specli.workers.dispatch import Dispatcher
from specli.workers.pool import Death, Event, Job, Role
from specli.workers.worker import Answering, Question, Worker
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

PROMPTS = ["the cat the cat", "a b a b a b", "one two one two one", "x y z", "the dog saw the dog"]
SETTINGS = ("-c", "256", "-n", "24", "-t", "1", "--ignore-eos", "--no-spec-adaptive", "--prompts", "p.jsonl", "--json")
DRAFTERS = ("-md", "d.gguf", "--spec-type", "ngram-simple,draft-eagle3", "--spec-ngram-simple-size-n", "1")

TIMES = ("speed", "speed_up", "speed_up_prompt_mean", "speed_up_with_prompt", "prompt_ms", "worker", "workers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("comparing")
    tiny_gguf(made / "t.gguf", "llama")
    tiny_eagle3(made / "d.gguf", follows_target=True)
    (made / "p.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in PROMPTS))
    return made


@dataclass
class HerePool:
    """Workers in this process, each with models of its own; a function may have one die at a job."""

    role: Role
    n_workers: int
    dies: Callable[[int, Job], bool] = lambda worker, job: False
    _open: dict[int, tuple[Any, Worker]] = field(default_factory=dict)
    _said: list[tuple[int, Event]] = field(default_factory=list)

    def start(self, worker: int) -> None:
        context = Worker.open(self.role.divided(worker, self.n_workers))
        self._open[worker] = context, context.__enter__()
        self._said.append((worker, self._open[worker][1].ready()))

    def submit(self, worker: int, job: Job) -> None:
        if self.dies(worker, job):
            self._open.pop(worker)[0].__exit__(None, None, None)
            self._said.append((worker, Death("signal 9")))
        else:
            self._said.append((worker, self._open[worker][1].answer(job)))

    def events(self, timeout: float) -> list[tuple[int, Event]]:
        said, self._said = self._said, []
        return said

    def close(self) -> None:
        for context, _ in self._open.values():
            context.__exit__(None, None, None)


def stats(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["stats", "-m", "t.gguf", *DRAFTERS, *SETTINGS, *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def counts(value: Any) -> Any:
    """A record without times, speeds and names of workers."""
    if isinstance(value, list):
        return [counts(item) for item in value]
    if isinstance(value, dict):
        return {n: counts(v) for n, v in value.items() if n not in TIMES and not n.endswith("_ns")}
    return value


def by_prompt(record: dict[str, Any]) -> dict[str, Any]:
    found = counts(record)
    for row in found["contenders"]:
        row["samples"].sort(key=lambda sample: (sample["prompt"], sample["repeat"]))
    del found["kernels"]  # these name the number of threads
    return dict(found)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[..., None]:
    """Has workers run in this process."""
    monkeypatch.chdir(folder)

    def use(**options: Any) -> None:
        monkeypatch.setattr(
            "specli.cli.opener.open_pool",
            lambda role, config, where: HerePool(role, where.n, **options),
        )

    return use


@pytest.mark.parametrize("n_workers", [1, 3])
def test_counts_are_those_of_one_process(
    here: Callable[..., None], capsys: pytest.CaptureFixture[str], n_workers: int
) -> None:
    here()
    alone = stats(capsys, "--repeat", "2", "--warmup-runs", "1")
    shared = stats(capsys, "--repeat", "2", "--workers", str(n_workers))
    assert by_prompt(shared) == by_prompt(alone)
    drafted = [row["totals"]["timings"] for row in shared["contenders"] if row["types"]]
    assert len(drafted) == 3
    assert all(timings["draft_n"] for timings in drafted)
    assert any(timings["draft_n_accepted"] for timings in drafted)


def test_speeds_stay_with_their_workers(here: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    here()
    record = stats(capsys, "--workers", "2", "--save", "run.json")
    for row in record["contenders"]:
        assert [row[name] for name in ("speed", "speed_up", "speed_up_with_prompt", "prompt_ms")] == [None] * 4
        assert row["totals"]["timings"]["predicted_ns"] == 0
        assert [worker["worker"] for worker in row["workers"]] == [1, 2]
        for worker in row["workers"]:
            mine = [sample for sample in row["samples"] if sample["worker"] == worker["worker"]]
            assert len(mine) == worker["n_requests"]
            n_tokens = sum(sample["timings"]["predicted_n"] - 1 for sample in mine)
            seconds = sum(sample["timings"]["predicted_ns"] for sample in mine) / 1e9
            assert worker["tokens_per_second"] == pytest.approx(n_tokens / seconds)
    assert main(["stats", "show", "run.json"]) == 0
    shown = capsys.readouterr().out
    assert "Tokens per second of each worker" in shown
    assert "ms per draft" not in shown


def test_a_dead_worker_loses_no_prompt(here: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    deaths = iter([True])
    here(dies=lambda worker, job: job.index == 1 and next(deaths, False))
    shared = stats(capsys, "--workers", "2")
    here()
    assert by_prompt(shared) == by_prompt(stats(capsys, "--workers", "2"))


def test_a_prompt_set_aside_ends_the_comparison(here: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    here(dies=lambda worker, job: job.index == 1)
    assert main(["stats", "-m", "t.gguf", *DRAFTERS, *SETTINGS, "--workers", "2"]) == 1
    captured = capsys.readouterr()
    assert captured.err.endswith("error: prompt 2: 2 workers died at it (signal 9)\n")
    assert captured.out == ""


def test_interrupt_before_a_prompt_is_finished(
    here: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here()
    monkeypatch.setattr("specli.workers.dispatch.Dispatcher.run", lambda self, jobs, is_stopped: None)
    assert main(["stats", "-m", "t.gguf", *DRAFTERS, *SETTINGS, "--workers", "2"]) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tune",), "--workers does not go with --tune"),
        (("--replay", "p.jsonl"), "--workers does not go with --replay"),
        (("--plot", "p.svg"), "--workers does not go with --plot"),
        (("--warmup-runs", "1"), "--warmup-runs is for speeds, --workers compares acceptance"),
    ],
)
def test_what_workers_do_not_do_is_refused(
    here: Callable[..., None], capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    here()
    assert main(["stats", "-m", "t.gguf", *DRAFTERS, *SETTINGS, *more, "--workers", "2"]) == 2
    assert message in capsys.readouterr().err


def test_workers_with_other_files_are_refused(folder: Path) -> None:
    """The file changes between the start of the first worker and that of the second."""
    path = tiny_gguf(folder / "changing.gguf", "llama", n_layer=1)

    class Changing(HerePool):
        def start(self, worker: int) -> None:
            if worker == 1:
                tiny_gguf(path.with_suffix(".new"), "llama", n_layer=2).replace(path)
            super().start(worker)

    config = RunConfig(ModelLoadConfig(path, device="cpu", kernels="reference"), n_ctx=64)
    pool = Changing(Answering(config), 2)
    jobs = [Job(index, f"prompt {index}", Question("a", RequestConfig(n_predict=1))) for index in range(3)]
    with pytest.raises(ResourceError, match=r"worker 2 has other files than worker 1: .*changing.gguf.*sha256"):
        Dispatcher(pool, lambda ready: None, lambda worker, result: None, print).run(jobs, lambda: False)
    pool.close()
