"""Which draft vocabularies fit a target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from specli.drafters.vocabulary import check_texts, check_vocabularies, vocabulary_doubts
from specli.errors import IncompatibleError


@dataclass(frozen=True)
class Words:
    kind: str = "bpe"
    texts: list[str] = field(default_factory=lambda: [f"w{i}" for i in range(300)])
    add_bos: bool = True
    add_eos: bool = False
    bos_id: int | None = 1
    eos_id: int | None = 2

    @property
    def n_vocab(self) -> int:
        return len(self.texts)


def check(draft: Words, target: Words | None = None) -> None:
    check_vocabularies(target or Words(), draft, target_path=Path("t.gguf"), draft_path=Path("d.gguf"))


def changed(at: dict[int, str]) -> list[str]:
    return [at.get(i, text) for i, text in enumerate(Words().texts)]


@pytest.mark.parametrize(
    "draft",
    [
        Words(),
        Words(texts=changed({0: "x", 4: "y"})),  # ids below 5 are not compared
        Words(texts=Words().texts[:172]),  # docs/faults.md V2: up to 128 padding rows
        Words(texts=Words().texts + ["pad"] * 128),
        Words(add_bos=False, bos_id=9),  # V5: counts only where both add it
        Words(eos_id=9),
        Words(kind="spm"),  # all tokens agree
    ],
)
def test_fitting_pairs(draft: Words) -> None:
    check(draft)


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (Words(kind="spm", texts=changed({7: "x"})), "d.gguf: vocabulary kind spm does not match t.gguf (bpe)"),
        (Words(bos_id=9), "d.gguf: BOS token 9 does not match t.gguf (1)"),
        (
            Words(texts=Words().texts[:150]),
            "d.gguf: vocabulary of 150 tokens does not match t.gguf (300), they may differ by 128",
        ),
        (
            Words(texts=changed({7: "x", 200: "y"})),
            "d.gguf: token 7 is 'x', in t.gguf 'w7' (2 of 300 tokens differ)",
        ),
    ],
)
def test_pairs_that_do_not_fit(draft: Words, message: str) -> None:
    with pytest.raises(IncompatibleError) as caught:
        check(draft)
    assert str(caught.value) == message


def test_eos_counts_where_both_add_it() -> None:
    with pytest.raises(IncompatibleError, match=r"EOS token 3 does not match t\.gguf \(2\)"):
        check(replace(Words(), add_eos=True, eos_id=3), Words(add_eos=True))


PATHS = {"target_path": Path("t.gguf"), "draft_path": Path("d.gguf")}


def test_network_of_another_vocabulary_is_refused() -> None:
    """15 of 300 tokens, a twentieth, may be renamed; the first five never count."""
    renamed = dict.fromkeys(range(20), "x")
    check_texts(Words(), Words(texts=changed(renamed)), **PATHS)
    with pytest.raises(IncompatibleError) as caught:
        check_texts(Words(), Words(texts=changed(renamed | {20: "x"})), **PATHS)
    assert str(caught.value) == "d.gguf: token 5 is 'x', in t.gguf 'w5' (16 of 300 tokens differ)"
    assert caught.value.hint == "the drafter was made for a target with another vocabulary"


@pytest.mark.parametrize(
    ("draft", "doubts"),
    [
        (Words(), []),
        (Words(texts=changed({0: "x"})), []),
        (Words(kind="spm"), ["d.gguf: vocabulary kind spm, in t.gguf bpe, although all tokens agree"]),
        (Words(texts=changed({8: "x", 9: "y"})), ["d.gguf: token 8 is 'x', in t.gguf 'w8' (2 of 300 tokens differ)"]),
        (
            Words(kind="spm", texts=changed({8: "x"})),
            [
                "d.gguf: vocabulary kind spm, in t.gguf bpe",
                "d.gguf: token 8 is 'x', in t.gguf 'w8' (1 of 300 tokens differ)",
            ],
        ),
    ],
)
def test_what_speaks_against_a_pair(draft: Words, doubts: list[str]) -> None:
    assert vocabulary_doubts(Words(), draft, **PATHS) == doubts
