"""Pre-tokenizers of byte-pair vocabularies: how text is cut into words before merging (docs/tokenizers.md §5.2).

The expressions are those of llama.cpp b11434 (`src/llama-vocab.cpp`, `llm_tokenizer_bpe`). They are applied one after
the other: each cuts what its predecessor left into matches and the gaps between them. Some of them differ from the
model makers' own on purpose, because ids must equal llama.cpp's: `gpt-4o` and `tekken` know case for ASCII only,
`tiny_aya`, `youtu` and `kimi-k2` know none, and contractions do not match U+017F.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)

# A word in two cases: capitals then small letters, either part may be missing but not both. Letters without case
# count as both, and case is ASCII's.
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"((?=[\p{L}])([^a-z]))"
_LOWER = r"((?=[\p{L}])([^A-Z]))"
_PATH_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_PATH_SYMBOLS}|{_SPACES}"
)
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|{_PATH_SYMBOLS}|{_SPACES}"

_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)

# Lists of letter classes for each case are one class to llama.cpp, so these words know no case at all.
_WORD = rf"{_BEFORE}[\p{{L}}\p{{M}}]+{_CONTRACTION}?"
# Numbers in groups of three from the right. The text before a number stays with its first group, which shows in the
# blanks at the seam. The number may be missing, for text without one must not be searched again from each character.
_GROUPS_OF_THREE = r"[^\p{N}]*(?:\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))?"
_TINY_AYA = (_GROUPS_OF_THREE, rf"{_WORD}|\p{{N}}{{1,3}}|{_PATH_SYMBOLS}|{_SPACES}")
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    rf"{_WORD}|\p{{N}}|{_PATH_SYMBOLS}|{_SPACES}",
)
_SUPERBPE = (r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))")  # cuts numbers only, so that a token may span several words
_EXAONE_MOE = (
    rf"{_CONTRACTION}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f]"
_KIMI_K2 = rf"{_HAN}+|{_BEFORE}(?:(?!{_HAN})\p{{L}})+{_CONTRACTION}?|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_MINICPM5 = (r"\p{N}{1,3}", rf"{_CONTRACTION}|{_BEFORE}\p{{L}}+|\p{{N}}+|{_SYMBOLS}|{_SPACES}")
_SEED_CODER = rf"{_CONTRACTION}|{_BEFORE}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_VIKING = (" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+", r"\p{N}")

_LINE_END = r"[\r\n]"
# llama.cpp hides white space outside ASCII from expressions without \p, so it is left out of these two classes.
_CJK = "[\u0800-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\u9fa5\uac00-\ud7ff]+"
_DEEPSEEK_PUNCTUATION = r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002]+"
_CASED_LETTERS = (  # letters of the classes Lu, Ll, Lt as DeepSeek listed them; escaped where NFC would change them
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ"
    "-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM = (_LINE_END, rf"\s?[{_CASED_LETTERS}]+", _DEEPSEEK_PUNCTUATION, r"\s+$", _CJK, r"\p{N}+")
_DEEPSEEK_CODER = (_LINE_END, r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    """What `tokenizer.ggml.pre` stands for.

    Attributes:
        patterns: Expressions in order of application, in the syntax of the `tokenizers` package.
        ignore_merges: A word that is a token as it stands is taken whole.
        add_bos: Default of `add_bos_token`.
        has_bos: The default BOS id of byte-pair vocabularies applies.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    has_bos: bool = True


_ROWS: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    (
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe"), PreTokenizer((_LLAMA3,))),
    (("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True, has_bos=False)),
    (("chatglm-bpe",), PreTokenizer((_LLAMA3,), has_bos=False)),
    (
        (
            *("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "kormo", "f2llmv2"),
            "grok-2",
        ),
        PreTokenizer((_QWEN2,)),
    ),
    (("qwen35",), PreTokenizer((_QWEN35,))),
    (
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    (
        (
            *("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat", "a.x-4.0", "mellum"),
            "granite-docling",
        ),
        PreTokenizer((_GPT2,)),
    ),
    (("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), PreTokenizer((_GPT4O,))),
    (("tiny_aya", "cohere2moe"), PreTokenizer(_TINY_AYA)),
    (("youtu",), PreTokenizer(_YOUTU, ignore_merges=True)),
    (("superbpe",), PreTokenizer(_SUPERBPE)),
    (("exaone-moe",), PreTokenizer((_EXAONE_MOE,))),
    (("kimi-k2",), PreTokenizer((_KIMI_K2,))),
    (("minicpm5",), PreTokenizer(_MINICPM5, ignore_merges=True)),
    (("seed-coder",), PreTokenizer((_SEED_CODER,))),
    (("viking",), PreTokenizer(_VIKING)),
    (("tekken",), PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True)),
    (("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), PreTokenizer(_DEEPSEEK3)),
    (("deepseek-llm",), PreTokenizer(_DEEPSEEK_LLM)),
    (("deepseek-coder",), PreTokenizer(_DEEPSEEK_CODER)),
    (("falcon",), PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    (("default",), PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: row for names, row in _ROWS for name in names}

# Characters that Unicode 16 gave a class. llama.cpp's tables are those of Unicode 15.1, where they have none; the
# `tokenizers` package follows Unicode 16 since its version 0.22. Ranges may include characters without a class.
_UNICODE_16 = (
    *((0x897, 0x897), (0x1B4E, 0x1B4F), (0x1B7F, 0x1B7F), (0x1C89, 0x1C8A), (0x2427, 0x2429), (0x31E4, 0x31E5)),
    *((0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0x105C0, 0x105F3), (0x10D40, 0x10D8F), (0x10EC2, 0x10EFC)),
    *((0x11380, 0x113E2), (0x116D0, 0x116E3), (0x11BC0, 0x11BF9), (0x11F5A, 0x11F5A), (0x13460, 0x143FA)),
    *((0x16100, 0x16139), (0x16D40, 0x16D79), (0x18CFF, 0x18CFF), (0x1CC00, 0x1CEB3), (0x1E5D0, 0x1E5FF)),
    *((0x1F8B2, 0x1F8C1), (0x1FA89, 0x1FA8F), (0x1FABE, 0x1FABE), (0x1FAC6, 0x1FAC6), (0x1FADC, 0x1FADF)),
    *((0x1FAE9, 0x1FAE9), (0x1FBCB, 0x1FBEF)),
)
_NOT_LATER = "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in _UNICODE_16)


def unicode_15(pattern: str) -> str:
    r"""The pattern with its character classes as llama.cpp knows them, in the syntax of the `tokenizers` package.

    Example: `\p{N}` becomes `[\p{N}&&[^…]]`, inside a bracketed class too.
    """
    return re.sub(r"\\p\{\w\}", lambda match: f"[{match[0]}&&[^{_NOT_LATER}]]", pattern)
