"""From `-m`, `-hf`, `-md`, `-hfd` to files on disk."""

from __future__ import annotations

from pathlib import Path

from specli.cli.config import SourceConfig
from specli.errors import FormatError, UnsupportedError, UsageError

DEMO = Path(__file__).parent.parent / "demo"
"""Models that ship with specli."""


def resolve_target(source: SourceConfig) -> Path:
    """The target's file.

    Raises:
        UsageError: No model was named.
        FormatError: The file does not exist.
    """
    if source.hf_repo:
        raise UnsupportedError(
            f"-hf {source.hf_repo}: downloads are not available yet", hint="give a local file with -m"
        )
    if not source.model:
        raise UsageError("--model is required", hint="give a GGUF file with -m, or -m demo")
    return existing(demo_file("target") if source.model == "demo" else Path(source.model))


def resolve_draft(source: SourceConfig, types: tuple[str, ...]) -> Path | None:
    """The draft file, or None when none was named; `demo` is the shipped drafter that fits the chosen type."""
    if source.draft_hf_repo:
        raise UnsupportedError(
            f"-hfd {source.draft_hf_repo}: downloads are not available yet", hint="give a local file with -md"
        )
    if not source.draft_model:
        return None
    if source.draft_model != "demo":
        return existing(Path(source.draft_model))
    networks = [name for name in types if name.startswith("draft-")]
    if len(networks) != 1:
        raise UsageError(
            "-md demo needs one --spec-type with a draft network", hint="for example --spec-type draft-eagle3"
        )
    return existing(demo_file(networks[0].removeprefix("draft-")))


def demo_file(name: str) -> Path:
    """A shipped model: `target`, or the drafter of a type."""
    path = DEMO / f"{name}.gguf"
    if not path.is_file():
        raise UnsupportedError(f"demo: this installation has no {name} model", hint="give a GGUF file")
    return path


def existing(path: Path) -> Path:
    """The path, if a file is there."""
    path = path.expanduser()
    if not path.exists():
        raise FormatError(f"{path}: no such file")
    if path.is_dir():
        raise FormatError(
            f"{path}: is a directory, expected a GGUF file", hint="specli convert makes one of a checkpoint"
        )
    return path
