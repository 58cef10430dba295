"""Pairs of tiny target and drafter whose drafts llama.cpp has recorded (tests/golden/drafts.json)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.tiny_dflash import tiny_dflash
from tests.support.tiny_drafters import tiny_assistant, tiny_eagle3, tiny_mtp
from tests.support.tiny_gguf import tiny_gguf

N_MAX = 3
PROMPT = "the quick brown fox jumps over the lazy dog and then the other dog runs after the fox . there is a time"


@dataclass(frozen=True)
class DraftCase:
    """A pair.

    Attributes:
        spec_type: Type of the drafter.
        target: Writes the target.
        draft: Writes the drafter, or None: it is in the target's file.
        first: First position of a draft block that predicts.
        n_rounds: Rounds that are recorded. 1 for targets whose state llama.cpp cannot cut back: it starts such a round
            over from a checkpoint, with the right tokens as the draft, and what follows is not comparable.
    """

    spec_type: str
    target: Callable[[Path], Path]
    draft: Callable[[Path], Path] | None
    first: int = 0
    n_rounds: int = 12

    def write(self, folder: Path) -> tuple[Path, Path | None]:
        """Both files."""
        return self.target(folder / "target.gguf"), self.draft and self.draft(folder / "draft.gguf")


def _eagle3(family: str = "llama", **fields: object) -> DraftCase:
    """Of a target with three layers. No tap lies behind the last: llama.cpp has it for few families."""
    return DraftCase(
        "draft-eagle3",
        lambda path: tiny_gguf(path, family, n_layer=3),
        lambda path: tiny_eagle3(path, **fields),  # type: ignore[arg-type]
    )


CASES = {
    "eagle3": _eagle3(),
    "eagle3 reduced": _eagle3(reduced=100),
    "eagle3 norm before fc": _eagle3(norm_before_fc=True),
    "eagle3 norm before residual": _eagle3(norm_before_residual=True),
    "eagle3 own ends": _eagle3(own_embeddings=True, own_head=True),
    "eagle3 rotary factors": _eagle3(factors=True),
    "eagle3 narrow": _eagle3(width=32, own_embeddings=True, reduced=64, head_size=16),
    "eagle3 qwen3": _eagle3("qwen3"),
    "eagle3 qwen35": _eagle3("qwen35"),
    "eagle3 gpt-oss": _eagle3("gpt-oss", taps=(0, 1, 3)),
    "eagle3 gemma4": _eagle3("gemma4"),
    "mtp glm4moe": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "glm4moe", follows_target=True), None),
    "mtp deepseek2": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "deepseek2", follows_target=True), None),
    "mtp qwen35": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "qwen35", n_layer=3, follows_target=True), None),
    "mtp qwen35moe": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "qwen35moe", n_layer=3), None),
    "mtp qwen3next": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "qwen3next", n_layer=3), None, n_rounds=1),
    "mtp hy_v3": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "hy_v3", follows_target=True), None),
    "mtp mimo2": DraftCase("draft-mtp", lambda path: tiny_mtp(path, "mimo2", n_heads=3, follows_target=True), None),
    "mtp heads only": DraftCase(
        "draft-mtp",
        lambda path: tiny_gguf(path, "glm4moe", seed=3),
        lambda path: tiny_mtp(path, "glm4moe", heads_only=True, own_ends=True, seed=3),
    ),
    "mtp assistant": DraftCase("draft-mtp", lambda path: tiny_gguf(path, "gemma4", n_layer=4), tiny_assistant),
}


def _block(family: str = "llama", spec_type: str = "draft-dflash", first: int = 0, **fields: object) -> DraftCase:
    return DraftCase(
        spec_type,
        lambda path: tiny_gguf(path, family, n_layer=3),
        lambda path: tiny_dflash(path, **fields),  # type: ignore[arg-type]
        first,
    )


_DSPARK: dict[str, object] = {"spec_type": "draft-dspark", "markov": 16, "confidence": True}
BLOCK_CASES = {
    "dflash": _block(),
    "dflash reduced": _block(reduced=100),
    "dflash window": _block(windows=(True, False)),
    "dflash own ends": _block(own_embeddings=True, own_head=True),
    "dflash values from keys": _block(values=False),
    "dflash sinks": _block(sinks=True),
    "dflash gemma4": _block("gemma4", gemma=True),
    "dspark": _block(**_DSPARK),  # type: ignore[arg-type]
    "dspark reduced": _block(**_DSPARK, reduced=100),  # type: ignore[arg-type]
    "dspark reserved anchor": _block(**_DSPARK, first=1, from_anchor=False),  # type: ignore[arg-type]
}
