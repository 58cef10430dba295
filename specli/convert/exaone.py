"""EXAONE 4 targets (llama.cpp conversion/exaone.py)."""

from __future__ import annotations

from specli.convert.gemma import sliding_layers
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import TOP, head_row, rope_factors
from specli.convert.olmo import BLOCK
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys
from specli.errors import UnsupportedError

N_LAYERS_WITH_WINDOWS = 64
_HEAD_NORMS = {"attn_q_norm.weight", "attn_k_norm.weight"}
EXAONE4_BLOCK = (
    *(row for row in BLOCK if row.name not in _HEAD_NORMS),
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D"),
)


def plan_exaone4(job: Job) -> Blueprint:
    """The blueprint of EXAONE 4."""
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    pattern = config.raw("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # such as LLLG: local, local, local, global
        letters = [pattern[layer % len(pattern)] for layer in range(n_layers)]
        types = ["sliding_attention" if letter == "L" else "full_attention" for letter in letters]
        given = config.texts("layer_types")
        config = config.merged({"sliding_window_pattern": None, "layer_types": given or types})
    keys = shared_keys("exaone4", config, job.outtype, n_layers)
    keys.add("exaone4.vocab_size", "u32", sizes["V"])
    window = config.integer("sliding_window")
    if (window is not None) is not (n_layers == N_LAYERS_WITH_WINDOWS):
        found = "no sliding_window" if window is None else f"sliding_window {window}"
        raise UnsupportedError(
            f"{config.path}: {found} in {n_layers} layers: exaone4 files of {N_LAYERS_WITH_WINDOWS} layers have "
            "windows, others have none"
        )
    if window is not None:
        slides = sliding_layers(config, 4) or [(layer + 1) % 4 > 0 for layer in range(n_layers)]
        keys.add("exaone4.attention.sliding_window", "u32", window)
        keys.add("exaone4.attention.sliding_window_pattern", "[bool]", slides)
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at(EXAONE4_BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="EXAONE 4",
        architecture="exaone4",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
        generated=rope_factors(config, sizes["D"]),
    )
