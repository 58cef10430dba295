"""Lines of a message, and where they come from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from specli.cli.conversation.lines import history_path, read_message


def reader(*lines: str) -> Callable[[str], str]:
    rest = list(lines)

    def read(prompt: str) -> str:
        if not rest:
            raise EOFError
        return rest.pop(0)

    return read


@pytest.mark.parametrize(
    ("lines", "is_multiline", "message"),
    [
        (["one", "two"], False, "one"),
        (["one\\", "two", "three"], False, "one\ntwo"),
        (["one\\", "two\\", "three"], False, "one\ntwo\nthree"),
        (["one", "two\\", "three"], True, "one\ntwo"),
        (["one", "two/"], True, "one\ntwo"),
        (["one", "two"], True, "one\ntwo"),  # end of input ends the message
        ([""], False, ""),
    ],
)
def test_message(lines: list[str], is_multiline: bool, message: str) -> None:
    assert read_message(reader(*lines), is_multiline=is_multiline) == message


def test_end_of_input() -> None:
    with pytest.raises(EOFError):
        read_message(reader(), is_multiline=True)


def test_history_lies_in_the_state_directory(tmp_path: Path) -> None:
    assert history_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "specli" / "history"
    assert history_path({"HOME": str(tmp_path)}) == tmp_path / ".local" / "state" / "specli" / "history"
    (tmp_path / "file").touch()
    assert history_path({"XDG_STATE_HOME": str(tmp_path / "file")}) is None
