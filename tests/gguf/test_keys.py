"""The tables of keys and tensor names agree with real files and with the `gguf` package where it knows them."""

from pathlib import Path

import gguf
import pytest

from specli.gguf.file import GGUFFile
from specli.gguf.keys import DRAFT_KEYS, DRAFT_TENSORS, KEYS, TENSORS, find_key, find_tensor
from tests.support.tiny_gguf import ARCHITECTURES, tiny_gguf

DRAFT_ROWS_OF_THE_PACKAGE = {  # gguf 0.19 knows these NextN and encoder names
    name for name in TENSORS if ".nextn." in name or name == "enc.output_norm.weight"
} | {"blk.N.attn_norm_2.weight"}


def check(path: Path) -> None:
    file = GGUFFile.open(path)
    for key in file.metadata.keys():  # noqa: SIM118 (not a dict)
        row = find_key(key, file.architecture)
        assert row is not None, key
        assert file.metadata.kind(key) in row.kinds, key
    for name, tensor in file.tensors.items():
        found = find_tensor(name)
        assert found is not None, name
        if found.shape:
            assert len(tensor.shape) == found.shape.count(",") + 1, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiny_files(tmp_path: Path, architecture: str) -> None:
    check(tiny_gguf(tmp_path / "m.gguf", architecture))


@pytest.mark.real
def test_smollm2(smollm2_path: Path) -> None:
    check(smollm2_path)


@pytest.mark.real
def test_gemma3(gemma3_path: Path) -> None:
    check(gemma3_path)


def test_rows_are_unique_and_cite_a_source() -> None:
    assert len(KEYS) == len({key.source for key in KEYS.values()}) + 1  # the two flags read in one function
    for row in [*KEYS.values(), *TENSORS.values()]:
        assert row.source.startswith(("LLM_KV_", "LLM_TENSOR_", "gguf-py Keys.", "common/", "specli/"))


def test_tensor_names_agree_with_the_gguf_package() -> None:
    known = set(gguf.TENSOR_NAMES.values())
    ours = {name: name.replace("blk.N.", "blk.{bid}.") for name in TENSORS}
    for suffix in (".weight", ".bias", ".scale"):
        ours = {name: stem.removesuffix(suffix) for name, stem in ours.items()}
    missing = {name for name, stem in ours.items() if stem not in known}
    draft_only = {row.name for row in DRAFT_TENSORS} - DRAFT_ROWS_OF_THE_PACKAGE
    assert missing <= draft_only | {"blk.N.ssm_beta.weight", "blk.N.ssm_alpha.weight"}


def test_look_ups() -> None:
    row = find_key("eagle3.target_layers", "eagle3")
    assert row is not None
    assert row in DRAFT_KEYS
    assert row.kinds == ("[i32]", "[u32]")
    assert find_key("eagle3.target_layers", "llama") is None
    assert find_key("tokenizer.chat_template.tool_use", "llama") is KEYS["tokenizer.chat_template"]
    assert find_key("llama.nope", "llama") is None
    assert find_tensor("blk.12.attn_q.weight") is TENSORS["blk.N.attn_q.weight"]
    assert find_tensor("blk.x.attn_q.weight") is None
    assert find_tensor("d2t") is TENSORS["d2t"]
