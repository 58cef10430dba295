"""Starting up is quick because nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

from specli.demo import MODELS
from tests.support.runs import executors

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


@pytest.mark.skipif("cpu" not in executors(), reason="native library is not built")
@pytest.mark.parametrize("drafter", ["none", "ngram-mod", *{model.spec_type for model in MODELS if model.spec_type}])
def test_runs_on_the_native_kernels_do_without_torch(drafter: str) -> None:
    """Importing it takes a second, and 200 MiB."""
    draft = ["-md", "demo"] if drafter.startswith("draft-") else []
    arguments = [
        "generate",
        "-m",
        "demo",
        *draft,
        "--spec-type",
        drafter,
        "-p",
        "The",
        "-n",
        "8",
        "-c",
        "256",
        "-t",
        "1",
    ]
    code = (
        f"import sys\nfrom specli.cli import main\nassert main({arguments!r}) == 0\nassert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "kernels: cpu kernels" in result.stderr


def test_module_runs_as_a_program() -> None:
    result = subprocess.run([sys.executable, "-m", "specli", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("specli ")
    result = subprocess.run([sys.executable, "-m", "specli"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Commands:" in result.stdout
