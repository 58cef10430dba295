"""What workers are doing, on a terminal's stderr while they do it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from specli.cli.console import INFO, Console

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress
    from rich.table import Table

REDRAW_SECONDS = 0.2


class Board:
    """A bar over all workers, tokens per second of them together, and a state for each; shown by `board`.

    Args:
        n_jobs: How many there are.
        n_done: Of them, done by an earlier run.
        states: Gives what each worker is doing.
    """

    def __init__(self, n_jobs: int, n_done: int, states: Callable[[], list[str]]) -> None:
        self.n_done = n_done
        self.n_tokens = 0
        self._n_jobs = n_jobs
        self._states = states
        self._begun: float | None = None
        self._drawn = 0.0
        self._live: Live | None = None
        self._bar: Progress | None = None

    def count(self, n_tokens: int) -> None:
        """Another job is done."""
        self.n_done += 1
        self.n_tokens += n_tokens

    def tick(self) -> None:
        """Draws again, if that is due; called again and again while workers work."""
        now = time.monotonic()
        if self._begun is None and any(state.startswith("prompt") for state in self._states()):
            self._begun = now  # loading models does not count
        if self._live is not None and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._live.update(self._picture(), refresh=True)

    def line(self) -> str:
        """Jobs done, tokens per second of all workers together, and what each does."""
        seconds = 0.0 if self._begun is None else time.monotonic() - self._begun
        pace = f", {self.n_tokens / seconds:.0f} tokens/s together" if self.n_tokens and seconds else ""
        states = "; ".join(f"worker {number}: {state}" for number, state in enumerate(self._states(), 1))
        return f"{self.n_done} of {self._n_jobs} prompts{pace}; {states}"

    @contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """Draws on a terminal's stderr while the block runs; whatever the console writes pushes it down."""
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress

        self._bar = Progress(BarColumn(), auto_refresh=False)
        self._task = self._bar.add_task("", total=self._n_jobs)
        self._terminal = RichConsole(file=console.err)
        with console.interrupted_by(self._aside):
            self._draw()
            try:
                yield
            finally:
                self._wipe()

    def _draw(self) -> None:
        """Begins a new drawing where the cursor is: one that began again would wipe what was written since."""
        from rich.live import Live

        self._live = Live(
            self._picture(), console=self._terminal, auto_refresh=False, transient=True, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._live.start(refresh=True)

    def _wipe(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Out of the way while something else is written."""
        self._wipe()
        try:
            yield
        finally:
            self._draw()

    def _picture(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        assert self._bar is not None
        self._bar.update(self._task, completed=self.n_done)
        grid = Table.grid()
        grid.add_row(self._bar)
        grid.add_row(Text(self.line()))
        return grid


@contextmanager
def board(console: Console, n_jobs: int, n_done: int, states: Callable[[], list[str]]) -> Iterator[Board]:
    """A board for the block; drawn only if stderr is a terminal and messages are not turned off."""
    made = Board(n_jobs, n_done, states)
    if not console.err.isatty() or console.config.verbosity < INFO:
        yield made
        return
    shown: AbstractContextManager[None] = made.shown(console)
    with shown:
        yield made
