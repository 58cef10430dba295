"""Vocabularies and texts whose token ids llama.cpp has recorded (tests/golden/tokens.json)."""

from __future__ import annotations

from specli.demo import resolve
from specli.gguf.file import GGUFFile
from tests.support.tiny_vocab import VOCABS
from tests.support.vocab_files import Pairs

# One name per rule of `specli.tokenizer.pretokenizers`.
PRE_TOKENIZERS = (
    "llama-bpe", "smaug-bpe", "glm4", "chatglm-bpe", "qwen2", "qwen35", "smollm", "gpt-2", "gpt-4o", "tekken",
    "deepseek-v3", "deepseek-llm", "deepseek-coder", "falcon", "default",
)  # fmt: skip
TEXTS = (
    "Hello, world! It's 1234567 o'clock, they'LL say; WE'VE seen camelCaseWORDS and snake_case.",
    "  two spaces,   three, a tab\t, a line\nand two\n\n\nthree\r\n and trailing   ",
    "def f(x: int) -> str:\n    return f'{x:>8}'  # ünïcödé ÄÖÜber ǅungla",
    "中文和日本語のテキスト、한국어 문장. Ελληνικά, русский, عربى, हिन्दी में लिखा",
    "emoji 🎉👩‍👩‍👧 and ½ ² Ⅷ ٣ ௧ numbers, a\u00a0no-break\u2003em\u3000ideographic space",
    "<|im_start|>user\nHi<|im_end|>\n</s> <|endoftext|>",
    "$price=^~|`{[(]})`\\ https://example.org/a-b/c?d=1&e=2",
    "\u0001\u001c\u001d\u007f control\u200bzero\ufeffwidth ſ don\u017ft 's",
)


def byte_pair_vocabulary(pre: str) -> Pairs:
    """The demo model's tokens under another pre-tokenizer's name."""
    kinds = {"tokens": "[str]", "token_type": "[i32]", "merges": "[str]"}
    with GGUFFile.open(resolve("demo")) as file:
        require = file.metadata.require
        pairs: Pairs = {
            f"tokenizer.ggml.{key}": (kind, require(f"tokenizer.ggml.{key}", kind))  # type: ignore[call-overload]
            for key, kind in kinds.items()
        }
    return {**pairs, "tokenizer.ggml.model": ("str", "gpt2"), "tokenizer.ggml.pre": ("str", pre)}


def vocabularies() -> dict[str, Pairs]:
    """All vocabularies by name."""
    return {
        **{pre: byte_pair_vocabulary(pre) for pre in PRE_TOKENIZERS},
        "sentencepiece": dict(VOCABS["spm"]().metadata),
    }
