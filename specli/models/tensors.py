"""Claims on the tensors of a GGUF file: checked all together before any weight is read, then read in file order.

A network's constructor claims what it needs by name and shape and keeps the `Parameter`s it gets. `Tensors.check` then
refuses, in one error, everything that is missing, misshapen or claimed by nobody (docs/draft-networks.md §1.4), and
`Tensors.load` gives the parameters their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Literal, TypeVar, overload

import numpy as np

from specli.errors import FormatError, listed
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor
from specli.kernels.ops import Array, Executor, Weight

T = TypeVar("T")
Change = Callable[[QuantTensor], QuantTensor]
NO_NUMBERS = np.zeros(1, np.uint8)  # what stands for weights that are not to be read
Need = Literal["required", "optional", "no"]  # "no": never claimed, so a file that has the tensor is refused


class Parameter(Generic[T]):
    """A tensor of the network.

    Attributes:
        value: The matrix or vector as the executor keeps it; there once `Tensors.load` has run.
    """

    value: T

    @classmethod
    def of(cls, value: T) -> Parameter[T]:
        """A parameter whose value is known already, borrowed from another network."""
        parameter = cls()
        parameter.value = value
        return parameter


def value_of(parameter: Parameter[T] | None) -> T | None:
    """The value of a parameter that the file may lack."""
    return None if parameter is None else parameter.value


Matrix = Parameter[Weight]
Vector = Parameter[Array]
Scalar = Parameter[float]


def keep(tensor: QuantTensor) -> QuantTensor:
    """The tensor, unchanged."""
    return tensor


class Tensors:
    """The tensors of one file and who claimed them.

    Args:
        file: An open GGUF file.

    Attributes:
        file: As given.
    """

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self._unclaimed = dict.fromkeys(file.tensors)
        self._reads: dict[str, list[Callable[[Executor, QuantTensor], None]]] = {}
        self._faults: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.file.tensors

    @overload
    def matrix(self, name: str, shape: tuple[int, ...], *, change: Change = keep) -> Matrix: ...
    @overload
    def matrix(self, name: str, shape: tuple[int, ...], need: Need, *, change: Change = keep) -> Matrix | None: ...
    def matrix(
        self, name: str, shape: tuple[int, ...], need: Need = "required", *, change: Change = keep
    ) -> Matrix | None:
        """Claims a matrix `(n_out, n_in)` or a stack `(n_expert, n_out, n_in)`.

        llama.cpp's tools drop leading axes of size 1 when they rewrite a file; the executor gets `shape` all the same.

        Args:
            name: Tensor name with suffix.
            shape: Torch order, as in the file.
            need: Whether it has to be there.
            change: What the executor gets instead: the same rows in another arrangement.

        Returns:
            The parameter; None when the need is "no", or "optional" and the file lacks it.
        """

        def take(executor: Executor, tensor: QuantTensor) -> Weight:
            data = tensor.data if executor.reads_weights else np.broadcast_to(NO_NUMBERS, tensor.data.shape)
            return executor.weight(change(replace(tensor, shape=shape, data=data)))

        return self._claim(name, shape, need, take)

    @overload
    def vector(self, name: str, size: int) -> Vector: ...
    @overload
    def vector(self, name: str, size: int, need: Need) -> Vector | None: ...
    def vector(self, name: str, size: int, need: Need = "required") -> Vector | None:
        """Claims a norm weight, bias or the like, `[size]`; arguments are those of `matrix`."""
        return self._claim(name, (size,), need, lambda executor, tensor: executor.vector(tensor))

    @overload
    def array(self, name: str, shape: tuple[int, ...]) -> Vector: ...
    @overload
    def array(self, name: str, shape: tuple[int, ...], need: Need) -> Vector | None: ...
    def array(self, name: str, shape: tuple[int, ...], need: Need = "required") -> Vector | None:
        """Claims numbers of more than one axis that are no matrix to multiply by; float32 of `shape`."""

        def take(executor: Executor, tensor: QuantTensor) -> Array:
            return executor.vector(tensor).reshape(shape)

        return self._claim(name, shape, need, take)

    @overload
    def scalar(self, name: str) -> Scalar: ...
    @overload
    def scalar(self, name: str, need: Need) -> Scalar | None: ...
    def scalar(self, name: str, need: Need = "required") -> Scalar | None:
        """Claims a tensor of one number, kept as a Python float; arguments are those of `matrix`."""
        return self._claim(name, (1,), need, lambda executor, tensor: float(tensor.dequantise().item()))

    def skip(self, prefix: str) -> None:
        """Knows all tensors whose name starts with `prefix` without reading them (MTP blocks that are not wanted)."""
        for name in [name for name in self._unclaimed if name.startswith(prefix)]:
            del self._unclaimed[name]

    def check(self) -> None:
        """Refuses a file that does not fit the claims.

        Raises:
            FormatError: Names the first tensors that are missing, misshapen or unclaimed, and counts the others.
        """
        faults = self._faults + [f"{name} is not part of the architecture" for name in self._unclaimed]
        if faults:
            architecture = self.file.architecture
            raise FormatError(
                f"{self.file.path}: tensors do not fit architecture {architecture}: {listed(faults, '; ')}"
            )

    def load(self, executor: Executor) -> None:
        """Reads every claimed tensor once per claim, in file order."""
        for name, tensor in self.file.tensors.items():
            for read in self._reads.get(name, ()):
                read(executor, tensor)

    def _claim(
        self, name: str, shape: tuple[int, ...], need: Need, take: Callable[[Executor, QuantTensor], T]
    ) -> Parameter[T] | None:
        tensor = self.file.tensors.get(name)
        if need == "no" or (need == "optional" and tensor is None):
            return None
        parameter: Parameter[T] = Parameter()
        if tensor is None:
            self._faults.append(f"{name} is missing")
            return parameter
        self._unclaimed.pop(name, None)
        if _significant(tensor.shape) != _significant(shape):
            self._faults.append(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")

        def read(executor: Executor, tensor: QuantTensor) -> None:
            parameter.value = take(executor, tensor)

        self._reads.setdefault(name, []).append(read)
        return parameter


def _significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A torch shape without leading axes of size 1 (llama.cpp ignores trailing ones in its reversed order)."""
    leading = next((i for i, n in enumerate(shape) if n != 1), max(0, len(shape) - 1))
    return shape[leading:]
