"""What every row of `DRAFTERS` must do, run with a tiny target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from specli.drafters import DRAFTERS, DrafterSpec, FilePair, NetworkParts, NetworkSpec, TableSpec, detect_type
from specli.drafters.base import Drafter, DraftRequest, TargetBatch
from specli.drafters.settings import DraftConfig, SpeculationConfig
from specli.errors import IncompatibleError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig
from specli.models import load_model
from specli.models.base import Model, ModelOptions
from specli.tokenizer import Tokenizer
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_eagle, tiny_eagle3, tiny_medusa, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

SLOT = 0
CONFIG = SpeculationConfig(
    draft=DraftConfig(n_max=3),
    tables={
        **{key: {"size_n": 1, "size_m": 4} for key in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")},
        "ngram-mod": {"n_match": 1, "n_min": 1, "n_max": 6},
    },
)
UPSTREAM_ORDER = (
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
    "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "draft-eagle", "draft-medusa",  # not llama.cpp's
)  # fmt: skip
# Draft files that fit the tiny target; a type with a network has a row here.
DRAFT_FILES: dict[str, Callable[[Path], Path]] = {
    "draft-simple": lambda path: tiny_gguf(path, seed=1),
    "draft-eagle3": lambda path: tiny_eagle3(path, follows_target=True),
    "draft-mtp": lambda path: tiny_mtp(path, heads_only=True),
    "draft-dflash": lambda path: tiny_dflash(path, follows_target=True),
    "draft-dspark": lambda path: tiny_dflash(path, follows_target=True, markov=16, confidence=True),
    "draft-eagle": lambda path: tiny_eagle(path, follows_target=True),
    "draft-medusa": tiny_medusa,
}
OPTIONS = ModelOptions(capacity=512, type_k=QuantType.F32, type_v=QuantType.F32, max_tokens=16, max_outputs=16)
LONG = [(i * i) % 97 + 5 for i in range(60)] * 2
SHORT = [5, 6, 7, 8, 9] * 5
BROAD = list(range(5, 105)) * 2  # holds a good part of what the target may say, so n-gram drafters have drafts

SPECS = pytest.mark.parametrize("spec", DRAFTERS.values(), ids=DRAFTERS.keys())


def executor() -> ReferenceExecutor:
    return ReferenceExecutor(threads=ThreadConfig(n_threads=1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract")


@dataclass
class Inputs:
    """A loaded target, and what makes drafters of one type for it."""

    target: Model
    n_vocab: int
    build: Callable[[], Drafter]


@pytest.fixture
def inputs(spec: DrafterSpec, folder: Path) -> Iterator[Inputs]:
    """Inputs for one drafter, its target loaded with what it reads."""
    with ExitStack() as files:
        target_file = files.enter_context(GGUFFile.open(tiny_gguf(folder / "target.gguf")))
        vocabulary = Tokenizer.from_gguf(target_file)
        if isinstance(spec, TableSpec):
            target, table = load_model(target_file, executor(), OPTIONS), spec
            yield Inputs(target, vocabulary.n_vocab, lambda: table.make(CONFIG, vocabulary.n_vocab))
            return
        assert isinstance(spec, NetworkSpec)
        file = files.enter_context(GGUFFile.open(DRAFT_FILES[spec.name](folder / f"{spec.name}.gguf")))
        pair, network = FilePair(CONFIG, target_file, vocabulary, file, vocabulary), spec
        spec.check(pair)
        options = replace(OPTIONS, taps=spec.taps(file), nextn=spec.reads_nextn)
        target = load_model(target_file, executor(), options)
        draft = replace(CONFIG.draft, n_max=spec.draft_length(CONFIG, file))
        yield Inputs(
            target,
            vocabulary.n_vocab,
            lambda: network.build(NetworkParts(pair, draft, target, executor(), OPTIONS)),
        )


@dataclass
class Run:
    """Greedy generation with one drafter, as plain as can be."""

    inputs: Inputs
    drafter: Drafter

    def request(self, prompt: list[int], n_rounds: int = 24) -> tuple[list[int], list[list[int]]]:
        """Generated tokens and the drafts of a request that reuses nothing."""
        history: list[int] = []
        self.drafter.rewind(SLOT, 0)
        for at in range(0, len(prompt), 10):
            last = self.evaluate(history, prompt[at : at + 10])[-1]
        self.drafter.begin(SLOT, prompt)
        generated, drafts = [last], []
        for _ in range(n_rounds):
            [found] = self.drafter.draft([DraftRequest(SLOT, history, last, 8)])
            draft = found.tokens[:8]
            drafts.append(draft)
            chosen = self.evaluate(history, [last, *draft], draft)
            n_accepted = len(chosen) - 1
            if draft:
                self.drafter.accept(SLOT, n_accepted)
            generated += chosen
            last = generated[-1]
        return generated, drafts

    def evaluate(self, history: list[int], tokens: list[int], draft: Sequence[int] = ()) -> list[int]:
        """The target's choice after each token, up to the first that the draft differs from; the drafter sees these."""
        model = self.inputs.target
        ids = np.array(tokens, dtype=np.int32)
        positions = np.arange(len(history), len(history) + len(ids), dtype=np.int32)
        rows = np.arange(len(ids), dtype=np.int32)
        out = model.forward(ids, positions, np.zeros_like(ids), rows)
        chosen = [int(token) for token in out.logits.argmax(dim=1)]
        n_stand = next((i + 1 for i, token in enumerate(draft) if chosen[i] != token), len(tokens))
        history += tokens[:n_stand]
        self.drafter.process([TargetBatch(SLOT, ids[:n_stand], positions[:n_stand], features=out.features)])
        return chosen[:n_stand]


