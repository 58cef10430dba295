"""Starting up is quick because nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

HEAVY = (
    "torch", "numpy", "rich", "prompt_toolkit", "huggingface_hub", "tokenizers", "sentencepiece", "gguf", "pydantic",
)  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["generate", "--help"],
        ["chat", "--help"],
        ["convert", "--help"],
        ["stats", "--help"],
        ["check", "--help"],
        ["generate", "-zz"],
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom specli.cli import main\n"
        f"main({arguments!r})\nprint('heavy:', *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-1] == "heavy:"


def test_module_runs_as_a_program() -> None:
    result = subprocess.run([sys.executable, "-m", "specli", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("specli ")
    result = subprocess.run([sys.executable, "-m", "specli"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Commands:" in result.stdout
