"""A drafter's rope base: from its own config, overridden, or a default that is said (docs/checkpoints.md §7)."""

from __future__ import annotations

from specli.convert.job import Job
from specli.convert.keys import KeyValues
from specli.convert.values import Values

_BASES = ("rope_theta", "global_rope_theta", "rope_global_theta", "rope_theta_global", "rotary_emb_base")


def override_rope(job: Job, config: Values) -> Values:
    """The config with `--rope-theta` in place of its own base."""
    if job.request.rope_theta is None:
        return config
    job.notes.append(f"rope base {job.request.rope_theta:g} (--rope-theta)")
    base = {"rope_theta": job.request.rope_theta}
    blocks = {name: {**config.section(name).items, **base} for name in ("rope_parameters", "rope_scaling")}
    for block in blocks.values():
        if isinstance(block.get("full_attention"), dict):
            block["full_attention"] = {**block["full_attention"], **base}
    return config.merged({**base, **{name: block for name, block in blocks.items() if name in config}})


def say_rope(job: Job, keys: KeyValues, architecture: str) -> None:
    """Notes the base when the config names none."""
    raw = job.checkpoint.config
    places = (raw, raw.section("transformer_layer_config"))
    blocks = [place.section(name) for place in places for name in ("rope_parameters", "rope_scaling")]
    if job.request.rope_theta is not None or any(name in place for place in (*places, *blocks) for name in _BASES):
        return
    base = keys.get(f"{architecture}.rope.freq_base", 10000.0)
    job.notes.append(f"rope base {base:g} (default, the checkpoint names none)")
