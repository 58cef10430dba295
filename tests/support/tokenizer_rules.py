"""Tokenizing as docs/tokenizers.md §§3-6 describes it, slow and plain: what the real encoders are held to.

Shares with them the expressions of the pre-tokenizers and nothing else. Those run on Python's `re`, which knows no
`\\p{L}`: such classes are replaced by the characters of `ALPHABET` that belong to them, so that texts may consist of
those characters only.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

# Letters of several scripts and cases, marks, numbers, symbols, punctuation, white space that is and is not `\s`,
# unassigned and private characters.
ALPHABET = (
    "".join(map(chr, range(0x20, 0x7F)))
    + "\t\n\r\x0b\x0c\x1c\x1f\x04\x85\u00a0\u2003\u3000"
    + "éÄÜßſµĠĊ▁жЖΣς中文の한क्षा\u0301\u200d²½٣Ⅷ€™→🎉\ue000\u0378"
)


@dataclass
class Rules:
    """A vocabulary and the rules of its kind.

    Attributes:
        kind: `spm`, `bpe` or `gemma4`.
        tokens: Token texts.
        types: `tokenizer.ggml.token_type` values.
        scores: Merge scores (`spm`).
        merges: Pairs, best first (`bpe`, `gemma4`).
        patterns: Expressions of the pre-tokenizer (`bpe`).
        ignore_merges: Words that are tokens are taken whole.
        space_prefix: Raw text starts with a space (`spm`).
    """

    kind: str
    tokens: list[str]
    types: list[int]
    scores: list[float] = field(default_factory=list)
    merges: list[tuple[str, str]] = field(default_factory=list)
    patterns: tuple[str, ...] = ()
    ignore_merges: bool = False
    space_prefix: bool = False

    def __post_init__(self) -> None:
        self.ids = {text: token for token, text in enumerate(self.tokens)}

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Token ids, without BOS and EOS."""
        ids = []
        for part in self.partition(text, parse_special=parse_special):
            ids += [part] if isinstance(part, int) else self.encode_raw(part)
        return ids

    def partition(self, text: str, *, parse_special: bool) -> list[int | str]:
        wanted = {USER_DEFINED, CONTROL, UNKNOWN} if parse_special else {USER_DEFINED}
        special = [i for i, type in enumerate(self.types) if type in wanted]
        parts: list[int | str] = [text]
        for token in sorted(special, key=lambda i: -len(self.tokens[i].encode())):
            i = 0
            while i < len(parts):
                part = parts[i]
                at = part.find(self.tokens[token]) if isinstance(part, str) else -1
                if at >= 0:
                    rest = part[at + len(self.tokens[token]) :]
                    parts[i : i + 1] = [part[:at], token, rest]
                    i += 1
                i += 1
        return [part for part in parts if part != ""]

    def encode_raw(self, text: str) -> list[int]:
        if self.kind == "spm":
            return self._spm(("▁" if self.space_prefix else "") + text.replace(" ", "▁"))
        if self.kind == "gemma4":
            words = re.findall(r"\n+|[^\n]+", text.replace(" ", "▁"))
            return [token for word in words for token in self._bpe(word, whole=word[0] == "\n")]
        words = [text]
        for pattern in self.patterns:
            words = [piece for word in words for piece in _cut(word, finite(pattern))]
        return [token for word in words for token in self._bpe(byte_encode(word), whole=self.ignore_merges)]

    def _bpe(self, word: str, *, whole: bool) -> list[int]:
        if whole and word in self.ids:
            return [self.ids[word]]
        symbols = list(word)
        ranks = {pair: rank for rank, pair in reversed(list(enumerate(self.merges)))}
        while True:
            found = [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
            if not found:
                break
            _, i = min(found)
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        ids = []
        for symbol in symbols:
            if symbol in self.ids:
                ids.append(self.ids[symbol])
            elif self.kind == "gemma4":
                ids += self._byte_tokens(symbol)
        return ids

    def _spm(self, text: str) -> list[int]:
        symbols = list(text)
        while True:
            found = [
                (-self.scores[self.ids[a + b]], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in self.ids
            ]
            if not found:
                break
            _, i = min(found)
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        ids = []
        for symbol in symbols:
            ids += [self.ids[symbol]] if symbol in self.ids else self._byte_tokens(symbol)
        return ids

    def _byte_tokens(self, text: str) -> list[int]:
        names = [f"<0x{byte:02X}>" for byte in text.encode()]
        return [self.ids[name] for name in names if name in self.ids]

    def piece(self, token: int, *, special: bool) -> bytes:
        """What a token adds to the text."""
        text, type = self.tokens[token], self.types[token]
        if type in (CONTROL, UNKNOWN):
            return text.encode() if special else b""
        if type == USER_DEFINED:
            return text.encode()
        if type == BYTE:
            return bytes.fromhex(text[3:5])
        if type == NORMAL:
            return bytes(map(BYTE_CHARACTERS.index, text)) if self.kind == "bpe" else text.replace("▁", " ").encode()
        return b""


def _byte_characters() -> str:
    others = iter(range(256, 512))
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    return "".join(chr(byte if byte in plain else next(others)) for byte in range(256))


BYTE_CHARACTERS = _byte_characters()


def byte_encode(text: str) -> str:
    """GPT-2's printable form of the text's bytes."""
    return "".join(BYTE_CHARACTERS[byte] for byte in text.encode())


def _cut(text: str, pattern: str) -> list[str]:
    """Matches and the gaps between them, in order."""
    pieces, end = [], 0
    for match in re.finditer(pattern, text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [piece for piece in [*pieces, text[end:]] if piece]


def _members(code: str) -> str:
    if code == r"\s":
        found = [c for c in ALPHABET if c.isspace() and c not in "\x1c\x1f"]
    else:
        found = [c for c in ALPHABET if unicodedata.category(c)[0] == code[3]]
    return re.escape("".join(found))


def finite(pattern: str) -> str:
    """A pattern for `re` that means the same on texts over `ALPHABET`."""
    out, in_class = "", False
    for part in re.findall(r"\\p\{\w\}|\\s|\\S|\\.|.", pattern, re.DOTALL):
        in_class = part == "[" or (in_class and part != "]")
        if part == r"\S":
            out += "[^" + _members(r"\s") + "]"  # stands outside brackets only
        elif part == r"\s" or part.startswith(r"\p"):
            out += _members(part) if in_class else f"[{_members(part)}]"
        else:
            out += part
    return out
