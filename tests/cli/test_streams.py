"""Streams as callers leave them: closed, full, of another encoding. Light commands in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specli.engine.stats import dump_record


def shell(command: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    specli = f"'{sys.executable}' -m specli"
    return subprocess.run(
        ["sh", "-c", command.replace("specli", specli, 1)],
        capture_output=True,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_the_null_device(redirection: str) -> None:
    done = shell(f"specli --version {redirection}")
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_stdout_does_not_hide_errors() -> None:
    done = shell("specli generate -m missing.gguf -p a >&-")
    assert (done.returncode, done.stderr) == (1, b"error: missing.gguf: no such file\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["--version", "generate --help"])
def test_full_disk_is_one_line(command: str) -> None:
    done = shell(f"specli {command} > /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        b"error: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("environ", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_text_is_utf_8_whatever_the_locale(environ: dict[str, str]) -> None:
    done = shell("specli generate --help", **environ)
    assert done.returncode == 0
    assert "TYPE[,TYPE…]" in done.stdout.decode()


def test_records_are_utf_8_whatever_the_prompt_was() -> None:
    """The byte E9 of an argument arrives as U+DCE9, which has no UTF-8 form."""
    assert dump_record({"text": "caf\udce9"}) == '{"text": "caf\ufffd"}'


def test_record_is_one_line_for_every_line_reader() -> None:
    """Python's `splitlines`, JavaScript's line ends and many editors end a line at more than a line feed."""
    text = "".join(map(chr, (*range(32), 0x7F, 0x85, 0xA0, 0x2028, 0x2029, 0xFEFF))) + "\\\u2028"
    line = dump_record({text: [text, {"é": text}]})
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {text: [text, {"é": text}]}
    assert dump_record({"a": "é\u2028\x85"}) == '{"a": "é\\u2028\\u0085"}'
