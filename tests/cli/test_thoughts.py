"""Thoughts told apart from the answer, whatever the pieces."""

from hypothesis import given
from hypothesis import strategies as st

from specli.cli.conversation.thoughts import ThoughtSplitter, split_thoughts


def split(pieces: list[str], *, is_thinking: bool = False) -> list[tuple[str, bool]]:
    splitter = ThoughtSplitter(is_thinking=is_thinking)
    parts = [part for piece in pieces for part in splitter.push(piece)]
    return [*parts, *splitter.flush()]


def test_tags_in_pieces() -> None:
    assert split(["a<thi", "nk>b</think>", "c"]) == [("a", False), ("b", True), ("c", False)]


def test_what_only_looks_like_a_tag_is_text() -> None:
    assert split(["1 <", " 2"]) == [("1 ", False), ("< 2", False)]
    assert split(["x<think"]) == [("x", False), ("<think", False)]


def test_prompt_that_ends_inside_a_thought() -> None:
    assert split(["hm</think>", "yes"], is_thinking=True) == [("hm", True), ("yes", False)]
    assert split_thoughts("hm\n</think>\n\nyes", is_thinking=True) == ("yes", "hm")


def test_answer_without_thought_keeps_its_white_space() -> None:
    assert split_thoughts(" yes\n") == (" yes\n", "")


@given(
    st.lists(st.sampled_from(["a", "<", "think", ">", "</think>", "<think>", "/", "\n"]), max_size=12), st.booleans()
)
def test_cutting_into_pieces_changes_nothing(pieces: list[str], is_thinking: bool) -> None:
    def joined(parts: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
        return [(char, is_thought) for text, is_thought in parts for char in text]

    assert joined(split(pieces, is_thinking=is_thinking)) == joined(split(["".join(pieces)], is_thinking=is_thinking))
