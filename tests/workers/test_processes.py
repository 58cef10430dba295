"""Real processes without models: a poison prompt is set aside, all others are answered."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from specli.workers.dispatch import Dispatcher
from specli.workers.pool import Answer, Failure, Job
from specli.workers.processes import ProcessPool


@dataclass(frozen=True)
class Upper:
    """Answers in capitals; the word `poison` kills the process as a lack of memory would."""

    def divided(self, worker: int, n_workers: int) -> Upper:
        return self

    @contextmanager
    def open(self) -> Iterator[Any]:
        executor = SimpleNamespace(describe=lambda: "none")
        engine = SimpleNamespace(target=SimpleNamespace(executor=executor), n_ctx=1)
        yield SimpleNamespace(files=(), engine=engine, drafter_names=(), has_template=False)

    def lines(self, run: Any) -> list[str]:
        return []

    def answer(self, run: Any, task: str) -> str:
        if task == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        return task.upper()


def test_a_poison_prompt_is_set_aside_and_all_others_are_answered() -> None:
    texts = ["a", "poison", "b", "c", "d"]
    found: dict[int, Answer | Failure] = {}
    lines: list[str] = []

    def take(worker: int, result: Answer | Failure) -> None:
        assert result.index is not None
        assert result.index not in found
        found[result.index] = result

    with closing(ProcessPool(Upper(), 2)) as pool:
        work = Dispatcher(pool, lambda ready: None, take, lines.append, pause=0)
        work.run([Job(i, f"prompt {i + 1}", text) for i, text in enumerate(texts)], lambda: False)
    results = {i: getattr(result, "result", None) or str(getattr(result, "error", "")) for i, result in found.items()}
    assert results == {0: "A", 1: "2 workers died at it (signal 9)", 2: "B", 3: "C", 4: "D"}
    assert [line.partition("died")[2] for line in lines] == [
        " (signal 9) at prompt 2, which is tried again",
        " (signal 9) at prompt 2, which is set aside",
    ]
    assert len({line.partition(" died")[0] for line in lines}) == 2  # another worker the second time
