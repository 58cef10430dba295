"""Choosing between trunk and MTP blocks: `--mtp`, `--no-mtp`, or both in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specli.convert.job import Job
from specli.convert.plan import Row, at
from specli.errors import UsageError

NEXTN = (
    Row("eh_proj.weight", "nextn.eh_proj.weight", "E 2E"),
    Row("enorm.weight", "nextn.enorm.weight", "E"),
    Row("hnorm.weight", "nextn.hnorm.weight", "E"),
    Row("embed_tokens.weight", "nextn.embed_tokens.weight", "V E", need="optional"),
    Row("shared_head.head.weight", "nextn.shared_head_head.weight", "V E", need="optional"),
    Row("shared_head.norm.weight", "nextn.shared_head_norm.weight", "E", need="optional"),
)


def layers(job: Job, trunk: Sequence[Iterable[Row]], mtp: Sequence[Iterable[Row]]) -> tuple[list[Row], dict[str, str]]:
    """The rows of the chosen layers with their prefixes, and the tensors that are left out.

    Args:
        job: For the mode.
        trunk: Rows of each trunk layer.
        mtp: Rows of each MTP block, named as layers after the trunk.

    Raises:
        UsageError: `--mtp` was given, and the checkpoint has no MTP blocks.
    """
    mode = job.request.mtp
    if mode == "only" and not mtp:
        raise UsageError(f"{job.checkpoint.directory}: --mtp, but the checkpoint has no MTP block")
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for number, block in enumerate((*trunk, *mtp)):
        is_mtp = number >= len(trunk)
        if (mode == "only" and not is_mtp) or (mode == "without" and is_mtp):
            reason = "MTP block, left out by --no-mtp" if is_mtp else "trunk, left out by --mtp"
            left_out[f"model.layers.{number}."] = reason
        else:
            rows += at(block, f"model.layers.{number}.", f"blk.{number}.")
    return rows, left_out
