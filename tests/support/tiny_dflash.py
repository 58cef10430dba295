"""Tiny DFlash, DFlash2 and DSpark files with random weights for the targets of `tiny_gguf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.support.tiny_drafters import write_tiny
from tests.support.tiny_vocab import VOCABS, Metadata

MASK = 3


def tiny_dflash(
    path: Path,
    *,
    seed: int = 0,
    quant: str = "f32",
    vocab: str = "bpe",
    width: int = 64,
    taps: Sequence[int] = (1, 2),
    n_layer: int = 2,
    n_head: int = 4,
    n_head_kv: int = 2,
    head_size: int = 32,
    n_ff: int = 96,
    block_size: int = 6,
    reduced: int | None = None,
    own_embeddings: bool = False,
    own_head: bool = False,
    values: bool = True,
    sinks: bool = False,
    gemma: bool = False,
    factors: bool = False,
    windows: Sequence[bool] = (),
    window: int = 8,
    selector: int = 0,
    markov: int = 0,
    confidence: bool = False,
    from_anchor: bool | None = None,
    follows_target: bool = False,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes a drafter (docs/draft-networks.md §§3-4).

    Args:
        path: File to write.
        seed: The weights are a function of it and the sizes.
        quant: Type of every matrix; vectors are f32.
        vocab: "bpe" or "spm", as the target's.
        width: E, the target's.
        taps: `dflash.target_layers`.
        n_layer: Layers.
        n_head: Query heads.
        n_head_kv: Key/value heads.
        head_size: d.
        n_ff: Feed-forward width.
        block_size: Trained block, the anchor included.
        reduced: Entries of the draft vocabulary, in an order that is not ascending; None = no `d2t`.
        own_embeddings: Has `token_embd`.
        own_head: Has `output`; a reduced vocabulary always does.
        values: Has `attn_v`; else values are made of keys.
        sinks: Has `attn_sinks`.
        gemma: Has norms after the sub-layers, a factor on each layer's output, GELU, scales on embeddings and scores.
        factors: Has `rope_freqs`.
        windows: Which layers slide; empty = none.
        window: Of those.
        selector: Candidates per slot of a DFlash2 drafter; 0 = none.
        markov: Rank of a DSpark drafter; 0 = none.
        confidence: It has a confidence head.
        from_anchor: `dflash.sample_from_anchor`; None = the key is missing.
        follows_target: The newest tap is passed through and the layers do little, so that some drafts are right.
        metadata: Keys to add or replace with (kind, value), or to leave out with None.
        tensors: Arrays in torch order to use instead (int64 ones are stored as such), or None to leave a tensor out.
    """
    rng = np.random.default_rng(seed + 2000)
    words = VOCABS[vocab]()
    n_logits = reduced or words.size
    small = 0.02 if follows_target else 1.0

    def matrix(n_out: int, n_in: int, spread: float = 2.0) -> np.ndarray:
        return rng.normal(0, spread / np.sqrt(n_in), (n_out, n_in)).astype(np.float32)

    def norm(n: int) -> np.ndarray:
        return rng.normal(1, 0.1, n).astype(np.float32)

    given: dict[str, np.ndarray | None] = {
        "fc.weight": matrix(width, len(taps) * width),
        "enc.output_norm.weight": norm(width),
        "output_norm.weight": norm(width),
    }
    kernel, group, rank = 3, 16, 32
    for layer in range(n_layer):
        at = f"blk.{layer}."
        given[at + "attn_norm.weight"] = norm(width)
        given[at + "attn_q.weight"] = matrix(n_head * head_size, width)
        given[at + "attn_k.weight"] = matrix(n_head_kv * head_size, width)
        if values:
            given[at + "attn_v.weight"] = matrix(n_head_kv * head_size, width)
        given[at + "attn_output.weight"] = matrix(width, n_head * head_size, 2 * small)
        given[at + "attn_q_norm.weight"], given[at + "attn_k_norm.weight"] = norm(head_size), norm(head_size)
        given[at + "ffn_norm.weight"] = norm(width)
        given[at + "ffn_gate.weight"], given[at + "ffn_up.weight"] = matrix(n_ff, width), matrix(n_ff, width)
        given[at + "ffn_down.weight"] = matrix(width, n_ff, 2 * small)
        if sinks:
            given[at + "attn_sinks.weight"] = rng.normal(0, 1, n_head).astype(np.float32)
        if gemma:
            given[at + "post_attention_norm.weight"] = norm(width)
            given[at + "post_ffw_norm.weight"] = norm(width)
            given[at + "layer_output_scale.weight"] = np.array([0.7 + 0.1 * layer], np.float32)
        for part in ("attn", "ffn") if selector else ():
            given[at + part + "_conv_base"] = rng.normal(0.4, 0.3, (2, kernel, width)).astype(np.float32)
            given[at + part + "_conv_proj.weight"] = matrix(2 * kernel * width // group, width, 0.5)
    if own_embeddings:
        given["token_embd.weight"] = matrix(words.size, width, 4)
    if own_head or reduced:
        given["output.weight"] = matrix(n_logits, width)
    if reduced:
        given["d2t"] = rng.permutation(words.size)[:reduced].astype(np.int64)
    if factors:
        given["rope_freqs.weight"] = rng.uniform(1, 8, head_size // 2).astype(np.float32)
    if selector:
        given["selector_predecessor.weight"] = matrix(words.size, rank)
        given["selector_successor.weight"] = matrix(words.size, rank)
        given["selector_hidden.weight"] = matrix(rank, width)
    if markov:
        given["markov_w1.weight"] = matrix(words.size, markov)
        given["markov_w2.weight"] = matrix(n_logits, markov, 4 * small)
    if confidence:
        given["conf_proj.weight"] = matrix(1, width + markov)
        given["conf_proj.bias"] = np.array([0.1], np.float32)
    given |= dict(tensors or {})

    sizes = {
        "context_length": 512,
        "embedding_length": width,
        "block_count": n_layer,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        "vocab_size": words.size,
        "block_size": block_size,
    }
    if selector:
        sizes |= {"conv_kernel_size": kernel, "conv_group_size": group}
        sizes |= {"selector_rank": rank, "selector_top_k": selector}
    pairs: Metadata = {f"dflash.{name}": ("u32", value) for name, value in sizes.items()}
    pairs["dflash.target_layers"] = ("[i32]", list(taps))
    pairs["dflash.rope.freq_base"] = ("f32", 5000.0)
    pairs["dflash.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    pairs["tokenizer.ggml.mask_token_id"] = ("u32", MASK)
    if any(windows):
        pairs["dflash.attention.sliding_window"] = ("u32", window)
        pairs["dflash.attention.sliding_window_pattern"] = ("[bool]", list(windows))
    if gemma:
        pairs["dflash.embedding_scale"] = ("f32", 3.0)
        pairs["dflash.attention.scale"] = ("f32", 0.3)
        pairs["dflash.attention.value_scale"] = ("f32", 0.8)
        pairs["dflash.hidden_activation"] = ("str", "gelu_pytorch_tanh")
    if from_anchor is not None:
        pairs["dflash.sample_from_anchor"] = ("bool", from_anchor)
    if markov:
        pairs["dflash.has_confidence_head"] = ("bool", confidence)
    write_tiny(path, "dflash", {**words.metadata, **pairs, **(metadata or {})}, given, quant=quant)
    return path
