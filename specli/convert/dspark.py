"""DSpark drafters: a DFlash body, a Markov head, an optional confidence head (docs/checkpoints.md §5)."""

from __future__ import annotations

from collections.abc import Collection

from specli.convert import dflash
from specli.convert.job import Job
from specli.convert.plan import Blueprint, Row
from specli.errors import FormatError, UnsupportedError

CONFIDENCE = ("confidence_head.proj.weight", "confidence_head.proj.bias")


def rename(name: str) -> str:
    """The normalised name of a tensor: as for DFlash, with the Markov head's older name replaced."""
    name = dflash.rename(name)
    return "markov_head." + name.removeprefix("logit_head.") if name.startswith("logit_head.") else name


def samples_from_anchor(job: Job) -> bool:
    """Whether the anchor's position predicts: block size minus proposals, else the key, else the layout says.

    Source: docs/checkpoints.md §5.
    """
    if job.request.sample_from_anchor is not None:
        job.notes.append(f"the anchor's position {_does(job.request.sample_from_anchor)} (--sample-from-anchor)")
        return job.request.sample_from_anchor
    raw = job.checkpoint.config
    proposals = raw.section("speculators_config").raw("proposal_methods") or [{}]
    n_proposed = proposals[0].get("speculative_tokens") if isinstance(proposals[0], dict) else None
    block = job.config.integer("block_size") or job.config.section("dflash_config").integer("block_size")
    said = raw.flag("sample_from_anchor")
    if isinstance(n_proposed, int) and block is not None and n_proposed in (block, block - 1):
        value, origin = n_proposed == block, f"block {block}, {n_proposed} speculative tokens"
        if said is not None and said is not value:
            job.warnings.append(f"sample_from_anchor is {said}, but {origin} says otherwise; the latter is taken")
    elif said is not None:
        value, origin = said, "sample_from_anchor"
    else:
        is_speculators = "transformer_layer_config" in raw or "aux_hidden_state_layer_ids" in raw
        value, origin = not is_speculators, "the layout's default"
    job.notes.append(f"the anchor's position {_does(value)} ({origin})")
    return value


def _does(value: bool) -> str:
    return "predicts" if value else "is reserved"


def plan_dspark(job: Job) -> Blueprint:
    """The blueprint of a DSpark drafter with a Qwen 3 body, from DeepSpec, speculators or SpecForge."""
    target = job.need_target("DSpark")
    blueprint = dflash.plan_dflash(job, "DSpark")
    names = {rename(name) for name in job.checkpoint.tensors}
    config = job.config
    rank = markov_rank(job, names)
    sizes = {**blueprint.sizes, "R": rank}
    sizes["Y"] = sizes["E"] + rank
    has_confidence = CONFIDENCE[0] in names
    is_full = sizes["N"] == sizes["V"]
    rows = blueprint.rows
    left_out = dict(blueprint.left_out)
    has_own_table = "embed_tokens.weight" in names and config.flag("has_embed_tokens") is not False
    has_made_table = "token_embd.weight" in blueprint.generated
    if is_full and "lm_head.weight" in names and not has_made_table and (target.is_tied or not has_own_table):
        # A frozen copy of the target's head, which the run-time borrows or reads from token_embd. An untied target's
        # head stays beside token_embd: without it the loader would take token_embd for the head.
        rows = [row for row in rows if row.source != "lm_head.weight"]
        left_out["lm_head.weight"] = "a copy of the target's head"
    blueprint.rows, blueprint.left_out, blueprint.rename = rows, left_out, rename
    if not rank:
        if samples_from_anchor(job):
            dflash.add_anchor_key(job, blueprint.keys)
        return blueprint
    rows += [
        Row("markov_head.markov_w1.weight", "markov_w1.weight", "V R"),
        Row("markov_head.markov_w2.weight", "markov_w2.weight", "N R"),
    ]
    if has_confidence:
        with_markov = config.flag("confidence_head_with_markov")
        if with_markov is False:
            raise UnsupportedError(f"{config.path}: a confidence head without Markov input is not handled")
        rows += [
            Row(CONFIDENCE[0], "conf_proj.weight", "1 Y"),
            Row(CONFIDENCE[1], "conf_proj.bias", "1", need="optional"),
        ]
    blueprint.sizes = sizes
    blueprint.keys.add("dflash.sample_from_anchor", "bool", samples_from_anchor(job))
    blueprint.keys.add("dflash.has_confidence_head", "bool", has_confidence)
    return blueprint


def markov_rank(job: Job, names: Collection[str]) -> int:
    """The rank of the Markov head; 0 for DeepSpec's DFlash heads, which are DSpark heads without one.

    Raises:
        UnsupportedError: The head is of another kind, or there is confidence without it.
    """
    config, nested = job.config, job.config.section("dflash_config")
    kind = config.text("markov_head_type") or nested.text("markov_head_type") or "vanilla"
    rank = config.integer("markov_rank") or nested.integer("markov_rank") or 0
    if any(name.startswith("markov_head.") for name in names):
        if kind != "vanilla":
            raise UnsupportedError(
                f"{config.path}: markov_head_type {kind!r} is not handled, only 'vanilla'",
                hint="llama.cpp runs no other kind either; look for another drafter of this target",
            )
        return rank or config.need("markov_rank")
    if rank:
        raise FormatError(f"{config.path}: markov_rank is {rank}, but there is no Markov head")
    if CONFIDENCE[0] in names:
        raise UnsupportedError(f"{config.path}: a confidence head without Markov input is not handled")
    return 0
