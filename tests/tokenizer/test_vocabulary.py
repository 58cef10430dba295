"""Reading `tokenizer.ggml.` keys: defaults, roles, end tokens, and what is refused."""

import pytest

from specli.errors import FormatError, UnsupportedError
from specli.tokenizer import Tokenizer
from tests.support.tiny_vocab import bpe_vocab, spm_vocab
from tests.support.vocab_files import CONTROL, NORMAL, USER_DEFINED, Pairs, vocab_file

KEY = "tokenizer.ggml."


def bpe_pairs(texts: list[str], **more: tuple[str, object] | None) -> Pairs:
    """A byte-pair vocabulary of these tokens without merges."""
    pairs: Pairs = {
        KEY + "model": ("str", "gpt2"),
        KEY + "pre": ("str", "gpt-2"),
        KEY + "tokens": ("[str]", texts),
        KEY + "merges": ("[str]", []),
    }
    pairs |= {KEY + name: pair for name, pair in more.items() if pair}
    return {key: pair for key, pair in pairs.items() if more.get(key.removeprefix(KEY), pair) is not None}


def open_bpe(texts: list[str], **more: tuple[str, object] | None) -> Tokenizer:
    return Tokenizer.from_gguf(vocab_file(bpe_pairs(texts, **more)))


def open_changed(pairs: Pairs, **more: tuple[str, object] | None) -> Tokenizer:
    changed = {**pairs, **{KEY + name: pair for name, pair in more.items()}}
    return Tokenizer.from_gguf(vocab_file({key: pair for key, pair in changed.items() if pair is not None}))


def test_defaults_of_sentencepiece() -> None:
    tokenizer = open_changed(
        spm_vocab().metadata, add_bos_token=None, add_eos_token=None, bos_token_id=None, eos_token_id=None, scores=None
    )
    assert (tokenizer.kind, tokenizer.bos_id, tokenizer.eos_id, tokenizer._vocabulary.roles["unk"]) == ("spm", 1, 2, 0)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)
    assert tokenizer.encode("", add_special=True, parse_special=True) == [1]
    assert tokenizer.decode(tokenizer.encode("a", add_special=False, parse_special=True)) == " a"


