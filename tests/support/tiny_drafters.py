"""Tiny draft files with random weights for the targets of `tiny_gguf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from specli.gguf.quant import QuantType, quantise
from specli.gguf.write import GGUFWriter
from tests.support.tiny_families import ARCHITECTURES, WINDOW, Sizes
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_vocab import VOCABS, Metadata

QUIET = ("attn_output", "ffn_down", "ssm_out")  # what a layer adds to the residual stream comes out of these


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
    fc_norm: bool = False,
    norm_before_residual: bool = False,
    norm_output: bool = False,
    head_norms: bool = False,
    window: int = 0,
    factors: bool = False,
    follows_target: bool = False,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes an EAGLE-3 drafter (docs/draft-networks.md §2).

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
        fc_norm: Norms each of the joined states.
        norm_before_residual: The residual stream starts normed.
        norm_output: The next step reads the normed state.
        head_norms: Norms queries and keys.
        window: Sliding window; 0 = none.
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
    if fc_norm:
        given |= {f"fc_norm.{number}.weight": norm(target_width) for number in range(len(taps))}
    if head_norms:
        given |= {f"blk.0.attn_{part}_norm.weight": norm(size) for part in "qk"}
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
    for name, value in (("fc_norm", fc_norm), ("norm_output", norm_output)):
        if value:
            pairs[f"eagle3.{name}"] = ("bool", True)
    if window:
        pairs["eagle3.attention.sliding_window"] = ("u32", window)
    write_tiny(path, "eagle3", {**pairs, **words.metadata, **(metadata or {})}, given, quant=quant)
    return path


def tiny_eagle(
    path: Path,
    *,
    seed: int = 0,
    quant: str = "f32",
    width: int = 64,
    n_layers: int = 2,
    n_ff: int = 96,
    biases: bool = False,
    own_embeddings: bool = False,
    factors: bool = False,
    follows_target: bool = False,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes an EAGLE-1 drafter for a target of `n_layers` layers (`specli/models/eagle.py`).

    Args:
        path: File to write.
        seed: The weights are a function of it and the sizes.
        quant: Type of every matrix; vectors are f32.
        width: E, the target's.
        n_layers: Of the target.
        n_ff: Feed-forward width.
        biases: `fc` and the projections of attention have some, as for Qwen2.
        own_embeddings: Has `token_embd`.
        factors: Has `rope_freqs`.
        follows_target: The state is passed through and the layer does little, so that the draft repeats the target.
        metadata: Keys to add or replace with (kind, value), or to leave out with None.
        tensors: Arrays in torch order to use instead, or None to leave a tensor out.
    """
    rng = np.random.default_rng(seed + 3000)
    words, n_head, n_head_kv = VOCABS["bpe"](), 4, 2
    size, small = width // n_head, 0.02 if follows_target else 1.0

    def matrix(n_out: int, n_in: int, spread: float = 2.0) -> np.ndarray:
        return rng.normal(0, spread / np.sqrt(n_in), (n_out, n_in)).astype(np.float32)

    rows = {"q": n_head * size, "k": n_head_kv * size, "v": n_head_kv * size}
    given: dict[str, np.ndarray | None] = {
        "fc.weight": matrix(width, 2 * width),
        **{f"blk.0.attn_{part}.weight": matrix(n, width, 0.5) for part, n in rows.items()},  # of states not normed
        "blk.0.attn_output.weight": matrix(width, n_head * size, 2 * small),
        "blk.0.ffn_norm.weight": rng.normal(1, 0.1, width).astype(np.float32),
        "blk.0.ffn_gate.weight": matrix(n_ff, width),
        "blk.0.ffn_up.weight": matrix(n_ff, width),
        "blk.0.ffn_down.weight": matrix(width, n_ff, 2 * small),
    }
    if follows_target:
        given["fc.weight"] = np.eye(width, 2 * width, width, np.float32)
    if biases:
        given |= {f"blk.0.attn_{part}.bias": rng.normal(0, 0.1, n).astype(np.float32) for part, n in rows.items()}
        given["fc.bias"] = rng.normal(0, 0.1, width).astype(np.float32)
    if own_embeddings:
        given["token_embd.weight"] = matrix(words.size, width, 4)
    if factors:
        given["rope_freqs.weight"] = rng.uniform(1, 8, size // 2).astype(np.float32)
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
    }
    pairs: Metadata = {f"eagle.{name}": ("u32", value) for name, value in sizes.items()}
    pairs["eagle.target_layers"] = ("[i32]", [n_layers])
    pairs["eagle.rope.freq_base"] = ("f32", 10000.0)
    pairs["eagle.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    write_tiny(
        path, "eagle", {**pairs, **words.metadata, **(metadata or {})}, {**given, **(tensors or {})}, quant=quant
    )
    return path


