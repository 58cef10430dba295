"""`specli synth`."""

from __future__ import annotations

from specli.cli.invocation import Invocation
from specli.cli.show import show_instead
from specli.errors import UnsupportedError


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        UnsupportedError: Always, so far.
    """
    if show_instead(invocation):
        return
    raise UnsupportedError(
        "specli synth: measuring is not available yet", hint="specli generate --json reports one run"
    )
