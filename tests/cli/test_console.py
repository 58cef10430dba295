"""Streams, levels, colours."""

import io
import logging
import re
from pathlib import Path

import pytest

from specli.cli.console import DEBUG, ERROR, Console, error_lines, paint, wants_color
from specli.cli.options.request import LogConfig
from specli.errors import FormatError, ResourceError, UsageError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(**config: object) -> Console:
    return Console(out=io.StringIO(), err=io.StringIO(), config=LogConfig(**config))  # type: ignore[arg-type]


def text(console: Console) -> str:
    assert isinstance(console.err, io.StringIO)
    return console.err.getvalue()


def test_data_and_messages_go_to_their_streams() -> None:
    it = console()
    it.write("data")
    it.info("message")
    it.warn("careful")
    assert isinstance(it.out, io.StringIO)
    assert it.out.getvalue() == "data"
    assert text(it) == "message\nwarn: careful\n"


@pytest.mark.parametrize(
    ("verbosity", "shown"), [(0, ""), (1, "e\n"), (3, "e\ni\n"), (4, "e\ni\nt\n"), (5, "e\ni\nt\nd\n")]
)
def test_levels(verbosity: int, shown: str) -> None:
    it = console(verbosity=verbosity)
    it.log(ERROR, "e")
    it.info("i")
    it.trace("t")
    it.log(DEBUG, "d")
    assert text(it) == shown


def test_prefix_has_time_and_level() -> None:
    it = console(prefix=True)
    it.warn("x")
    it.info("y")
    first, second = text(it).splitlines()
    assert re.fullmatch(r"\d+\.\d\d\.\d{3}\.\d{3} W warn: x", first)
    assert re.fullmatch(r"\d+\.\d\d\.\d{3}\.\d{3} I y", second)
    it = console(prefix=True, timestamps=False)
    it.info("y")
    assert text(it) == "I y\n"


@pytest.mark.parametrize(
    ("mode", "environ", "is_terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("on", {"NO_COLOR": "1"}, False, True),
        ("off", {}, True, False),
    ],
)
def test_when_to_colour(mode: str, environ: dict[str, str], is_terminal: bool, expected: bool) -> None:
    assert wants_color(mode, Terminal() if is_terminal else io.StringIO(), environ=environ) is expected


def test_error_is_one_line_whatever_is_in_it() -> None:
    error = UsageError("invalid argument: --a\nb\x1b[31m…", hint="look\there")
    assert error_lines(error) == ["error: invalid argument: --a\\nb\\x1b[31m…", "hint: look\\there"]
    assert error_lines(UsageError("error while x")) == ["error while x"]
    assert error_lines(ValueError("no answer yet")) == ["error: no answer yet"]
    assert error_lines(FormatError("error.gguf: no such file")) == ["error: error.gguf: no such file"]


def test_paint_leaves_empty_text_alone() -> None:
    assert paint("", "31", is_on=True) == ""
    assert paint("x", "31", is_on=False) == "x"
    assert paint("x", "31", is_on=True) == "\x1b[31mx\x1b[0m"


def test_messages_are_copied_plain_to_the_log_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with console(file=path, colors="on") as it:
        it.warn("x")
    assert path.read_text() == "warn: x\n"
    assert text(it) == "\x1b[33mwarn: x\x1b[0m\n"


def test_what_the_engine_logs_is_a_message_and_said_once() -> None:
    log = logging.getLogger("specli.drafters.example")
    with console(verbosity=2) as quiet:
        log.info("i")
        log.warning("careful: %d", 1)
        with quiet.without_notices():
            log.warning("of a trial")
    with console() as it:
        for _ in range(2):
            log.info("i")
            log.warning("careful: %d", 2)
    log.warning("afterwards")
    assert text(quiet) == "warn: careful: 1\n"
    assert text(it) == "i\nwarn: careful: 2\n"


def test_log_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot be written: Is a directory"):
        console(file=tmp_path)
