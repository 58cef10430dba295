"""GGUF files byte by byte, for files that no writer would make."""

import struct
from collections.abc import Sequence

U32, STR, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    """A string as stored."""
    return struct.pack("<Q", len(value)) + value.encode()


def pair(key: str, type: int, value: bytes) -> bytes:
    """A key-value pair; `value` as stored."""
    return text(key) + struct.pack("<I", type) + value


def info(name: str, extents: tuple[int, ...], type: int, offset: int) -> bytes:
    """A tensor info; `extents` with the fastest axis first."""
    return text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, type, offset)


ARCHITECTURE = pair("general.architecture", STR, text("llama"))


def file_bytes(
    pairs: Sequence[bytes] = (ARCHITECTURE,), infos: Sequence[bytes] = (), data: bytes = b"", **header: int
) -> bytes:
    """A file from its parts; `version`, `n_tensors`, `n_pairs` replace the true header fields."""
    fields = {"version": 3, "n_tensors": len(infos), "n_pairs": len(pairs), **header}
    head = struct.pack("<4sIQQ", b"GGUF", *fields.values()) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data
