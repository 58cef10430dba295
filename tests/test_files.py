"""Result files: whole or not at all; devices and pipes are written to, never replaced."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from specli.errors import FormatError, ResourceError
from specli.files import Journal, check_writable, part_of, read_text, stale_parts, write_file, writing


def test_existing_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    check_writable(path)
    assert path.read_bytes() == b"old"
    write_file(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"new", [path])


def test_file_that_cannot_be_read_as_text_says_why_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ä\n", encoding="utf-8-sig")
    assert read_text(tmp_path / "text", encoding="utf-8-sig") == "ä\n"
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, reason in (("none", "No such file or directory"), (".", "Is a directory"), ("bytes", "'utf-8' codec")):
        with pytest.raises(FormatError) as caught:
            read_text(tmp_path / name, "cannot be read as a poem")
        assert str(caught.value).startswith(f"{tmp_path / name}: cannot be read as a poem: {reason}")
    with pytest.raises(FormatError, match="embedded null byte"):
        read_text(Path("a\0b"))


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_file(tmp_path / "link", b"x")
    assert (tmp_path / "target").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_devices_stay_devices(tmp_path: Path) -> None:
    """A rename over /dev/null would make it a regular file for everybody."""
    check_writable(Path("/dev/null"))
    write_file(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_pipe_without_reader_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_file_below_dev_is_a_file() -> None:
    """/dev/shm has ordinary files, which are replaced, not added to."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    path = Path(f"/dev/shm/specli-test-{os.getpid()}")
    try:
        for content in (b"old", b"new"):
            write_file(path, content)
        assert path.read_bytes() == b"new"
    finally:
        path.unlink()


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    write_file(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a" * 255, "ü" * 127 + "x", "\U0001f98a" * 63])
def test_longest_names(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / name, b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(TypeError), writing(tmp_path / "out") as file:
        file.writelines([b"new", "text"])  # type: ignore[list-item]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"old")]


def test_parts_of_killed_processes_are_found(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    stale = tmp_path / f".m.gguf.{gone.pid}.part"
    for name in (stale.name, part_of(tmp_path / "m.gguf").name, ".m.part", "m.gguf.1.part", f".{'9' * 30}.part"):
        (tmp_path / name).touch()
    assert stale_parts(tmp_path) == [stale]


def test_pipes_are_written_to() -> None:
    reading, writing = os.pipe()
    check_writable(Path(f"/dev/fd/{writing}"))
    write_file(Path(f"/dev/fd/{writing}"), b"x")
    assert os.read(reading, 2) == b"x"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("name", "reason"), [("missing/x", "No such file or directory"), ("", "Is a directory")])
@pytest.mark.parametrize("verb", [check_writable, lambda path: write_file(path, b"x")])
def test_both_verbs_refuse_alike(tmp_path: Path, name: str, reason: str, verb: object) -> None:
    with pytest.raises(ResourceError, match=f": cannot be written: {reason}$"):
        verb(tmp_path / name)  # type: ignore[operator]
    assert not list(tmp_path.iterdir())


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "out"), Journal(tmp_path / "out")
    first.open()
    first.append(0, b"a\n")
    with pytest.raises(ResourceError, match=r"out\.part: another process is writing it"):
        second.open(lambda line: 0)
    second.close()
    first.append(1, b"b\n")
    first.finish(ordered=True)
    assert (tmp_path / "out").read_bytes() == b"a\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_number_is_in_a_journal_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "out")
    journal.open()
    for number, line in ((2, b"c\n"), (0, b"a\n"), (2, b"late\n"), (1, b"b\n")):
        journal.append(number, line)
    assert journal.numbers == {0, 1, 2}
    assert journal.part.read_bytes() == b"c\na\nb\n"
    journal.finish(ordered=True)
    assert (tmp_path / "out").read_bytes() == b"a\nb\nc\n"


def test_a_journal_without_lines_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "out")
    journal.open()
    journal.close()
    assert not list(tmp_path.iterdir())
