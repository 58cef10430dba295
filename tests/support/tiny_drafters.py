"""Tiny draft files with random weights for the targets of `tiny_gguf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from specli.gguf.quant import QuantType, quantise
from specli.gguf.write import GGUFWriter
from tests.support.tiny_vocab import VOCABS, Metadata


def tiny_eagle3(
    path: Path,
    *,
    seed: int = 0,
    quant: str = "f32",
    vocab: str = "bpe",
    width: int = 64,
    target_width: int = 64,
    taps: Sequence[int] = (0, 1, 2),
    n_head: int = 4,
    n_head_kv: int = 2,
    head_size: int | None = None,
    n_ff: int = 96,
    reduced: int | None = None,
    own_embeddings: bool = False,
    own_head: bool = False,
    norm_before_fc: bool = False,
    norm_before_residual: bool = False,
    factors: bool = False,
    follows_target: bool = False,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes an EAGLE-3 drafter (draft-models.md §2).

    Args:
        path: File to write.
        seed: The weights are a function of it and the sizes.
        quant: Type of every matrix; vectors are f32.
        vocab: "bpe" or "spm", as the target's.
        width: E.
        target_width: E_t.
        taps: `eagle3.target_layers`.
        n_head: Query heads.
        n_head_kv: Key/value heads.
        head_size: Default width / n_head.
        n_ff: Feed-forward width.
        reduced: Entries of the draft vocabulary, in an order that is not ascending; None = no `d2t`.
        own_embeddings: Has `token_embd`.
        own_head: Has `output`; a reduced vocabulary always does.
        norm_before_fc: Norms the joined states.
        norm_before_residual: The residual stream starts normed.
        factors: Has `rope_freqs`.
        follows_target: The newest tap is passed through and the layer does little, so that what the target says is
            often what the drafter repeats: drafts for text that repeats itself get accepted.
        metadata: Keys to add or replace with (kind, value), or to leave out with None.
        tensors: Arrays in torch order to use instead (int64 ones are stored as such), or None to leave a tensor out.
    """
    rng = np.random.default_rng(seed + 1000)
    words = VOCABS[vocab]()
    size = head_size or width // n_head
    n_logits = reduced or words.size
    small = 0.02 if follows_target else 1.0

    def matrix(n_out: int, n_in: int, spread: float = 2.0) -> np.ndarray:
        return rng.normal(0, spread / np.sqrt(n_in), (n_out, n_in)).astype(np.float32)

    def norm(n: int) -> np.ndarray:
        return rng.normal(1, 0.1, n).astype(np.float32)

    given: dict[str, np.ndarray | None] = {
        "fc.weight": matrix(width, len(taps) * target_width),
        "output_norm.weight": norm(width),
        "blk.0.attn_norm.weight": norm(width),
        "blk.0.attn_norm_2.weight": norm(width),
        "blk.0.attn_q.weight": matrix(n_head * size, 2 * width),
        "blk.0.attn_k.weight": matrix(n_head_kv * size, 2 * width),
        "blk.0.attn_v.weight": matrix(n_head_kv * size, 2 * width),
        "blk.0.attn_output.weight": matrix(width, n_head * size, 2 * small),
        "blk.0.ffn_norm.weight": norm(width),
        "blk.0.ffn_gate.weight": matrix(n_ff, width),
        "blk.0.ffn_up.weight": matrix(n_ff, width),
        "blk.0.ffn_down.weight": matrix(width, n_ff, 2 * small),
    }
    if follows_target:
        given["fc.weight"] = np.eye(width, len(taps) * target_width, (len(taps) - 1) * target_width, np.float32)
        given["output_norm.weight"] = np.ones(width, np.float32)
    if norm_before_fc:
        given["enc.output_norm.weight"] = norm(len(taps) * target_width)
    if own_embeddings:
        given["token_embd.weight"] = matrix(words.size, width, 4)
    if own_head or reduced:
        given["output.weight"] = matrix(n_logits, width)
    if reduced:
        given["d2t"] = rng.permutation(words.size)[:reduced].astype(np.int64)
    if factors:
        given["rope_freqs.weight"] = rng.uniform(1, 8, size // 2).astype(np.float32)
    given |= dict(tensors or {})

    sizes = {
        "context_length": 512,
        "embedding_length": width,
        "block_count": 1,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "vocab_size": words.size,
        "target_hidden_size": target_width,
    }
    pairs: Metadata = {f"eagle3.{name}": ("u32", value) for name, value in sizes.items()}
    pairs["eagle3.target_layers"] = ("[i32]", list(taps))
    pairs["eagle3.rope.freq_base"] = ("f32", 10000.0)
    pairs["eagle3.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    pairs["eagle3.norm_before_fc"] = ("bool", norm_before_fc)
    pairs["eagle3.norm_before_residual"] = ("bool", norm_before_residual)
    write_tiny(path, "eagle3", {**pairs, **words.metadata, **(metadata or {})}, given, quant=quant)
    return path


def write_tiny(
    path: Path,
    architecture: str,
    metadata: Mapping[str, tuple[str, object] | None],
    tensors: Mapping[str, np.ndarray | None],
    *,
    quant: str,
) -> None:
    """Writes arrays: matrices as `quant`, int64 as i64, the rest as f32; None leaves a key or tensor out."""
    with GGUFWriter(path, architecture) as writer:
        for key, pair in metadata.items():
            if pair is not None:
                writer.add(key, *pair)
        for name, values in tensors.items():
            if values is None:
                continue
            if values.dtype == np.int64:
                writer.add_tensor(name, QuantType.I64, values.shape, values.view(np.uint8))
                continue
            stored = QuantType.from_label(quant) if values.ndim == 2 else QuantType.F32
            rows = values.astype(np.float32).reshape(-1, values.shape[-1])
            writer.add_tensor(name, stored, values.shape, quantise(stored, rows))
