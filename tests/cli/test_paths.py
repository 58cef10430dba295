"""Paths that cannot be looked at, for every option that takes one: one line, never a traceback."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from specli.cli import main
from specli.cli.options import OPTIONS
from specli.convert import ConvertConfig, convert
from specli.errors import SpecliError, UsageError
from specli.files import is_there, user_path

NOBODY = 65534
LONG = "x" * 300
BAD = {
    LONG: "cannot be looked at: File name too long",
    f"/{LONG}/x": "cannot be looked at: File name too long",
    "~nosuchuser/x": "~nosuchuser/x: no such user, or a user without home folder",
    "~\ud800": "surrogates not allowed",
    "a\0b": "'a\\x00b' is not a file name",
    "": "'' is not a file name",
}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A file in a folder of mode 000; as another user where root could look into it all the same."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    tmp_path.chmod(0o755)
    folder.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield folder / "config.json"
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


@pytest.mark.parametrize("text", BAD)
def test_path_of_a_user(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        user_path(text)
    assert str(caught.value).endswith(BAD[text])


def test_path_into_a_closed_folder(closed: Path) -> None:
    for look in (user_path, is_there):
        with pytest.raises(SpecliError) as caught:
            look(closed)
        assert str(caught.value).endswith(": Permission denied")
        assert str(caught.value).startswith(str(closed))


def test_path_that_may_be_made(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name in ("new", "no/folder", "file/x", "loop"):
        assert user_path(tmp_path / name) == tmp_path / name
    assert user_path("~/x") == Path.home() / "x"


def spellings() -> list[tuple[str, str]]:
    """Command and option of all options that take a path."""
    pairs = []
    for option in OPTIONS:
        if option.kind is not None and option.kind.files is not None and not option.refused:
            pairs.append((option.commands[0], option.names[-1]))
    return pairs


@pytest.fixture
def unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path that looks as if a folder were closed (as root sees all of them, by way of `Path.stat`)."""
    path, look = tmp_path / "closed" / "x", Path.stat

    def stat(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return look(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    return path


@pytest.mark.parametrize(("command", "option"), spellings())
def test_every_option(command: str, option: str, unseen: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for text in (LONG, "~nosuchuser/x", str(unseen)):
        operands = ["x"] if command == "convert" else ["-m", "demo", "-p", "x", "-n", "1"]
        assert main([command, *operands, option, text]) in (1, 2)
        output = capfd.readouterr().err
        assert "Traceback" not in output
        assert sum(line.startswith("error") for line in output.splitlines()) == 1, output


@pytest.mark.parametrize("text", [LONG, f"user/{LONG}", "~nosuchuser/x"])
def test_operands(text: str, unseen: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in (text, str(unseen)):
        for arguments in (["convert", path], ["stats", "show", path], ["convert", "x", "--target-model-dir", path]):
            assert main(arguments) in (1, 2)
            assert capfd.readouterr().err.startswith("error: ")


def test_python(unseen: Path, tmp_path: Path) -> None:
    for config in (
        ConvertConfig(unseen),
        ConvertConfig(LONG),
        ConvertConfig(tmp_path, target=LONG),
        ConvertConfig(tmp_path, outfile=unseen),
    ):
        with pytest.raises(SpecliError):
            convert(config)
