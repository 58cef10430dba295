"""The vocabulary of a GGUF file: texts, attributes, roles and their rules (docs/tokenizers.md §§1-2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from specli.errors import FormatError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.gguf.metadata import Metadata, show
from specli.tokenizer.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from specli.tokenizer.special import (
    ATTRIBUTE_OF_TYPE,
    BYTE,
    RECOGNISED,
    ROLES,
    SpecialToken,
    detect_roles,
    end_tokens,
)

Kind = Literal["spm", "bpe", "gemma4"]

_KEY = "tokenizer.ggml."


@dataclass(frozen=True)
class _Family:
    """What `tokenizer.ggml.model` stands for, and the defaults of the keys a file may leave out."""

    kind: Kind
    roles: Mapping[str, int]
    add_bos: bool
    add_space_prefix: bool


_FAMILIES = {
    "llama": _Family("spm", {"bos": 1, "eos": 2, "unk": 0}, add_bos=True, add_space_prefix=True),
    "gpt2": _Family("bpe", {"bos": 11, "eos": 11}, add_bos=False, add_space_prefix=False),
    "gemma4": _Family("gemma4", {}, add_bos=True, add_space_prefix=False),
}
_GEMMA4 = PreTokenizer((), add_bos=True)  # cuts at line ends only, see bpe.py
_BYTE_TEXT = re.compile("<0x[0-9A-Fa-f]{2}>")
_RSTRIP_NAMES = ("phi-3", "phi3")  # models whose special tokens swallow the white space after them
_RSTRIP_EXCEPT = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Everything encoding and decoding need to know, as plain data.

    Attributes:
        path: The file, for messages.
        kind: `spm` (SentencePiece merges by score), `bpe` (GPT-2 byte-pair merges) or `gemma4` (merges of raw UTF-8).
        pre: How text is cut into words (`bpe`).
        texts: Token texts by id.
        ids: Token text to id.
        attributes: `Attribute` value per id.
        scores: `[V]` float32, merge priorities (`spm`).
        merges: Merges "left right", best first (`bpe`, `gemma4`).
        roles: Role name (`special.ROLES`) to token id.
        end_ids: Tokens that end a generation.
        suppress_ids: Tokens that are never sampled.
        add_bos: Text starts with the BOS token when special tokens are asked for.
        add_eos: Text ends with the EOS token when special tokens are asked for.
        add_space_prefix: Text after nothing or after a special token starts with a space (`spm`).
        specials: Tokens recognised in text.
    """

    path: Path
    kind: Kind
    pre: PreTokenizer
    texts: Sequence[str]
    ids: Mapping[str, int]
    attributes: bytes
    scores: npt.NDArray[np.float32]
    merges: Sequence[str]
    roles: Mapping[str, int]
    end_ids: frozenset[int]
    suppress_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    specials: tuple[SpecialToken, ...]

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> TokenTable:
        """Reads and checks the `tokenizer.ggml.` keys.

        Raises:
            FormatError: A key is missing, has the wrong type or does not fit the others.
            UnsupportedError: The tokenizer model or the pre-tokenizer is not one of the tables'.
        """
        metadata = file.metadata
        family = _family(file.path, metadata)
        pre = _pre_tokenizer(file.path, metadata, family)
        texts = metadata.require(_KEY + "tokens", "[str]")
        ids = dict(zip(texts, range(len(texts)), strict=True))
        if "" in ids:
            texts = [text or f"[EMPTY_{token}]" for token, text in enumerate(texts)]
            ids = dict(zip(texts, range(len(texts)), strict=True))
        if len(ids) != len(texts):
            twice = next(text for token, text in enumerate(texts) if ids[text] != token)
            raise FormatError(f"{file.path}: token text {show(twice)} occurs twice in the vocabulary")

        attributes = _attributes(file.path, metadata, len(texts))
        _check_byte_tokens(file.path, texts, attributes)
        roles = _stored_roles(metadata, family, pre, len(texts))
        detect_roles(roles, ids, attributes)
        end_ids = end_tokens(roles, ids, attributes)

        # Gemma 4 files say add_bos = false by mistake; llama.cpp overrides them.
        add_bos = family.kind == "gemma4" or metadata.get(_KEY + "add_bos_token", "bool", family.add_bos or pre.add_bos)
        add_eos = metadata.get(_KEY + "add_eos_token", "bool", False)
        for wanted, role in ((add_bos, "bos"), (add_eos, "eos")):
            if wanted and role not in roles:
                raise FormatError(f"{file.path}: add_{role}_token is true, but the vocabulary has no {role} token")

        strips = any(name in metadata.get("general.name", "str", "").lower() for name in _RSTRIP_NAMES)
        return cls(
            path=file.path,
            kind=family.kind,
            pre=pre,
            texts=texts,
            ids=ids,
            attributes=bytes(attributes),
            scores=_scores(file.path, metadata, len(texts)) if family.kind == "spm" else np.zeros(0, np.float32),
            merges=() if family.kind == "spm" else metadata.require(_KEY + "merges", "[str]"),
            roles=roles,
            end_ids=end_ids,
            suppress_ids=tuple(
                token for token in metadata.get(_KEY + "suppress_tokens", "[i32]", []) if 0 <= token < len(texts)
            ),
            add_bos=add_bos,
            add_eos=add_eos,
            add_space_prefix=metadata.get(_KEY + "add_space_prefix", "bool", family.add_space_prefix),
            specials=tuple(
                SpecialToken(token, texts[token], strips and texts[token] not in _RSTRIP_EXCEPT)
                for token, attribute in enumerate(attributes)
                if attribute & RECOGNISED
            ),
        )


