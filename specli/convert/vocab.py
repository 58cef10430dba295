"""Token lists of the three tokenizer kinds, and which kind each target architecture uses.

Source of the rules: llama.cpp conversion/base.py (`get_vocab_base`, `_create_vocab_sentencepiece`) and
gguf-py/gguf/vocab.py (`LlamaHfVocab`). Text is tokenised with the `tokenizers` library straight from tokenizer.json,
without transformers' per-model changes.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specli.convert.keys import KeyValues
from specli.convert.pretokenizers import PROBE, recognise, recognise_rules
from specli.convert.special import SpecialTokens, optional_object
from specli.convert.values import Values
from specli.errors import FormatError, UnsupportedError
from specli.files import is_there, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenType(enum.IntEnum):
    """`tokenizer.ggml.token_type` values (ggml: llama.h, `llama_token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


Vocabulary = Callable[[Path, int], KeyValues]
"""Tokenizer keys from a directory, with the token list padded to a size."""

BLANK = "\u2581"  # SentencePiece's visible blank
_UNREAD = ("tekken.json", "tiktoken.model")  # vocabularies in Mistral's and in Moonshot's own form
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPECIAL_TEXTS = frozenset({"<pad>", "<mask>", "<2mass>", "[@BOS@]"})
_SPECIAL_AFFIXES = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))


def looks_special(text: str) -> bool:
    """Whether an added token that is not marked special is one in practice."""
    return text in _SPECIAL_TEXTS or any(text.startswith(a) and text.endswith(b) for a, b in _SPECIAL_AFFIXES)


def _need(directory: Path, name: str) -> Path:
    path = directory / name
    if not is_there(path):
        other = next((other for other in _UNREAD if is_there(directory / other)), None)
        hint = other and f"{other} is not read; look for a copy of the model with tokenizer.json"
        raise FormatError(f"{directory}: no {name}, needed for the tokenizer", hint=hint)
    return path


def _load_tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for everything
        raise FormatError(f"{path}: not a tokenizer: {' '.join(str(error).split())}") from None


def bpe_keys(directory: Path, n_tokens: int, roles: Sequence[tuple[str, str]] = ()) -> KeyValues:
    """Byte-level BPE ("gpt2") from tokenizer.json.

    Args:
        directory: Tokenizer directory.
        n_tokens: Length of the token list.
        roles: Role and text of added tokens that get it unless the directory gives it to another.

    Raises:
        FormatError: A file is missing or broken, or the list is longer than `n_tokens`.
        UnsupportedError: The pre-tokenizer is not known.
    """
    path = _need(directory, "tokenizer.json")
    tokenizer = _load_tokenizer(path)
    texts = {token: text for text, token in tokenizer.get_vocab(with_added_tokens=True).items()}
    if texts and max(texts) >= n_tokens:
        raise FormatError(f"{path}: token id {max(texts)} is beyond vocab_size {n_tokens}")
    rules = Values(path, optional_object(path) or {}).section("pre_tokenizer").items
    name = recognise(tokenizer.encode(PROBE).ids) or recognise_rules(rules)
    if name is None:
        raise UnsupportedError(f"{path}: pre-tokenizer not recognised")
    added = tokenizer.get_added_tokens_decoder()
    tokens, types = [], []
    for token in range(n_tokens):
        text, kind = texts.get(token, f"[PAD{token}]"), TokenType.NORMAL
        if token not in texts:
            kind = TokenType.UNUSED
        elif token in added:
            if not added[token].normalized:
                text = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)
            if added[token].special or looks_special(text):
                kind = TokenType.CONTROL
            else:
                text, kind = text.replace(BLANK, " "), TokenType.USER_DEFINED
        tokens.append(text)
        types.append(int(kind))
    keys = KeyValues()
    keys.add("tokenizer.ggml.model", "str", "gpt2")
    keys.add("tokenizer.ggml.pre", "str", name)
    keys.add("tokenizer.ggml.tokens", "[str]", tokens)
    keys.add("tokenizer.ggml.token_type", "[i32]", types)
    keys.add("tokenizer.ggml.merges", "[str]", read_merges(directory))
    special = SpecialTokens(directory)
    ids = {entry.content: token for token, entry in added.items()}
    for role, text in roles:
        if text not in ids:
            raise FormatError(f"{path}: added token {text!r} is missing")
        special.set(role, ids[text])
    special.add_to(keys)
    return keys


def read_merges(directory: Path) -> list[str]:
    """Merge rules as "left right", from tokenizer.json or merges.txt."""
    path = directory / "tokenizer.json"
    tokenizer = optional_object(path) or {}
    merges = Values(path, tokenizer).section("model").raw("merges") or []
    if isinstance(merges, list) and all(isinstance(merge, str) for merge in merges) and merges:
        return merges
    if merges:
        try:
            return [" ".join(part.replace(" ", "\u0120") for part in (left, right)) for left, right in merges]
        except (TypeError, ValueError, AttributeError):
            raise FormatError(f"{path}: merges are neither texts nor pairs of texts") from None
    text = directory / "merges.txt"
    if not is_there(text):
        return []
    lines = read_text(text).splitlines()
    pairs = (line.split() for line in lines[1 if lines and lines[0].startswith("#") else 0 :])
    return [" ".join(pair) for pair in pairs if len(pair) == 2]


class TokenList:
    """Tokens, scores and types under construction, one entry per id."""

    def __init__(self, n: int) -> None:
        self.texts = [f"[PAD{token}]" for token in range(n)]
        self.scores = [-10000.0] * n
        self.types = [int(TokenType.UNUSED)] * n

    def put(self, token: int, text: str, score: float, kind: TokenType) -> None:
        """Sets one entry; ids beyond the list are dropped, as llama.cpp does with a warning."""
        if token < len(self.texts):
            self.texts[token], self.scores[token], self.types[token] = text, score, int(kind)

    def add_to(self, keys: KeyValues) -> None:
        """Writes tokens, scores and types."""
        keys.add("tokenizer.ggml.tokens", "[str]", self.texts)
        keys.add("tokenizer.ggml.scores", "[f32]", self.scores)
        keys.add("tokenizer.ggml.token_type", "[i32]", self.types)


def piece_list(directory: Path, n_tokens: int) -> TokenList:
    """The tokens of tokenizer.model, and those of added_tokens.json."""
    from sentencepiece import SentencePieceProcessor

    path = _need(directory, "tokenizer.model")
    try:
        model = SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError) as error:
        raise FormatError(f"{path}: not a SentencePiece model: {error}") from None
    tokens = TokenList(n_tokens)
    for token in range(model.vocab_size()):
        kind = TokenType.NORMAL
        for is_kind, candidate in (
            (model.IsUnknown, TokenType.UNKNOWN),
            (model.IsControl, TokenType.CONTROL),
            (model.IsUnused, TokenType.UNUSED),
            (model.IsByte, TokenType.BYTE),
        ):
            if is_kind(token):
                kind = candidate
                break
        tokens.put(token, model.IdToPiece(token), model.GetScore(token), kind)
    for text, token in (optional_object(directory / "added_tokens.json") or {}).items():
        tokens.put(_token_id(directory / "added_tokens.json", token), text, -1000.0, TokenType.USER_DEFINED)
    return tokens


def sentencepiece_keys(directory: Path, n_tokens: int) -> KeyValues:
    """SentencePiece ("llama") from tokenizer.model, with added tokens from JSON files."""
    tokens = piece_list(directory, n_tokens)
    config_path = directory / "tokenizer_config.json"
    config = Values(config_path, optional_object(config_path) or {})
    for number, entry in config.section("added_tokens_decoder").items.items():
        content = entry.get("content") if isinstance(entry, dict) else None
        if not number.isdecimal() or not isinstance(content, str):
            raise FormatError(f"{config_path}: added_tokens_decoder has a bad entry {number!r}")
        if entry.get("special") or looks_special(content):
            tokens.put(int(number), content, -1000.0, TokenType.CONTROL)
        else:
            tokens.put(int(number), content.replace(BLANK, " "), -1000.0, TokenType.USER_DEFINED)
    return piece_keys(directory, tokens)


def piece_keys(directory: Path, tokens: TokenList) -> KeyValues:
    """The keys of a token list with scores ("llama")."""
    keys = KeyValues()
    keys.add("tokenizer.ggml.model", "str", "llama")
    keys.add("tokenizer.ggml.pre", "str", "default")
    tokens.add_to(keys)
    SpecialTokens(directory, n_tokens=len(tokens.texts)).add_to(keys)
    return keys


def _token_id(path: Path, value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise FormatError(f"{path}: token id {json.dumps(value)}, expected 0 or more")
    return value


def has_byte_fallback(directory: Path) -> bool:
    """Whether tokenizer.json is SentencePiece-like BPE: byte fallback and a decoder sequence."""
    path = directory / "tokenizer.json"
    tokenizer = Values(path, optional_object(path) or {})
    model = tokenizer.section("model").items
    return (
        model.get("type") == "BPE"
        and bool(model.get("byte_fallback"))
        and tokenizer.section("decoder").items.get("type") == "Sequence"
    )


def fallback_list(directory: Path, n_tokens: int) -> TokenList:
    """The token list of a byte-fallback tokenizer.json: all scores -1000, specials are those named in the config.

    Padded to `n_tokens`, which llama.cpp does not do; its loader then refuses the model.
    """
    path = _need(directory, "tokenizer.json")
    tokenizer = _load_tokenizer(path)
    base = tokenizer.get_vocab(with_added_tokens=False)
    everything = tokenizer.get_vocab(with_added_tokens=True)
    specials = {everything[text] for text in _special_texts(directory) if text in everything}
    texts = {token: text for text, token in everything.items()}
    added = sorted(token for token in texts if token >= len(base))
    tokens = TokenList(max(n_tokens, len(base) + len(added)))
    for token in range(len(base)):
        if token not in texts:
            raise FormatError(f"{path}: token id {token} is missing")
        kind = TokenType.CONTROL if token in specials else TokenType.NORMAL
        tokens.put(token, texts[token], -1000.0, TokenType.BYTE if _BYTE_TOKEN.fullmatch(texts[token]) else kind)
    for place, token in enumerate(added, len(base)):
        kind = TokenType.CONTROL if token in specials else TokenType.USER_DEFINED
        tokens.put(place, texts[token], -1000.0, kind)
    return tokens


def _special_texts(directory: Path) -> set[str]:
    """Texts that tokenizer_config.json names as special: the roles, and the additional ones."""
    path = directory / "tokenizer_config.json"
    config = optional_object(path) or {}
    entries = [config.get(f"{kind}_token") for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
    entries += list(config.get("additional_special_tokens") or [])
    extra = config.get("extra_special_tokens") or []
    entries += list(extra.values() if isinstance(extra, dict) else extra)
    texts = (entry.get("content") if isinstance(entry, dict) else entry for entry in entries)
    return {text for text in texts if isinstance(text, str)}


def fallback_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-fallback BPE ("llama") from tokenizer.json."""
    return piece_keys(directory, fallback_list(directory, n_tokens))


def llama_keys(directory: Path, n_tokens: int) -> KeyValues:
    """The Llama family's choice: SentencePiece, else byte-fallback BPE, else byte-level BPE."""
    path = directory / "tokenizer_config.json"
    keys = KeyValues()
    prefix = Values(path, optional_object(path) or {}).flag("add_prefix_space")
    keys.add("tokenizer.ggml.add_space_prefix", "bool", prefix)
    if is_there(directory / "tokenizer.model"):
        keys.update(sentencepiece_keys(directory, n_tokens))
    elif has_byte_fallback(directory):
        keys.update(fallback_keys(directory, n_tokens))
    else:
        keys.update(bpe_keys(directory, n_tokens))
    if n_tokens == 32016:  # CodeLlama
        for kind, token in (("prefix", 32007), ("suffix", 32008), ("middle", 32009), ("eot", 32010)):
            keys.add(f"tokenizer.ggml.{kind}_token_id", "u32", token)
    if n_tokens == 49152:  # meant for Granite's small models; SmolLM2 has the same size
        keys.add("tokenizer.ggml.add_bos_token", "bool", False)
    return keys


def qwen_keys(directory: Path, n_tokens: int) -> KeyValues:
    """SentencePiece if there is a tokenizer.model, else byte-level BPE."""
    is_spm = is_there(directory / "tokenizer.model")
    return (sentencepiece_keys if is_spm else bpe_keys)(directory, n_tokens)


def gemma3_keys(directory: Path, n_tokens: int) -> KeyValues:
    """SentencePiece without a blank in front, else byte-level BPE."""
    if not is_there(directory / "tokenizer.model"):
        return bpe_keys(directory, n_tokens)
    keys = sentencepiece_keys(directory, n_tokens)
    keys.add("tokenizer.ggml.add_space_prefix", "bool", False)
    return keys
