"""The compiled C library: where it lies, its structs and functions (native.h), its numbers (exports.c), its threads.

`SPECLI_NATIVE_LIBRARY` names another build of the library, which the sanitizer tests use; `SPECLI_CPU` an instruction
set, for comparisons.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from specli.errors import ResourceError, UsageError
from specli.kernels.cpu.topology import hardware_threads, physical_cores
from specli.kernels.threads import ThreadConfig


class View(ctypes.Structure):
    """`struct view`: rows of 4-byte elements."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64), ("width", ctypes.c_int64))


class WeightStruct(ctypes.Structure):
    """`struct weight`: repacked strips, or a stack that is repacked strip by strip when needed."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("strip_bytes", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("type", "n_out", "n_in", "n_experts", "n_strips", "is_mapped")),
        *((name, ctypes.c_void_p) for name in ("source", "is_ready", "n_ready")),
    )


class CacheStruct(ctypes.Structure):
    """`struct kv_cache`: keys or values of one layer."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("slot_bytes", "head_bytes", "row_bytes")),
        *((name, ctypes.c_int32) for name in ("type", "head_size")),
    )


class Op(ctypes.Structure):
    """`struct op`: one recorded operation."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("code", "extent", "step", "reserved")),
        *((name, View) for name in ("out", "x", "y", "z", "e", "a", "b", "c")),
        ("weight", ctypes.POINTER(WeightStruct) * 2),
        ("image", ctypes.c_void_p),
        ("p", ctypes.c_void_p * 2),
        ("k", CacheStruct),
        ("v", CacheStruct),
        ("n", ctypes.c_int64 * 4),
        ("f", ctypes.c_float * 2),
        ("table", ctypes.c_void_p),
        ("n_experts", ctypes.c_int64),
    )


class ProgramStruct(ctypes.Structure):
    """`struct program`: a list of operations, part of which is repeated."""

    _fields_ = (
        ("ops", ctypes.POINTER(Op)),
        *((name, ctypes.c_int32) for name in ("n_ops", "repeat_from", "repeat_to", "reserved")),
        ("shared", ctypes.c_void_p),
    )


class LinkStruct(ctypes.Structure):
    """`struct link` (candidates.c): a sampler that shortens or scales a sorted list."""

    _fields_ = (("code", ctypes.c_int32), ("n", ctypes.c_int32), ("value", ctypes.c_float))


class ChainStruct(ctypes.Structure):
    """`struct chain` (candidates.c): such samplers one after the other, and room for what is left."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("n_links", "n_changed")),
        ("links", ctypes.POINTER(LinkStruct)),
        *((name, ctypes.c_void_p) for name in ("changed", "changes", "places", "logits", "probabilities")),
        ("n", ctypes.c_int32),
    )


class _Export(ctypes.Structure):
    """`struct export` (exports.c): a number by name."""

    _fields_ = (("kind", ctypes.c_char_p), ("name", ctypes.c_char_p), ("value", ctypes.c_int64))


_STRUCTS: dict[str, type[ctypes.Structure]] = {
    "view": View, "weight": WeightStruct, "kv_cache": CacheStruct, "op": Op, "program": ProgramStruct,
    "link": LinkStruct, "chain": ChainStruct,
}  # fmt: skip


class Exports:
    """The library's numbers by kind and name (exports.c): operations, links of sampler chains, limits.

    Args:
        path: The library, for messages.
        numbers: Kind, name → number; the kind `layout` has the sizes of structs and the offsets of their fields.

    Attributes:
        numbers: As given.

    Raises:
        ResourceError: A struct is laid out otherwise than here.
    """

    def __init__(self, path: Path, numbers: Mapping[tuple[str, str], int]) -> None:
        self._path, self.numbers = path, numbers
        found = {name: value for (kind, name), value in numbers.items() if kind == "layout"}
        expected = {name: ctypes.sizeof(struct) for name, struct in _STRUCTS.items()}
        for name, struct in _STRUCTS.items():
            expected.update((f"{name}.{field[0]}", getattr(struct, field[0]).offset) for field in struct._fields_)
        for name in sorted({*found, *expected}):
            if found.get(name) != expected.get(name):
                raise self._other_version(f"{name} is {found.get(name)}, expected {expected.get(name)}")

    def number(self, kind: str, name: str) -> int:
        """The code of an `operation` or `link`, or the value of a `limit`.

        Raises:
            ResourceError: The library has none of that name.
        """
        try:
            return self.numbers[kind, name]
        except KeyError:
            raise self._other_version(f"it has no {kind} {name}") from None

    def _other_version(self, what: str) -> ResourceError:
        return ResourceError(f"{self._path}: native CPU library is of another version ({what})")

    @classmethod
    def of(cls, library: ctypes.CDLL, path: Path) -> Exports:
        """Reads the table of a library whose functions are declared."""
        length = ctypes.c_int()
        rows = library.specli_exports(ctypes.byref(length))[: length.value]
        return cls(path, {(row.kind.decode(), row.name.decode().lower()): row.value for row in rows})


