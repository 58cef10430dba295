"""A model file as float64 arrays, for the oracle."""

import numpy as np

from specli.gguf.file import GGUFFile


class Weights:
    """Tensors and keys of a file, and the two operations that need nothing else."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.arch = file.architecture
        self.eps = self.number("attention.layer_norm_rms_epsilon")

    def integer(self, name: str, default: int = 0) -> int:
        return self.file.metadata.get(f"{self.arch}.{name}", "u32", default)

    def number(self, name: str, default: float = 0.0) -> float:
        return self.file.metadata.get(f"{self.arch}.{name}", "f32", default)

    def text(self, name: str, default: str = "") -> str:
        return self.file.metadata.get(f"{self.arch}.{name}", "str", default)

    def flag(self, name: str) -> bool:
        return self.file.metadata.get(f"{self.arch}.{name}", "bool", False)

    def get(self, name: str) -> np.ndarray | None:
        found = self.file.tensors.get(name)
        return None if found is None else found.dequantise().astype(np.float64)

    def need(self, name: str) -> np.ndarray:
        found = self.get(name)
        assert found is not None, name
        return found

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """`x · weightᵀ + bias`; the bias if there is one."""
        bias = self.get(f"{name}.bias")
        return x @ np.atleast_2d(self.need(f"{name}.weight")).T + (0 if bias is None else bias)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """RMS norm over the last axis; x itself where the file lacks the weight."""
        weight = self.get(name)
        return x if weight is None else self.normalise(x) * weight

    def normalise(self, x: np.ndarray) -> np.ndarray:
        """RMS norm without weight."""
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
