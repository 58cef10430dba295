"""SentencePiece encoder: merges by score, on the `sentencepiece` package (docs/tokenizers.md §§4, 7.3).

The package reads a protocol buffer. It is written here field by field, which for 262144 tokens takes a fifth of the
time of the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from sentencepiece import SentencePieceProcessor

from specli.errors import FormatError, UnsupportedError
from specli.tokenizer.vocabulary import TokenTable

# Field numbers and values of sentencepiece_model.proto.
_MODEL_PIECES, _MODEL_TRAINER, _MODEL_NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_TYPE, _TRAINER_BYTE_FALLBACK, _TRAINER_UNK_ID = 3, 35, 40
_NORMALIZER_NAME, _NORMALIZER_DUMMY_PREFIX, _NORMALIZER_TRIM, _NORMALIZER_ESCAPE = 1, 3, 4, 5
_BPE = 2
_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6

# The package wants exactly one unknown piece and gives it a meaning of its own; none of the vocabulary's is it.
_UNKNOWN_TEXT = b"\x01unknown\x01"
_BYTE_TEXTS = tuple(f"<0x{byte:02X}>" for byte in range(256))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _piece(text: bytes, score: bytes, type: int) -> bytes:
    """One token; `score` is 4 bytes, float32 little-endian."""
    body = _bytes(_PIECE_TEXT, text) + bytes([_PIECE_SCORE << 3 | 5]) + score + _number(_PIECE_TYPE, type)
    return _bytes(_MODEL_PIECES, body)


def _pieces(vocabulary: TokenTable) -> Iterable[bytes]:
    """All tokens, then the unknown piece.

    All are NORMAL, which here means that merges may make them: llama.cpp lets them make control tokens too. Only the
    byte tokens need their type; a merge making the text of one, `<0x41>`, is beyond this encoder.
    """
    scores = vocabulary.scores.astype("<f4").tobytes()
    types = [_NORMAL] * len(vocabulary.texts)
    for text in _BYTE_TEXTS:
        types[vocabulary.ids[text]] = _BYTE
    for token, text in enumerate(vocabulary.texts):
        encoded = text.encode()
        score = scores[4 * token : 4 * token + 4]
        if len(encoded) < 100:  # one-byte lengths: `_piece` written out, for speed
            length = len(encoded)
            yield b"\x0a%c\x0a%c%b\x15%b\x18%c" % (length + 9, length, encoded, score, types[token])
        else:
            yield _piece(encoded, score, types[token])
    yield _piece(_UNKNOWN_TEXT, bytes(4), _UNKNOWN)


def _model_proto(vocabulary: TokenTable) -> bytes:
    trainer = (
        _number(_TRAINER_TYPE, _BPE)
        + _number(_TRAINER_BYTE_FALLBACK, 1)
        + _number(_TRAINER_UNK_ID, len(vocabulary.texts))
    )
    normalizer = (
        _bytes(_NORMALIZER_NAME, b"identity")
        + _number(_NORMALIZER_DUMMY_PREFIX, vocabulary.add_space_prefix)
        + _number(_NORMALIZER_TRIM, 0)
        + _number(_NORMALIZER_ESCAPE, 1)
    )
    return b"".join((*_pieces(vocabulary), _bytes(_MODEL_TRAINER, trainer), _bytes(_MODEL_NORMALIZER, normalizer)))


class SPMEncoder:
    """Encodes text without special tokens. Every raw text gets the vocabulary's space prefix, if it has one.

    Raises:
        UnsupportedError: The vocabulary lacks byte tokens, so some text would have no encoding.
    """

    def __init__(self, vocabulary: TokenTable) -> None:
        missing = [text for text in _BYTE_TEXTS if text not in vocabulary.ids]
        if missing:
            raise UnsupportedError(
                f"{vocabulary.path}: the vocabulary lacks {len(missing)} of 256 byte tokens, the first is {missing[0]}"
            )
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(_model_proto(vocabulary))
        except RuntimeError as error:  # for example a text with U+0000
            raise FormatError(f"{vocabulary.path}: vocabulary refused by sentencepiece: {error}") from None

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text."""
        ids: list[int] = self._processor.encode(text)
        return ids
