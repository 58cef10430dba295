"""A tokenizer with one token per byte, and two control tokens."""

from __future__ import annotations


class ByteVocabulary:
    """Tokens 0…255 are the bytes, 256 ends a text, 257 is a control token, the others are words."""

    n_vocab = 600
    eog_ids = frozenset({256})

    def __init__(self, *, suppress_ids: tuple[int, ...] = (), words: tuple[bytes, ...] = ()) -> None:
        self.suppress_ids = suppress_ids
        self.words = words

    def piece(self, token: int, /, *, special: bool = False) -> bytes:
        if token < 256:
            return bytes([token])
        if token < 258:
            return [b"<end>", b"<control>"][token - 256] if special else b""
        return self.words[token - 258] if token - 258 < len(self.words) else b"<word%d>" % token

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        return list(text.encode())