def _family(path: Path, metadata: Metadata) -> _Family:
    model = metadata.require(_KEY + "model", "str")
    if model not in _FAMILIES:
        raise UnsupportedError(
            f"{path}: tokenizer model {show(model)} is not supported, expected one of {', '.join(_FAMILIES)}"
        )
    return _FAMILIES[model]


def _pre_tokenizer(path: Path, metadata: Metadata, family: _Family) -> PreTokenizer:
    if family.kind != "bpe":  # such files write "default", which means nothing
        return _GEMMA4 if family.kind == "gemma4" else PRE_TOKENIZERS["default"]
    name = metadata.get(_KEY + "pre", "str", "default")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(f"{path}: unknown pre-tokenizer type: {show(name)}")
    return PRE_TOKENIZERS[name]


def _attributes(path: Path, metadata: Metadata, n_vocab: int) -> bytearray:
    """`Attribute` value per token by its stored type; without types every token is normal."""
    stored = metadata.get(_KEY + "token_type", "[i32]", None)
    if stored is None:
        return bytearray([ATTRIBUTE_OF_TYPE[1]]) * n_vocab
    _check_length(path, "token_type", len(stored), n_vocab)
    types = np.array(stored[:n_vocab], np.int32)
    known = np.where((types > 0) & (types < len(ATTRIBUTE_OF_TYPE)), types, 0)
    return bytearray(np.array(ATTRIBUTE_OF_TYPE, np.uint8)[known].tobytes())


def _check_byte_tokens(path: Path, texts: Sequence[str], attributes: bytearray) -> None:
    for token, attribute in enumerate(attributes):
        if attribute == BYTE and not _BYTE_TEXT.fullmatch(texts[token]):
            raise FormatError(f"{path}: byte token {token} reads {show(texts[token])}, expected <0x00> to <0xFF>")


def _scores(path: Path, metadata: Metadata, n_vocab: int) -> npt.NDArray[np.float32]:
    key = _KEY + "scores"
    if key not in metadata:
        return np.zeros(n_vocab, np.float32)
    stored = metadata.require(key, "[i32]" if metadata.kind(key) == "[i32]" else "[f32]")
    _check_length(path, "scores", len(stored), n_vocab)
    return np.array(stored[:n_vocab], np.float32)


def _check_length(path: Path, name: str, found: int, n_vocab: int) -> None:
    if found < n_vocab:
        raise FormatError(f"{path}: key '{_KEY}{name}' has {found} entries, expected {n_vocab} as there are tokens")


def _stored_roles(metadata: Metadata, family: _Family, pre: PreTokenizer, n_vocab: int) -> dict[str, int]:
    """Roles by key, then by the family's default. Ids outside the vocabulary are ignored, as llama.cpp does."""
    defaults = {name: token for name, token in family.roles.items() if name != "bos" or pre.has_bos}
    roles = {name: token for name, token in defaults.items() if token < n_vocab}
    for role in ROLES:
        for key in role.keys:
            token = metadata.get(_KEY + key, "u32", n_vocab)
            if token < n_vocab:
                roles[role.name] = token
    return roles