def tiny_medusa(
    path: Path,
    *,
    seed: int = 0,
    quant: str = "f32",
    width: int = 64,
    n_layers: int = 2,
    n_heads: int = 4,
    n_residuals: int = 1,
    biases: bool = True,
    head: np.ndarray | None = None,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes Medusa heads for a target of `n_layers` layers (`specli/models/medusa.py`).

    Args:
        path: File to write.
        seed: The weights are a function of it and the sizes.
        quant: Type of every matrix; vectors are f32.
        width: E, the target's.
        n_layers: Of the target.
        n_heads: Longest draft.
        n_residuals: Residual parts of a head.
        biases: The residual parts have some.
        head: `[V, E]`; the heads are this one and their residual parts do little, so that each repeats what the target
            says next: drafts of a text that repeats one token get accepted.
        metadata: Keys to add or replace with (kind, value), or to leave out with None.
        tensors: Arrays in torch order to use instead, or None to leave a tensor out.
    """
    rng = np.random.default_rng(seed + 4000)
    words = VOCABS["bpe"]()
    spread = (2.0 if head is None else 0.02) / np.sqrt(width)
    given: dict[str, np.ndarray | None] = {}
    for number in range(n_heads):
        for part in range(n_residuals):
            at = f"blk.{number}.residual.{part}"
            given[f"{at}.weight"] = rng.normal(0, spread, (width, width)).astype(np.float32)
            if biases:
                given[f"{at}.bias"] = rng.normal(0, spread, width).astype(np.float32)
        own = rng.normal(0, 2 / np.sqrt(width), (words.size, width)).astype(np.float32)
        given[f"blk.{number}.output.weight"] = own if head is None else head
    sizes = {
        "block_count": n_heads,
        "residual_count": n_residuals,
        "embedding_length": width,
        "vocab_size": words.size,
        "context_length": 512,
    }
    pairs: Metadata = {f"medusa.{name}": ("u32", value) for name, value in sizes.items()}
    pairs["medusa.target_layers"] = ("[i32]", [n_layers])
    write_tiny(
        path, "medusa", {**pairs, **words.metadata, **(metadata or {})}, {**given, **(tensors or {})}, quant=quant
    )
    return path


def tiny_mtp(
    path: Path,
    architecture: str = "llama",
    *,
    seed: int = 0,
    quant: str = "f32",
    vocab: str = "bpe",
    n_layer: int = 2,
    n_heads: int = 1,
    heads_only: bool = False,
    own_ends: bool = False,
    own_norm: bool = True,
    tied: bool = False,
    follows_target: bool = False,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes a target of `tiny_gguf` with MTP heads behind its trunk (docs/draft-networks.md §5).

    Args:
        path: File to write.
        architecture: A key of `ARCHITECTURES`.
        seed: The trunk is that of `tiny_gguf` with this seed.
        quant: Type of every matrix.
        vocab: A key of `VOCABS`.
        n_layer: Layers of the trunk.
        n_heads: MTP blocks.
        heads_only: Leaves the trunk out.
        own_ends: Blocks have embeddings and heads of their own.
        own_norm: Blocks have a norm of their own before the head.
        tied: No output.weight.
        follows_target: All layers do little, so that a token follows from the one before it, and heads pass embeddings
            through: most drafts are accepted. For files with a head (not tied) and no norm before heads of its own.
        tensors: Arrays to use instead, or None to leave a tensor out.
    """
    assert not (follows_target and (tied or own_ends)), "the head has to say what the target does"
    rng = np.random.default_rng(seed + 2000)
    width, words = 64, VOCABS[vocab]()
    sizes = Sizes(n_layer, width, 4, 2, 16, 128, words.size)
    family = ARCHITECTURES[architecture]

    def random(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return rng.normal(1.0 if name.endswith("norm.weight") else 0.0, 0.1, shape).astype(np.float32)
        does_little = follows_target and name.startswith(QUIET)
        return rng.normal(0, (0.02 if does_little else 2.0) / np.sqrt(shape[-1]), shape).astype(np.float32)

    given: dict[str, np.ndarray | None] = {}
    if follows_target:
        for index in range(n_layer):
            shapes = {name: shape for name, shape in family.layer(sizes, index) if len(shape) > 1}
            given |= {f"blk.{index}.{n}": random(n, shape) for n, shape in shapes.items() if n.startswith(QUIET)}
    for index in range(n_layer, n_layer + n_heads):
        at = f"blk.{index}."
        given |= {at + name: random(name, shape) for name, shape in family.layer(sizes, 1)}
        eh_proj = random("eh_proj.weight", (width, 2 * width))
        if follows_target:
            eh_proj = np.eye(width, 2 * width, dtype=np.float32)
        given[f"{at}nextn.eh_proj.weight"] = eh_proj
        for name in ("enorm", "hnorm", *(("shared_head_norm",) if own_norm and not follows_target else ())):
            given[f"{at}nextn.{name}.weight"] = random("norm.weight", (width,))
        if follows_target:
            given[f"{at}nextn.enorm.weight"] = np.ones(width, np.float32)
        if own_ends:
            given[f"{at}nextn.embed_tokens.weight"] = random("embed_tokens.weight", (words.size, width))
            given[f"{at}nextn.shared_head_head.weight"] = random("head.weight", (words.size, width))
    if heads_only:
        for index in range(n_layer):
            given |= {f"blk.{index}.{name}": None for name, _ in family.layer(sizes, index)}
    counts = {"block_count": n_layer + n_heads, "nextn_predict_layers": n_heads}
    flags = {
        f"{architecture}.{name}": (kind, [*values, *[True] * n_heads])
        for name, (kind, values) in family.metadata(sizes).items()
        if kind == "[bool]" and isinstance(values, list)
    }  # an entry per block
    return tiny_gguf(
        path,
        architecture,
        seed=seed,
        quant=quant,
        vocab=vocab,
        n_layer=n_layer,
        tied=tied,
        metadata=flags | {f"{architecture}.{name}": ("u32", value) for name, value in counts.items()},
        tensors=given | dict(tensors or {}),
    )


def tiny_assistant(
    path: Path,
    *,
    seed: int = 0,
    quant: str = "f32",
    width: int = 32,
    target_width: int = 64,
    head_size: int = 16,
    head_size_swa: int = 8,
    slides: Sequence[bool] = (True, True, False),
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes a `gemma4-assistant` for a tiny `gemma4` (docs/draft-networks.md §5.6); arguments as of `tiny_eagle3`."""
    rng = np.random.default_rng(seed + 3000)
    words, n_blocks, n_ff, n_head = VOCABS["bpe"](), len(slides), 64, 4

    def matrix(n_out: int, n_in: int) -> np.ndarray:
        return rng.normal(0, 2 / np.sqrt(n_in), (n_out, n_in)).astype(np.float32)

    def norm(n: int) -> np.ndarray:
        return rng.normal(1, 0.1, n).astype(np.float32)

    given: dict[str, np.ndarray | None] = {
        "token_embd.weight": matrix(words.size, width),
        "output_norm.weight": norm(width),
        "nextn.pre_projection.weight": matrix(width, 2 * target_width),
        "nextn.post_projection.weight": matrix(target_width, width),
        "rope_freqs.weight": np.where(np.arange(head_size // 2) < head_size // 8, 1, 1e30).astype(np.float32),
    }
    for index, is_sliding in enumerate(slides):
        at, size = f"blk.{index}.", head_size_swa if is_sliding else head_size
        given |= {f"{at}{n}.weight": norm(width) for n in ("attn_norm", "post_attention_norm", "ffn_norm")}
        given |= {f"{at}post_ffw_norm.weight": norm(width), f"{at}attn_q_norm.weight": norm(size)}
        given |= {
            f"{at}attn_q.weight": matrix(n_head * size, width),
            f"{at}attn_output.weight": matrix(width, n_head * size),
            f"{at}ffn_gate.weight": matrix(n_ff, width),
            f"{at}ffn_up.weight": matrix(n_ff, width),
            f"{at}ffn_down.weight": matrix(width, n_ff),
            f"{at}layer_output_scale.weight": np.array([0.9], np.float32),
        }
    counts = {
        "context_length": 512,
        "embedding_length": width,
        "embedding_length_out": target_width,
        "block_count": n_blocks,
        "nextn_predict_layers": n_blocks,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": 2,
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        "attention.key_length_swa": head_size_swa,
        "attention.value_length_swa": head_size_swa,
        "attention.sliding_window": WINDOW,
        "rope.dimension_count": head_size,
        "rope.dimension_count_swa": head_size_swa,
        "vocab_size": words.size,
    }
    arch = "gemma4-assistant"
    pairs: Metadata = {f"{arch}.{name}": ("u32", value) for name, value in counts.items()}
    pairs[f"{arch}.attention.sliding_window_pattern"] = ("[bool]", list(slides))
    pairs[f"{arch}.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    pairs[f"{arch}.rope.freq_base"] = ("f32", 1e6)
    pairs[f"{arch}.rope.freq_base_swa"] = ("f32", 10000.0)
    write_tiny(path, arch, {**pairs, **words.metadata, **(metadata or {})}, given | dict(tensors or {}), quant=quant)
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
            rows = values.astype(np.float32).reshape(-1, values.shape[-1] if values.ndim else 1)
            writer.add_tensor(name, stored, values.shape, quantise(stored, rows))
