"""Tokens to text: pieces, and streams that never break a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specli.tokenizer import Tokenizer
from specli.tokenizer.bytelevel import BYTE_OF_CHARACTER, decode_bytes
from tests.support.tiny_vocab import VOCABS
from tests.support.vocab_files import vocab_file

WRITES_ANYTHING = ("bpe", "spm")  # vocabularies that have a token for every byte
TOKENIZERS = {name: Tokenizer.from_gguf(vocab_file(VOCABS[name]().metadata)) for name in WRITES_ANYTHING}


def assert_stream_is_decode(tokenizer: Tokenizer, ids: list[int]) -> None:
    stream = tokenizer.stream()
    parts = [stream.push(token) for token in ids]
    assert "".join(parts) + stream.flush() == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=st.text())
def test_text_comes_back(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, add_special=True, parse_special=False)
    assert_stream_is_decode(tokenizer, ids)
    if kind == "spm" and text:  # as upstream: the space of the first word stays, and U+2581 of the text is a space too
        text = " " + text.replace("\u2581", " ")
    assert tokenizer.decode(ids) == text


def test_the_space_mark_of_spm_comes_back_as_a_space() -> None:
    tokenizer = TOKENIZERS["spm"]
    assert tokenizer.decode(tokenizer.encode("a\u2581b", add_special=True, parse_special=False)) == " a b"


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(data=st.data())
def test_any_tokens_stream_as_they_decode(kind: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.n_vocab - 1), max_size=30))
    assert_stream_is_decode(tokenizer, ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_characters_are_held_back_until_complete(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    party = tokenizer.encode("🎉", add_special=False, parse_special=False)[-4:]
    stream = tokenizer.stream()
    assert [stream.push(token) for token in party] == ["", "", "", "🎉"]
    assert stream.flush() == ""

    assert [stream.push(token) for token in party[:3]] == ["", "", ""]
    assert stream.flush() == "\ufffd"  # cut off by a length limit
    assert [stream.push(token) for token in party] == ["", "", "", "🎉"]  # and fresh again


def test_control_tokens_are_rendered_on_request() -> None:
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("a<|im_end|>b", add_special=False, parse_special=True)
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, special=True) == "a<|im_end|>b"
    stream = tokenizer.stream(special=True)
    assert "".join(map(stream.push, ids)) == "a<|im_end|>b"


def test_chosen_control_tokens_are_rendered() -> None:
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("a<|im_end|>b<|endoftext|>", add_special=False, parse_special=True)
    stream = tokenizer.stream(visible=("<|im_end|>", "<|nothing|>"))
    assert "".join(map(stream.push, ids)) == "a<|im_end|>b"


@pytest.mark.parametrize("token", [-1, 10**6])
def test_ids_outside_the_vocabulary_have_no_piece(token: int) -> None:
    with pytest.raises(IndexError):
        TOKENIZERS["bpe"].piece(token)


def test_byte_alphabet() -> None:
    assert len(BYTE_OF_CHARACTER) == 256
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))
    assert decode_bytes("Ġcafé") == b" caf\xe9"
    assert decode_bytes("Ġ中") == b" [UNK_BYTE_0xe4b8ad\xc4\xa0\xe4\xb8\xad]"
