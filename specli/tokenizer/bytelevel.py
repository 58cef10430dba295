"""GPT-2's byte alphabet: every byte as a printable character (docs/tokenizers.md §5.1)."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _alphabet()  # printable Latin-1 stands for itself, the other 68 bytes are U+0100, U+0101, …


def decode_bytes(text: str) -> bytes:
    """The bytes that a token's text means. A character outside the alphabet gives a visible marker, as llama.cpp."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in text])
    except KeyError:
        return b"".join(_byte_or_marker(character, text) for character in text)


def _byte_or_marker(character: str, text: str) -> bytes:
    byte = BYTE_OF_CHARACTER.get(character)
    if byte is not None:
        return bytes([byte])
    return f"[UNK_BYTE_0x{character.encode().hex()}{text}]".encode()
