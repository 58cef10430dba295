"""From `-m`, `-hf`, `-md`, `-hfd` to files on disk."""

from __future__ import annotations

from pathlib import Path

from specli.cli.options.request import SourceConfig
from specli.drafters import networks_of
from specli.errors import FormatError, UsageError
from specli.files import user_path

DEMO = "demo"
"""Names beginning so mean shipped models, unless there is a file of that name."""


def resolve_target(source: SourceConfig) -> Path:
    """The target's file; one of a repository is downloaded.

    Raises:
        UsageError: No model was named, or two were.
        FormatError: The file does not exist.
    """
    if source.hf_repo:
        if source.model:
            raise UsageError("--model and --hf-repo exclude each other", hint="-hff chooses a file of the repository")
        from specli.cli.hub import fetch_target

        return fetch_target(source)
    if source.hf_file:
        raise UsageError("--hf-file needs --hf-repo")
    if not source.model:
        raise UsageError("--model is required", hint="give a GGUF file with -m, or -m demo")
    return shipped_or_existing(source.model, None)


def resolve_draft(source: SourceConfig, types: tuple[str, ...]) -> Path | None:
    """The draft file, or None when none was named; `demo` is the shipped drafter that fits the chosen type, if any.

    A repository given with `-hf` may carry the drafter of a chosen type as a side file.
    """
    if source.draft_hf_repo:
        from specli.cli.hub import fetch_draft

        return fetch_draft(source, types)
    if not source.draft_model:
        if source.hf_repo:
            from specli.cli.hub import fetch_side_file

            return fetch_side_file(source, types)
        return None
    networks = networks_of(types)
    if types and not networks and is_shipped(source.draft_model):
        return None
    if is_shipped(source.draft_model) and len(networks) != 1:
        raise UsageError(
            "-md demo needs one --spec-type with a draft network", hint="for example --spec-type draft-eagle3"
        )
    return shipped_or_existing(source.draft_model, next(iter(networks), None))


def is_shipped(name: str) -> bool:
    """Whether a name means a shipped model: `demo`, or `demo-…`, and no such file exists."""
    return (name == DEMO or name.startswith(f"{DEMO}-")) and not user_path(name).exists()


def shipped_or_existing(name: str, spec_type: str | None) -> Path:
    """The path of a shipped model, or of a file that exists."""
    if not is_shipped(name):
        return existing(user_path(name))
    from specli.demo import resolve

    return existing(resolve(name, spec_type))


def existing(path: Path) -> Path:
    """The path, if a file is there."""
    if not path.exists():
        raise FormatError(f"{path}: no such file")
    if path.is_dir():
        raise FormatError(
            f"{path}: is a directory, expected a GGUF file", hint="specli convert makes one of a checkpoint"
        )
    return path
