"""The models that ship with specli: a small target and one drafter of each type that has a network.

`train` holds the code that made them; `data/LICENSE.md` says what they learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specli.errors import UnsupportedError

DATA = Path(__file__).parent / "data"
NAME = "demo"
"""What `-m` and `-md` call them."""
LICENCE = "MIT; trained on text under the PSF licence"


@dataclass(frozen=True)
class DemoModel:
    """One shipped file.

    Attributes:
        file: Name in `DATA`.
        spec_type: `--spec-type` it serves as drafter, or None for the target.
        summary: What it is.
        n_params: Weights in the file.
        n_max: Longest draft it was trained for, tokens; 0 for the target.
        acceptance: Mean acceptance length, the bonus token included: greedy, n_max, 12 held-out prompts of each of six
            kinds, up to 160 tokens, on this file with `python -m specli.demo.train report`. 1 for the target.
    """

    file: str
    spec_type: str | None
    summary: str
    n_params: int
    n_max: int = 0
    acceptance: float = 1.0
    licence: str = LICENCE

    @property
    def path(self) -> Path:
        """Where it lies."""
        return DATA / self.file

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size


MODELS = (
    DemoModel("target.gguf", None, "target: Qwen3, 8 layers, 4096 tokens, chat template", 0),
    DemoModel("simple.gguf", "draft-simple", "Qwen3, 2 layers, same tokens", 0, n_max=4),
    DemoModel("eagle3.gguf", "draft-eagle3", "EAGLE-3, draft vocabulary 2048, taps 2, 5, 7", 0, n_max=4),
    DemoModel("dflash.gguf", "draft-dflash", "DFlash, 2 layers, block 8, taps 2, 5, 7", 0, n_max=7),
    DemoModel("dspark.gguf", "draft-dspark", "DSpark, 2 layers, block 7, confidence head", 0, n_max=7),
)


def resolve(name: str, spec_type: str | None = None) -> Path:
    """The shipped file for `-m demo` (no type) or `-md demo` (the type that drafts).

    Args:
        name: What was given as model; only `NAME` is known.
        spec_type: One drafter type.

    Raises:
        UnsupportedError: Nothing ships under that name or for that type.
    """
    if name != NAME:
        raise UnsupportedError(f"{name}: no shipped model, expected {NAME}")
    for model in MODELS:
        if model.spec_type == spec_type:
            return model.path
    known = ", ".join(model.spec_type for model in MODELS if model.spec_type)
    raise UnsupportedError(f"{NAME}: no drafter for {spec_type}, expected one of {known}")
