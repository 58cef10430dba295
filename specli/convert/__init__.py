"""Hugging Face checkpoints of targets and drafters to GGUF files that llama.cpp loads as well.

`convert` is imported when it is asked for: the command line reads the settings at every start.
"""

from typing import TYPE_CHECKING, Any

from specli.convert.records import ConvertConfig, ConvertReport, Progress

if TYPE_CHECKING:
    from specli.convert.run import convert

__all__ = ["ConvertConfig", "ConvertReport", "Progress", "convert"]


def __getattr__(name: str) -> Any:
    """Imports `convert` when it is first asked for, so that the options load without torch."""
    if name != "convert":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specli.convert.run import convert

    return convert
