"""Small vocabularies: byte-level BPE and SentencePiece, learnt on a few sentences when asked for, and twelve tokens."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

Metadata = dict[str, tuple[str, object]]

_TEXT = (
    "the quick brown fox jumps over the lazy dog and then the other dog runs after the fox . "
    "there is a time for this and a time for that , in the house and on the hill . "
    "she said that he had said nothing , but they were all in the same room . "
    "def main ( ) : return the value of the function for each item in the list . "
)
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Vocab:
    """A vocabulary: its size, the ids of control tokens, and the `tokenizer.*` keys that describe it."""

    size: int
    control: tuple[int, ...]
    metadata: Metadata


def _learn_merges(words: Counter[tuple[str, ...]], count: int) -> list[tuple[str, str]]:
    """The `count` most frequent merges in turn; ties go to the smaller pair, so the result is always the same."""
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, n in words.items():
            for pair in pairwise(word):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({_merge(word, best): n for word, n in words.items()})
    return merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    joined: list[str] = []
    for piece in word:
        if joined and (joined[-1], piece) == pair:
            joined[-1] += piece
        else:
            joined.append(piece)
    return tuple(joined)


@cache
def _merges(space: str, count: int = 96) -> tuple[tuple[str, str], ...]:
    """Merges of the text's words, each beginning with the tokenizer's mark for a space."""
    return tuple(_learn_merges(Counter((space, *word) for word in _TEXT.split()), count))


def _byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def bpe_vocab() -> Vocab:
    """256 byte tokens, merged pieces, then <|endoftext|> (bos), <|im_start|> and <|im_end|> (eos)."""
    merges = _merges("Ġ")
    tokens = _byte_characters() + [left + right for left, right in merges]
    types = [_NORMAL] * len(tokens) + [_CONTROL] * 3
    bos = len(tokens)
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return Vocab(
        len(tokens),
        (bos, bos + 1, bos + 2),
        {
            "tokenizer.ggml.model": ("str", "gpt2"),
            "tokenizer.ggml.pre": ("str", "gpt-2"),
            "tokenizer.ggml.tokens": ("[str]", tokens),
            "tokenizer.ggml.token_type": ("[i32]", types),
            "tokenizer.ggml.merges": ("[str]", [f"{left} {right}" for left, right in merges]),
            "tokenizer.ggml.bos_token_id": ("u32", bos),
            "tokenizer.ggml.eos_token_id": ("u32", bos + 2),
            "tokenizer.ggml.add_bos_token": ("bool", False),
            "tokenizer.chat_template": ("str", _CHAT_TEMPLATE),
        },
    )


def spm_vocab() -> Vocab:
    """<unk>, <s> (bos), </s> (eos), 256 byte tokens, merged pieces by rank, characters, <|im_start|>, <|im_end|>."""
    merges = _merges("▁")
    pieces = [left + right for left, right in merges]
    characters = ["▁", *sorted(set(_TEXT) - {" "})]
    control = ["<|im_start|>", "<|im_end|>"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *characters, *control]
    types = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_NORMAL] * len(pieces + characters), *[_CONTROL] * 2]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces) + len(characters))] + [0.0] * 2
    return Vocab(
        len(tokens),
        (1, 2, len(tokens) - 2, len(tokens) - 1),
        {
            "tokenizer.ggml.model": ("str", "llama"),
            "tokenizer.ggml.pre": ("str", "default"),
            "tokenizer.ggml.tokens": ("[str]", tokens),
            "tokenizer.ggml.scores": ("[f32]", scores),
            "tokenizer.ggml.token_type": ("[i32]", types),
            "tokenizer.ggml.bos_token_id": ("u32", 1),
            "tokenizer.ggml.eos_token_id": ("u32", 2),
            "tokenizer.ggml.unknown_token_id": ("u32", 0),
            "tokenizer.ggml.add_bos_token": ("bool", True),
            "tokenizer.ggml.add_eos_token": ("bool", False),
            "tokenizer.chat_template": ("str", _CHAT_TEMPLATE),
        },
    )


def letters_vocab() -> Vocab:
    """The letters a to k, then <|im_end|> (bos and eos): few enough tokens to count how often each follows each."""
    tokens = [*"abcdefghijk", "<|im_end|>"]
    end = len(tokens) - 1
    return Vocab(
        len(tokens),
        (end,),
        {
            "tokenizer.ggml.model": ("str", "gpt2"),
            "tokenizer.ggml.pre": ("str", "gpt-2"),
            "tokenizer.ggml.tokens": ("[str]", tokens),
            "tokenizer.ggml.token_type": ("[i32]", [_NORMAL] * end + [_CONTROL]),
            "tokenizer.ggml.merges": ("[str]", []),
            "tokenizer.ggml.bos_token_id": ("u32", end),
            "tokenizer.ggml.eos_token_id": ("u32", end),
            "tokenizer.ggml.add_bos_token": ("bool", False),
            "tokenizer.chat_template": ("str", _CHAT_TEMPLATE),
        },
    )


VOCABS = {"bpe": bpe_vocab, "spm": spm_vocab, "letters": letters_vocab}
