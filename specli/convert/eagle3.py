"""EAGLE-3 drafters in all published layouts (llama.cpp conversion/llama.py).

SpecForge, SafeAI, AngelSlim, NVIDIA: flat names with `midlayer.`; vLLM puts `model.` in front; speculators: `layers.0.`
and the layer's config nested in `transformer_layer_config`. All become one layout before anything else is looked at.
"""

from __future__ import annotations

import re
from dataclasses import replace

from specli.convert.changes import pair_heads
from specli.convert.draft_vocabulary import absolute_ids, draft_vocabulary_size
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, shared_keys
from specli.convert.llama import llama_extra_keys, rope_factors
from specli.convert.plan import Blueprint, Row, at
from specli.convert.rope import override_rope, say_rope
from specli.convert.taps import choose, default_eagle3
from specli.convert.target import Target
from specli.convert.vocab import llama_keys
from specli.errors import FormatError, IncompatibleError, UnsupportedError

LAYER = (
    Row("hidden_norm.weight", "attn_norm_2.weight", "E"),
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q 2E", pair_heads("H")),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K 2E", pair_heads("G")),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K 2E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D", pair_heads("1"), need="optional"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D", pair_heads("1"), need="optional"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
LEFT_OUT = {
    "t2d": "the inverse of d2t, not used at run time",
    "verifier_norm.weight": "the target's own",
    "verifier_lm_head.weight": "the target's own",
}
UPSTREAM_TAPS = 3
FC_NORM = "fc_norm."

_OWN_TOKENIZERS = frozenset({"gemma4", "glm4moe", "gemma3"})
"""Targets whose tokenizer the Llama procedure, which llama.cpp uses for every EAGLE-3 file, would get wrong."""


def rename(name: str) -> str:
    """The normalised name of a tensor, without the prefixes that layouts put in front."""
    name = name.removeprefix("model.")
    if name.startswith("midlayer."):
        return "layers.0." + name.removeprefix("midlayer.")
    for place, number in (("low", 0), ("mid", 1), ("high", 2)):
        if name == f"aux_norm_{place}.weight":
            return f"{FC_NORM}{number}.weight"
    return name


def plan_eagle3(job: Job) -> Blueprint:
    """The blueprint of an EAGLE-3 drafter in any layout."""
    target = job.need_target("EAGLE-3")
    raw = job.checkpoint.config
    job.config = override_rope(job, job.config.merged(raw.section("transformer_layer_config").items))
    config = job.config
    names = {rename(name) for name in job.checkpoint.tensors}
    _refuse_unsupported(job, names)

    sizes = basic_sizes(config)
    n_tokens = config.need("vocab_size")
    width = config.integer("target_hidden_size") or target.width
    if width != target.width:
        raise IncompatibleError(
            f"{config.path}: target_hidden_size {width} does not match {target.path} ({target.width})"
        )
    taps = choose_taps(job, target)
    sizes |= {"2E": 2 * sizes["E"], "N": draft_vocabulary_size(job, n_tokens), "T": len(taps) * width, "W": width}
    sizes["1"] = 1
    norm_before_fc = bool(raw.flag("norm_before_fc"))
    has_fc_norm = bool(raw.flag("fc_norm")) or any(name.startswith(FC_NORM) for name in names)
    if norm_before_fc and has_fc_norm:
        raise FormatError(f"{config.path}: norm_before_fc and fc_norm exclude each other")
    check_vocabulary(job, target, n_tokens)

    first = KeyValues()
    first.add("eagle3.target_layers", "[i32]", taps)
    first.add("eagle3.target_hidden_size", "u32", width)
    first.add("eagle3.norm_before_residual", "bool", _norm_before_residual(job))
    first.add("eagle3.norm_before_fc", "bool", norm_before_fc)
    keys = shared_keys("eagle3", config.merged({"draft_vocab_size": None}), job.outtype, 1)
    llama_extra_keys(keys, "eagle3", config)
    _add_extensions(job, keys, names, has_fc_norm=has_fc_norm)
    say_rope(job, keys, "eagle3")
    return Blueprint(
        layout="EAGLE-3",
        architecture="eagle3",
        rows=[
            *_top_rows(job, target, sizes, norm_before_fc),
            *(Row(f"{FC_NORM}{i}.weight", f"fc_norm.{i}.weight", "W") for i in range(len(taps) if has_fc_norm else 0)),
            *at(LAYER, "layers.0.", "blk.0."),
        ],
        sizes=sizes,
        keys=keys,
        first_keys=first,
        vocabulary=lambda: _vocabulary(target, n_tokens),
        generated=rope_factors(config, sizes["D"]),
        rename=rename,
        left_out=LEFT_OUT,
    )


def _top_rows(job: Job, target: Target, sizes: dict[str, int], norm_before_fc: bool) -> list[Row]:
    is_reduced = sizes["N"] < sizes["V"]
    rows = [
        Row("fc.weight", "fc.weight", "E T"),
        Row("norm.weight", "output_norm.weight", "E"),
        Row("lm_head.weight", "output.weight", "N E", need="required" if is_reduced else "borrowed"),
        Row("embed_tokens.weight", "token_embd.weight", "V E", need="borrowed"),
    ]
    if target.width != sizes["E"]:  # nothing of another width can be borrowed
        rows = [replace(row, need="required") for row in rows]
    if norm_before_fc:
        rows.append(Row("input_norm.weight", "enc.output_norm.weight", "T"))
    table = Row("d2t", "d2t", "N", absolute_ids(job, sizes["V"]), integer=True, place=1)
    rows.append(table if is_reduced else replace(table, need="optional"))
    return rows


