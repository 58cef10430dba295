"""Whether a draft model speaks the target's tokens (speculation.md §4; llama.cpp `common_speculative_are_compatible`).

Differences: a BOS or EOS id counts only where both models add it, since the draft model never adds one here (reports.md
V5); and a pair that does not fit is an error that says where, not a run without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from specli.errors import IncompatibleError

MAX_SIZE_DIFFERENCE = 128  # rows that padding may account for
FIRST_COMPARED = 5  # ids 0 … 4 are special in many vocabularies and are not compared


class Vocabulary(Protocol):
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


def check_vocabularies(target: Vocabulary, draft: Vocabulary, *, target_path: Path, draft_path: Path) -> None:
    """Compares kind, BOS, EOS, size and the text of every token that both have.

    Raises:
        IncompatibleError: The first of these that differs, with both values.
    """
    facts = [("vocabulary kind", target.kind, draft.kind)]
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
    pairs = enumerate(zip(target.texts, draft.texts, strict=False))
    differing = [i for i, (wanted, found) in islice(pairs, FIRST_COMPARED, None) if wanted != found]
    if differing:
        first = differing[0]
        raise IncompatibleError(
            f"{draft_path}: token {first} is {draft.texts[first]!r}, in {target_path} {target.texts[first]!r} "
            f"({len(differing)} tokens differ)",
            hint="draft-simple needs a draft model with the target's vocabulary",
        )
