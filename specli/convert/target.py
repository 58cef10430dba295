"""What a drafter's conversion needs from its target, read from a checkpoint directory or from a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specli.convert.keys import KeyValues
from specli.convert.values import Values
from specli.errors import FormatError
from specli.gguf.file import GGUFFile

TOKENIZER_PREFIX = "tokenizer."
UNUSED = 5  # token type of padding entries


@dataclass(frozen=True)
class Target:
    """The target a drafter was trained for.

    Attributes:
        path: Directory or file, for messages.
        n_layers: Decoder layers, MTP blocks excluded.
        width: Hidden size.
        n_tokens: Vocabulary size.
        architecture: GGUF architecture, or None for a directory whose architecture is not a known target.
        is_gemma: Whether embeddings are scaled by sqrt(width).
        has_mrope: Whether positions come in sections.
        is_tied: Whether the head is the embedding table.
        name: What it is called.
        vocabulary: Tokenizer keys padded to a size, by the target's own procedure.
        directory: The checkpoint directory; None for a GGUF file.
    """

    path: Path
    n_layers: int
    width: int
    n_tokens: int
    architecture: str | None
    is_gemma: bool
    has_mrope: bool
    is_tied: bool
    name: str
    vocabulary: Callable[[int], KeyValues]
    directory: Path | None = None


def target_from_gguf(path: Path) -> Target:
    """Reads the header of a GGUF file; no weights.

    Raises:
        FormatError: The file is broken or lacks a key.
    """
    file = GGUFFile.open(path)
    meta, arch = file.metadata, file.architecture
    n_nextn = meta.get(f"{arch}.nextn_predict_layers", "u32", 0)
    tokens = meta.require("tokenizer.ggml.tokens", "[str]")
    sections = meta.get(f"{arch}.rope.dimension_sections", "[int]", [])
    return Target(
        path=path,
        n_layers=meta.require(f"{arch}.block_count", "u32") - n_nextn,
        width=meta.require(f"{arch}.embedding_length", "u32"),
        n_tokens=len(tokens),
        architecture=arch,
        is_gemma=arch.startswith("gemma"),
        has_mrope=any(sections),
        is_tied="output.weight" not in file.tensors,
        name=meta.get("general.name", "str", path.stem),
        vocabulary=lambda n_tokens: copied_vocabulary(file, n_tokens),
    )


def copied_vocabulary(file: GGUFFile, n_tokens: int) -> KeyValues:
    """The tokenizer keys of a GGUF file as they stand, the token list padded to `n_tokens`.

    Raises:
        FormatError: The file has more tokens than that.
    """
    keys = KeyValues()
    n_own = len(file.metadata.require("tokenizer.ggml.tokens", "[str]"))
    if n_own > n_tokens:
        raise FormatError(f"{file.path}: {n_own} tokens, the drafter's vocab_size is {n_tokens}")
    padding = {
        "tokenizer.ggml.tokens": [f"[PAD{token}]" for token in range(n_own, n_tokens)],
        "tokenizer.ggml.scores": [-10000.0] * (n_tokens - n_own),
        "tokenizer.ggml.token_type": [UNUSED] * (n_tokens - n_own),
    }
    for key in list(file.metadata.keys()):
        if key.startswith(TOKENIZER_PREFIX):
            kind = file.metadata.kind(key)
            value = file.metadata.require(key, kind)  # type: ignore[call-overload]
            keys.add(key, kind, value + padding[key] if key in padding else value)
    return keys


def target_from_directory(
    directory: Path,
    config: Values,
    architecture: str | None,
    vocabulary: Callable[[Path, int], KeyValues],
    *,
    has_mrope: bool,
    name: str,
) -> Target:
    """Reads a directory's config; weights are not needed.

    Args:
        directory: The target's checkpoint directory.
        config: Its merged config.
        architecture: GGUF architecture the directory would become.
        vocabulary: Tokenizer procedure of that architecture.
        has_mrope: Whether the rope block has sections.
        name: What it is called.
    """
    names = config.texts("architectures") or [""]
    return Target(
        path=directory,
        n_layers=config.need("num_hidden_layers"),
        width=config.need("hidden_size"),
        n_tokens=config.need("vocab_size"),
        architecture=architecture,
        is_gemma=names[0].startswith("Gemma"),
        has_mrope=has_mrope,
        is_tied=bool(config.flag("tie_word_embeddings")),
        name=name,
        vocabulary=lambda n_tokens: vocabulary(directory, n_tokens),
        directory=directory,
    )
