"""Starting up is quick because nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

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
@pytest.mark.parametrize(
    "models",
    [
        "demo --spec-type ngram-mod",
        "demo -md demo --spec-type draft-simple",
        "demo -md demo --spec-type draft-eagle3",
        "demo -md demo --spec-type draft-dspark",
        "demo-mtp --spec-type draft-mtp",
    ],
)
def test_runs_on_the_native_kernels_do_without_torch(models: str) -> None:
    """Importing it takes a second, and 200 MiB."""
    given = f"generate -m {models} -p The -n 8 -c 256 -t 1".split()
    code = f"import sys\nfrom specli.cli import main\nassert main({given}) == 0\nassert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "kernels: cpu kernels" in result.stderr


def test_module_runs_as_a_program() -> None:
    result = subprocess.run([sys.executable, "-m", "specli", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("specli ")
    result = subprocess.run([sys.executable, "-m", "specli"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Commands:" in result.stdout
