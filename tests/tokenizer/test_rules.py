"""The encoders against the rules written out slowly, on random vocabularies and texts."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specli.tokenizer import Tokenizer
from specli.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.tokenizer_rules import ALPHABET, BYTE, BYTE_CHARACTERS, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Rules
from tests.support.vocab_files import Pairs, vocab_file

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# They overlap each other and ordinary text.
SPECIALS = ["<s>", "<s><s>", "s><", "<", "ab", "abs", "\n\n", " a", "é", "</s>", "  ", "ß<s>"]
SPECIAL_TYPES = st.sampled_from([CONTROL, USER_DEFINED, UNKNOWN])
BYTE_TEXTS = [f"<0x{byte:02X}>" for byte in range(256)]

ONE_NAME_PER_ROW = list({row: name for name, row in PRE_TOKENIZERS.items()}.values())

pieces = st.one_of(
    st.sampled_from(ALPHABET),
    st.sampled_from(SPECIALS),
    st.sampled_from(["  ", "\r\n", "\n\n\n", "'S", "'ll", "12345", "Über", " the", "ABCdef", "//\n", "中文", "'ſ"]),
    st.text("ab ", min_size=1, max_size=8),
)
texts = st.lists(pieces, max_size=40).map("".join)


@st.composite
def merge_lists(draw: st.DrawFn, characters: str) -> list[tuple[str, str]]:
    """Merges in a random order of learning; some repeat what other merges make."""
    known = list(characters)
    merges = []
    for _ in range(draw(st.integers(0, 40))):
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        if len(left + right) <= 8 and (left, right) not in merges:
            merges.append((left, right))
            known.append(left + right)
    return merges


def with_specials(draw: st.DrawFn, tokens: list[str]) -> tuple[list[str], list[int]]:
    """Adds special tokens that are not there yet; types of all."""
    chosen = draw(st.lists(st.sampled_from(SPECIALS), unique=True, max_size=6))
    added = [text for text in chosen if text not in tokens]
    types = [BYTE if text in BYTE_TEXTS else NORMAL for text in tokens]
    return tokens + added, types + [draw(SPECIAL_TYPES) for _ in added]


def pairs_of(rules: Rules, **more: tuple[str, object]) -> Pairs:
    model = {"spm": "llama", "bpe": "gpt2", "gemma4": "gemma4"}[rules.kind]
    return {
        "tokenizer.ggml.model": ("str", model),
        "tokenizer.ggml.tokens": ("[str]", rules.tokens),
        "tokenizer.ggml.token_type": ("[i32]", rules.types),
        "tokenizer.ggml.scores": ("[f32]", rules.scores or [0.0] * len(rules.tokens)),
        "tokenizer.ggml.merges": ("[str]", [" ".join(pair) for pair in rules.merges]),
        **{f"tokenizer.ggml.{key}": pair for key, pair in more.items()},
    }


def assert_same_ids(rules: Rules, tokenizer: Tokenizer, text: str) -> None:
    """Ids and pieces. `</s>` becomes a control token by its text alone, whatever its type."""
    rules.types = [CONTROL if text == "</s>" else type for text, type in zip(rules.tokens, rules.types, strict=True)]
    for parse_special in (False, True):
        expected = rules.encode(text, parse_special=parse_special)
        assert tokenizer.encode(text, add_special=False, parse_special=parse_special) == expected
        for token in expected:
            for special in (False, True):
                assert tokenizer.piece(token, special=special) == rules.piece(token, special=special)


@st.composite
def bpe_rules(draw: st.DrawFn, pre: str) -> Rules:
    missing = draw(st.sets(st.sampled_from("ab\x04\n9é".encode()), max_size=3))
    characters = "".join(c for byte, c in enumerate(BYTE_CHARACTERS) if byte not in missing)
    frequent = "".join(c for c in "absthe09Ġ'!ĊÃ©" if c in characters)
    merges = draw(merge_lists(frequent))
    tokens = [*characters, *dict.fromkeys(left + right for left, right in merges)]
    tokens, types = with_specials(draw, tokens)
    row = PRE_TOKENIZERS[pre]
    return Rules("bpe", tokens, types, merges=merges, patterns=row.patterns, ignore_merges=row.ignore_merges)


@pytest.mark.parametrize("pre", ONE_NAME_PER_ROW)
@given(data=st.data())
@settings(FUZZ, max_examples=20)
def test_byte_pair_ids_follow_the_rules(pre: str, data: st.DataObject) -> None:
    rules = data.draw(bpe_rules(pre))
    keys = {"bos_token_id": ("u32", 0), "eos_token_id": ("u32", 0), "add_bos_token": ("bool", False)}
    tokenizer = Tokenizer.from_gguf(vocab_file(pairs_of(rules, pre=("str", pre), **keys)))
    assert_same_ids(rules, tokenizer, data.draw(texts))


@st.composite
def spm_rules(draw: st.DrawFn) -> Rules:
    merges = draw(merge_lists("abst▁é<>"))
    tokens = ["<unk>", "<bos>", *BYTE_TEXTS, *"abst▁é中<>", *dict.fromkeys(a + b for a, b in merges)]
    tokens, types = with_specials(draw, tokens)
    types[0], types[1] = draw(st.sampled_from([UNKNOWN, CONTROL])), CONTROL
    rng = draw(st.randoms(use_true_random=False))
    scores = [float(rng.randint(-8, 0)) for _ in tokens]
    return Rules("spm", tokens, types, scores, space_prefix=draw(st.booleans()))


@given(spm_rules(), texts)
@FUZZ
def test_sentencepiece_ids_follow_the_rules(rules: Rules, text: str) -> None:
    keys = {"bos_token_id": ("u32", 1), "eos_token_id": ("u32", 1), "add_space_prefix": ("bool", rules.space_prefix)}
    assert_same_ids(rules, Tokenizer.from_gguf(vocab_file(pairs_of(rules, **keys))), text)


@st.composite
def gemma4_rules(draw: st.DrawFn) -> Rules:
    merges = draw(merge_lists("abst▁é\n"))
    tokens = ["<unk>", "<bos>", *BYTE_TEXTS, *"abst▁é中\n", *dict.fromkeys(a + b for a, b in merges)]
    tokens, types = with_specials(draw, tokens)
    types[0], types[1] = CONTROL, CONTROL
    return Rules(
        "gemma4", tokens, types, merges=[m for m in merges if ("\n" in "".join(m)) == (set("".join(m)) == {"\n"})]
    )


@given(gemma4_rules(), texts)
@FUZZ
def test_gemma4_ids_follow_the_rules(rules: Rules, text: str) -> None:
    tokenizer = Tokenizer.from_gguf(vocab_file(pairs_of(rules, bos_token_id=("u32", 1))))
    assert_same_ids(rules, tokenizer, text)
