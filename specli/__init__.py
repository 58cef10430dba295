"""specli: speculative decoding of GGUF models on PyTorch, with llama.cpp's flags, statistics and files."""

from specli._version import __version__

__all__ = ["__version__"]
