"""Thoughts told apart from the answer, whatever the pieces."""

from hypothesis import given
from hypothesis import strategies as st

from specli.tokenizer.reasoning import TAGS, Reasoning
from specli.tokenizer.thoughts import ThoughtSplitter, split_thoughts

CHANNELS = Reasoning("<|channel|>analysis<|message|>", "<|end|>", has_channels=True)
MISTRAL = Reasoning("[THINK]", "[/THINK]")


def split(pieces: list[str], form: Reasoning = TAGS, *, is_thinking: bool = False) -> list[tuple[str, bool]]:
    splitter = ThoughtSplitter(form, is_thinking=is_thinking)
    parts = [part for piece in pieces for part in splitter.push(piece)]
    return [*parts, *splitter.flush()]


def test_tags_in_pieces() -> None:
    assert split(["\n<thi", "nk>b</think>", "c"]) == [("b", True), ("c", False)]


def test_thought_stands_at_the_beginning() -> None:
    """Tags further on are talked about, as llama.cpp has it."""
    assert split(["<think>b</think>c", "<think>d</think>"]) == [("b", True), ("c", False), ("<think>d</think>", False)]
    assert split(["a<think>b</think>"]) == [("a<think>b</think>", False)]


def test_what_only_looks_like_a_tag_is_text() -> None:
    assert split(["<", " 2"]) == [("< 2", False)]
    assert split(["<think"]) == [("<think", False)]
    assert split(["<think>1 <", " 2"]) == [("1 ", True), ("< 2", True)]


def test_prompt_that_ends_inside_a_thought() -> None:
    assert split(["hm</think>", "yes"], is_thinking=True) == [("hm", True), ("yes", False)]
    assert split_thoughts("hm\n</think>\n\nyes", TAGS, is_thinking=True) == ("yes", "hm")


def test_answer_without_thought_keeps_its_white_space() -> None:
    assert split_thoughts(" yes\n", TAGS) == (" yes\n", "")


def test_other_tags() -> None:
    assert split(["[THI", "NK]a[b][/THINK]c"], MISTRAL) == [("a[b]", True), ("c", False)]
    assert split_thoughts("<think>[THINK]a[/THINK]b", MISTRAL) == ("<think>[THINK]a[/THINK]b", "")


HARMONY = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes"


def test_channels_of_gpt_oss() -> None:
    assert split([HARMONY], CHANNELS) == [("hm", True), ("yes", False)]
    assert split_thoughts(HARMONY.replace("<|end|>", ""), CHANNELS) == ("yes", "hm")
    preamble = "<|channel|>commentary<|message|>first<|end|><|start|>assistant" + HARMONY
    assert split([preamble], CHANNELS) == [("first", False), ("hm", True), ("yes", False)]
    assert split(["<|channel|>final<|constrain|>json<|message|>{}"], CHANNELS) == [("{}", False)]
    assert split(["<|channel|>analysis<|message|>cut sho"], CHANNELS) == [("cut sho", True)]
    assert split(["<|channel|>anal"], CHANNELS) == []
    assert split(["no headers"], CHANNELS) == [("no headers", False)]


@given(
    st.lists(
        st.sampled_from(
            ["a", "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>", "assistant", "<|", " to="]
        ),
        max_size=14,
    )
)
def test_cutting_channels_into_characters_changes_nothing(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert joined(split(list(text), CHANNELS)) == joined(split([text], CHANNELS))


def joined(parts: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    return [(char, is_thought) for text, is_thought in parts for char in text]


@given(
    st.lists(st.sampled_from(["a", "<", "think", ">", "</think>", "<think>", "/", "\n"]), max_size=12), st.booleans()
)
def test_cutting_into_pieces_changes_nothing(pieces: list[str], is_thinking: bool) -> None:
    assert joined(split(pieces, is_thinking=is_thinking)) == joined(split(["".join(pieces)], is_thinking=is_thinking))
