"""What sampling needs of a tokenizer."""

from __future__ import annotations

from typing import Protocol


class SamplerVocabulary(Protocol):
    """The part of `specli.tokenizer.Tokenizer` that samplers, DRY and grammars use."""

    def __hash__(self) -> int:
        """Goes by identity: a vocabulary does not change."""

    @property
    def eog_ids(self) -> frozenset[int]:
        """Tokens that end a generation."""

    @property
    def suppress_ids(self) -> tuple[int, ...]:
        """Tokens the model must never produce."""

    def piece(self, token: int, /, *, special: bool = False) -> bytes:
        """The bytes of a token; empty for control tokens unless `special`."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """The tokens of a text."""