@pytest.mark.parametrize(
    ("text", "n_bos", "n_eos", "doubled"),
    [
        ("a", 1, 1, []),
        ("", 1, 1, []),
        ("<s>a", 2, 1, ["BOS"]),
        ("a<s>", 2, 1, []),
        ("a</s>", 1, 2, ["EOS"]),
        ("</s>a", 1, 2, []),
        ("<s>a</s>", 2, 2, ["BOS", "EOS"]),
        ("<s>", 2, 1, ["BOS"]),
    ],
)
def test_second_bos_or_eos_is_kept_and_said(
    text: str, n_bos: int, n_eos: int, doubled: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """llama.cpp warns likewise; it looks at EOS in byte-pair vocabularies only."""
    tokenizer = open_changed(spm_vocab().metadata, add_bos_token=("bool", True), add_eos_token=("bool", True))
    ids = tokenizer.encode(text, add_special=True, parse_special=True)
    assert (ids[0], ids.count(1), ids.count(2), ids[-1]) == (1, n_bos, n_eos, 2)
    said = [message.partition(":")[0] for message in caplog.messages]
    texts = {"BOS": "the prompt starts with two BOS tokens", "EOS": "the prompt ends with two EOS tokens"}
    assert said == [texts[name] for name in doubled]


@pytest.mark.parametrize(("add_special", "parse_special"), [(False, True), (True, False)])
def test_single_bos_draws_no_warning(add_special: bool, parse_special: bool, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = open_changed(spm_vocab().metadata, add_bos_token=("bool", True))
    ids = tokenizer.encode("<s>a", add_special=add_special, parse_special=parse_special)
    assert (ids.count(1), caplog.messages) == (1, [])


@pytest.mark.parametrize(
    ("pre", "add_bos", "bos"),
    [("gpt-2", False, 11), ("llama-bpe", True, 11), ("tekken", True, 11), ("glm4", False, None), (None, False, 11)],
)
def test_defaults_of_byte_pairs(pre: str | None, add_bos: bool, bos: int | None) -> None:
    tokenizer = open_bpe([f"t{i}" for i in range(20)], pre=("str", pre) if pre else None)
    assert (tokenizer.kind, tokenizer.add_bos, tokenizer.add_eos) == ("bpe", add_bos, False)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (bos, 11)


def test_gemma4_adds_bos_whatever_the_file_says() -> None:
    tokenizer = open_bpe(
        ["a", "<bos>"], model=("str", "gemma4"), bos_token_id=("u32", 1), add_bos_token=("bool", False)
    )
    assert tokenizer.encode("a", add_special=True, parse_special=True) == [1, 0]


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    tokenizer = open_bpe(["a", "b"], bos_token_id=("u32", 9), suppress_tokens=("[i32]", [1, 2, -1]))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, None)  # the default, 11, is outside too
    assert tokenizer.suppress_ids == (1,)


def test_eos_is_added_at_the_end() -> None:
    tokenizer = open_bpe(["a", "<e>"], eos_token_id=("u32", 1), add_eos_token=("bool", True))
    assert tokenizer.encode("aa", add_special=True, parse_special=True) == [0, 0, 1]
    assert tokenizer.encode_chat("a<e>") == [0, 1]


def test_empty_texts_are_named_after_their_id() -> None:
    assert list(open_bpe(["a", "", "b", ""]).texts) == ["a", "[EMPTY_1]", "b", "[EMPTY_3]"]


def test_roles_are_found_by_text() -> None:
    tokenizer = open_bpe(["<|endoftext|>", "<|im_end|>", "<|file_sep|>", "x"], token_type=("[i32]", [NORMAL] * 4))
    assert tokenizer._vocabulary.roles["eot"] == 1
    assert tokenizer.eog_ids == {0, 1, 2}
    assert tokenizer.piece(1) == b""  # has become a control token
    assert tokenizer.encode("<|im_end|>", add_special=False, parse_special=True) == [1]


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"], {1, 2, 3}),
        (["<|end|>", "<|flush|>", "<|calls|>"], {1, 2}),
        (["<|end|>", "<|return|>"], {0, 1}),
        (["</s>", "<|tool_response>", "<eos>"], {1, 2}),
        (["</s>", "<eos>"], {0, 1}),
    ],
)
def test_end_tokens(texts: list[str], ends: set[int]) -> None:
    """gpt-oss and Solar Open end messages, not answers, with `<|end|>`; Gemma 4's `</s>` is a tag, and both show."""
    tokenizer = open_bpe(texts)
    assert tokenizer.eog_ids == ends
    for token, text in enumerate(texts):
        assert tokenizer.piece(token) == (b"" if token in ends else text.encode())


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["[|endofturn|]", "[|system|]", "<|endoftext|>"], {0, 2}),  # EXAONE 4
        (["<｜hy_place▁holder▁no▁2｜>", "<｜hy_EOT｜>", "<|eos|>", "<|endoftext|>"], {0, 3}),  # Hunyuan
        (["<|eot|>", "<|eom|>", "<|end_of_text|>", "<|python_end|>"], {0, 2}),  # Llama 4
        (["<|endoftext|>", "<|user|>", "<|observation|>"], {0}),  # GLM-4, whose other two come by key
        (["<|im_end|>", "<|endoftext|>", "<|end|>"], {0, 1, 2}),  # Phi-4
        (["[EOS]", "<|im_end|>", "[EOT]", "[PAD]"], {0, 1, 2, 3}),  # Kimi-K2
        (["<|endoftext|>", "<fim_pad>", "<reponame>", "<file_sep>", "<fim_prefix>"], {0, 1, 2}),  # StarCoder 2
        (["<｜end▁of▁sentence｜>", "<|EOT|>", "<｜fim▁hole｜>"], {0}),  # DeepSeek
    ],
)
def test_end_tokens_of_families(texts: list[str], ends: set[int]) -> None:
    """The first is the EOS token. `llama-tokenize -v` of llama.cpp b11434 lists the same."""
    assert open_bpe(texts, eos_token_id=("u32", 0)).eog_ids == ends


def test_channel_markers_are_always_shown_and_recognised() -> None:
    tokenizer = open_bpe(["<|channel|>", "a"], token_type=("[i32]", [CONTROL, NORMAL]))
    assert tokenizer.piece(0) == b"<|channel|>"
    assert tokenizer.encode("a<|channel|>", add_special=False, parse_special=False) == [1, 0]


def test_longer_special_tokens_win_wherever_they_start() -> None:
    tokenizer = open_bpe(["a", "d", "ab", "bcd"], token_type=("[i32]", [NORMAL, NORMAL, USER_DEFINED, USER_DEFINED]))
    assert tokenizer.encode("abcd", add_special=False, parse_special=False) == [0, 3]


def test_phi3s_special_tokens_swallow_white_space() -> None:
    pairs = bpe_pairs(["a", "Ġ", "<|x|>", "<|endoftext|>"], token_type=("[i32]", [NORMAL, NORMAL, CONTROL, CONTROL]))
    pairs["general.name"] = ("str", "Phi-3 mini")
    tokenizer = Tokenizer.from_gguf(vocab_file(pairs))
    ids = tokenizer.encode("<|x|> \n a<|endoftext|> a", add_special=False, parse_special=True)
    assert ids == [2, 0, 3, 1, 0]


def test_lone_surrogates_count_as_replacement_characters() -> None:
    tokenizer = Tokenizer.from_gguf(vocab_file(bpe_vocab().metadata))
    flags = {"add_special": False, "parse_special": False}
    assert tokenizer.encode("a\udcffb", **flags) == tokenizer.encode("a\ufffdb", **flags)


