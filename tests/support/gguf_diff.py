"""What two GGUF files, or a file and its recorded description, disagree about."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specli.gguf.file import GGUFFile
from specli.gguf.write import GGUFWriter


def pairs(file: GGUFFile) -> dict[str, tuple[str, Any]]:
    """Key → kind and value, in file order."""
    found = {}
    for key in list(file.metadata.keys()):
        if key.startswith("specli.target."):  # which no converter but this one writes
            continue
        kind = file.metadata.kind(key)
        found[key] = (kind, file.metadata.require(key, kind))
    return found


def without_origin(path: Path) -> bytes:
    """The file as it would be without the keys about its target."""
    file = GGUFFile.open(path)
    copy = path.with_suffix(".copy")
    with GGUFWriter(copy, file.architecture) as writer:
        for key, (kind, value) in pairs(file).items():
            writer.add(key, kind, value)
        for name, tensor in file.tensors.items():
            writer.add_tensor(name, tensor.type, tensor.shape, tensor.data)
    return copy.read_bytes()


def describe(file: GGUFFile) -> dict[str, list[dict[str, Any]]]:
    """The form of `../shared/golden/zoo/*/gguf/*.json` (tests/golden/README.md): long arrays and data as SHA-256."""
    metadata = []
    for key, (kind, value) in pairs(file).items():
        if isinstance(value, list) and len(value) > 64:
            compact = json.dumps(value, separators=(",", ":")).encode()
            digest = hashlib.sha256(compact).hexdigest()
            metadata.append({"key": key, "type": kind, "count": len(value), "sha256": digest, "first": value[:8]})
        else:
            metadata.append({"key": key, "type": kind, "value": value})
    tensors = [
        {
            "name": name,
            "shape": list(reversed(tensor.shape)),
            "type": tensor.type.name,
            "sha256": hashlib.sha256(tensor.data.tobytes()).hexdigest(),
        }
        for name, tensor in file.tensors.items()
    ]
    return {"metadata": metadata, "tensors": tensors}


def differences(ours: Path, golden: Mapping[str, Any]) -> list[str]:
    """Lines that say what differs; empty when nothing does, order included."""
    found = []
    described = describe(GGUFFile.open(ours))
    for part, label in (("metadata", "key"), ("tensors", "name")):
        names, expected = [row[label] for row in described[part]], [row[label] for row in golden[part]]
        if names != expected:
            found.append(f"{part}: {[n for n in names if n not in expected]} too many, order or missing: {expected}")
        by_name = {row[label]: row for row in golden[part]}
        found += [
            f"{row[label]}: {row} instead of {by_name[row[label]]}"
            for row in described[part]
            if row[label] in by_name and row != by_name[row[label]]
        ]
    return found
