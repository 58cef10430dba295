"""Whether a draft model speaks the target's tokens (llama.cpp `common_speculative_are_compatible`).

Differences: a vocabulary kind counts only where tokens differ; a BOS or EOS id only where both models add it, since the
draft model never adds one here; and a pair that does not fit is an error that says where, not a run without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from specli.errors import IncompatibleError

MAX_SIZE_DIFFERENCE = 128  # rows that padding may account for
MAX_DIFFERING = 0.05  # share of renamed tokens in the file of a network that speaks the target's ids
FIRST_COMPARED = 5  # ids 0 … 4 are special in many vocabularies and are not compared


class ComparedVocabulary(Protocol):
    """What is compared of a tokenizer."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def n_vocab(self) -> int: ...  # noqa: D102
    @property
    def texts(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def add_bos(self) -> bool: ...  # noqa: D102
    @property
    def add_eos(self) -> bool: ...  # noqa: D102
    @property
    def bos_id(self) -> int | None: ...  # noqa: D102
    @property
    def eos_id(self) -> int | None: ...  # noqa: D102


def differing_tokens(target: ComparedVocabulary, draft: ComparedVocabulary) -> list[int]:
    """Ids that both have with different texts, the first few aside."""
    pairs = enumerate(zip(target.texts, draft.texts, strict=False))
    return [i for i, (wanted, found) in islice(pairs, FIRST_COMPARED, None) if wanted != found]


def check_vocabularies(
    target: ComparedVocabulary, draft: ComparedVocabulary, *, target_path: Path, draft_path: Path
) -> None:
    """Compares kind, BOS, EOS, size and the text of every token that both have, for a draft model that is a whole one.

    Raises:
        IncompatibleError: The first of these that differs, with both values. A kind alone does not count.
    """
    differing = differing_tokens(target, draft)
    facts = []
    if differing:
        facts.append(("vocabulary kind", target.kind, draft.kind))
    if target.add_bos and draft.add_bos:
        facts.append(("BOS token", str(target.bos_id), str(draft.bos_id)))
    if target.add_eos and draft.add_eos:
        facts.append(("EOS token", str(target.eos_id), str(draft.eos_id)))
    for what, wanted, found in facts:
        if wanted != found:
            raise IncompatibleError(f"{draft_path}: {what} {found} does not match {target_path} ({wanted})")
    if abs(target.n_vocab - draft.n_vocab) > MAX_SIZE_DIFFERENCE:
        raise IncompatibleError(
            f"{draft_path}: vocabulary of {draft.n_vocab} tokens does not match {target_path} ({target.n_vocab}), "
            f"they may differ by {MAX_SIZE_DIFFERENCE}"
        )
    if differing:
        raise IncompatibleError(
            f"{draft_path}: {_first_difference(target, draft, target_path, differing)}",
            hint="draft-simple needs a draft model with the target's vocabulary",
        )


def check_texts(target: ComparedVocabulary, draft: ComparedVocabulary, *, target_path: Path, draft_path: Path) -> None:
    """Compares the tokens of a target and of the file of a network that was trained on it.

    Such a network speaks the target's ids, and its file has a copy of the vocabulary. A few renamed tokens are no
    harm; many tell that the network belongs to another target. llama.cpp does not look.

    Raises:
        IncompatibleError: Too many differ.
    """
    differing = differing_tokens(target, draft)
    if len(differing) > MAX_DIFFERING * min(target.n_vocab, draft.n_vocab):
        raise IncompatibleError(
            f"{draft_path}: {_first_difference(target, draft, target_path, differing)}",
            hint="the drafter was made for a target with another vocabulary",
        )


def vocabulary_doubts(
    target: ComparedVocabulary, draft: ComparedVocabulary, *, target_path: Path, draft_path: Path
) -> list[str]:
    """What speaks against a pair that passes: another kind of vocabulary, or some tokens with other texts."""
    differing = differing_tokens(target, draft)
    doubts = []
    if target.kind != draft.kind:
        agree = "" if differing else ", although all tokens agree"
        doubts.append(f"{draft_path}: vocabulary kind {draft.kind}, in {target_path} {target.kind}{agree}")
    if differing:
        doubts.append(f"{draft_path}: {_first_difference(target, draft, target_path, differing)}")
    return doubts


def _first_difference(
    target: ComparedVocabulary, draft: ComparedVocabulary, target_path: Path, differing: Sequence[int]
) -> str:
    first, n_both = differing[0], min(target.n_vocab, draft.n_vocab)
    return (
        f"token {first} is {draft.texts[first]!r}, in {target_path} {target.texts[first]!r} "
        f"({len(differing)} of {n_both} tokens differ)"
    )
