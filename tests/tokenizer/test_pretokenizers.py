"""The table of pre-tokenizers and the character classes behind it."""

import sys
import unicodedata

import pytest
from tokenizers import Regex, pre_tokenizers

from specli.tokenizer.pretokenizers import PRE_TOKENIZERS, unicode_15

CHARACTERS = [point for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]

# Members by the tables of llama.cpp b11434 (src/unicode-data.cpp, Unicode 15.1), counted with its own functions.
COUNTS = {r"\p{N}": 1831, r"\p{L}": 136726, r"\p{M}": 2450, r"\p{P}": 842, r"\p{S}": 7775, r"\s": 25}


def members(pattern: str) -> set[str]:
    split = pre_tokenizers.Split(Regex(unicode_15(pattern)), "removed", invert=True)
    found: set[str] = set()
    for start in range(0, len(CHARACTERS), 1 << 16):
        text = "".join(map(chr, CHARACTERS[start : start + (1 << 16)]))
        for word, _ in split.pre_tokenize_str(text):
            found.update(word)
    return found


@pytest.mark.parametrize("pattern", COUNTS)
def test_character_classes_are_those_of_unicode_15_1(pattern: str) -> None:
    found = members(pattern)
    assert len(found) == COUNTS[pattern]
    if pattern == r"\s":
        assert not found & set("\x1c\x1d\x1e\x1f")
        return
    if unicodedata.unidata_version <= "15.1.0":  # of the running Python
        assert {c for c in map(chr, CHARACTERS) if unicodedata.category(c)[0] == pattern[3]} <= found


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_expressions_keep_every_character(name: str) -> None:
    text = "Don't   stop 12345\r\n\r\n中文の한국 café\u2003ſ __init__ ABCdef/\n🎉\t"
    words = [text]
    for pattern in PRE_TOKENIZERS[name].patterns:
        split = pre_tokenizers.Split(Regex(unicode_15(pattern)), "isolated")
        words = [piece for word in words for piece, _ in split.pre_tokenize_str(word)]
    assert "".join(words) == text
    assert len(words) > 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I'm  12345\n\nyou", ["I", "'m", " ", " 12345", "\n", "\n", "you"]),
        ("llama-bpe", "I'M  12345\n\nyou", ["I", "'M", " ", " ", "123", "45", "\n\n", "you"]),
        ("qwen2", "12345", ["1", "2", "3", "4", "5"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("gpt-4o", "camelCase", ["camel", "Case"]),
        ("gpt-4o", "ÄÖÜber", ["ÄÖÜber"]),  # case is ASCII's, unlike in o200k
        ("tekken", "it's 12", ["it", "'s", " ", "1", "2"]),
        ("deepseek-llm", "a\u2003中", ["a", "\u2003", "中"]),
    ],
)
def test_words(name: str, text: str, words: list[str]) -> None:
    found = [text]
    for pattern in PRE_TOKENIZERS[name].patterns:
        split = pre_tokenizers.Split(Regex(unicode_15(pattern)), "isolated")
        found = [piece for word in found for piece, _ in split.pre_tokenize_str(word)]
    assert found == words
