"""What a conversion is asked to do and what it did, as frozen records shared with the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

MtpMode = Literal["with", "only", "without"]
"""Trunk and MTP blocks in one file (default), `--mtp`, `--no-mtp`."""

OUTTYPES = (
    "auto", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k",
)  # fmt: skip
"""Values of `--outtype`; those after `q8_0` go beyond llama.cpp's converter."""


@dataclass(frozen=True)
class ConvertConfig:
    """One conversion; each field is the `specli convert` option of the same name.

    Attributes:
        source: Checkpoint directory, or a hub id `user/repo` when no such directory exists.
        outfile: File name, template (`{ftype}`, `{outtype}`, `{}`, upper case `{FTYPE}`, `{OUTTYPE}`), existing
            directory (default name inside it), or None (default name inside the source directory).
        outtype: One of `OUTTYPES`.
        target: `--target-model-dir`: directory, GGUF file or hub id of the target a drafter was trained for.
        mtp: Which of trunk and MTP blocks to write.
        vocab_only: Write metadata and tokenizer, no tensors.
        remote: `source` is a hub id even if a directory of that name exists.
        offline: Never touch the network; hub ids must be in the local cache.
        hf_token: Access token of the hub.
        model_name: Overrides `general.name`.
        metadata: JSON file with full key names that override authorship keys.
        target_layers: Boundaries to tap (0 = embeddings, i = input of layer i), overriding the checkpoint's list.
        rope_theta: Overrides the drafter's rope base where trainers disagree (docs/checkpoints.md §7).
        norm_before_residual: Overrides the EAGLE-3 switch where a checkpoint lacks it.
        sample_from_anchor: Whether the anchor's position predicts, where the checkpoint does not say.
        borrow_embeddings: Leave the drafter's own embeddings out, so that the target's are read.
        split_max_tensors: Most tensors per shard, 0 = no limit.
        split_max_bytes: Most bytes of tensor data per shard, 0 = no limit.
        no_tensor_first_split: Leave the first shard without tensors.
        dry_run: Plan only; nothing is written.
        check: Target GGUF with which the written drafter is paired afterwards. With a GGUF as `source` nothing is
            converted and only the pairing is checked.
    """

    source: str | Path
    outfile: Path | None = None
    outtype: str = "auto"
    target: str | Path | None = None
    mtp: MtpMode = "with"
    vocab_only: bool = False
    remote: bool = False
    offline: bool = False
    hf_token: str | None = field(default=None, repr=False)
    model_name: str | None = None
    metadata: Path | None = None
    target_layers: tuple[int, ...] | None = None
    rope_theta: float | None = None
    norm_before_residual: bool | None = None
    sample_from_anchor: bool | None = None
    borrow_embeddings: bool | None = None
    split_max_tensors: int = 0
    split_max_bytes: int = 0
    no_tensor_first_split: bool = False
    dry_run: bool = False
    check: Path | None = None


@dataclass(frozen=True)
class TensorRow:
    """One line of the dry-run table.

    Attributes:
        sources: Checkpoint names it is made from; empty for computed tensors such as rope factors.
        name: GGUF name.
        shape: Torch order.
        type: Quant type label such as "bf16".
        n_bytes: Size in the file, before padding.
    """

    sources: tuple[str, ...]
    name: str
    shape: tuple[int, ...]
    type: str
    n_bytes: int


@dataclass(frozen=True)
class ConvertReport:
    """What was planned and, unless it was a dry run, written.

    Attributes:
        layout: Recognised source layout, for example "eagle3: AngelSlim / vLLM".
        architecture: `general.architecture` of the file.
        paths: Files written (or that would be), shards in order.
        tensors: Rows in file order.
        borrowed: GGUF names the drafter takes from its target at run time.
        unused: Checkpoint tensors deliberately left out, each with the reason.
        metadata: Key to value as written; arrays over 64 entries as their length.
        notes: What was chosen where the checkpoint leaves a choice (tap layers, defaults), one sentence each.
        warnings: What the user should look at, one sentence each.
        fit: Findings of `check`; empty when not asked for.
        n_bytes: Bytes of all files.
        seconds: Time spent reading, converting and writing.
    """

    layout: str
    architecture: str
    paths: tuple[Path, ...]
    tensors: tuple[TensorRow, ...]
    borrowed: tuple[str, ...] = ()
    unused: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fit: tuple[str, ...] = ()
    n_bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON view for `--dry-run --json`; field names are a contract, additions only."""
        return {"schema": "specli.convert/1", **asdict(self), "paths": [str(path) for path in self.paths]}


@dataclass(frozen=True)
class Progress:
    """Where a conversion stands; passed to the callback after each tensor and every few megabytes.

    Attributes:
        n_done: Tensors finished.
        n_tensors: Tensors in all.
        bytes_done: Output bytes produced.
        n_bytes: Output bytes in all.
        name: Tensor being written.
    """

    n_done: int
    n_tensors: int
    bytes_done: int
    n_bytes: int
    name: str


OnProgress = Callable[[Progress], None]
