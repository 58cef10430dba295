"""Vocabularies and texts whose token ids llama.cpp has recorded (tests/golden/tokens.json)."""

from __future__ import annotations

from itertools import pairwise

from specli.demo import resolve
from specli.gguf.file import GGUFFile
from tests.support.tiny_vocab import VOCABS
from tests.support.tokenizer_rules import byte_encode
from tests.support.vocab_files import Pairs

# One name per rule of `specli.tokenizer.pretokenizers`.
PRE_TOKENIZERS = (
    "llama-bpe", "smaug-bpe", "glm4", "chatglm-bpe", "qwen2", "qwen35", "smollm", "gpt-2", "gpt-4o", "tekken",
    "deepseek-v3", "deepseek-llm", "deepseek-coder", "falcon", "default", "tiny_aya", "youtu", "superbpe", "exaone-moe",
    "kimi-k2", "minicpm5", "seed-coder", "viking",
)  # fmt: skip
NAMES = (*PRE_TOKENIZERS, "sentencepiece")  # of all vocabularies
TEXTS = (
    "Hello, world! It's 1234567 o'clock, they'LL say; WE'VE seen camelCaseWORDS and snake_case.",
    "  two spaces,   three, a tab\t, a line\nand two\n\n\nthree\r\n and trailing   ",
    "def f(x: int) -> str:\n    return f'{x:>8}'  # ünïcödé ÄÖÜber ǅungla",
    "中文和日本語のテキスト、한국어 문장. Ελληνικά, русский, عربى, हिन्दी में लिखा",
    "emoji 🎉👩‍👩‍👧 and ½ ² Ⅷ ٣ ௧ numbers, a\u00a0no-break\u2003em\u3000ideographic space",
    "<|im_start|>user\nHi<|im_end|>\n</s> <|endoftext|>",
    "$price=^~|`{[(]})`\\ https://example.org/a-b/c?d=1&e=2",
    "x 1, a  12, 1234,  12345 12345678 and a1234567b 12٣456 a\u03011234",
    "一一丁二 12漢字word's \uf900é\U00020000x 〇々\u0301, ㄅㄆ ㄱㅏ！「…」 a b\u0301 c  d /\n\n/\n",
    "\u0001\u001c\u001d\u007f control\u200bzero\ufeffwidth ſ don\u017ft 's",
)


def byte_pair_vocabulary(pre: str) -> Pairs:
    """The demo model's tokens under another pre-tokenizer's name, and one for each two bytes that meet in `TEXTS`.

    Without the latter most texts would have the same ids wherever they are cut.
    """
    kinds = {"tokens": "[str]", "token_type": "[i32]", "merges": "[str]"}
    with GGUFFile.open(resolve("demo")) as file:
        tokens, types, merges = (
            list(file.metadata.require(f"tokenizer.ggml.{key}", kind))  # type: ignore[call-overload]
            for key, kind in kinds.items()
        )
    pairs = dict.fromkeys(pair for text in TEXTS for pair in pairwise(byte_encode(text)))
    known = set(tokens)
    more = [pair for pair in pairs if "".join(pair) not in known]
    tokens += ["".join(pair) for pair in more]
    return {
        "tokenizer.ggml.tokens": ("[str]", tokens),
        "tokenizer.ggml.token_type": ("[i32]", types + [1] * len(more)),
        "tokenizer.ggml.merges": ("[str]", merges + [" ".join(pair) for pair in more]),
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", pre),
    }


def vocabulary(name: str) -> Pairs:
    """The vocabulary of that name, one of `NAMES`."""
    return dict(VOCABS["spm"]().metadata) if name == "sentencepiece" else byte_pair_vocabulary(name)
