"""Checkpoints of Hugging Face repositories: which files of one are needed, and the folder they lie in."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from specli.convert.mask_embedding import FILE as MASK_FILE
from specli.errors import FormatError
from specli.hub import Hub

# The formats of checkpoint.py, of which the first kind that there is is taken; other frameworks' weights and copies in
# folders of their own stay where they are.
CONFIG_FILES = ("*.json", "*.jinja", "*.txt", "tokenizer.model", "README.md")
TEMPLATES = "additional_chat_templates"
WEIGHT_FILES = (
    "model*.safetensors", "pytorch_model*.bin", "medusa_lm_head.safetensors", "medusa_lm_head.pt",
)  # fmt: skip


def fetch(hub: Hub, name: str, *, weights: bool) -> Path:
    """The local folder of a repository, downloaded as far as needed.

    Args:
        hub: Where it comes from.
        name: `user/model`.
        weights: Whether weights are wanted; else config, tokenizer and model card only.

    Raises:
        UsageError: `name` is not of the form `user/model`.
        ResourceError: The repository does not exist, is gated, or is neither reachable nor in the cache.
        FormatError: The repository holds no checkpoint.
    """
    repository = hub.open(name)
    top = [file for file in repository.files if "/" not in file]
    wanted = [file for file in top if any(fnmatch(file, pattern) for pattern in CONFIG_FILES)]
    wanted += [file for file in repository.files if PurePosixPath(file).match(f"{TEMPLATES}/*.jinja")]
    if weights:
        kinds = ([file for file in top if fnmatch(file, pattern)] for pattern in WEIGHT_FILES)
        wanted += [*next(filter(None, kinds), []), *(file for file in top if file == MASK_FILE)]
    if "config.json" not in wanted:
        raise FormatError(f"{name}: no checkpoint, the repository has no config.json")
    paths = {file: repository.fetch(file) for file in wanted}
    return paths["config.json"].parent