def test_rows_are_in_upstream_order() -> None:
    assert [name for name in UPSTREAM_ORDER if name in DRAFTERS] == list(DRAFTERS)


@SPECS
def test_row_and_drafter_agree(spec: DrafterSpec, inputs: Inputs) -> None:
    drafter = inputs.build()
    assert drafter.name == spec.name
    assert 1 <= drafter.max_draft <= spec.max_draft(CONFIG)
    assert drafter.reads_features == bool(inputs.target.features)
    assert spec.summary
    drafter.close()


@SPECS
def test_drafts_change_nothing_but_speed(spec: DrafterSpec, inputs: Inputs) -> None:
    """Greedy text with the drafter is that without one, and drafts are tokens of the vocabulary, not too many."""
    run = Run(inputs, inputs.build())
    generated, drafts = run.request(BROAD)
    history: list[int] = []
    for at in range(0, len(BROAD), 16):
        plain = run.evaluate(history, BROAD[at : at + 16])[-1:]
    while len(plain) < len(generated):
        plain += run.evaluate(history, plain[-1:])
    assert generated == plain
    assert any(drafts)
    for draft in drafts:
        assert len(draft) <= run.drafter.max_draft
        assert all(0 <= token < inputs.n_vocab for token in draft)
    run.drafter.close()


@SPECS
def test_second_request_does_not_see_the_first(spec: DrafterSpec, inputs: Inputs) -> None:
    """docs/faults.md D1, D2, D4: short after long, and the same again, as in a fresh process."""
    used = Run(inputs, inputs.build())
    first = used.request(LONG)
    second = used.request(SHORT)
    third = used.request(LONG)
    used.drafter.close()
    fresh = Run(inputs, inputs.build())
    assert fresh.request(SHORT) == second
    assert first == third
    fresh.drafter.close()


@SPECS
@pytest.mark.parametrize("prompt", [[5], [5, 5], [5, 5, 5], list(range(5, 40))], ids=["one", "two", "three", "unlike"])
def test_short_prompts(spec: DrafterSpec, inputs: Inputs, prompt: list[int]) -> None:
    run = Run(inputs, inputs.build())
    run.request(prompt, n_rounds=4)
    run.drafter.close()


@pytest.mark.parametrize("name", DRAFT_FILES)
def test_draft_files_are_recognised(name: str, folder: Path) -> None:
    with GGUFFile.open(DRAFT_FILES[name](folder / f"recognised-{name}.gguf")) as file:
        assert detect_type(file) == name


def test_another_vocabulary_is_refused_before_weights_are_read(folder: Path) -> None:
    with (
        GGUFFile.open(tiny_gguf(folder / "bpe.gguf")) as target,
        GGUFFile.open(tiny_gguf(folder / "spm.gguf", vocab="spm")) as draft,
    ):
        pair = FilePair(CONFIG, target, Tokenizer.from_gguf(target), draft, Tokenizer.from_gguf(draft))
        spec = DRAFTERS["draft-simple"]
        assert isinstance(spec, NetworkSpec)
        with pytest.raises(IncompatibleError) as caught:
            spec.check(pair)
    expected = f"{folder / 'spm.gguf'}: vocabulary kind spm does not match {folder / 'bpe.gguf'} (bpe)"
    assert str(caught.value) == expected
