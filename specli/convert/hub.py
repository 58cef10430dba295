"""Checkpoints by hub id, through `huggingface_hub` and its cache."""

from __future__ import annotations

import re
from pathlib import Path

from specli.errors import ResourceError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

# The formats of checkpoint.py; other frameworks' weights and original copies in sub-folders stay where they are.
CONFIG_FILES = ("*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.txt", "tokenizer.model", "README.md")
WEIGHT_FILES = ("model*.safetensors", "pytorch_model*.bin")


def is_hub_id(text: str) -> bool:
    """Whether it has the form `user/repo`."""
    return _ID.fullmatch(text) is not None


def fetch(repo: str, *, weights: bool, offline: bool) -> Path:
    """The local directory of a repository, downloaded as far as needed.

    Args:
        repo: `user/repo`.
        weights: Whether weights are wanted; else config, tokenizer and model card only.
        offline: Use the cache only.

    Raises:
        ResourceError: It is not in the cache, not reachable, gated, or does not exist.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = [*CONFIG_FILES, *(WEIGHT_FILES if weights else ())]
    try:
        return Path(snapshot_download(repo, allow_patterns=patterns, local_files_only=offline))
    except LocalEntryNotFoundError:
        reason = "not in the local cache, and --offline forbids a download" if offline else "no network, and not cached"
        raise ResourceError(f"{repo}: {reason}", hint="give a local directory") from None
    except HfHubHTTPError as error:
        raise ResourceError(f"{repo}: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise ResourceError(f"{repo}: {error}") from None
