"""What a slot holds, as a file: a header of JSON in one line, tokens, cells and states, and a digest of all of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specli.engine.loop import Engine
from specli.engine.sequence import Slot
from specli.errors import FormatError, IncompatibleError, UnsupportedError
from specli.files import writing
from specli.kernels.ops import host

MAGIC = "specli.slot/1"
_DIGEST = hashlib.sha256
_MOST_HEADER = 1 << 16  # bytes
_N_SAMPLES, _SAMPLE = 64, 1 << 14  # pieces of a model file, bytes of each


@dataclass(frozen=True)
class SlotState:
    """A copy of what a slot holds.

    Attributes:
        model: What the cells belong to, `model_mark`.
        tokens: `[N]` int32.
        oldest: Lowest position that recurrent layers can go on from, besides 0.
        arrays: Cells and states in the order of `KVCache.arrays`, as bytes.
    """

    model: str
    tokens: npt.NDArray[np.int32]
    oldest: int
    arrays: tuple[bytes, ...]


def model_mark(engine: Engine, path: Path) -> str:
    """A digest of all that makes cells: pieces of the model's file, cache types, context size and executor.

    Args:
        engine: Whose cells they are.
        path: The target's file, or its first shard.
    """
    found = _DIGEST()
    size = path.stat().st_size
    with path.open("rb") as file:
        for number in range(_N_SAMPLES):
            file.seek(number * max(0, size - _SAMPLE) // (_N_SAMPLES - 1))
            found.update(file.read(_SAMPLE))
    cache, executor = engine.target.cache, engine.target.executor
    shapes = [(view.shape, str(view.dtype)) for view in cache.arrays(0, 1)]
    found.update(repr((size, engine.n_ctx, type(executor).__name__, cache.type_labels, shapes)).encode())
    return found.hexdigest()


def take_slot(engine: Engine, slot: Slot, model: str) -> SlotState:
    """Copies what an idle slot holds.

    Raises:
        UnsupportedError: A drafter reads the target's states, which are not kept.
    """
    _check(engine)
    cache, n = engine.target.cache, len(slot.history)
    arrays = tuple(np.ascontiguousarray(host(view)).tobytes() for view in cache.arrays(slot.index, n))
    return SlotState(model, np.array(slot.history, dtype=np.int32), cache.oldest(slot.index), arrays)


def put_slot(engine: Engine, slot: Slot, state: SlotState) -> None:
    """Has an idle slot hold what was copied.

    Raises:
        UnsupportedError: As `take_slot`.
        IncompatibleError: The copy has other sizes than the slot.
    """
    _check(engine)
    cache, executor, n = engine.target.cache, engine.target.executor, len(state.tokens)
    if n > engine.n_ctx:
        raise IncompatibleError(f"the saved slot has {n} tokens, a slot here holds {engine.n_ctx}")
    views = list(cache.arrays(slot.index, n))
    if [len(raw) for raw in state.arrays] != [view.nbytes for view in views]:
        raise IncompatibleError("the saved slot has cells of other sizes")
    engine.forget(slot)
    for view, raw in zip(views, state.arrays, strict=True):
        kind = host(view).dtype
        view[:] = executor.array(np.frombuffer(raw, dtype=kind).reshape(tuple(view.shape)).copy())
    cache.restored(slot.index, n, state.oldest)
    slot.history += state.tokens.tolist()


def write_slot(path: Path, state: SlotState) -> int:
    """Writes the file, whole or not at all; returns its size in bytes.

    Raises:
        ResourceError: It cannot be written, for example because the disk is full.
    """
    header = {
        "format": MAGIC,
        "model": state.model,
        "n_tokens": len(state.tokens),
        "oldest": state.oldest,
        "sizes": [len(raw) for raw in state.arrays],
    }
    digest = _DIGEST()
    n_bytes = 0
    with writing(path) as file:
        for part in (json.dumps(header).encode() + b"\n", state.tokens.tobytes(), *state.arrays):
            digest.update(part)
            n_bytes += file.write(part)
        n_bytes += file.write(digest.digest())
    return n_bytes


def read_slot(path: Path, model: str) -> SlotState:
    """Reads and checks a file.

    Args:
        path: The file.
        model: The mark that it has to have.

    Raises:
        FormatError: It cannot be read, is no such file, or is damaged.
        IncompatibleError: It belongs to another model or other settings.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    end = raw.find(b"\n", 0, _MOST_HEADER) + 1
    size = _DIGEST().digest_size
    try:
        header = json.loads(raw[:end])
        is_ours = header["format"] == MAGIC
        sizes = [int(each) for each in header["sizes"]]
        n_tokens, oldest, mark = int(header["n_tokens"]), int(header["oldest"]), str(header["model"])
    except (ValueError, TypeError, KeyError, RecursionError):
        is_ours = False
    if not is_ours or n_tokens < 0 or min(sizes, default=0) < 0:
        raise FormatError(f"{path}: not a slot saved by specli")
    if end + 4 * n_tokens + sum(sizes) + size != len(raw) or _DIGEST(raw[:-size]).digest() != raw[-size:]:
        raise FormatError(f"{path}: the saved slot is damaged")
    if mark != model:
        raise IncompatibleError(f"{path}: the slot was saved with another model, context size or cache type")
    position = end + 4 * n_tokens
    arrays = []
    for each in sizes:
        arrays.append(raw[position : position + each])
        position += each
    return SlotState(mark, np.frombuffer(raw, np.int32, n_tokens, end), oldest, tuple(arrays))


def _check(engine: Engine) -> None:
    if engine.chain.reads_features:
        raise UnsupportedError("slots are not saved with a drafter that reads the target's states")
