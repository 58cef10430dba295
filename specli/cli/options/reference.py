"""Man pages and completion scripts from the option table: `python -m specli.cli.options.reference [--check]`.

Without `--check` writes `man/` and `completions/` of the source tree; with it compares and fails if a file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from specli.cli.options.completions import bash_script, fish_script, zsh_script
from specli.cli.options.manual import command_page, root_page
from specli.cli.tree import COMMANDS

ROOT = Path(__file__).parents[3]


def generated_files() -> dict[str, str]:
    """Path below the source tree → content."""
    pages = {f"man/specli-{name}.1": command_page(name, summary) for name, summary in COMMANDS.items()}
    return {
        "man/specli.1": root_page(COMMANDS),
        **pages,
        "completions/specli.bash": bash_script(),
        "completions/_specli": zsh_script(),
        "completions/specli.fish": fish_script(),
    }


def stale_files(root: Path) -> list[str]:
    """Generated files that are missing or differ from what would be written."""
    return [
        name
        for name, content in generated_files().items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != content
    ]


def write_files(root: Path) -> None:
    """Writes all of them."""
    for name, content in generated_files().items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


def main() -> int:
    """Writes or checks; returns the exit code."""
    if "--check" not in sys.argv[1:]:
        write_files(ROOT)
        return 0
    stale = stale_files(ROOT)
    for name in stale:
        sys.stderr.write(f"{name} is stale; run python -m specli.cli.options.reference\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
