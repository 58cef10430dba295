"""The architecture's own rules: imports go one way, and start-up does not load torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "specli"

# Package → packages it may import (docs/architecture.md §2). Top-level modules are open to all.
ALLOWED = {
    "cli": {
        "demo", "study", "serve", "workers", "engine", "sampling", "convert", "drafters", "models", "kernels", "gguf",
        "tokenizer",
    },
    "serve": {"engine", "sampling", "drafters", "tokenizer"},
    "workers": {"study", "engine", "sampling", "kernels"},
    "study": {"engine", "sampling", "drafters", "models", "kernels", "gguf", "tokenizer"},
    "engine": {"sampling", "drafters", "models", "kernels", "gguf", "tokenizer"},
    "sampling": {"kernels", "gguf", "tokenizer"},
    "drafters": {"models", "kernels", "gguf"},
    "models": {"kernels", "gguf"},
    "kernels": {"gguf"},
    "convert": {"gguf"},
    "demo": {"convert"},
    "tokenizer": {"gguf"},
    "gguf": set(),
}  # fmt: skip
OPEN = {"errors", "_version"}


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names if node.module == "specli"]
        found |= {name.split(".")[1] for name in names if name.startswith("specli.")}
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in (PACKAGE / package).rglob("*.py")
        for name in imported_packages(path) - OPEN - {package} - ALLOWED[package]
        if (PACKAGE / name).is_dir()
    }
    assert not wrong


def test_every_package_is_in_the_table() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == set(ALLOWED)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["generate", "--help"]])
def test_start_up_does_not_import_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom specli.cli import main\n"
        f"sys.argv = ['specli', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
