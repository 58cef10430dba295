"""Metadata read as something else than the file has."""

from pathlib import Path

import pytest

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.gguf.overrides import Override
from tests.support.tiny_gguf import tiny_gguf


def opened(tmp_path: Path, *overrides: Override) -> GGUFFile:
    return GGUFFile.open(tiny_gguf(tmp_path / "m.gguf", "llama"), overrides)


def test_values_are_replaced_and_added_in_the_kind_of_their_key(tmp_path: Path) -> None:
    metadata = opened(
        tmp_path,
        ("llama.context_length", 99),
        ("llama.rope.freq_base", 2e6),
        ("tokenizer.ggml.add_eos_token", True),
        ("tokenizer.ggml.eot_token_id", 7),
        ("general.name", "other"),
    ).metadata
    assert metadata.require("llama.context_length", "u32") == 99
    assert metadata.require("llama.rope.freq_base", "f32") == 2e6
    assert metadata.require("tokenizer.ggml.add_eos_token", "bool") is True
    assert metadata.require("tokenizer.ggml.eot_token_id", "u32") == 7
    assert metadata.require("general.name", "str") == "other"


def test_keys_of_another_architecture_are_not_for_this_file(tmp_path: Path) -> None:
    assert "qwen3.context_length" not in opened(tmp_path, ("qwen3.context_length", 5)).metadata


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (("llama.context_length", 1.5), "key 'llama.context_length' is u32, --override-kv gives float"),
        (("llama.context_length", True), "key 'llama.context_length' is u32, --override-kv gives bool"),
        (("llama.context_length", -1), "key 'llama.context_length' is u32, -1 does not fit"),
        (("llama.context_length", 2**40), "key 'llama.context_length' is u32, 1099511627776 does not fit"),
        (("tokenizer.ggml.tokens", "a"), "key 'tokenizer.ggml.tokens' is [str], --override-kv gives str"),
        (("tokenizer.ggml.eot_token_id", "a"), "key 'tokenizer.ggml.eot_token_id' is u32, --override-kv gives str"),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, override: Override, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        opened(tmp_path, override)
    assert str(caught.value) == f"{tmp_path / 'm.gguf'}: {message}"
