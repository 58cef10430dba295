"""Ctrl-C at every moment: noticed once, at the right place, and never lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from specli.cli.conversation.lines import input_waiter, plain_reader
from specli.cli.interrupt import InterruptFlag


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_noticed_and_the_second_raises() -> None:
    with InterruptFlag() as interrupt:
        press()
        assert interrupt.is_set
        with pytest.raises(KeyboardInterrupt):
            press()


def test_one_that_nobody_answered_raises_where_the_user_is_asked() -> None:
    with InterruptFlag() as interrupt:
        press()
        with pytest.raises(KeyboardInterrupt), interrupt.raising():
            raise AssertionError("not reached")
        with interrupt.raising():
            pass  # it counts once
        press()
        interrupt.is_set = False  # an answer was cut short
        with interrupt.raising():
            pass


def test_one_while_the_user_is_asked_raises_and_one_afterwards_is_noticed() -> None:
    before = signal.getsignal(signal.SIGINT)
    with InterruptFlag() as interrupt:
        with pytest.raises(KeyboardInterrupt), interrupt.raising():
            press()
        assert not interrupt.is_set
        press()
        assert interrupt.is_set
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal in place of stdin; what is written to the descriptor is typed."""
    typed, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield typed
    os.close(typed)


def test_lines_of_a_terminal_are_read_one_by_one(keyboard: int) -> None:
    os.write(keyboard, b"one\ntwo\n")
    read = plain_reader()
    assert [read("> "), read("> ")] == ["one", "two"]
    os.write(keyboard, b"\x04")
    with pytest.raises(EOFError):
        read("> ")


def test_a_signal_ends_the_wait_for_a_line(keyboard: int) -> None:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        plain_reader()("> ")
    timer.join()


def test_a_signal_whose_handler_has_run_before_the_wait_does_not_end_it(keyboard: int) -> None:
    """Only a line does."""
    noticed = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: noticed.append(1))
    timers = [
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)),
        threading.Timer(0.06, os.write, (keyboard, b"line\n")),
    ]
    for timer in timers:
        timer.start()
    try:
        input_waiter(sys.stdin)()
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGUSR1, previous)
    assert noticed
    assert sys.stdin.readline() == "line\n"
    assert signal.set_wakeup_fd(-1) == -1
