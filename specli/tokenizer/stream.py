"""Text of a growing token sequence (docs/tokenizers.md §6.2, docs/faults.md G19)."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Turns tokens into text as they come, holding back the bytes of an unfinished character.

    What all calls return, joined, is what decoding all tokens at once returns, wherever the sequence ends.

    Args:
        piece: Token id to bytes.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that the token completes; empty while a character is unfinished."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """The text of what is left at the end: empty, or U+FFFD for a character that was cut off. Starts afresh."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
