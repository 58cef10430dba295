"""The progress of workers: on a terminal only, out of the way of what is written, and counting right."""

from __future__ import annotations

import io

import pytest

from specli.cli.board import Board, board
from specli.cli.console import Console
from specli.cli.options.request import LogConfig
from specli.workers.dispatch import Dispatcher
from specli.workers.pool import Death
from tests.workers.test_dispatch import Job, ScriptedPool, answer, ready

CLEAR = "\x1b[2K"
UP = "\x1b[1A"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(err: io.StringIO, verbosity: int = 3) -> str:
    console = Console(out=io.StringIO(), err=err, config=LogConfig(verbosity=verbosity))
    with board(console, 3, 1, lambda: ["prompt 2", "loading"]) as shown:
        shown.count(5)
        shown.tick()
        console.info("a message")
        console.write("data")
    return err.getvalue()


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_terminal_shows_done_and_states() -> None:
    text = drawn(Terminal())
    assert "2 of 3 prompts" in text
    assert "worker 1: prompt 2; worker 2: loading" in text
    assert text.index(CLEAR) < text.index("a message")  # the drawing goes away before the message comes
    after = text[text.index("a message\n") :]
    assert UP not in after[: after.index("2 of 3 prompts")]  # the next drawing does not wipe the message
    assert text.endswith(CLEAR)


def test_nothing_elsewhere_or_when_quiet() -> None:
    assert drawn(io.StringIO()) == "a message\n"
    assert drawn(Terminal(), verbosity=2) == ""


def test_speed_is_tokens_of_all_per_second_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, states = [100.0], ["loading"]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    counted = Board(4, 0, lambda: states)
    counted.tick()
    now[0], states[0] = 150.0, "prompt 1"
    counted.tick()
    now[0] = 152.0
    counted.count(60)
    counted.count(40)
    assert counted.line() == "2 of 4 prompts, 50 tokens/s together; worker 1: prompt 1"


def test_states_of_workers() -> None:
    """A worker dies at its first prompt, comes back, and both end idle; one that never loads is dead."""
    seen: list[list[str]] = []
    deaths = iter([Death("signal 9")])
    pool = ScriptedPool(2, answers=lambda worker, job: next(deaths, None) or answer(job))
    work = Dispatcher(pool, lambda ready: None, lambda worker, found: None, lambda line: None, pause=0.01)
    work.on_tick = lambda: seen.append(work.states())
    work.run([Job(i, f"prompt {i + 1}", "x") for i in range(4)], lambda: False)
    assert seen[0] == ["prompt 1", "prompt 2"]
    assert any(states[0] == "died, starts again" for states in seen)
    assert seen[-1][1] == "idle"
    broken = Dispatcher(
        ScriptedPool(2, loads=lambda worker, n: Death("x") if worker else ready()),
        lambda ready: None, lambda worker, found: None, lambda line: None, pause=0, retries=0,
    )  # fmt: skip
    broken.run([Job(i, f"prompt {i + 1}", "x") for i in range(4)], lambda: False)
    assert broken.states() == ["idle", "dead"]
