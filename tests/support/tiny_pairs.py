"""A tiny target and a draft file for every type that has a network, for whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specli.drafters import DRAFTERS
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_assistant, tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

TABLE_TYPES = tuple(name for name, spec in DRAFTERS.items() if not spec.needs_draft_file)
NETWORK_TYPES = tuple(name for name, spec in DRAFTERS.items() if spec.needs_draft_file)
BLOCK = 6  # tokens of a block drafter's block: the longest draft of draft-dspark, one more than draft-dflash's

# Type → path → draft file. draft-mtp is not here: its heads are in the target's file.
_DRAFTS: dict[str, Callable[[Path], Path]] = {
    "draft-simple": lambda path: tiny_gguf(path, seed=1, tied=True),
    "draft-eagle3": lambda path: tiny_eagle3(path, follows_target=True),
    "draft-dflash": lambda path: tiny_dflash(path, follows_target=True, block_size=BLOCK),
    "draft-dspark": lambda path: tiny_dflash(path, follows_target=True, block_size=BLOCK, markov=16, confidence=True),
}


def tiny_pair(folder: Path, name: str, family: str = "llama") -> tuple[Path, Path | None]:
    """Target and draft file for the type `name`, made once per folder; None if the drafter is in the target's file.

    Drafts are accepted now and then: tied targets mostly repeat themselves, and drafters follow their target.
    """
    if name == "draft-mtp" and family != "gemma4":
        path = folder / f"{family}-heads.gguf"
        return (path if path.exists() else tiny_mtp(path, family, follows_target=True)), None
    target, draft = folder / f"{family}.gguf", folder / f"{name}.gguf"
    if not target.exists():
        is_deep = family == "gemma4"  # enough layers for shared keys and values
        tiny_gguf(target, family, tied=True, n_layer=4 if is_deep else 2)
    if not draft.exists():
        tiny_assistant(draft) if name == "draft-mtp" else _DRAFTS[name](draft)
    return target, draft
