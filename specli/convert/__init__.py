"""Hugging Face checkpoints of targets and drafters to GGUF files that llama.cpp loads as well."""

from specli.convert.config import ConvertConfig, ConvertReport, Progress
from specli.convert.run import convert

__all__ = ["ConvertConfig", "ConvertReport", "Progress", "convert"]
