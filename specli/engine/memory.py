"""How much memory networks take: counted while they are made without weights, before any weight is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from specli.engine.config import CONTEXT_STEP
from specli.kernels.counting import CountingExecutor


@dataclass(frozen=True)
class Growth:
    """Bytes that grow with the context.

    Attributes:
        base: What an empty context takes.
        per_step: What `CONTEXT_STEP` tokens more take.
    """

    base: int = 0
    per_step: int = 0

    @classmethod
    def through(cls, n_ctx: int, first: int, second: int) -> Growth:
        """From the bytes of a context of `n_ctx` tokens and of one a step larger."""
        return cls(first - (second - first) * n_ctx // CONTEXT_STEP, second - first)

    def at(self, n_ctx: int) -> int:
        """Bytes at a context of `n_ctx` tokens."""
        return self.base + self.per_step * n_ctx // CONTEXT_STEP


@dataclass(frozen=True)
class NetworkMemory:
    """What one network, or a drafter without one, takes, in bytes.

    Attributes:
        device: Where it runs.
        weights: Device → its matrices and vectors as the kernels keep them, experts aside.
        experts: The same for stacks of experts, which are read when a row first needs them.
        cache: Keys, values and recurrent states of all sequences, of layers on that device.
        buffers: What forwards work on there: buffers, constants, programs.
        tables: What a drafter without a network takes from the start.
        elsewhere: Cache and buffers of layers on other devices, one record for each.
    """

    device: str
    weights: Mapping[str, int] = field(default_factory=dict)
    experts: Mapping[str, int] = field(default_factory=dict)
    cache: Growth = Growth()
    buffers: Growth = Growth()
    tables: int = 0
    elsewhere: tuple[NetworkMemory, ...] = ()

    @property
    def parts(self) -> tuple[NetworkMemory, ...]:
        """This record, and those of its layers on other devices."""
        return self, *self.elsewhere

    @property
    def devices(self) -> set[str]:
        """Where it takes memory."""
        return {part.device for part in self.parts}.union(self.weights, self.experts)

    def per_step(self, device: str) -> int:
        """Bytes of `CONTEXT_STEP` tokens more of context on one device."""
        return sum(part.cache.per_step + part.buffers.per_step for part in self.parts if part.device == device)

    def needed(self, device: str, n_ctx: int, *, with_experts: bool = True) -> int:
        """Bytes on one device with a context of `n_ctx` tokens."""
        weights = self.weights.get(device, 0) + (self.experts.get(device, 0) if with_experts else 0)
        here = [part for part in self.parts if part.device == device]
        return weights + sum(part.cache.at(n_ctx) + part.buffers.at(n_ctx) + part.tables for part in here)


def measure_growth(count: Callable[[int], Iterable[CountingExecutor]]) -> list[NetworkMemory]:
    """What networks take, from counts for two small contexts: everything grows evenly with the context.

    Args:
        count: Makes all networks for a context of so many tokens, without weights; gives what counted each.
    """
    n_ctx = CONTEXT_STEP

    def grown(first: CountingExecutor, second: CountingExecutor) -> NetworkMemory:
        return NetworkMemory(
            first.device,
            first.weights,
            first.experts,
            Growth.through(n_ctx, first.n_cache, second.n_cache),
            Growth.through(n_ctx, first.n_buffers, second.n_buffers),
            elsewhere=tuple(grown(part, second.elsewhere[device]) for device, part in first.elsewhere.items()),
        )

    return [grown(*pair) for pair in zip(count(n_ctx), count(n_ctx + CONTEXT_STEP), strict=True)]
