"""Drafters: what proposes tokens. `DRAFTERS` is the only list of types.

Option choices, help, `--spec-type`, detection from a draft file, limits, construction and tests all read it. A new type
is one module and one row; modules are imported when a drafter is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specli.drafters.config import SpeculationConfig

if TYPE_CHECKING:
    from specli.drafters.base import Drafter
    from specli.drafters.vocabulary import Vocabulary
    from specli.gguf.file import GGUFFile
    from specli.kernels.ops import Executor
    from specli.models.base import Model, ModelOptions


@dataclass(frozen=True, eq=False)
class DrafterInputs:
    """What checks and constructors may use. The draft fields are there if the row has `needs_draft_file`.

    Attributes:
        config: Settings of all types.
        target_file: The target's file.
        vocabulary: The target's tokenizer.
        target: The loaded target; None while only `check` is called.
        draft_file: The draft file.
        draft_vocabulary: The tokenizer in the draft file, if there is one.
        executor: Runs the draft network. Taken over by the drafter.
        options: Capacity, cache types and batch size of the draft network.
    """

    config: SpeculationConfig
    target_file: GGUFFile
    vocabulary: Vocabulary
    target: Model | None = None
    draft_file: GGUFFile | None = None
    draft_vocabulary: Vocabulary | None = None
    executor: Executor | None = None
    options: ModelOptions | None = None


def _accept_any(inputs: DrafterInputs) -> None:
    """Nothing to check."""


def _never(file: GGUFFile) -> bool:
    """No draft file means this type."""
    return False


def _no_taps(file: GGUFFile) -> tuple[int, ...]:
    """No hidden states of the target."""
    return ()


def _no_limit(file: GGUFFile) -> int | None:
    """Drafts of any length."""
    return None


@dataclass(frozen=True)
class DrafterSpec:
    """One type of drafter.

    Attributes:
        name: Spelling in `--spec-type` and in statistics.
        summary: One line for help.
        max_draft: Configured maximum draft length, tokens; reserves the target's outputs before the drafter exists.
        build: Makes the drafter.
        options: Command-line options it reads.
        needs_draft_file: It reads a draft GGUF.
        check: Refuses a pair that does not fit by metadata, before weights are read.
        detects: Whether a draft file is of this type.
        taps: Boundaries of the target whose hidden states a draft file's network reads (`ModelOptions.taps`).
        reads_nextn: It reads the target's state for MTP heads (`ModelOptions.nextn`).
        limit: Longest draft that a draft file's network can make, or None if it has no limit.
        serves_itself: Without a draft file it reads the target's own file, which may have heads.
    """

    name: str
    summary: str
    max_draft: Callable[[SpeculationConfig], int]
    build: Callable[[DrafterInputs], Drafter]
    options: tuple[str, ...]
    needs_draft_file: bool = False
    check: Callable[[DrafterInputs], None] = _accept_any
    detects: Callable[[GGUFFile], bool] = _never
    taps: Callable[[GGUFFile], tuple[int, ...]] = _no_taps
    reads_nextn: bool = False
    limit: Callable[[GGUFFile], int | None] = _no_limit
    serves_itself: bool = False

    def draft_length(self, config: SpeculationConfig, file: GGUFFile | None) -> int:
        """`max_draft`, or less if the draft file's network is limited."""
        configured = self.max_draft(config)
        if file is None or not self.detects(file):  # `check` will say what does not fit
            return configured
        limit = self.limit(file)
        return configured if limit is None else min(configured, limit)

    @property
    def length_option(self) -> str | None:
        """The option that bounds its drafts; None if their length is fixed."""
        return next((option for option in self.options if option.endswith(("-n-max", "-size-m"))), None)


