"""Text to token ids and back, with the ids llama.cpp b11434 gives (docs/tokenizers.md §§3-6)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from threading import Thread
from typing import Protocol

from specli.errors import SpecliError
from specli.gguf.file import GGUFFile
from specli.tokenizer.bytelevel import decode_bytes
from specli.tokenizer.special import HIDDEN, Attribute, Partition
from specli.tokenizer.stream import StreamDecoder
from specli.tokenizer.vocabulary import Kind, TokenTable

log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")


class Encoder(Protocol):
    """Encodes raw text, in which special tokens have no meaning."""

    def encode(self, text: str) -> list[int]:
        """Token ids."""


_MAX_PIECES = 16  # ways to render tokens that are kept


class Tokenizer:
    """The tokenizer of one model.

    The encoder is built by `preparing` or at the first `encode`; roles, end tokens and decoding need none.

    Args:
        vocabulary: Its data.

    Attributes:
        kind: `spm`, `bpe` or `gemma4`.
        texts: Token texts by id, as stored.
        n_vocab: How many.
        bos_id: Beginning of a sequence; this and the other roles are None where the vocabulary has no such token.
        eos_id: End of a sequence.
        mask_id: Masked text.
        add_bos: `encode` starts with BOS when special tokens are asked for.
        add_eos: `encode` ends with EOS when special tokens are asked for.
        eog_ids: Tokens that end a generation; more than EOS.
        suppress_ids: Tokens that must never be sampled.
    """

    def __init__(self, vocabulary: TokenTable) -> None:
        self._vocabulary = vocabulary
        self.kind: Kind = vocabulary.kind
        self.texts: Sequence[str] = vocabulary.texts
        self.n_vocab = len(vocabulary.texts)
        self.bos_id = vocabulary.roles.get("bos")
        self.eos_id = vocabulary.roles.get("eos")
        self.mask_id = vocabulary.roles.get("mask")
        self.add_bos = vocabulary.add_bos
        self.add_eos = vocabulary.add_eos
        self.eog_ids = vocabulary.end_ids
        self._pieces: dict[tuple[bool, tuple[str, ...]], Callable[[int], bytes]] = {}  # what `stream` shows
        self.suppress_ids = vocabulary.suppress_ids

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Tokenizer:
        """The tokenizer stored in a model file.

        Raises:
            FormatError: Its keys are missing or contradict each other.
            UnsupportedError: A tokenizer model or pre-tokenizer that is not handled.
        """
        return cls(TokenTable.from_gguf(file))

    @cached_property
    def _encoder(self) -> Encoder:
        match self.kind:  # imported when needed: each brings a native library
            case "spm":
                from specli.tokenizer.spm import SPMEncoder

                return SPMEncoder(self._vocabulary)
            case "bpe":
                from specli.tokenizer.bpe import BPEEncoder

                return BPEEncoder(self._vocabulary)
            case "gemma4":
                from specli.tokenizer.bpe import Gemma4Encoder

                return Gemma4Encoder(self._vocabulary)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Builds the encoder meanwhile, on a thread: a large vocabulary takes as long as the weights do.

        A vocabulary that cannot be encoded with is refused when a text is.
        """

        def build() -> None:
            with suppress(SpecliError):
                _ = self._encoder

        thread = Thread(target=build, name="tokenizer")
        thread.start()
        try:
            yield
        finally:
            thread.join()

    @cached_property
    def _all_specials(self) -> Partition:
        return Partition(self._vocabulary.specials)

    @cached_property
    def _visible_specials(self) -> Partition:
        attributes = self._vocabulary.attributes
        return Partition(token for token in self._vocabulary.specials if not attributes[token.id] & HIDDEN)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of a text. Lone surrogates count as U+FFFD.

        Args:
            text: Any text.
            add_special: Add BOS and EOS where the vocabulary wants them, even if the text has them already; a
                warning is logged then.
            parse_special: Recognise control tokens in the text; user-defined tokens always are.
        """
        text = _SURROGATE.sub("\ufffd", text)
        ids: list[int] = []
        for part in (self._all_specials if parse_special else self._visible_specials).split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encoder.encode(part)
        if not add_special:
            return ids
        bos = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        eos = [self.eos_id] if self.add_eos and self.eos_id is not None else []
        if bos and ids[:1] == bos:
            log.warning(
                "the prompt starts with two BOS tokens: the model adds one to the text's %s", self.texts[bos[0]]
            )
        if eos and ids[-1:] == eos:
            log.warning("the prompt ends with two EOS tokens: the model adds one to the text's %s", self.texts[eos[0]])
        return bos + ids + eos

    def encode_chat(self, text: str) -> list[int]:
        """Token ids of a rendered conversation: BOS and EOS once, whether the template writes them or not."""
        if self.add_bos and self.bos_id is not None:
            text = text.removeprefix(self.texts[self.bos_id])
        if self.add_eos and self.eos_id is not None:
            text = text.removesuffix(self.texts[self.eos_id])
        return self.encode(text, add_special=True, parse_special=True)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """What one token adds to the text.

        Args:
            token: Token id.
            special: Render control tokens too.

        Raises:
            IndexError: No token has this id.
        """
        if token < 0:
            raise IndexError(f"token id {token} is negative")
        attribute = self._vocabulary.attributes[token]
        text = self.texts[token]
        if attribute & HIDDEN:
            return text.encode() if special else b""
        if attribute & Attribute.USER_DEFINED:
            return text.encode()
        if attribute & Attribute.BYTE:
            return bytes([int(text[3:5], 16)])
        if attribute & Attribute.NORMAL:
            return decode_bytes(text) if self.kind == "bpe" else text.replace("▁", " ").encode()
        return b""  # unused, undefined

    def stream(self, *, special: bool = False, visible: tuple[str, ...] = ()) -> StreamDecoder:
        """A decoder for tokens that come one by one.

        Args:
            special: Render control tokens too.
            visible: Texts of control tokens that are rendered anyway.
        """
        if (special, visible) not in self._pieces:
            encoded = (self.encode(text, add_special=False, parse_special=True) for text in visible)
            shown = {ids[0] for ids in encoded if len(ids) == 1}

            def piece(token: int) -> bytes:
                return self.piece(token, special=special or token in shown)

            if len(self._pieces) >= _MAX_PIECES:  # clients choose what is visible
                self._pieces.clear()
            self._pieces[special, visible] = cache(piece)
        return StreamDecoder(self._pieces[special, visible])

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of a token sequence: its pieces joined, bytes that are no UTF-8 as U+FFFD."""
        return b"".join(self.piece(token, special=special) for token in ids).decode(errors="replace")
