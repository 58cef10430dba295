"""The table of keys agrees with files and has a source for each row."""

from pathlib import Path

import pytest

from specli.gguf.file import GGUFFile
from specli.gguf.keys import DRAFT_KEYS, KEYS, find_key
from tests.support.tiny_gguf import ARCHITECTURES, tiny_gguf


def check(path: Path) -> None:
    file = GGUFFile.open(path)
    for key in file.metadata.keys():  # noqa: SIM118 (not a dict)
        row = find_key(key, file.architecture)
        assert row is not None, key
        assert file.metadata.kind(key) in row.kinds, key


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
    for row in KEYS.values():
        assert row.source.startswith(("LLM_KV_", "gguf-py Keys.", "common/", "specli/"))


def test_look_ups() -> None:
    row = find_key("eagle3.target_layers", "eagle3")
    assert row is not None
    assert row in DRAFT_KEYS
    assert row.kinds == ("[i32]", "[u32]")
    assert find_key("eagle3.target_layers", "llama") is None
    assert find_key("tokenizer.chat_template.tool_use", "llama") is KEYS["tokenizer.chat_template"]
    assert find_key("llama.nope", "llama") is None
