"""Tokens with a meaning: roles, the end-of-generation set, and cutting them out of text (docs/tokenizers.md §§2-3).

Follows llama.cpp b11434 (`src/llama-vocab.cpp`, `llama_vocab::impl::load` and `tokenizer_st_partition`). One deliberate
difference: when several tokens could have one role, llama.cpp takes whichever its hash table lists first; here the
first text of the table wins, which is what llama.cpp arrives at for Llama 3, Qwen and Phi-3 but not for SmolLM2
(end of turn is `<|im_end|>` here, `<|endoftext|>` there; both end a generation).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

ASCII_SPACE = " \t\n\v\f\r"


class Attribute(enum.IntFlag):
    """The kinds of a token. The type stored in the file gives one of them; the rules below may add CONTROL."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 4
    USER_DEFINED = 8
    UNUSED = 16
    BYTE = 32


ATTRIBUTE_OF_TYPE = (  # by `tokenizer.ggml.token_type`
    Attribute.UNDEFINED,
    Attribute.NORMAL,
    Attribute.UNKNOWN,
    Attribute.CONTROL,
    Attribute.USER_DEFINED,
    Attribute.UNUSED,
    Attribute.BYTE,
)
# Plain integers: they meet every token of a vocabulary, and `enum` flags made loading a Gemma vocabulary 0.25 s slower.
HIDDEN = int(Attribute.CONTROL | Attribute.UNKNOWN)  # rendered, and recognised in text, only on request
RECOGNISED = int(HIDDEN | Attribute.USER_DEFINED)
BYTE = int(Attribute.BYTE)


@dataclass(frozen=True)
class Role:
    """A token the engine asks for by its job.

    Attributes:
        name: Its name; the tokenizer's attribute is `<name>_id`.
        keys: Metadata keys under `tokenizer.ggml.`, the last one present wins.
        texts: Token texts that take the role when no key does, in order of preference.
    """

    name: str
    keys: tuple[str, ...]
    texts: tuple[str, ...] = ()


ROLES = (
    Role("bos", ("bos_token_id",)),
    Role("eos", ("eos_token_id",)),
    Role(
        "eot",
        ("eot_token_id",),
        (
            *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
            *("<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"),
        ),
    ),
    Role("eom", ("eom_token_id",), ("<|eom_id|>",)),
    Role("unk", ("unknown_token_id",)),
    Role("sep", ("seperator_token_id",)),  # the format's spelling
    Role("pad", ("padding_token_id",)),
    Role("mask", ("mask_token_id",)),
    Role(
        "fim_pre",
        ("fim_pre_token_id", "prefix_token_id"),
        (
            *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>"),
            *("<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
        ),
    ),
    Role(
        "fim_suf",
        ("fim_suf_token_id", "suffix_token_id"),
        (
            *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>"),
            *("<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
        ),
    ),
    Role(
        "fim_mid",
        ("fim_mid_token_id", "middle_token_id"),
        (
            *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>"),
            *("<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"),
        ),
    ),
    Role("fim_pad", ("fim_pad_token_id",), ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")),
    Role(
        "fim_rep",
        ("fim_rep_token_id",),
        ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ),
    Role("fim_sep", ("fim_sep_token_id",), ("<|file_sep|>",)),
)

_END_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")
_END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>"),
    *("<｜end▁of▁sentence｜>", "[e~["),
)
_CHANNEL_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def detect_roles(roles: dict[str, int], ids: Mapping[str, int], attributes: bytearray) -> None:
    """Fills roles that no key set by token text and makes their tokens control tokens.

    Args:
        roles: Role name to token id; extended.
        ids: Token text to id.
        attributes: `Attribute` value per token; changed.
    """
    for role in ROLES:
        found = next((ids[text] for text in role.texts if text in ids), None)
        if role.name not in roles and found is not None:
            roles[role.name] = found
            attributes[found] |= Attribute.CONTROL


def end_tokens(roles: Mapping[str, int], ids: Mapping[str, int], attributes: bytearray) -> frozenset[int]:
    """The ids that end a generation; marks them in `attributes`.

    Matching is by text alone, so an ordinary token that reads `</s>` (Gemma 3's strike-through tag) counts.
    """
    by_text = {text: ids[text] for text in _END_TEXTS if text in ids}
    for token in by_text.values():
        attributes[token] |= Attribute.CONTROL
    for text in _CHANNEL_TEXTS:
        if text in ids:
            attributes[ids[text]] = Attribute.USER_DEFINED
    ends = {roles[name] for name in _END_ROLES if name in roles} | set(by_text.values())

    present = {text for text in (*_END_TEXTS, "<|plamo:eos|>") if ids.get(text) in ends}
    calls = not present.isdisjoint(("<|call|>", "<|calls|>"))
    if "<|end|>" in present and calls and not present.isdisjoint(("<|return|>", "<|flush|>")):  # gpt-oss, Solar Open
        ends.remove(ids["<|end|>"])
        attributes[ids["<|end|>"]] = Attribute.USER_DEFINED
    if "</s>" in present and not present.isdisjoint(("<|tool_response>", "<|plamo:eos|>")):  # Gemma 4, PLaMo
        ends.remove(ids["</s>"])
        attributes[ids["</s>"]] = Attribute.NORMAL
    return frozenset(ends)


@dataclass(frozen=True)
class SpecialToken:
    """A token that is cut out of text before encoding.

    Attributes:
        id: Token id.
        text: What stands for it.
        strips_right: White space after it is swallowed (Phi-3).
    """

    id: int
    text: str
    strips_right: bool = False


class Partition:
    """Cuts special tokens out of text: longest first over the whole text, each from left to right.

    Example: with tokens `ab` and `bcd`, `abcd` becomes `a`, `bcd`: the longer one wins though it starts later.

    Args:
        tokens: Tokens to look for.
    """

    _PREFIX = 4  # characters; thousands of tokens share a beginning, so one search rules them all out (`<unu…`)

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        self._groups: dict[str, list[SpecialToken]] = {}
        for token in tokens:
            self._groups.setdefault(token.text[: self._PREFIX], []).append(token)

    def split(self, text: str) -> list[int | str]:
        """Token ids and the raw text between them, in order; no empty text."""
        present = [
            token for prefix, tokens in self._groups.items() if prefix in text for token in tokens if token.text in text
        ]
        present.sort(key=lambda token: len(token.text.encode()), reverse=True)
        parts: list[int | str] = [text] if text else []
        for token in present:
            parts = [piece for part in parts for piece in _cut(part, token)]
        return parts


def _cut(part: int | str, token: SpecialToken) -> Iterator[int | str]:
    if isinstance(part, int) or token.text not in part:
        yield part
        return
    for i, raw in enumerate(part.split(token.text)):
        if i:
            yield token.id
            raw = raw.lstrip(ASCII_SPACE) if token.strips_right else raw
        if raw:
            yield raw