def choose_taps(job: Job, target: Target) -> list[int]:
    """The boundaries to tap, from whichever list the config has."""
    raw = job.checkpoint.config
    own = raw.integers("eagle_aux_hidden_state_layer_ids")
    nested = raw.section("eagle_config").integers("eagle_aux_hidden_state_layer_ids")
    outputs = raw.integers("target_layer_ids")
    if own:
        found, origin = own, "from eagle_aux_hidden_state_layer_ids, which lists inputs"
    elif nested and max(nested) == target.n_layers:  # SGLang's reading for gpt-oss: N can only be a boundary
        found, origin = nested, "from eagle_config, which here lists inputs since it names layer N"
    elif nested or outputs:
        found = [tap + 1 for tap in nested or outputs or []]
        origin = f"from {'eagle_config' if nested else 'target_layer_ids'}, which lists outputs"
    else:
        found, origin = None, ""
    taps = choose(job, target, found, origin, default_eagle3(target.n_layers), "EAGLE-3")
    if len(taps) != UPSTREAM_TAPS:
        job.warnings.append(f"{len(taps)} target layers: llama.cpp loads EAGLE-3 files with exactly {UPSTREAM_TAPS}")
    return taps


def _norm_before_residual(job: Job) -> bool:
    raw = job.checkpoint.config
    value = job.request.norm_before_residual
    if value is None:
        value = raw.flag("norm_before_residual")
    if value is None:
        if "speculators_model_type" in raw:
            job.warnings.append(
                "norm_before_residual is missing; false is assumed, which the speculators class also does "
                "(vLLM assumes true): override with --norm-before-residual"
            )
        return False
    return value


def check_vocabulary(job: Job, target: Target, n_tokens: int) -> None:
    """Draft and target must name the same tokens.

    Raises:
        IncompatibleError: The vocabularies differ in size.
    """
    if target.n_tokens > n_tokens or (target.directory is not None and target.n_tokens != n_tokens):
        raise IncompatibleError(
            f"{job.config.path}: vocab_size {n_tokens} does not match {target.path} ({target.n_tokens})"
        )


def _vocabulary(target: Target, n_tokens: int) -> KeyValues:
    if target.directory is None or target.architecture in _OWN_TOKENIZERS:
        return target.vocabulary(n_tokens)
    return llama_keys(target.directory, n_tokens)


def _refuse_unsupported(job: Job, names: set[str]) -> None:
    """Refuses by name what neither llama.cpp nor this program runs, and warns of what the file cannot express."""
    raw, path = job.checkpoint.config, job.config.path
    layers = {match[1] for name in names if (match := re.match(r"layers\.([0-9]+)\.", name))}
    n_layers = job.config.integer("num_hidden_layers")
    refusals = (
        (raw.section("eagle_config").flag("use_aux_hidden_state") is False, "use_aux_hidden_state: false"),
        ("speculators_model_type" not in raw and raw.flag("norm_output") is False, "norm_output: false (no last norm)"),
        (len(layers) > 1, f"{len(layers)} decoder layers"),
        (any(name.endswith("proj.bias") for name in names), "attention or feed-forward biases"),
        ("fc.bias" in names, "a bias on fc"),
    )
    found = [reason for applies, reason in refusals if applies]
    if found:
        raise UnsupportedError(
            f"{path}: EAGLE-3 with {'; '.join(found)} is not handled",
            hint="llama.cpp runs no such head either; look for another drafter of this target",
        )
    if not layers:
        raise FormatError(f"{job.checkpoint.directory}: no decoder layer, expected midlayer.* or layers.0.*")
    if n_layers not in (None, 1):
        job.warnings.append(f"num_hidden_layers is {n_layers}, the checkpoint has one layer; one is written")


def _add_extensions(job: Job, keys: KeyValues, names: set[str], *, has_fc_norm: bool) -> None:
    """What newer trainers add and llama.cpp does not know: keys, and a warning that names it."""
    raw, config = job.checkpoint.config, job.config
    # SpecForge writes norm_output too, and means the norm before the head, which every EAGLE-3 head has.
    norm_output = "speculators_model_type" in raw and bool(raw.flag("norm_output"))
    window = config.integer("sliding_window") if "sliding_attention" in (config.texts("layer_types") or []) else None
    keys.add("eagle3.fc_norm", "bool", has_fc_norm or None)
    keys.add("eagle3.norm_output", "bool", norm_output or None)
    keys.add("eagle3.attention.sliding_window", "u32", window)
    for what, applies in (
        ("a norm per tap: llama.cpp does not load the file", has_fc_norm),
        ("query and key norms: llama.cpp does not load the file", any("self_attn.q_norm" in name for name in names)),
        ("norm_output: llama.cpp ignores it, and drafts worse after the first token", norm_output),
        (f"a window of {window} tokens: llama.cpp ignores it, and drafts worse beyond it", window is not None),
    ):
        if applies:
            job.warnings.append(what)
