"""Llama family targets: Llama, Mistral, SmolLM2, Mixtral (llama.cpp conversion/llama.py)."""

from __future__ import annotations

from specli.convert.changes import llama3_rope_factors, pair_heads, stack
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, full_rope, rope_block, rope_type, shared_keys
from specli.convert.lazy import LazyTensor
from specli.convert.plan import Blueprint, Row, at
from specli.convert.values import Values
from specli.convert.vocab import llama_keys
from specli.errors import FormatError, UnsupportedError

TOP = (
    Row("model.embed_tokens.weight", "token_embd.weight", "V E"),
    Row("model.norm.weight", "output_norm.weight", "E"),
)
HEAD = Row("lm_head.weight", "output.weight", "V E")
ATTENTION = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E", pair_heads("H")),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E", pair_heads("G")),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    Row("self_attn.q_proj.bias", "attn_q.bias", "Q", pair_heads("H"), need="optional"),
    Row("self_attn.k_proj.bias", "attn_k.bias", "K", pair_heads("G"), need="optional"),
    Row("self_attn.v_proj.bias", "attn_v.bias", "K", need="optional"),
    Row("self_attn.o_proj.bias", "attn_output.bias", "E", need="optional"),
)
FEED_FORWARD = (
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
    Row("mlp.gate_proj.bias", "ffn_gate.bias", "F", need="optional"),
    Row("mlp.up_proj.bias", "ffn_up.bias", "F", need="optional"),
    Row("mlp.down_proj.bias", "ffn_down.bias", "E", need="optional"),
)

NO_ROPE_STEP = 4


def mixtral_experts(n_experts: int) -> tuple[Row, ...]:
    """The rows of Mixtral's router and of its experts, which are stacked in the file."""

    def stacked(part: str, name: str, shape: str) -> Row:
        sources = tuple(f"block_sparse_moe.experts.{e}.{part}.weight" for e in range(n_experts))
        return Row(sources, f"{name}.weight", shape, stack, group="experts")

    return (
        Row("block_sparse_moe.gate.weight", "ffn_gate_inp.weight", "X E"),
        stacked("w1", "ffn_gate_exps", "F E"),
        stacked("w2", "ffn_down_exps", "E F"),
        stacked("w3", "ffn_up_exps", "F E"),
    )


def head_row(config: Values) -> Row:
    """The head: its own matrix, or the embedding table when tied (a stored copy is then written as llama.cpp does)."""
    return HEAD if not config.flag("tie_word_embeddings") else Row(HEAD.source, HEAD.name, HEAD.shape, need="optional")


def rope_factors(config: Values, head_width: int) -> dict[str, LazyTensor]:
    """`rope_freqs.weight` by name for Llama 3 scaling; empty for any other."""
    rope = rope_block(config)
    if rope_type(rope) != "llama3":
        return {}
    full = full_rope(rope)
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    scaling = {name: value for name in names if (value := full.number(name)) is not None}
    base = full.number("rope_theta") or 10000.0
    low, high = scaling.get("low_freq_factor", 1.0), scaling.get("high_freq_factor", 4.0)
    if not (base > 0 and high > low > 0 and all(value > 0 for value in scaling.values())):
        raise FormatError(
            f"{config.path}: llama3 rope scaling needs base and factors above 0, high_freq_factor above low_freq_factor"
        )
    return {"rope_freqs.weight": llama3_rope_factors(base, head_width, scaling)}


def llama_extra_keys(keys: KeyValues, architecture: str, config: Values) -> None:
    """Keys the Llama class adds after the shared ones."""
    keys.add(f"{architecture}.vocab_size", "u32", config.need("vocab_size"))
    keys.add(f"{architecture}.rope.dimension_count", "u32", basic_sizes(config)["D"])


def rename(name: str) -> str:
    """The normalised name of a tensor: wrapper prefixes are removed, and a bare `LlamaModel` gets its `model.`."""
    name = name.replace("language_model.", "").replace("text_model.", "")
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def plan_llama(job: Job) -> Blueprint:
    """The blueprint of Llama, Mistral, SmolLM2 and Mixtral."""
    n_experts = job.config.integer("num_local_experts") or 0
    blueprint = plan_as(job, "llama", "Llama", mixtral_experts(n_experts) if n_experts else FEED_FORWARD)
    blueprint.sizes = {**blueprint.sizes, "X": n_experts}
    return blueprint


def plan_smollm3(job: Job) -> Blueprint:
    """The blueprint of SmolLM3, whose readers take every fourth layer as one that does not rotate."""
    config = job.config
    expected = [int((layer + 1) % NO_ROPE_STEP > 0) for layer in range(config.need("num_hidden_layers"))]
    given, step = config.integers("no_rope_layers"), config.integer("no_rope_layer_interval")
    if given not in (None, expected) or step not in (None, NO_ROPE_STEP):
        raise UnsupportedError(
            f"{config.path}: no_rope_layers is not every fourth layer, which is what files of smollm3 mean"
        )
    return plan_as(job, "smollm3", "SmolLM3")


def plan_as(
    job: Job,
    architecture: str,
    layout: str,
    feed_forward: tuple[Row, ...] = FEED_FORWARD,
    *,
    keys: KeyValues | None = None,
) -> Blueprint:
    """The blueprint of a family with Llama's tensors.

    Args:
        job: The conversion.
        architecture: Prefix of the keys.
        layout: Shown to the user.
        feed_forward: Rows of a layer's feed-forward.
        keys: Shared keys, where they are not those of the config as it stands.
    """
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys(architecture, config, job.outtype, n_layers) if keys is None else keys
    llama_extra_keys(keys, architecture, config)
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at((*ATTENTION, *feed_forward), f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout=layout,
        architecture=architecture,
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: llama_keys(job.checkpoint.directory, sizes["V"]),
        generated=rope_factors(config, sizes["D"]),
        rename=rename,
    )
