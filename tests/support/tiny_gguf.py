"""Tiny model files with random weights: complete enough that upstream loads them, made in a fraction of a second."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from specli.gguf.encode import ENCODERS
from specli.gguf.quant import QuantType, quantise
from specli.gguf.write import GGUFWriter
from tests.support.blocks import random_rows
from tests.support.tiny_families import ARCHITECTURES, Architecture, Sizes
from tests.support.tiny_vocab import VOCABS, Metadata

# Matrices that files store as f32 whatever the rest is (the converter's rules).
NEAR_ONE = ("norm.weight", "scale", "scale.weight")
ALWAYS_F32 = ("ffn_gate_inp.weight", "ssm_conv1d.weight", ".bias")


def tiny_gguf(
    path: Path,
    architecture: str = "llama",
    *,
    seed: int = 0,
    quant: str = "f32",
    vocab: str = "bpe",
    n_layer: int = 2,
    width: int | None = None,
    n_head: int = 4,
    n_head_kv: int = 2,
    head_size: int | None = None,
    n_ff: int | None = None,
    context: int = 512,
    tied: bool = False,
    metadata: Mapping[str, tuple[str, object] | None] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Writes a model file.

    Greedy text goes on to the limit: control tokens, among them the end of text, have zero rows in output.weight and so
    the logit 0, which is never the largest. For a text that ends, make an ordinary token the end by `metadata`.

    Args:
        path: File to write.
        architecture: A key of `ARCHITECTURES`.
        seed: The weights are a function of it, the sizes and `quant`; types with an encoder share them.
        quant: Type of every matrix, such as "q4_0" or "q4_k"; vectors are f32.
        vocab: "bpe" or "spm".
        n_layer: Transformer layers.
        width: n_embd; default 64, or 256 for types with blocks of 256.
        n_head: Query heads.
        n_head_kv: Key/value heads.
        head_size: Default width / n_head.
        n_ff: Feed-forward width; default 2 · width.
        context: Trained context length.
        tied: Leaves out output.weight. Tied random models mostly repeat their last token.
        metadata: Keys to add or replace with (kind, value), or to leave out with None.
        tensors: float32 arrays in torch order to use instead of random ones, or None to leave a tensor out.

    Returns:
        `path`.
    """
    type = QuantType.from_label(quant)
    width = width or max(64, type.block_size)
    head_size = head_size or width // n_head
    n_ff = n_ff or 2 * width
    words = VOCABS[vocab]()
    family = ARCHITECTURES[architecture]
    sizes = Sizes(n_layer, width, n_head, n_head_kv, head_size, n_ff, words.size)
    shapes = dict(_shapes(family, sizes, tied=tied))
    counts = {
        "context_length": context,
        "embedding_length": width,
        "block_count": n_layer,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        "rope.dimension_count": head_size,
        "vocab_size": words.size,
    }
    pairs: Metadata = {f"{architecture}.{name}": ("u32", value) for name, value in counts.items()}
    pairs[f"{architecture}.rope.freq_base"] = ("f32", 10000.0)
    pairs[f"{architecture}.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    pairs |= {f"{architecture}.{name}": pair for name, pair in family.metadata(sizes).items()}
    pairs |= words.metadata
    given = dict(tensors or {})

    with GGUFWriter(path, architecture) as writer:
        for key, pair in {**pairs, **(metadata or {})}.items():
            if pair is not None:
                writer.add(key, *pair)
        rng = np.random.default_rng(seed)
        for name, shape in shapes.items():
            stored = type if len(shape) >= 2 and not name.endswith(ALWAYS_F32) else QuantType.F32
            silent = words.control if name == "output.weight" else ()
            made = _random(name, shape, stored, rng, silent)  # also when replaced, so that the others stay the same
            if name not in given:
                writer.add_tensor(name, stored, shape, made)
        for name, values in given.items():
            if values is not None:
                stored = type if values.ndim >= 2 and not name.endswith(ALWAYS_F32) else QuantType.F32
                rows = values.astype(np.float32).reshape(-1, values.shape[-1])
                writer.add_tensor(name, stored, values.shape, quantise(stored, rows))
    return path


def _shapes(family: Architecture, sizes: Sizes, *, tied: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in torch order, in file order."""
    yield "token_embd.weight", (sizes.n_vocab, sizes.width)
    yield "output_norm.weight", (sizes.width,)
    if not tied:
        yield "output.weight", (sizes.n_vocab, sizes.width)
    for layer in range(sizes.n_layer):
        for name, shape in family.layer(sizes, layer):
            yield f"blk.{layer}.{name}", shape
    yield from family.top(sizes)


def _random(
    name: str, shape: tuple[int, ...], type: QuantType, rng: np.random.Generator, silent: tuple[int, ...]
) -> np.ndarray:
    """Stored rows. The spreads make attention matter and leave clear gaps between the best logits.

    Types with an encoder have zeros in the `silent` rows.
    """
    if len(shape) == 1:
        return quantise(QuantType.F32, _random_vector(name, shape[0], rng)[None])
    std = 0.5 if name.endswith("token_embd.weight") else 2.0 / np.sqrt(shape[-1])
    if type in ENCODERS:
        values = rng.normal(0, std, shape).astype(np.float32)
        values[list(silent)] = 0
        return quantise(type, values.reshape(-1, shape[-1]))
    return random_rows(type, int(np.prod(shape[:-1])), shape[-1], rng, std=float(std))


def _random_vector(name: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """`[size]` float32: norms and factors near 1, biases near 0, what has to be negative negative."""
    if name == "rope_freqs.weight":  # a quarter of the pairs is rotated
        return np.where(np.arange(size) < max(1, size // 4), 1, 1e30).astype(np.float32)
    centre, std = (1.0, 0.1) if name.endswith(NEAR_ONE) or "factors" in name else (0.0, 0.1)
    values = rng.normal(centre, std, (1, size)).astype(np.float32)[0]
    return -np.exp(10 * values) if name.endswith("ssm_a") else values
