"""Medusa heads (FasterDecoding/Medusa `medusa/model/medusa_model.py`): `medusa_lm_head.safetensors` or `.pt`.

The config says neither width nor vocabulary, and its number of heads is often that of another run, so tensors and
target are asked. llama.cpp has no such architecture; keys and names are this program's (`specli/models/medusa.py`).
"""

from __future__ import annotations

import re

from specli.convert.job import Job
from specli.convert.keys import KeyValues
from specli.convert.plan import Blueprint, Row
from specli.errors import FormatError

NOT_UPSTREAM = "llama.cpp has no Medusa heads, so it does not load the file"
_PLACE = re.compile(r"([0-9]+)\.([0-9]+)\.(?:linear\.)?weight")


def rename(name: str) -> str:
    """The normalised name of a tensor: head, part, what."""
    return name.removeprefix("medusa_head.")


def plan_medusa(job: Job) -> Blueprint:
    """The blueprint of Medusa heads."""
    target, config = job.need_target("Medusa"), job.config
    places = [_PLACE.fullmatch(rename(name)) for name in job.checkpoint.tensors]
    found = {(int(place[1]), int(place[2])) for place in places if place}
    if not found:
        raise FormatError(f"{job.checkpoint.directory}: no Medusa head, expected tensors such as 0.0.linear.weight")
    n_heads, n_residuals = (max(numbers) + 1 for numbers in zip(*found, strict=True))
    n_residuals -= 1  # the last part of a head makes logits
    named = config.integer("medusa_num_heads")
    if named not in (None, n_heads):
        job.notes.append(f"{n_heads} heads, as many as there are tensors for; the config says {named}")

    first = KeyValues()
    first.add("medusa.target_layers", "[i32]", [target.n_layers])
    keys = KeyValues()
    for name, value in (
        ("block_count", n_heads),
        ("residual_count", n_residuals),
        ("embedding_length", target.width),
        ("vocab_size", target.n_tokens),
    ):
        keys.add(f"medusa.{name}", "u32", value)
    keys.add("general.file_type", "u32", job.outtype.file_type)
    rows = []
    for head in range(n_heads):
        for part in range(n_residuals):
            source, name = f"{head}.{part}.linear", f"blk.{head}.residual.{part}"
            rows.append(Row(f"{source}.weight", f"{name}.weight", "E E"))
            rows.append(Row(f"{source}.bias", f"{name}.bias", "E", need="optional"))
        rows.append(Row(f"{head}.{n_residuals}.weight", f"blk.{head}.output.weight", "V E"))
    job.warnings.append(NOT_UPSTREAM)
    return Blueprint(
        layout="Medusa",
        architecture="medusa",
        rows=rows,
        sizes={"E": target.width, "V": target.n_tokens},
        keys=keys,
        first_keys=first,
        vocabulary=lambda: target.vocabulary(target.n_tokens),
        rename=rename,
    )
