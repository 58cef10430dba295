"""A tiny target and a draft file for every type that has a network, for whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specli.drafters import DRAFTERS, networks_of, tables_of
from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_assistant, tiny_eagle, tiny_eagle3, tiny_medusa, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

TABLE_TYPES = tuple(tables_of(DRAFTERS))
NETWORK_TYPES = tuple(networks_of(DRAFTERS))
GEMMA4_MIXTURE = (
    "ffn_gate_inp.weight", "ffn_gate_inp.scale", "ffn_gate_up_exps.weight", "ffn_down_exps.weight",
    "ffn_down_exps.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight",
)  # fmt: skip
BLOCK = 6  # tokens of a block drafter's block: the longest draft of draft-dspark, one more than draft-dflash's

# Type → (path, whether it follows its target) → draft file. draft-mtp is not here: its heads are in the target's file.
_DRAFTS: dict[str, Callable[[Path, bool], Path]] = {
    "draft-simple": lambda path, follows: tiny_gguf(path, seed=1, tied=follows),
    "draft-eagle3": lambda path, follows: tiny_eagle3(path, follows_target=follows),
    "draft-dflash": lambda path, follows: tiny_dflash(path, follows_target=follows, block_size=BLOCK),
    "draft-dspark": lambda path, follows: tiny_dflash(
        path, follows_target=follows, block_size=BLOCK, markov=16, confidence=True
    ),
}
# The same for those that read the state behind the last layer of a target of so many layers.
_LAST_STATE_DRAFTS: dict[str, Callable[[Path, bool, int], Path]] = {
    "draft-eagle": lambda path, follows, n_layers: tiny_eagle(path, follows_target=follows, n_layers=n_layers),
    "draft-medusa": lambda path, follows, n_layers: tiny_medusa(path, n_heads=BLOCK, n_layers=n_layers),
}


def n_layers_of(family: str) -> int:
    """Layers of a tiny target: for `gemma4` enough for shared keys and values."""
    return 4 if family.startswith("gemma4") else 2


def tiny_target(path: Path, family: str, **fields: Any) -> Path:
    """A target of `tiny_gguf`; `gemma4-dense` has no experts."""
    n_layer = n_layers_of(family)
    if family != "gemma4-dense":
        return tiny_gguf(path, family, n_layer=n_layer, **fields)
    absent = [f"blk.{index}.{name}" for index in range(n_layer) for name in GEMMA4_MIXTURE]
    counts = ("gemma4.expert_count", "gemma4.expert_used_count")
    return tiny_gguf(
        path, "gemma4", n_layer=n_layer, metadata=dict.fromkeys(counts), tensors=dict.fromkeys(absent), **fields
    )


def tiny_pair(folder: Path, name: str, family: str = "llama", *, follows: bool = True) -> tuple[Path, Path | None]:
    """Target and draft file for the type `name`, made once per folder; None if the drafter is in the target's file.

    Tied targets mostly repeat themselves. Drafters that follow their target get drafts accepted now and then, but
    hardly look at what lies further back; the drafts of the others depend on all of it.
    """
    if name == "draft-mtp" and not family.startswith("gemma4"):
        path = folder / f"{family}-{follows}-heads.gguf"
        return (path if path.exists() else tiny_mtp(path, family, follows_target=follows)), None
    n_layers = n_layers_of(family)
    target, draft = folder / f"{family}.gguf", folder / f"{name}-{follows}-{n_layers}.gguf"
    if not target.exists():
        tiny_target(target, family, tied=True)
    if draft.exists():
        return target, draft
    if name == "draft-mtp":
        tiny_assistant(draft)
    elif name in _LAST_STATE_DRAFTS:
        _LAST_STATE_DRAFTS[name](draft, follows, n_layers)
    else:
        _DRAFTS[name](draft, follows)
    return target, draft
