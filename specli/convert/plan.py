"""From tables of expected tensors to what a file will hold, or to one error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specli.convert.changes import Change, Sizes, keep
from specli.convert.checkpoint import Checkpoint
from specli.convert.keys import KeyValues
from specli.convert.lazy import LazyTensor
from specli.convert.outtype import Outtype, tensor_type
from specli.errors import FormatError, listed
from specli.gguf.quant import QuantType

Need = Literal["required", "optional", "borrowed"]
"""Absent: an error; fine; the run-time takes the target's tensor of that name."""


@dataclass(frozen=True)
class Row:
    """One tensor of the output.

    Attributes:
        source: Name in the checkpoint after normalisation; several when one output is made from many.
        name: GGUF name.
        shape: Expected shape of each source as size symbols ("V E"), in torch order; several when the sources differ.
        change: What happens to the values.
        need: Whether it may be absent.
        group: Rows of one group stand together in the file, after the last of their sources.
        integer: Whether the source holds integers.
        place: -1 before all other tensors of the checkpoint, 1 after them, 0 where its source stands.
    """

    source: str | tuple[str, ...]
    name: str
    shape: str | tuple[str, ...]
    change: Change = keep
    need: Need = "required"
    group: str | None = None
    integer: bool = False
    place: int = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """The names as a tuple."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def shapes(self) -> tuple[str, ...]:
        """The expected shape of each source."""
        return (self.shape,) * len(self.sources) if isinstance(self.shape, str) else self.shape


def at(rows: Iterable[Row], source: str, name: str) -> Iterator[Row]:
    """The rows with prefixes for one layer."""
    for row in rows:
        sources = tuple(source + s for s in row.sources)
        yield replace(
            row,
            source=sources[0] if isinstance(row.source, str) else sources,
            name=name + row.name,
            group=None if row.group is None else name + row.group,
        )


@dataclass
class Blueprint:
    """What a layout expects of a checkpoint and writes besides tensors.

    Attributes:
        layout: Name shown to the user.
        architecture: `general.architecture`.
        rows: Expected tensors.
        sizes: Symbols used in the rows' shapes.
        keys: Architecture keys, after the general ones.
        vocabulary: Gives the tokenizer keys; called after the tensors are known to fit.
        first_keys: KeyValues that precede `general.type` (EAGLE-3).
        generated: Computed tensors, written first.
        rename: Checkpoint name to normalised name, or None for a tensor that is deliberately left out.
        left_out: Normalised name, prefix (ending in ".") or suffix (starting with ".") to the reason it is left out.
        tensor_keys: KeyValues that depend on which tensors exist, added after `keys`.
    """

    layout: str
    architecture: str
    rows: list[Row]
    sizes: Sizes
    keys: KeyValues
    vocabulary: Callable[[], KeyValues]
    first_keys: KeyValues = field(default_factory=KeyValues)
    generated: dict[str, LazyTensor] = field(default_factory=dict)
    rename: Callable[[str], str] = str
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor ready to be written."""

    sources: tuple[str, ...]
    name: str
    type: QuantType
    values: LazyTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the file, torch order."""
        return self.values.shape

    @property
    def n_bytes(self) -> int:
        """Bytes in the file, without padding."""
        return self.values.n_elements // self.shape[-1] * self.type.row_bytes(self.shape[-1])


@dataclass(frozen=True)
class TensorPlan:
    """Tensors in file order, what is borrowed, and what is left out with the reason."""

    tensors: list[PlannedTensor]
    borrowed: list[str]
    unused: dict[str, str]
    warnings: list[str]


ALWAYS_LEFT_OUT: Mapping[str, str] = {
    ".rotary_emb.inv_freq": "rope table, computed at run time",
    ".attention.masked_bias": "attention mask",
    ".attention.bias": "attention mask",
}


def _reason(name: str, left_out: Mapping[str, str]) -> str | None:
    """Why a tensor is left out, or None."""
    for pattern, reason in (*left_out.items(), *ALWAYS_LEFT_OUT.items()):
        if name == pattern or (pattern.endswith(".") and name.startswith(pattern)):
            return reason
        if pattern.startswith(".") and name.endswith(pattern):
            return reason
    return None


def plan_tensors(checkpoint: Checkpoint, blueprint: Blueprint, outtype: Outtype) -> TensorPlan:
    """Matches the checkpoint with the blueprint.

    Raises:
        FormatError: Tensors are missing, there twice, misshapen, of the wrong kind or not used; the message lists the
            first ones.
    """
    if "F" not in blueprint.sizes and any("F" in shape.split() for row in blueprint.rows for shape in row.shapes):
        raise FormatError(f"{checkpoint.config.path}: intermediate_size is missing, expected a positive integer")
    faults: list[str] = []
    known: dict[str, tuple[int, str, LazyTensor]] = {}  # normalised name -> position, original name, tensor
    for position, (name, tensor) in enumerate(checkpoint.tensors.items()):
        normalised = blueprint.rename(name)
        if normalised in known:
            faults.append(f"{known[normalised][1]} and {name} are both {normalised}")
        known[normalised] = (position, name, tensor)

    borrowed: list[str] = []
    used: set[str] = set()
    placed: list[tuple[tuple[int, int, int], PlannedTensor]] = []
    fallbacks: list[str] = []
    groups = _group_positions(blueprint.rows, known)
    for order, row in enumerate(blueprint.rows):
        missing = [source for source in row.sources if source not in known]
        if missing:
            if row.need == "borrowed":
                borrowed.append(row.name)
            if row.need == "required" or len(missing) < len(row.sources):
                faults += [f"missing {source}" for source in missing]
            continue
        found = [known[source] for source in row.sources]
        used.update(row.sources)
        expected = zip(found, row.shapes, strict=True)
        wrong = [fault for (_, n, t), shape in expected if (fault := _misfit(row, n, t, shape, blueprint.sizes))]
        if wrong:
            faults += [fault for fault in wrong if fault not in faults]
            continue
        values = row.change([tensor for _, _, tensor in found], blueprint.sizes)
        kind = tensor_type(row.name, values, outtype)
        if kind is QuantType.F16 is not outtype.type:
            fallbacks.append(row.name)
        position = max(position for position, _, _ in found) if row.group is None else groups[row.group]
        placed.append(
            ((row.place, position, order), PlannedTensor(tuple(n for _, n, _ in found), row.name, kind, values))
        )

    unused: dict[str, str] = {}
    for name, (_, original, _) in known.items():
        if name in used:
            continue
        reason = _reason(name, blueprint.left_out)
        if reason is None:
            faults.append(f"unused {original}")
        else:
            unused[original] = reason
    if faults:
        raise FormatError(
            f"{checkpoint.directory}: not a complete {blueprint.layout} checkpoint: {listed(faults, '; ')}"
        )
    tensors = [
        PlannedTensor((), name, tensor_type(name, values, outtype), values)
        for name, values in blueprint.generated.items()
    ]
    tensors += [tensor for _, tensor in sorted(placed, key=lambda item: item[0])]
    return TensorPlan(tensors, borrowed, unused, _fallback_warnings(fallbacks, outtype))


def _fallback_warnings(names: list[str], outtype: Outtype) -> list[str]:
    if not names:
        return []
    size = outtype.type.block_size
    return [
        f"{len(names)} tensors whose rows are not whole {outtype.type.label} blocks of {size} are f16, first {names[0]}"
    ]


def _group_positions(rows: Sequence[Row], known: Mapping[str, tuple[int, str, LazyTensor]]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for row in rows:
        if row.group is not None:
            last = max((known[source][0] for source in row.sources if source in known), default=0)
            positions[row.group] = max(last, positions.get(row.group, 0))
    return positions


def _misfit(row: Row, name: str, tensor: LazyTensor, shape: str, sizes: Sizes) -> str | None:
    """What is wrong with a source tensor, or None."""
    if tensor.is_float is row.integer:
        expected = "integers" if row.integer else "floating point numbers"
        return f"{name} is {tensor.dtype}, expected {expected}"
    expected_shape = tuple(int(s) if s.isdecimal() else sizes[s] for s in shape.split())
    if tensor.shape != expected_shape:
        return f"{name} has shape {list(tensor.shape)}, expected {list(expected_shape)}"
    return None


def plain(value: Any) -> Any:
    """A metadata value as the report shows it: long arrays as their length."""
    return f"{len(value)} values" if isinstance(value, list) and len(value) > 64 else value
