"""Fixtures of the conversion tests."""

import hashlib

import pytest
from tokenizers import Tokenizer

from specli.convert.pretokenizers import PRETOKENIZERS, PROBE
from tests.support.checkpoints import GLM_ADDED, QWEN_ADDED, write_bpe_tokenizer


@pytest.fixture
def tiny_tokenizer_is_known(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixtures' byte-level tokenizer counts as "gpt-2", as when the goldens were recorded."""
    for extra in ((), GLM_ADDED, QWEN_ADDED):
        folder = tmp_path_factory.mktemp("tokenizer")
        write_bpe_tokenizer(folder, extra)
        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROBE).ids
        monkeypatch.setitem(PRETOKENIZERS, hashlib.sha256(str(ids).encode()).hexdigest(), "gpt-2")
