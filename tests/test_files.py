"""Result files: whole or not at all; devices and pipes are written to, never replaced."""

import os
import stat
from pathlib import Path

import pytest

from specli.errors import FormatError, ResourceError
from specli.files import check_writable, read_text, write_file


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
