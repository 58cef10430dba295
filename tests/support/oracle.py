"""A second forward pass, in float64 NumPy straight from docs/targets.md §§2-3: whole sequence at once, no cache."""

from dataclasses import dataclass

import numpy as np

from specli.gguf.file import GGUFFile
from specli.models import ARCHITECTURES
from tests.support.oracle_attention import attention
from tests.support.oracle_delta import delta_net
from tests.support.oracle_experts import feed_forward
from tests.support.oracle_gemma4 import LayerInputs, mixture
from tests.support.oracle_latent import latent_attention
from tests.support.oracle_weights import Weights
from tests.support.published import PUBLISHED_ARCHITECTURES

FAMILIES = tuple(sorted(set(ARCHITECTURES) - PUBLISHED_ARCHITECTURES))
"""What it computes; the other families are held against `transformers` (tests/models/test_published.py)."""
PRE_FFN_NORMS = {"gpt-oss", "glm4moe", "qwen35", "qwen35moe", "qwen3next"}  # their post_attention_norm is one
SCALED_EMBEDDINGS = {"gemma3", "gemma4"}
SOFTCAPS = {"gemma4": 30.0}  # where the key is missing


@dataclass(frozen=True)
class Oracle:
    """What a sequence gives.

    Attributes:
        logits: `[T, V]`.
        hidden: The N+1 layer boundaries `[T, D]`.
        nextn: What MTP heads see `[T, D]`: what the head sees, in gpt-oss what the last layer gives.
        caches: Keys and values that each layer with attention reads, `[T, heads, size]`.
    """

    logits: np.ndarray
    hidden: list[np.ndarray]
    nextn: np.ndarray
    caches: list[tuple[np.ndarray, np.ndarray]]


def run_oracle(file: GGUFFile, tokens: list[int]) -> Oracle:
    """The results for `tokens` at positions 0 … T-1."""
    w = Weights(file)
    x = w.need("token_embd.weight")[tokens]
    if w.arch in SCALED_EMBEDDINGS:
        x = x * np.sqrt(x.shape[1])
    inputs = LayerInputs(w, x, tokens) if "per_layer_token_embd.weight" in file.tensors else None
    hidden = [x]
    caches: list[tuple[np.ndarray, np.ndarray]] = []
    for layer in range(w.integer("block_count") - w.integer("nextn_predict_layers")):
        at = f"blk.{layer}."
        h = w.norm(x, f"{at}attn_norm.weight")
        if f"{at}ssm_a" in file.tensors:
            branch = delta_net(w, at, h)
        elif f"{at}attn_kv_a_mqa.weight" in file.tensors:
            branch = latent_attention(w, at, h, caches)
        else:
            branch = attention(w, layer, h, caches)
        pre_ffn = "post_attention_norm" if w.arch in PRE_FFN_NORMS else "ffn_norm"
        if w.arch not in PRE_FFN_NORMS:
            branch = w.norm(branch, f"{at}post_attention_norm.weight")
        x = x + branch
        branch = feed_forward(w, at, w.norm(x, f"{at}{pre_ffn}.weight"), is_shared_only=w.arch == "gemma4")
        if w.arch == "gemma4" and f"{at}ffn_gate_inp.weight" in file.tensors:
            branch = mixture(w, at, branch, x)
        x = x + w.norm(branch, f"{at}post_ffw_norm.weight")
        if inputs is not None:
            x = inputs.add(layer, x)
        scale = w.get(f"{at}layer_output_scale.weight")
        x = x if scale is None else x * scale
        hidden.append(x)
    normed = w.norm(x, "output_norm.weight")
    logits = w.linear(normed, "output" if "output.weight" in file.tensors else "token_embd")
    cap = w.number("final_logit_softcapping", SOFTCAPS.get(w.arch, 0.0))
    logits = cap * np.tanh(logits / cap) if cap else logits
    return Oracle(logits, hidden, x if w.arch in ("gpt-oss", "mimo2") else normed, caches)
