"""Whether a run fits into memory, and the context that does when none was asked for (llama.cpp `--fit`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specli.engine.config import CONTEXT_STEP
from specli.engine.memory import NetworkMemory
from specli.errors import ResourceError
from specli.gguf.file import GGUFFile

MIN_FITTED_CONTEXT = 4096
RESERVE_BYTES = 1 << 30  # left free for everything else
_GROUP_FILES = {  # controllers → names of limit and usage, prefix of the counts of whole subtrees
    "": ("memory.max", "memory.current", ""),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


@dataclass(frozen=True)
class Fitted:
    """A context size in tokens, and what the user should know about it."""

    n_ctx: int
    note: str | None = None


def available_bytes(device: str = "cpu") -> int | None:
    """Memory that can be used without swapping, or None where the system does not tell."""
    if device != "cpu":
        import torch

        return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else None
    free = _meminfo()
    limit = cgroup_room()
    return free if limit is None or free is None else min(free, limit)


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def cgroup_room(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the control groups of this process leave, those around them included; None without a limit.

    Args:
        membership: Lines `number:controllers:group`; version 2 has no controllers.
        root: Where version 2 is mounted; the memory controller of version 1 is in a folder below.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    rooms = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        files = _GROUP_FILES.get(controllers)
        if files is not None:
            mounted = root / controllers
            inner = mounted / group.lstrip("/")
            levels = [inner, *inner.parents]  # a container may see its own group as the mounted one
            rooms += [_group_room(level, *files) for level in levels[: levels.index(mounted) + 1]]
    return min((room for room in rooms if room is not None), default=None)


def _group_room(folder: Path, limit: str, usage: str, prefix: str) -> int | None:
    """What one control group leaves; pages of files can be dropped."""
    try:
        most, used = (int((folder / name).read_text(encoding="ascii")) for name in (limit, usage))
        counts = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        files = int(counts[f"{prefix}active_file"]) + int(counts[f"{prefix}inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or the word for no limit
        return None
    return max(0, most - used + files)


def fit_context(
    wanted: int, trained: int, networks: Sequence[NetworkMemory], available: Mapping[str, int | None]
) -> Fitted:
    """The context size in tokens, and a line about it when it is not what one would expect.

    Sizes are rounded up to a multiple of 256 and never exceed the trained context. 0 means the trained context, or as
    much of it as fits beside all that does not grow with it, at least 4096.

    Args:
        wanted: Tokens asked for; 0 = automatic.
        trained: The model's trained context.
        networks: The target, which comes first, and draft networks.
        available: Bytes on each of the target's devices; None = unknown.
    """
    if wanted > 0:
        rounded = -(-wanted // CONTEXT_STEP) * CONTEXT_STEP
        if rounded <= trained:
            return Fitted(rounded)
        note = f"context: {wanted} tokens asked for, the model was trained with {trained}" if wanted > trained else None
        return Fitted(trained, note)
    fitting = trained
    for device, n_bytes in available.items():
        per_step = sum(network.per_step(device) for network in networks)
        if n_bytes is not None and per_step:
            fixed = sum(network.needed(device, 0) for network in networks)
            fitting = min(fitting, max(0, n_bytes - fixed - RESERVE_BYTES) // per_step * CONTEXT_STEP)
    if fitting >= trained:
        return Fitted(trained)
    fitted = min(trained, max(MIN_FITTED_CONTEXT, fitting))
    return Fitted(fitted, f"context: {fitted} of {trained} trained tokens fit into memory (choose with --ctx-size)")


def check_memory(file: GGUFFile, networks: Sequence[NetworkMemory], n_ctx: int, plan: MemoryPlan) -> str | None:
    """Compares what networks take with what is there, before weights are read.

    Experts are read as they are needed, so they alone are no reason to refuse.

    Args:
        file: The target, for the error.
        networks: What is still to be loaded.
        n_ctx: Context.
        plan: Of the whole run, for the error.

    Returns:
        A line about experts that do not all fit, or None.

    Raises:
        ResourceError: The rest does not fit, on some device.
    """
    note = None
    devices = set[str]().union(*(network.devices for network in networks))
    for device in sorted(devices):
        available = available_bytes(device)
        if available is None:
            continue
        certain = sum(network.needed(device, n_ctx, with_experts=False) for network in networks)
        if certain > available:
            raise ResourceError(
                f"{file.path}: not enough memory on {device}: a context of {n_ctx} tokens needs {_mib(certain)} MiB "
                f"({plan.parts()}), {_mib(available)} MiB are available",
                hint="lower --ctx-size, or choose smaller cache types with -ctk and -ctv (-ctkd and -ctvd)",
            )
        experts = sum(network.experts.get(device, 0) for network in networks)
        if certain + experts > available:
            left = _mib(available - certain)
            note = f"memory: of {_mib(experts)} MiB of experts {left} MiB fit; they are read when they are first chosen"
    return note


@contextmanager
def memory_for(file: GGUFFile, what: str, n_ctx: int) -> Iterator[None]:
    """Says which model did not fit when an allocation fails inside.

    Raises:
        ResourceError: It did; other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise ResourceError(
            f"{file.path}: not enough memory for the {what} with a context of {n_ctx} tokens",
            hint="lower --ctx-size, or choose smaller cache types with -ctk and -ctv (-ctkd and -ctvd)",
        ) from None


def _is_out_of_memory(error: Exception) -> bool:
    """Torch has an exception of its own for accelerators, but not for the CPU."""
    is_of_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or is_of_torch


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose, on all devices.

    Attributes:
        weights: The target's matrices and vectors, experts aside.
        experts: The target's experts.
        cache: The target's keys, values and states when the context is full.
        cache_per_token: Its share that grows with the context.
        draft_weights: Matrices of draft networks.
        draft_cache: Their caches.
        draft_tables: Drafters without a network.
        buffers: What forwards of all networks work on.
    """

    weights: int
    experts: int
    cache: int
    cache_per_token: int
    draft_weights: int
    draft_cache: int
    draft_tables: int
    buffers: int

    @classmethod
    def of(cls, networks: Sequence[NetworkMemory], n_ctx: int) -> MemoryPlan:
        """Adds up the target, which comes first, and draft networks."""
        target, *drafts = networks
        return cls(
            weights=sum(target.weights.values()),
            experts=sum(target.experts.values()),
            cache=sum(part.cache.at(n_ctx) for part in target.parts),
            cache_per_token=sum(part.cache.per_step for part in target.parts) // CONTEXT_STEP,
            draft_weights=sum(sum(draft.weights.values()) + sum(draft.experts.values()) for draft in drafts),
            draft_cache=sum(draft.cache.at(n_ctx) for draft in drafts),
            draft_tables=sum(draft.tables for draft in drafts),
            buffers=sum(part.buffers.at(n_ctx) for network in networks for part in network.parts),
        )

    def parts(self) -> str:
        """The purposes that take something, MiB."""
        sizes = {
            "weights": self.weights,
            "experts": self.experts,
            "cache": self.cache,
            "draft weights": self.draft_weights,
            "draft cache": self.draft_cache,
            "draft tables": self.draft_tables,
            "buffers": self.buffers,
        }
        return ", ".join(f"{name} {_mib(size)} MiB" for name, size in sizes.items() if size)

    def line(self) -> str:
        """The plan in one line."""
        return f"memory: {self.parts()}; {self.cache_per_token} bytes of cache per token"


def _mib(n_bytes: int) -> int:
    return round(n_bytes / 2**20)
