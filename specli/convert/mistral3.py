"""Ministral 3 targets (llama.cpp conversion/mistral3.py)."""

from __future__ import annotations

from dataclasses import replace

from specli.convert.job import Job
from specli.convert.keys import full_rope, rope_block, rope_type, shared_keys
from specli.convert.llama import plan_as
from specli.convert.plan import Blueprint
from specli.errors import FormatError, UnsupportedError

VISION = {"vision_tower.": "vision part", "multi_modal_projector.": "vision part"}


def rename(name: str) -> str:
    """The normalised name of a tensor: the text model without its multimodal wrapper."""
    name = name.replace("language_model.", "")
    for prefix in VISION:
        if name.startswith(f"model.{prefix}"):
            return name.removeprefix("model.")
    return name


def plan_mistral3(job: Job) -> Blueprint:
    """The blueprint of Ministral 3, and of the text part of Mistral Small 3.1, which has Llama's layers."""
    config = job.config
    n_layers = config.need("num_hidden_layers")
    kind = config.section("text_config").text("model_type") or config.text("model_type")
    if kind == "mistral4":
        raise UnsupportedError(f"{config.path}: Mistral 4 has the layers of DeepSeek, which are not converted here")
    keys = shared_keys("mistral3", config, job.outtype, n_layers, yarn_magnitude=False)
    blueprint = plan_as(job, "mistral3", "Mistral 3", keys=keys)
    if kind == "ministral3":
        rope = full_rope(rope_block(config))
        if rope_type(rope) != "yarn":
            raise UnsupportedError(f"{config.path}: rope type {rope_type(rope)!r}, expected yarn for ministral3")
        if rope.number("mscale") not in (None, 1) or "attention_factor" in rope:
            raise UnsupportedError(f"{config.path}: yarn's mscale is not 1, which is what files of mistral3 mean")
        for suffix, name in (
            ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
            ("attention.temperature_scale", "llama_4_scaling_beta"),
        ):
            value = rope.number(name)
            if value is None:
                raise FormatError(f"{config.path}: {name} is missing, expected a number")
            blueprint.keys.add(f"mistral3.{suffix}", "f32", value)
    return replace(blueprint, rename=rename, left_out=VISION)
