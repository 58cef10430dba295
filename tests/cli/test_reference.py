"""Man pages and completion scripts: current, well-formed, and working in real shells."""

import os
import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest

from specli.cli import main
from specli.cli.options import options_of
from specli.cli.options.help import help_groups
from specli.cli.options.manual import roff
from specli.cli.options.reference import ROOT, generated_files, stale_files, write_files
from specli.cli.tree import COMMANDS

PAGES = ["specli", *(f"specli-{name}" for name in COMMANDS)]
BASH = ROOT / "completions" / "specli.bash"


def needs(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def test_generated_files_are_current() -> None:
    assert stale_files(ROOT) == [], "run python -m specli.cli.options.reference"


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_completion_script_can_be_printed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--completion-bash"]) == 0
    assert capsys.readouterr().out == (ROOT / "completions" / "specli.bash").read_text()


def test_stale_and_missing_files_are_found(tmp_path: Path) -> None:
    write_files(tmp_path)
    assert stale_files(tmp_path) == []
    (tmp_path / "man" / "specli.1").write_text("old")
    (tmp_path / "completions" / "_specli").unlink()
    assert stale_files(tmp_path) == ["man/specli.1", "completions/_specli"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_spelling_is_in_the_man_page(command: str) -> None:
    page = generated_files()[f"man/specli-{command}.1"]
    missing = [s for option in options_of(command) for s in option.spellings if f"\\fB{roff(s)}\\fR" not in page]
    assert missing == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_usable_option_is_in_the_help(command: str) -> None:
    shown = " ".join(names for _, records in help_groups(command) for names, _ in records).replace(",", " ").split()
    assert [s for o in options_of(command) if o.is_listed for s in o.spellings if s not in shown] == []


def test_roff_protects_what_would_be_a_command() -> None:
    assert roff(".x -y \\z …") == "\\&.x \\-y \\ez \\[u2026]"
    assert roff("'x") == "\\&'x"


@pytest.mark.parametrize("page", PAGES)
def test_man_page_has_no_warnings(page: str) -> None:
    path = ROOT / "man" / f"{page}.1"
    command = [needs("man"), "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""


@pytest.mark.parametrize("page", PAGES)
def test_man_page_passes_mandoc(page: str) -> None:
    path = ROOT / "man" / f"{page}.1"
    result = subprocess.run([needs("mandoc"), "-T", "lint", "-W", "warning", str(path)], capture_output=True, text=True)
    findings = [line for line in result.stdout.splitlines() if "missing date" not in line]  # dates would go stale
    assert findings == []


def complete_in_bash(words: list[str], folder: Path) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source '{BASH}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        "_specli 2>/dev/null; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    result = subprocess.run(
        [needs("bash"), "--norc", "-c", script], capture_output=True, text=True, check=True, cwd=folder
    )
    return sorted(result.stdout.split("\n")[:-1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, another file, a model with a blank in its name, and a directory."""
    for name in ("a.gguf", "b.txt", "my model.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    return tmp_path


CASES = [
    (["specli", "gen"], ["generate"]),
    (["specli", "--l"], ["--list-devices", "--list-models"]),
    (["specli", "generate", "--spec-draft-n-m"], ["--spec-draft-n-max", "--spec-draft-n-min"]),
    (["specli", "convert", "--outty"], ["--outtype"]),
    (["specli", "generate", "-ctkd", "q8"], ["q8_0"]),
    (["specli", "generate", "--cache-type-k", "b"], ["bf16"]),
    (["specli", "generate", "--spec-type", "ngram-mo"], ["ngram-mod"]),
    (["specli", "generate", "--device", "c"], ["cpu", "cuda:0"]),
    (["specli", "generate", "--numa"], []),
    (["specli", "stats", "s"], ["show"]),
    (["specli", "stats", "--swe"], []),
    (["specli", "stats", "--tune-s"], ["--tune-seconds"]),
    (["specli", "stats", "show", "b"], ["b.txt"]),
    (["specli", "convert", "s"], ["sub"]),
]


@pytest.mark.parametrize(("words", "expected"), CASES, ids=lambda value: " ".join(value) or "none")
def test_bash_completes(words: list[str], expected: list[str], folder: Path) -> None:
    assert [word for word in complete_in_bash(words, folder) if word] == expected


def test_bash_completes_files_lists_and_values_after_equals(folder: Path) -> None:
    assert complete_in_bash(["specli", "generate", "-m", ""], folder) == ["a.gguf", "my model.gguf", "sub"]
    assert complete_in_bash(["specli", "generate", "-f", "b"], folder) == ["b.txt"]
    assert complete_in_bash(["specli", "chat", "--spec-type", "draft-mtp,ngram-si"], folder) == [
        "draft-mtp,ngram-simple"
    ]
    assert complete_in_bash(["specli", "chat", "--cache-type-k", "=", "q8"], folder) == ["q8_0"]
    assert complete_in_bash(["specli", "chat", "--cache-type-k", "="], folder)[0] == "bf16"


FISH_CASES = [
    ("specli gen", ["generate"]),
    ("specli generate --spec-draft-n-m", ["--spec-draft-n-max", "--spec-draft-n-min"]),
    ("specli generate -ctkd q8", ["q8_0"]),
    ("specli generate --spec-type ngram-mo", ["ngram-mod"]),
    ("specli generate --spec-type draft-mtp,ngram-si", ["draft-mtp,ngram-simple"]),
    ("specli generate -f b", ["b.txt"]),
    ("specli stats s", ["show"]),
    ("specli stats show b", ["b.txt"]),
    ("specli convert s", ["sub/"]),
]


def complete_in_fish(line: str, folder: Path) -> list[str]:
    script = f"source '{ROOT / 'completions' / 'specli.fish'}'; complete -C '{line}'"
    command = [needs("fish"), "--no-config", "-c", script]
    environ = {**os.environ, "HOME": str(folder)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environ)
    words = [row.split("\t")[0] for row in result.stdout.splitlines()]
    return [word for word in words if not word.startswith(".")]


@pytest.mark.parametrize(("line", "expected"), FISH_CASES)
def test_fish_completes(line: str, expected: list[str], folder: Path) -> None:
    assert sorted(complete_in_fish(line, folder)) == expected


def test_fish_puts_models_first(folder: Path) -> None:
    assert sorted(complete_in_fish("specli generate -m ", folder)[:2]) == ["a.gguf", "my model.gguf"]


ZSH_CASES = [
    ("specli gen", "specli generate "),
    ("specli generate --spec-draft-p-m", "specli generate --spec-draft-p-min "),
    ("specli generate -ctkd q8", "specli generate -ctkd q8_0 "),
    ("specli chat --cache-type-k=q8", "specli chat --cache-type-k=q8_0 "),
    ("specli generate --spec-type draft-mtp,ngram-si", "specli generate --spec-type draft-mtp,ngram-simple"),
    ("specli generate -m a", "specli generate -m a.gguf "),
    ("specli stats s", "specli stats show "),
    ("specli stats --tune-s", "specli stats --tune-seconds "),
    ("specli stats show b", "specli stats show b.txt "),
]


@pytest.mark.parametrize(("line", "expected"), ZSH_CASES)
def test_zsh_completes(line: str, expected: str, folder: Path) -> None:
    """TAB in an interactive zsh; a widget then prints the command line as it stands."""
    setup = (
        f"fpath=('{ROOT / 'completions'}' $fpath); autoload -Uz compinit && compinit -u -D; "
        "show() { print; print -r -- \"[[$BUFFER]]\" }; zle -N show; bindkey '^X' show; "
        "bindkey '^I' complete-word; PS1='> '; print ready"
    )
    shell = pexpect.spawn(
        needs("zsh"), ["-f", "-i"], cwd=str(folder), encoding="utf-8", timeout=20, dimensions=(24, 200)
    )
    shell.sendline(setup)
    shell.expect("\r\nready")
    shell.send(f"{line}\t\x18")
    shell.expect(r"\[\[(specli .*?)\]\]")
    assert shell.match[1] == expected
    shell.close(force=True)


def test_zsh_script_is_valid() -> None:
    subprocess.run([needs("zsh"), "-n", str(ROOT / "completions" / "_specli")], check=True)
