"""Model files that hold a vocabulary only, in memory or rebuilt from Hugging Face tokenizers."""

import json
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from specli.gguf.file import GGUFFile
from specli.gguf.metadata import Metadata, Value

Pairs = dict[str, tuple[str, object]]

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6  # tokenizer.ggml.token_type


def vocab_file(pairs: Pairs, *, name: str = "tiny.gguf") -> GGUFFile:
    """A file without tensors whose metadata is `pairs`: key → (kind, value)."""
    values = {"general.architecture": Value("str", lambda: "llama")}
    values |= {key: Value(kind, lambda value=value: value) for key, (kind, value) in pairs.items()}
    path = Path(name)
    return GGUFFile(path, Metadata(path, values), {}, 0)


def byte_level_pairs(folder: Path, pre: str) -> Pairs:
    """The keys of a byte-level BPE checkpoint (`tokenizer.json`)."""
    stored = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    ids = {**stored["model"]["vocab"], **{token["content"]: token["id"] for token in stored["added_tokens"]}}
    tokens = sorted(ids, key=ids.__getitem__)
    types = [NORMAL] * len(tokens)
    for token in stored["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in stored["model"]["merges"]]
    return {
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", pre),
        "tokenizer.ggml.tokens": ("[str]", tokens),
        "tokenizer.ggml.token_type": ("[i32]", types),
        "tokenizer.ggml.merges": ("[str]", merges),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        **_special_ids(folder, tokens),
    }


def sentencepiece_pairs(folder: Path) -> Pairs:
    """The keys of a SentencePiece checkpoint (`tokenizer.model`, added tokens of `tokenizer.json`)."""
    processor = SentencePieceProcessor()
    processor.Load(str(folder / "tokenizer.model"))
    n_vocab = processor.GetPieceSize()
    tokens = [processor.IdToPiece(token) for token in range(n_vocab)]
    scores = [processor.GetScore(token) for token in range(n_vocab)]
    types = [BYTE if processor.IsByte(token) else NORMAL for token in range(n_vocab)]
    for token in json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
        tokens[token["id"]] = token["content"].replace("▁", " ")  # runs of spaces
        scores[token["id"]] = -1000.0
    return {
        "tokenizer.ggml.model": ("str", "llama"),
        "tokenizer.ggml.tokens": ("[str]", tokens),
        "tokenizer.ggml.scores": ("[f32]", scores),
        "tokenizer.ggml.token_type": ("[i32]", types),
        "tokenizer.ggml.add_bos_token": ("bool", True),
        "tokenizer.ggml.add_space_prefix": ("bool", False),
        **_special_ids(folder, tokens),
    }


def _special_ids(folder: Path, tokens: list[str]) -> Pairs:
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        f"tokenizer.ggml.{key}_token_id": ("u32", tokens.index(config[f"{name}_token"])) for name, key in keys.items()
    }
