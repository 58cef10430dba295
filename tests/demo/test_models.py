"""The shipped files are what the table says, and load as a pair."""

import pytest

from specli.demo import DATA, MODELS, DemoModel, resolve
from specli.demo.train.corpus import prompt
from specli.drafters import DRAFTERS
from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.tokenizer import Tokenizer
from specli.tokenizer.template import ChatTemplate

TARGET = MODELS[0]
IDS = [model.file for model in MODELS]
DRAFTS = [model for model in MODELS if not model.is_target]
ENDS = ("<|im_end|>", "<|endoftext|>")


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_a_file_holds_what_its_row_says(model: DemoModel) -> None:
    with_tensors = GGUFFile.open(model.path)
    n_params = sum(tensor.n_elements for name, tensor in with_tensors.tensors.items() if name != "d2t")
    assert n_params == model.n_params
    assert (model.n_max == 0) == (model.spec_type is None) == (model.acceptance == 1)
    with_tensors.close()


@pytest.mark.parametrize("model", DRAFTS, ids=[model.file for model in DRAFTS])
def test_a_drafter_fits_the_target(model: DemoModel) -> None:
    assert model.spec_type in DRAFTERS
    target, draft = GGUFFile.open(TARGET.path), GGUFFile.open(model.path)
    tokens = "tokenizer.ggml.tokens"
    assert draft.metadata.require(tokens, "[str]") == target.metadata.require(tokens, "[str]")
    if model.spec_type != "draft-simple":
        assert draft.metadata.require(f"{draft.architecture}.target_layers", "[int]") == [3, 7, 11]


@pytest.mark.parametrize("model", [m for m in MODELS if m.is_target], ids=lambda m: m.file)
def test_a_target_has_what_a_conversation_needs(model: DemoModel) -> None:
    file = GGUFFile.open(model.path)
    tokenizer = Tokenizer.from_gguf(file)
    text = ChatTemplate.from_gguf(file, tokenizer).render(
        [{"role": "user", "content": "Hi."}], add_generation_prompt=True
    )
    assert text == prompt("Hi.")
    ids = tokenizer.encode(text, add_special=True, parse_special=True)
    assert [tokenizer.piece(id, special=True) for id in (ids[0], ids[-1])] == [b"<|im_start|>", b"\n"]
    assert {tokenizer.encode(end, add_special=False, parse_special=True)[0] for end in ENDS} <= tokenizer.eog_ids


def test_the_package_stays_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 16_000_000


def test_every_licence_is_explained() -> None:
    assert "Python Software Foundation" in (TARGET.path.parent / "LICENSE.md").read_text()


def test_names_are_resolved() -> None:
    assert resolve("demo") == TARGET.path
    assert resolve("demo", "draft-eagle3").name == "eagle3.gguf"
    assert resolve("demo-mtp").name == "mtp.gguf"


def test_unknown_names_say_what_is_known() -> None:
    with pytest.raises(UnsupportedError) as caught:
        resolve("other")
    assert str(caught.value) == "other: no shipped model, expected one of demo, demo-mtp"
    with pytest.raises(UnsupportedError) as caught:
        resolve("demo", "draft-mtp")
    known = "draft-simple, draft-eagle3, draft-dflash, draft-dspark"
    assert str(caught.value) == f"demo: no shipped drafter for draft-mtp, expected one of {known}"
