from specli.engine.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(piece) for piece in pieces)
    return (shown if matcher.matched else shown + matcher.flush()), matcher.matched


def test_text_before_a_stop_split_over_pieces_is_released() -> None:
    assert run(["###"], ["a#", "#", "# tail"]) == ("a", "###")


def test_held_back_prefix_is_released_when_it_turns_out_not_to_match() -> None:
    matcher = StopMatcher(["###"])
    assert [matcher.push("a#"), matcher.push("b")] == ["a", "#b"]
    assert matcher.matched is None


def test_earliest_of_several_stops_wins() -> None:
    assert run(["END", "b"], ["aab END"]) == ("aa", "b")


def test_held_text_is_flushed_at_the_end_of_the_stream() -> None:
    assert run(["###"], ["x##"]) == ("x##", None)


def test_nothing_is_released_after_a_match() -> None:
    matcher = StopMatcher(["."])
    matcher.push("one.")
    assert matcher.push("two") == ""


def test_no_stop_strings_release_everything_at_once() -> None:
    matcher = StopMatcher([""])
    assert matcher.push("abc") == "abc"
