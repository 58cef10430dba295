"""Byte-pair encoders on the `tokenizers` package (docs/tokenizers.md §§5, 7.1, 7.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from specli.errors import FormatError
from specli.gguf.metadata import show
from specli.tokenizer.pretokenizers import unicode_15
from specli.tokenizer.vocabulary import TokenTable

# A character without a token is dropped after merging, as llama.cpp does. The library drops it before merging, so that
# its neighbours join across the gap, unless there is an unknown token: this one, whose id is then removed. No merge
# makes it, and byte-encoded text never holds U+0000.
_UNKNOWN = "\0unknown\0"
_LINES = re.compile(r"\n+|[^\n]+")


def _pairs(vocabulary: TokenTable) -> Iterator[tuple[str, str]]:
    """Merges in order of rank, cut at the first space from index 1 on. Of equal merges the first counts."""
    for merge in dict.fromkeys(vocabulary.merges):
        cut = merge.find(" ", 1)
        if cut < 0:
            raise FormatError(f"{vocabulary.path}: merge {show(merge)} has no space")
        yield merge[:cut], merge[cut + 1 :]


def _model(vocabulary: TokenTable, *, byte_fallback: bool) -> models.BPE:
    pairs = list(_pairs(vocabulary))
    try:
        return models.BPE(
            {**vocabulary.ids, _UNKNOWN: len(vocabulary.ids)},
            pairs,
            ignore_merges=vocabulary.pre.ignore_merges,
            unk_token=_UNKNOWN,
            fuse_unk=False,
            byte_fallback=byte_fallback,
        )
    except Exception as error:
        # The library's only error class: a merge of, or into, something that is not a token.
        raise FormatError(f"{vocabulary.path}: merges do not fit the vocabulary: {show(str(error))}") from None


class BPEEncoder:
    """Encodes text without special tokens: words by the pre-tokenizer, bytes by GPT-2's alphabet, merges by rank."""

    def __init__(self, vocabulary: TokenTable) -> None:
        self._unknown = len(vocabulary.ids)
        self._tokenizer = Tokenizer(_model(vocabulary, byte_fallback=False))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(unicode_15(pattern)), "isolated") for pattern in vocabulary.pre.patterns),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token != self._unknown] if self._unknown in ids else ids


class Gemma4Encoder:
    """Encodes text without special tokens: spaces as ▁, merges of raw UTF-8 within lines, bytes as `<0xXX>`.

    A run of line ends that is a token is taken whole; merges never cross between line ends and other characters.
    """

    def __init__(self, vocabulary: TokenTable) -> None:
        self._ids = vocabulary.ids
        self._unknown = len(vocabulary.ids)
        self._tokenizer = Tokenizer(_model(vocabulary, byte_fallback=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text."""
        ids: list[int] = []
        for word in _LINES.findall(text.replace(" ", "▁")):
            if word[0] == "\n" and word in self._ids:
                ids.append(self._ids[word])
            else:
                ids += self._tokenizer.encode(word, add_special_tokens=False).ids
        return [token for token in ids if token != self._unknown] if self._unknown in ids else ids