def _build_ngram_simple(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.ngram import NgramDrafter
    from specli.drafters.ngram_simple import NgramSimple

    return NgramDrafter(lambda: NgramSimple(inputs.config.ngram_simple))


def _build_ngram_map_k(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.ngram import NgramDrafter
    from specli.drafters.ngram_map import NgramMapK

    return NgramDrafter(lambda: NgramMapK(inputs.config.ngram_map_k))


def _build_ngram_map_k4v(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.ngram import NgramDrafter
    from specli.drafters.ngram_map import NgramMapK4V

    return NgramDrafter(lambda: NgramMapK4V(inputs.config.ngram_map_k4v))


def _build_ngram_mod(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.ngram import NgramDrafter
    from specli.drafters.ngram_mod import NgramMod

    return NgramDrafter(lambda: NgramMod(inputs.config.ngram_mod))


def _build_ngram_cache(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.ngram import NgramDrafter
    from specli.drafters.ngram_cache import LookupFiles, NgramCache

    files = LookupFiles(
        n_vocab=inputs.vocabulary.n_vocab,
        static=inputs.config.lookup_cache_static,
        dynamic=inputs.config.lookup_cache_dynamic,
    )
    return NgramDrafter(lambda: NgramCache(files))


def _ngram_cache_length(config: SpeculationConfig) -> int:
    from specli.drafters.ngram_cache import N_DRAFT

    return N_DRAFT


def _build_simple(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.simple import DraftSimple
    from specli.models import load_model

    assert inputs.draft_file is not None
    assert inputs.executor is not None
    assert inputs.options is not None
    model = load_model(inputs.draft_file, inputs.executor, inputs.options)
    return DraftSimple(model, inputs.config.draft, n_vocab=inputs.vocabulary.n_vocab)


def _check_simple(inputs: DrafterInputs) -> None:
    from specli.drafters.vocabulary import check_vocabularies
    from specli.errors import IncompatibleError
    from specli.models import DRAFT_ARCHITECTURES, model_class

    file = inputs.draft_file
    assert file is not None
    if file.architecture in DRAFT_ARCHITECTURES:
        raise IncompatibleError(
            f"{file.path}: architecture {file.architecture} reads hidden states, draft-simple needs a whole model"
        )
    model_class(file).check(file)
    assert inputs.draft_vocabulary is not None
    check_vocabularies(
        inputs.vocabulary, inputs.draft_vocabulary, target_path=inputs.target_file.path, draft_path=file.path
    )


def _build_eagle3(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.eagle3 import build_eagle3

    return build_eagle3(inputs)


def _check_eagle3(inputs: DrafterInputs) -> None:
    from specli.drafters.eagle3 import check_eagle3

    check_eagle3(inputs)


def _eagle3_taps(file: GGUFFile) -> tuple[int, ...]:
    from specli.models.eagle3 import taps_of

    return taps_of(file)


def _build_mtp(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.mtp import build_mtp

    return build_mtp(inputs)


def _check_mtp(inputs: DrafterInputs) -> None:
    from specli.drafters.mtp import check_mtp

    check_mtp(inputs)


def _is_mtp(file: GGUFFile) -> bool:
    from specli.drafters.mtp import is_mtp

    return is_mtp(file)


def _mtp_length(file: GGUFFile) -> int | None:
    from specli.drafters.mtp import draft_limit

    return draft_limit(file)


def _build_dflash(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.dflash import DFlash, build_network

    return DFlash(*build_network(inputs))


def _check_dflash(inputs: DrafterInputs) -> None:
    from specli.drafters.dflash import DFlash, check_block

    check_block(inputs, DFlash.name)


def _build_dspark(inputs: DrafterInputs) -> Drafter:
    from specli.drafters.dflash import build_network
    from specli.drafters.dspark import DSpark

    return DSpark(*build_network(inputs))


def _check_dspark(inputs: DrafterInputs) -> None:
    from specli.drafters.dspark import check_dspark

    check_dspark(inputs)


def _dflash_taps(file: GGUFFile) -> tuple[int, ...]:
    from specli.models.dflash_config import taps_of

    return taps_of(file)


def _dflash_length(file: GGUFFile) -> int:
    from specli.models.dflash_config import DFlashConfig

    return DFlashConfig.from_gguf(file).max_draft


def _is_dspark(file: GGUFFile) -> bool:
    """A DFlash network with a Markov head."""
    return file.architecture == "dflash" and "markov_w1.weight" in file.tensors


def _is_plain_model(file: GGUFFile) -> bool:
    """A target architecture without MTP layers. llama.cpp never infers draft-simple."""
    from specli.models import ARCHITECTURES

    return file.architecture in ARCHITECTURES and not any(".nextn." in name for name in file.tensors)


DRAFT_OPTIONS = ("--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min")

_ROWS = (  # highest priority first (speculation.md §1.2)
    DrafterSpec(
        name="ngram-simple",
        summary="repeats what followed the latest earlier occurrence of the newest n-gram",
        max_draft=lambda config: config.ngram_simple.size_m,
        build=_build_ngram_simple,
        options=("--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m"),
    ),
    DrafterSpec(
        name="ngram-map-k",
        summary="as ngram-simple, with a hash table, and shorter drafts where little was accepted before",
        max_draft=lambda config: config.ngram_map_k.size_m,
        build=_build_ngram_map_k,
        options=("--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m"),
    ),
    DrafterSpec(
        name="ngram-map-k4v",
        summary="as ngram-map-k, only where one of up to four continuations clearly leads",
        max_draft=lambda config: config.ngram_map_k4v.size_m,
        build=_build_ngram_map_k4v,
        options=("--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"),
    ),
    DrafterSpec(
        name="ngram-mod",
        summary="walks a pool of hashed n-grams, token by token",
        max_draft=lambda config: max(0, config.ngram_mod.n_max),
        build=_build_ngram_mod,
        options=("--spec-ngram-mod-n-match", "--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max"),
    ),
    DrafterSpec(
        name="ngram-cache",
        summary="the likeliest next tokens by counts of n-grams of up to 4 tokens, also from lookup files",
        max_draft=_ngram_cache_length,
        build=_build_ngram_cache,
        options=("--lookup-cache-static", "--lookup-cache-dynamic"),
    ),
    DrafterSpec(
        name="draft-simple",
        summary="a smaller model with the target's vocabulary",
        max_draft=lambda config: max(1, config.draft.n_max),
        build=_build_simple,
        options=(*DRAFT_OPTIONS, "--spec-draft-sampling"),
        needs_draft_file=True,
        check=_check_simple,
        detects=_is_plain_model,
    ),
    DrafterSpec(
        name="draft-eagle3",
        summary="one layer that reads fused hidden states of the target, then its own (EAGLE-3)",
        max_draft=lambda config: max(1, config.draft.n_max),
        build=_build_eagle3,
        options=(*DRAFT_OPTIONS, "--spec-draft-sampling"),
        needs_draft_file=True,
        check=_check_eagle3,
        detects=lambda file: file.architecture == "eagle3",
        taps=_eagle3_taps,
    ),
    DrafterSpec(
        name="draft-mtp",
        summary="heads that were trained with the target and read its last hidden state, then their own (MTP)",
        max_draft=lambda config: max(1, config.draft.n_max),
        build=_build_mtp,
        options=(*DRAFT_OPTIONS, "--spec-draft-sampling"),
        needs_draft_file=True,
        serves_itself=True,
        check=_check_mtp,
        detects=_is_mtp,
        reads_nextn=True,
        limit=_mtp_length,
    ),
    DrafterSpec(
        name="draft-dflash",
        summary="a block of tokens filled in one pass, from fused hidden states of the target (DFlash)",
        max_draft=lambda config: max(0, config.draft.n_max),
        build=_build_dflash,
        options=(*DRAFT_OPTIONS, "--spec-draft-sampling"),
        needs_draft_file=True,
        check=_check_dflash,
        detects=lambda file: file.architecture == "dflash" and not _is_dspark(file),
        taps=_dflash_taps,
        limit=_dflash_length,
    ),
    DrafterSpec(
        name="draft-dspark",
        summary="as draft-dflash, each token after the one before it, cut by predicted confidence (DSpark)",
        max_draft=lambda config: max(0, config.draft.n_max),
        build=_build_dspark,
        options=(*DRAFT_OPTIONS, "--spec-draft-survival", "--spec-draft-sampling"),
        needs_draft_file=True,
        check=_check_dspark,
        detects=_is_dspark,
        taps=_dflash_taps,
        limit=_dflash_length,
    ),
)
DRAFTERS: Mapping[str, DrafterSpec] = {row.name: row for row in _ROWS}


def detect_type(file: GGUFFile) -> str | None:
    """The type a draft file is of, or None if no type knows it."""
    return next((spec.name for spec in DRAFTERS.values() if spec.detects(file)), None)