def test_of_equal_merges_the_first_counts() -> None:
    tokenizer = open_bpe(["a", "b", "c", "ab", "bc"], merges=("[str]", ["a b", "b c", "a b"]))
    assert tokenizer.encode("abc", add_special=False, parse_special=False) == [3, 2]


def test_integer_scores_are_taken() -> None:
    pairs = spm_vocab().metadata
    scores = [int(score) for score in pairs[KEY + "scores"][1]]  # type: ignore[attr-defined]
    as_floats, as_integers = open_changed(pairs), open_changed(pairs, scores=("[i32]", scores))
    flags = {"add_special": True, "parse_special": True}
    assert as_integers.encode("the fox", **flags) == as_floats.encode("the fox", **flags)


REFUSED = {
    "no model": (FormatError, {"model": None}, "tiny.gguf: key 'tokenizer.ggml.model' is missing, expected str"),
    "model": (
        UnsupportedError,
        {"model": ("str", "bert")},
        "tiny.gguf: tokenizer model 'bert' is not supported, expected one of llama, gpt2, gemma4",
    ),
    "pre": (UnsupportedError, {"pre": ("str", "new")}, "tiny.gguf: unknown pre-tokenizer type: 'new'"),
    "no tokens": (FormatError, {"tokens": None}, "tiny.gguf: key 'tokenizer.ggml.tokens' is missing, expected [str]"),
    "no merges": (FormatError, {"merges": None}, "tiny.gguf: key 'tokenizer.ggml.merges' is missing, expected [str]"),
    "twice": (
        FormatError,
        {"tokens": ("[str]", ["a", "b", "a"])},
        "tiny.gguf: token text 'a' occurs twice in the vocabulary",
    ),
    "types": (
        FormatError,
        {"token_type": ("[i32]", [1])},
        "tiny.gguf: key 'tokenizer.ggml.token_type' has 1 entries, expected 3 as there are tokens",
    ),
    "byte": (
        FormatError,
        {"token_type": ("[i32]", [1, 6, 1])},
        "tiny.gguf: byte token 1 reads 'b', expected <0x00> to <0xFF>",
    ),
    "bos": (
        FormatError,
        {"add_bos_token": ("bool", True)},
        "tiny.gguf: add_bos_token is true, but the vocabulary has no bos token",
    ),
    "wrong kind": (
        FormatError,
        {"add_bos_token": ("u32", 1)},
        "tiny.gguf: key 'tokenizer.ggml.add_bos_token' is u32, expected bool",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_broken_vocabularies_are_refused(case: str) -> None:
    kind, change, message = REFUSED[case]
    with pytest.raises(kind) as caught:
        open_bpe(["a", "b", "ab"], **change)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (["ab"], "tiny.gguf: merge 'ab' has no space"),
        (
            ["b a"],
            "tiny.gguf: merges do not fit the vocabulary: 'Error while initializing BPE: Token `ba` out of vocabulary'",
        ),
    ],
)
def test_broken_merges_are_refused_when_text_is_encoded(merges: list[str], message: str) -> None:
    tokenizer = open_bpe(["a", "b", "ab"], merges=("[str]", merges))
    with pytest.raises(FormatError) as caught:
        tokenizer.encode("a", add_special=False, parse_special=False)
    assert str(caught.value) == message


def test_what_is_wrong_with_a_vocabulary_prepared_meanwhile_is_told_when_text_is_encoded() -> None:
    tokenizer = open_bpe(["a", "b", "ab"], merges=("[str]", ["ab"]))
    with tokenizer.preparing():
        pass
    with pytest.raises(FormatError, match="has no space"):
        tokenizer.encode("a", add_special=False, parse_special=False)


def test_an_encoder_is_there_after_preparing_it() -> None:
    tokenizer = open_bpe(["a", "b", "ab"], merges=("[str]", ["a b"]))
    with tokenizer.preparing():
        pass
    assert "_encoder" in vars(tokenizer)
    assert tokenizer.encode("ab", add_special=False, parse_special=False) == [2]


def test_sentencepiece_without_byte_tokens_is_refused() -> None:
    tokenizer = open_bpe(["<unk>", "<s>", "</s>", "a"], model=("str", "llama"))
    with pytest.raises(UnsupportedError) as caught:
        tokenizer.encode("a", add_special=False, parse_special=False)
    assert str(caught.value) == "tiny.gguf: the vocabulary lacks 256 of 256 byte tokens, the first is <0x00>"


def test_sentencepiece_with_a_null_character_is_refused() -> None:
    texts = ["<unk>", "<s>", "</s>", "a\0", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = open_bpe(texts, model=("str", "llama"))
    with pytest.raises(FormatError, match=r"^tiny.gguf: vocabulary refused by sentencepiece: "):
        tokenizer.encode("a", add_special=False, parse_special=False)
