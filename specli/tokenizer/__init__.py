"""Tokenizers and chat templates of GGUF files. Imported lazily: the rendering process needs none of it but its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specli.tokenizer.stream import StreamDecoder
    from specli.tokenizer.template import ChatTemplate
    from specli.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "StreamDecoder", "Tokenizer"]

_MODULES = {"ChatTemplate": "template", "StreamDecoder": "stream", "Tokenizer": "tokenizer"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
