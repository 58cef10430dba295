"""The models that ship with specli: a small target and one drafter of each type that has a network.

`train` holds the code that made them; `data/LICENSE.md` says what they learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specli.errors import UnsupportedError

DATA = Path(__file__).parent / "data"
LICENCE = "MIT; trained on text under the PSF licence"


@dataclass(frozen=True)
class DemoModel:
    """One shipped file.

    Attributes:
        file: Name in `DATA`.
        name: What `-m` calls the file of a target, or `-md` the file of a drafter.
        spec_type: `--spec-type` it drafts for; None for a mere target. A target with one drafts for itself (MTP).
        is_target: Whether it is given with `-m`.
        summary: What it is.
        n_params: Weights in the file.
        n_max: Draft length that suits it, tokens; 0 without `spec_type`.
        acceptance: Mean acceptance length, the bonus token included: greedy, `n_max`, prompts.jsonl (128 held-out
            prompts of 16 kinds), up to 160 tokens, these files, CPU executor; measured by
            `python -m specli.demo.train.measure`. 1 without `spec_type`.
        licence: Of the weights.
    """

    file: str
    name: str
    spec_type: str | None
    is_target: bool
    summary: str
    n_params: int
    n_max: int = 0
    acceptance: float = 1.0
    licence: str = LICENCE

    @property
    def path(self) -> Path:
        """The file's place on disk."""
        return DATA / self.file

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size


MODELS = (
    DemoModel("target.gguf", "demo", None, True, "Qwen3, 12 layers, 4096 tokens, chat template", 5_953_728),
    DemoModel("simple.gguf", "demo", "draft-simple", False, "Qwen3, 2 layers, same tokens", 852_736, 4, 2.55),
    DemoModel(
        "eagle3.gguf", "demo", "draft-eagle3", False, "EAGLE-3, 2048 draft tokens, layers 3, 7, 11", 996_096, 4, 3.13
    ),
    DemoModel(
        "dflash.gguf", "demo", "draft-dflash", False, "DFlash, 2 layers, block 8, layers 3, 7, 11", 972_160, 7, 3.04
    ),
    DemoModel(
        "dspark.gguf", "demo", "draft-dspark", False, "DSpark, 2 layers, block 7, confidence head", 1_234_529, 7, 3.42
    ),
    DemoModel(
        "mtp.gguf", "demo-mtp", "draft-mtp", True, "the demo target as GLM-4.5, with an MTP block", 6_686_724, 3, 2.71
    ),
)


def resolve(name: str, spec_type: str | None = None) -> Path:
    """The shipped file for `-m demo` (without a type) or `-md demo` (with the type that drafts).

    Args:
        name: What was given as model.
        spec_type: One drafter type, for `-md`.

    Raises:
        UnsupportedError: No shipped model has this name, or drafts with this type.
    """
    candidates = [model for model in MODELS if model.is_target is (spec_type is None)]
    named = [model for model in candidates if model.name == name]
    if not named:
        known = ", ".join(dict.fromkeys(model.name for model in candidates))
        raise UnsupportedError(f"{name}: no shipped model, expected one of {known}")
    for model in named:
        if spec_type in (None, model.spec_type):
            return model.path
    known = ", ".join(str(model.spec_type) for model in named)
    raise UnsupportedError(f"{name}: no shipped drafter for {spec_type}, expected one of {known}")