_INT, _POINTER, _INT64 = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "specli_exports": (ctypes.POINTER(_Export), (ctypes.POINTER(_INT),)),
    "kernels_at": (_POINTER, (_INT, ctypes.POINTER(_INT))),
    "kernels_name": (ctypes.c_char_p, (_POINTER,)),
    "kernels_key": (ctypes.c_char_p, (_POINTER,)),
    "pool_new": (_POINTER, (_INT, ctypes.c_char_p, _INT, _INT, _INT, _INT)),
    "pool_free": (None, (_POINTER,)),
    "pool_size": (_INT, (_POINTER,)),
    "strip_bytes": (_INT64, (_INT, _INT)),
    "weight_repack": (None, (_POINTER, _INT, ctypes.POINTER(WeightStruct), _POINTER, _INT)),
    "chain_sample": (_INT, (ctypes.POINTER(ChainStruct), _POINTER, _INT, ctypes.c_double)),
    "program_run": (None, (_POINTER, _POINTER, _POINTER, *(_INT,) * 5)),
}


def _path() -> Path:
    chosen = os.environ.get("SPECLI_NATIVE_LIBRARY")
    if chosen:
        return Path(chosen)
    folder = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if path.is_file():
            return path
    raise ResourceError("native CPU library is not built (no C compiler at install time)")


@cache
def native_library() -> ctypes.CDLL:
    """The library with its functions declared.

    Raises:
        ResourceError: The library was not built, cannot be loaded, or is not of this version.
    """
    path = _path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ResourceError(f"{path}: cannot load the native CPU library: {error}") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ResourceError(f"{path}: native CPU library has no function {name}") from None
        function.restype, function.argtypes = result, arguments
    Exports.of(library, path)
    return library


@cache
def native_exports() -> Exports:
    """The numbers of the library in use.

    Raises:
        ResourceError: As for `native_library`.
    """
    return Exports.of(native_library(), _path())


class InstructionSet(NamedTuple):
    """The kernels of one instruction set.

    Attributes:
        key: As `SPECLI_CPU` spells it.
        name: For people.
        table: Address of the kernel table.
    """

    key: str
    name: str
    table: int


def instruction_sets(library: ctypes.CDLL) -> dict[str, InstructionSet]:
    """What this processor runs, best first, by key."""
    found: dict[str, InstructionSet] = {}
    usable = ctypes.c_int()
    index = 0
    while table := library.kernels_at(index, ctypes.byref(usable)):
        if usable.value:
            key = library.kernels_key(table).decode()
            found[key] = InstructionSet(key, library.kernels_name(table).decode(), table)
        index += 1
    return found


def chosen_set(library: ctypes.CDLL, key: str | None) -> InstructionSet:
    """The instruction set of that key; without one that of the variable `SPECLI_CPU`, or the best.

    Raises:
        UsageError: This processor does not run it, or there is no such key.
    """
    found = instruction_sets(library)
    asked = key or os.environ.get("SPECLI_CPU")
    if not asked:
        return next(iter(found.values()))
    if asked not in found:
        source = "" if key else "SPECLI_CPU: "
        raise UsageError(f"{source}this processor has no {asked!r} kernels, expected one of {', '.join(found)}")
    return found[asked]


class Pool:
    """Native threads.

    Executors with the same placement share a pool: a draft model's threads do not spin against its target's.
    """

    def __init__(self, n_threads: int, config: ThreadConfig) -> None:
        self.library = native_library()
        cpus = config.cpu_mask or frozenset()
        mask = bytes(cpu in cpus for cpu in range(max(cpus) + 1)) if cpus else b""
        self.handle = self.library.pool_new(n_threads, mask, len(mask), config.strict, config.poll, config.priority)
        if not self.handle:
            raise ResourceError(f"cannot start {n_threads} threads: out of memory")
        self.n_threads = int(self.library.pool_size(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.pool_free(self.handle)


_pools: WeakValueDictionary[tuple[object, ...], Pool] = WeakValueDictionary()


def thread_counts(config: ThreadConfig) -> tuple[int, int]:
    """Threads for single-token steps and for batches."""
    plain = physical_cores() if config.n_threads is None else config.n_threads
    plain = plain if plain > 0 else hardware_threads()
    batch = plain if config.n_threads_batch is None else config.n_threads_batch
    return plain, batch if batch > 0 else hardware_threads()


def shared_pool(config: ThreadConfig, n_threads: int) -> Pool:
    """A pool of at least `n_threads` threads placed as `config` says."""
    key = (config.cpu_mask, config.strict, config.poll, config.priority)
    pool = _pools.get(key)
    if pool is None or pool.n_threads < n_threads:
        pool = _pools[key] = Pool(n_threads, config)
    return pool
