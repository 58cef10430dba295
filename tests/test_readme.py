"""The README's commands are real: all parse, the first runs and prints what is shown, the Python example works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specli.cli import main
from specli.cli.options.arguments import read_command_line

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    shlex.split(part.strip())[1:]
    for language, fence in FENCES
    if not language
    for line in fence.splitlines()
    for part in line.split("&&")
    if part.strip().startswith("specli ")
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_parses(command: list[str]) -> None:
    read_command_line(command[0], command[1:], max_operands=1)


def test_first_command_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(line.removeprefix("> ") for line in README.splitlines() if line.startswith("> "))
    assert main(COMMANDS[0]) == 0
    assert capsys.readouterr().out.startswith(shown.removesuffix(" […]"))


def test_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from specli.demo import resolve

    source = next(fence for language, fence in FENCES if language == "python")
    (tmp_path / "MODEL.gguf").symlink_to(resolve("demo"))
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "README.md", "exec"), {})
    assert "'predicted_n': 100" in capsys.readouterr().out
