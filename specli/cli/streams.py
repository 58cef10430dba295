"""The standard streams: UTF-8 whatever the locale says, and there even if the caller closed them."""

from __future__ import annotations

import io
import os
import sys

MODES = {"stdin": ("r", "replace"), "stdout": ("w", "replace"), "stderr": ("w", "backslashreplace")}
"""Mode and handling of what has no UTF-8 form, by stream; in the order of the descriptors."""


def prepare_streams() -> None:
    """Makes the streams usable; called once, before any file is opened.

    A closed stream becomes the null device: the next file opened would get its descriptor and with it all that
    libraries write to it.
    """
    for name, (mode, errors) in MODES.items():
        stream = getattr(sys, name)
        if stream is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors=errors))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def discard_output() -> None:
    """Sends what is still buffered for stdout to the null device; it cannot be written where it should go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
