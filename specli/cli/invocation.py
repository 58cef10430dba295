"""One command under way: its settings, and the streams it writes to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specli.cli.console import Console
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings


@dataclass(frozen=True)
class Invocation:
    """One command under way.

    Attributes:
        settings: Its settings with their origins.
        config: The same as a record tree.
    """

    settings: Settings
    config: CommandConfig

    @contextmanager
    def console(self) -> Iterator[Console]:
        """The streams of the command; warnings about the settings come first."""
        with Console(config=self.config.log) as console:
            for warning in self.settings.warnings:
                console.warn(warning)
            yield console
