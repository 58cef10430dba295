"""Tokenizers and chat templates of GGUF files."""

from specli.tokenizer.stream import StreamDecoder
from specli.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer"]
