"""Drafters: what proposes tokens. `DRAFTERS` is the only list of types.

Options and their help, the words of `--spec-type`, completion, detection from a draft file, limits, construction, the
settings that a search varies, and tests all read it. A new table is one module and one row; modules are imported when
a drafter is built.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from specli.drafters.settings import AUTO_LENGTH, DraftConfig, SpeculationConfig
from specli.errors import UsageError

if TYPE_CHECKING:
    from specli.drafters.base import Drafter
    from specli.drafters.vocabulary import ComparedVocabulary
    from specli.gguf.file import GGUFFile
    from specli.kernels.ops import Executor
    from specli.models.base import Model, ModelOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """One setting of drafters, with everything that options, help, a search and constructors need to know.

    Attributes:
        name: Keyword of the constructor, or field of `DraftConfig`.
        options: Spellings on the command line.
        help: One sentence, no full stop.
        default: The value of a table's setting that nobody set.
        kind: What its values are.
        low: Smallest integer allowed; None = any.
        high: Largest integer allowed.
        error: What the user reads about an integer outside of these.
        words: How the command line says off and on; () = the option is a flag.
        negative: Spellings that switch a flag off.
        env: Environment variable.
        tries: Values that a search tries, in order.
        is_length: It bounds the draft.
        at_most: The setting that this one must not exceed, since no draft would ever be long enough.
        needs: Another setting without which this one has no effect.
        idle: Why it has no effect at all; the constructor does not get it.
        auto: The integer that the word `auto` stands for; None = there is no such word.
    """

    name: str
    options: tuple[str, ...]
    help: str
    default: Any = None
    kind: Literal["integer", "number", "flag", "path"] = "integer"
    low: int | None = None
    high: int | None = None
    error: str = "invalid value"
    words: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    env: str | None = None
    tries: tuple[float, ...] = ()
    is_length: bool = False
    at_most: str | None = None
    needs: str | None = None
    idle: str | None = None
    auto: int | None = None

    @property
    def option(self) -> str:
        """The spelling to name it by: the first long one."""
        return next(spelling for spelling in self.options if spelling.startswith("--"))


@dataclass(frozen=True, eq=False)
class FilePair:
    """A target and the file of a draft network, before weights are read.

    Attributes:
        config: Settings of all types.
        target_file: The target's file.
        vocabulary: The target's tokenizer.
        file: The network's file, which is the target's own if the network lies in there.
        draft_vocabulary: The tokenizer in the draft file, if there is one.
    """

    config: SpeculationConfig
    target_file: GGUFFile
    vocabulary: ComparedVocabulary
    file: GGUFFile
    draft_vocabulary: ComparedVocabulary | None = None


@dataclass(frozen=True, eq=False)
class NetworkParts:
    """What the drafter of a checked pair is made of.

    Attributes:
        pair: The files.
        draft: Settings in force; `n_max` is the longest draft the drafter makes.
        target: The loaded target.
        executor: Runs the draft network. Taken over by the drafter.
        options: Capacity, cache types and batch size of the draft network.
    """

    pair: FilePair
    draft: DraftConfig
    target: Model
    executor: Executor
    options: ModelOptions


@dataclass(frozen=True)
class TableParts:
    """What a table is made of.

    Attributes:
        n_draft: Most tokens of a draft.
        n_vocab: Tokens of the target.
        values: Its other settings by name, those without effect aside.
        shared_pool: Sequences share a table that can be shared.
    """

    n_draft: int
    n_vocab: int
    values: Mapping[str, Any]
    shared_pool: bool = False


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(ABC):
    """One type of drafter.

    Attributes:
        name: Spelling in `--spec-type` and in statistics.
        summary: One line for help.
        settings: What it reads of the configuration.
        n_least: Shortest draft length that it can be made for, a smaller setting counts as this one; the length of all
            its drafts if no setting bounds them.
    """

    name: str
    summary: str
    settings: tuple[Setting, ...]
    n_least: int = 0

    @property
    @abstractmethod
    def record(self) -> str:
        """Path through `SpeculationConfig` to its settings."""

    @abstractmethod
    def values(self, config: SpeculationConfig) -> dict[str, Any]:
        """Its settings in force, by name."""

    @abstractmethod
    def with_values(self, config: SpeculationConfig, values: Mapping[str, Any]) -> SpeculationConfig:
        """The configuration with other values of some of its settings."""

    @property
    def length(self) -> Setting | None:
        """The setting that bounds its drafts; None if their length is fixed."""
        return next((setting for setting in self.settings if setting.is_length), None)

    def max_draft(self, config: SpeculationConfig) -> int:
        """Longest draft that its settings allow, tokens."""
        return max(self.n_least, self.values(config)[self.length.name]) if self.length else self.n_least

    def draft_length(self, config: SpeculationConfig, file: GGUFFile) -> int:
        """`max_draft`, or less if the network in the file is limited."""
        return self.max_draft(config)

    def with_length(self, config: SpeculationConfig, length: int) -> SpeculationConfig:
        """The configuration with drafts of at most `length` tokens, if they can be bounded."""
        values = self.values(config)
        if self.length:
            values[self.length.name] = length
        for setting in self.settings:
            if setting.at_most:
                values[setting.name] = min(values[setting.name], values[setting.at_most])
        return self.with_values(config, values)

    def is_sound(self, config: SpeculationConfig) -> bool:
        """Whether a draft can be long enough."""
        values = self.values(config)
        return all(
            not setting.at_most
            or values[setting.at_most] == AUTO_LENGTH
            or values[setting.name] <= values[setting.at_most]
            for setting in self.settings
        )


@dataclass(frozen=True, kw_only=True)
class TableSpec(DrafterSpec):
    """A type without a network: tables of n-grams.

    Attributes:
        build: Makes the drafter.
        n_bytes: Memory that it takes from the start.
        can_share: One table can serve all sequences.
    """

    build: Callable[[TableParts], Drafter]
    n_bytes: int = 0
    can_share: bool = False

    @property
    def record(self) -> str:
        """A record of its own."""
        return f"tables.{self.name}"

    def values(self, config: SpeculationConfig) -> dict[str, Any]:
        """Its settings in force, by name.

        Raises:
            UsageError: The configuration has a setting that the type does not have.
        """
        values, given = table_defaults(self), config.tables.get(self.name, {})
        unknown = next((name for name in given if name not in values), None)
        if unknown is not None:
            raise UsageError(f"{self.name} has no setting {unknown}, expected one of {', '.join(values)}")
        return {**values, **given}

    def with_values(self, config: SpeculationConfig, values: Mapping[str, Any]) -> SpeculationConfig:
        """The configuration with other values of some of its settings."""
        return replace(config, tables={**config.tables, self.name: {**self.values(config), **values}})

    def make(self, config: SpeculationConfig, n_vocab: int) -> Drafter:
        """The drafter for a target with `n_vocab` tokens."""
        values = self.values(config)
        kept = {item.name: values[item.name] for item in self.settings if not item.idle and not item.is_length}
        return self.build(TableParts(self.max_draft(config), n_vocab, kept, self.can_share and config.shared_pool))


@dataclass(frozen=True, kw_only=True)
class NetworkSpec(DrafterSpec):
    """A type with a draft network.

    Attributes:
        check: Refuses a pair that does not fit by metadata, before weights are read.
        build: Makes the drafter of a pair that was checked.
        detects: Whether a draft file is of this type.
        taps: Boundaries of the target whose hidden states a draft file's network reads (`ModelOptions.taps`).
        reads_nextn: It reads the target's state for MTP heads (`ModelOptions.nextn`).
        limit: Longest draft that a draft file's network can make, or None if it has no limit.
        limited_by: What limits it.
        auto_length: Draft length `auto` where the file names no limit, tokens; about what such are trained for.
        serves_itself: Without a draft file it reads the target's own file, which may have heads.
        is_block: All tokens of a draft are made in one pass, which takes the same time for any number of them.
        shares_tokens: Its network is a whole model, whose tokens have to be the target's.
    """

    check: Callable[[FilePair], None]
    build: Callable[[NetworkParts], Drafter]
    detects: Callable[[GGUFFile], bool]
    taps: Callable[[GGUFFile], tuple[int, ...]] = lambda file: ()
    reads_nextn: bool = False
    limit: Callable[[GGUFFile], int | None] = lambda file: None
    limited_by: str = ""
    auto_length: int = 8
    serves_itself: bool = False
    is_block: bool = False
    shares_tokens: bool = False

    @property
    def record(self) -> str:
        """The record that all networks share."""
        return "draft"

    def values(self, config: SpeculationConfig) -> dict[str, Any]:
        """Its settings in force, by name."""
        return {setting.name: getattr(config.draft, setting.name) for setting in self.settings}

    def with_values(self, config: SpeculationConfig, values: Mapping[str, Any]) -> SpeculationConfig:
        """The configuration with other values of some of its settings."""
        return replace(config, draft=replace(config.draft, **values))

    def max_draft(self, config: SpeculationConfig) -> int:
        """Longest draft that its settings allow, tokens; of `auto` the length without a limit."""
        return self.auto_length if config.draft.n_max == AUTO_LENGTH else super().max_draft(config)

    def draft_length(self, config: SpeculationConfig, file: GGUFFile) -> int:
        """`max_draft`, or less if the network in the file is limited; of `auto` just that limit."""
        configured = self.max_draft(config)
        limit = self.limit(file) if self.detects(file) else None  # `check` will say what does not fit
        if limit is None:
            return configured
        return limit if config.draft.n_max == AUTO_LENGTH else min(configured, limit)

    def warn_of_limit(self, config: SpeculationConfig, file: GGUFFile) -> None:
        """Says so where drafts are shorter than asked for."""
        n_asked, n_draft = self.max_draft(config), self.draft_length(config, file)
        if n_asked > n_draft and config.draft.n_max != AUTO_LENGTH:
            log.warning("requested draft size %d exceeds %s -- clamping to %d", n_asked, self.limited_by, n_draft)


def table_defaults(spec: DrafterSpec) -> dict[str, Any]:
    """Settings of a table that nobody set, by name."""
    return {setting.name: setting.default for setting in spec.settings}


def default_speculation() -> SpeculationConfig:
    """The configuration of a command for which nothing was set, with every setting of every type spelled out."""
    return SpeculationConfig(
        adaptive=True, tables={name: table_defaults(DRAFTERS[name]) for name in tables_of(DRAFTERS)}
    )


def networks_of(types: Iterable[str]) -> list[str]:
    """Those of some types that have a network."""
    return [name for name in types if isinstance(DRAFTERS.get(name), NetworkSpec)]


def tables_of(types: Iterable[str]) -> list[str]:
    """Those of some types that have none."""
    return [name for name in types if isinstance(DRAFTERS.get(name), TableSpec)]


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of `specli.MODULE` that is imported when it is called."""
    return lambda *arguments: getattr(import_module(f"specli.{module}"), name)(*arguments)


def _table(module: str, name: str) -> Callable[[TableParts], Drafter]:
    """Makes drafters of a table class of `specli.drafters` that takes `n_draft` and the settings as keywords."""

    def build(parts: TableParts) -> Drafter:
        from specli.drafters.ngram import NgramDrafter

        table = getattr(import_module(f"specli.drafters.{module}"), name)
        return NgramDrafter(lambda: table(n_draft=parts.n_draft, **parts.values))

    return build


def _is_dspark(file: GGUFFile) -> bool:
    """A DFlash network with a Markov head."""
    return file.architecture == "dflash" and "markov_w1.weight" in file.tensors


def _is_plain_model(file: GGUFFile) -> bool:
    """A target architecture without MTP layers. llama.cpp never infers draft-simple."""
    from specli.models import ARCHITECTURES

    return file.architecture in ARCHITECTURES and not any(".nextn." in name for name in file.tensors)


KEYS = (2, 3, 4, 6, 8, 12, 16, 24)
SPANS = (2, 4, 8, 16, 32, 48, 64)


def _map_settings(name: str, *, counts_hits: bool = False) -> tuple[Setting, ...]:
    """The three sizes of ngram-simple, ngram-map-k or ngram-map-k4v."""
    return (
        Setting(
            "size_n", (f"--spec-{name}-size-n",), f"{name}: tokens looked up", 12, low=1, high=1024,
            error="ngram size N must be between 1 and 1024 inclusive", tries=KEYS,
        ),
        Setting(
            "size_m", (f"--spec-{name}-size-m",), f"{name}: tokens proposed after a match", 48, low=1, high=1024,
            error="ngram size M must be between 1 and 1024 inclusive", tries=SPANS, is_length=True,
        ),
        Setting(
            "min_hits", (f"--spec-{name}-min-hits",),
            f"{name}: {'matches seen before a draft is made' if counts_hits else 'no effect, as in llama.cpp'}",
            1, low=1, high=65535, error="ngram min hits must be at least 1",
            tries=(1, 2, 3) if counts_hits else (), idle=None if counts_hits else "only ngram-map-k4v counts hits",
        ),
    )  # fmt: skip


_DRAFT_SETTINGS = (
    Setting(
        "n_max", ("--spec-draft-n-max",),
        "most tokens a draft network proposes per round, up to 1024; auto = as many as it was made for",
        low=0, high=1024, env="LLAMA_ARG_SPEC_DRAFT_N_MAX", tries=(1, 2, 3, 4, 5, 6, 8, 12, 16), is_length=True,
        auto=AUTO_LENGTH,
    ),
    Setting(
        "n_min", ("--spec-draft-n-min",), "shorter drafts of a network are dropped, unless they are sampled",
        env="LLAMA_ARG_SPEC_DRAFT_N_MIN", at_most="n_max",
    ),
    Setting(
        "p_min", ("--spec-draft-p-min", "--draft-p-min", "--spec-draft-conf-min"),
        "a draft ends before a token less probable than this; the confidence threshold of draft-dspark",
        kind="number", env="LLAMA_ARG_SPEC_DRAFT_P_MIN", tries=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    ),
    Setting(
        "probabilistic", ("--spec-draft-sampling",),
        "how drafts are verified at temperature > 0: same sampled token, or rejection",
        kind="flag", words=("greedy", "probabilistic"), env="LLAMA_ARG_SPEC_DRAFT_SAMPLING",
    ),
    Setting(
        "tree", ("--spec-draft-tree",),
        "drafts of a network are trees of so many tokens at most, as deep as the draft length; 0 = chains",
        low=0, high=1024,
    ),
    Setting(
        "p_split", ("--spec-draft-p-split", "--draft-p-split"),
        "draft trees: a token beside the likeliest one is tried if it is more probable than this",
        kind="number", env="LLAMA_ARG_SPEC_DRAFT_P_SPLIT", needs="tree",
    ),
)  # fmt: skip
_SURVIVAL = Setting(
    "survival", ("--spec-draft-survival",),
    "draft-dspark: the threshold bounds the chance that the draft stands up to a token, not that of the token",
    kind="flag", negative=("--no-spec-draft-survival",), needs="p_min",
)  # fmt: skip
_MOD_SETTINGS = (
    Setting(
        "n_match", ("--spec-ngram-mod-n-match",), "ngram-mod: tokens looked up", 24, low=1, high=1024,
        error="ngram size N must be between 1 and 1024 inclusive", tries=KEYS,
    ),
    Setting(
        "n_min", ("--spec-ngram-mod-n-min",), "ngram-mod: shorter drafts are dropped", 48, low=0, high=1024,
        error="ngram n-min must be between 0 and 1024 inclusive", tries=(0, 2, 4, 8, 16, 32, 48), at_most="n_max",
    ),
    Setting(
        "n_max", ("--spec-ngram-mod-n-max",), "ngram-mod: most tokens proposed", 64, low=0, high=1024,
        error="ngram n-max must be between 0 and 1024 inclusive", tries=SPANS, is_length=True,
    ),
)  # fmt: skip
_CACHE_SETTINGS = (
    Setting(
        "static", ("-lcs", "--lookup-cache-static"), "ngram-cache: file of n-grams that stays as it is", kind="path"
    ),
    Setting(
        "dynamic", ("-lcd", "--lookup-cache-dynamic"), "ngram-cache: file of n-grams that earlier generations left",
        kind="path",
    ),
)  # fmt: skip

_ROWS: tuple[DrafterSpec, ...] = (  # highest priority first, as in llama.cpp `common/speculative.cpp`
    TableSpec(
        name="ngram-simple",
        summary="repeats what followed the latest earlier occurrence of the newest n-gram",
        settings=_map_settings("ngram-simple"),
        build=_table("ngram_simple", "NgramSimple"),
    ),
    TableSpec(
        name="ngram-map-k",
        summary="as ngram-simple, with a hash table, and shorter drafts where little was accepted before",
        settings=_map_settings("ngram-map-k"),
        build=_table("ngram_map", "NgramMapK"),
    ),
    TableSpec(
        name="ngram-map-k4v",
        summary="as ngram-map-k, only where one of up to four continuations clearly leads",
        settings=_map_settings("ngram-map-k4v", counts_hits=True),
        build=_table("ngram_map", "NgramMapK4V"),
    ),
    TableSpec(
        name="ngram-mod",
        summary="walks a pool of hashed n-grams, token by token",
        settings=_MOD_SETTINGS,
        build=_later("drafters.ngram_mod", "build_ngram_mod"),
        n_bytes=1 << 24,
        can_share=True,
    ),
    TableSpec(
        name="ngram-cache",
        summary="the likeliest next tokens by counts of n-grams of up to 4 tokens, also from lookup files",
        settings=_CACHE_SETTINGS,
        n_least=8,
        build=_later("drafters.ngram_cache", "build_ngram_cache"),
    ),
    NetworkSpec(
        name="draft-simple",
        summary="a smaller model with the target's vocabulary",
        auto_length=16,
        settings=_DRAFT_SETTINGS,
        n_least=1,
        check=_later("drafters.simple", "check_simple"),
        build=_later("drafters.simple", "build_simple"),
        detects=_is_plain_model,
        shares_tokens=True,
    ),
    NetworkSpec(
        name="draft-eagle3",
        summary="one layer that reads fused hidden states of the target, then its own (EAGLE-3)",
        settings=_DRAFT_SETTINGS,
        n_least=1,
        check=_later("drafters.eagle3", "check_eagle3"),
        build=_later("drafters.eagle3", "build_eagle3"),
        detects=lambda file: file.architecture == "eagle3",
        taps=_later("models.draft", "taps_of"),
    ),
    NetworkSpec(
        name="draft-mtp",
        summary="heads that were trained with the target and read its last hidden state, then their own (MTP)",
        settings=_DRAFT_SETTINGS,
        n_least=1,
        check=_later("drafters.mtp", "check_mtp"),
        build=_later("drafters.mtp", "build_mtp"),
        detects=_later("drafters.mtp", "is_mtp"),
        reads_nextn=True,
        limit=_later("drafters.mtp", "draft_limit"),
        limited_by="the number of MTP heads",
        serves_itself=True,
    ),
    NetworkSpec(
        name="draft-dflash",
        summary="a block of tokens filled in one pass, from fused hidden states of the target (DFlash)",
        settings=_DRAFT_SETTINGS,
        check=_later("drafters.dflash", "check_dflash"),
        build=_later("drafters.dflash", "build_dflash"),
        detects=lambda file: file.architecture == "dflash" and not _is_dspark(file),
        taps=_later("models.draft", "taps_of"),
        limit=_later("models.dflash_config", "draft_limit"),
        is_block=True,
        limited_by="the trained block size",
    ),
    NetworkSpec(
        name="draft-dspark",
        summary="as draft-dflash, each token after the one before it, cut by predicted confidence (DSpark)",
        settings=(*_DRAFT_SETTINGS, _SURVIVAL),
        check=_later("drafters.dspark", "check_dspark"),
        build=_later("drafters.dspark", "build_dspark"),
        detects=_is_dspark,
        taps=_later("models.draft", "taps_of"),
        limit=_later("models.dflash_config", "draft_limit"),
        is_block=True,
        limited_by="the trained block size",
    ),
    # not llama.cpp's
    NetworkSpec(
        name="draft-eagle",
        summary="one layer that reads the target's last hidden state, then its own (EAGLE-1, EAGLE-2, HASS)",
        settings=_DRAFT_SETTINGS,
        n_least=1,
        check=_later("drafters.eagle", "check_eagle"),
        build=_later("drafters.eagle", "build_eagle"),
        detects=lambda file: file.architecture == "eagle",
        taps=_later("models.draft", "taps_of"),
    ),
    NetworkSpec(
        name="draft-medusa",
        summary="heads that each write one token from the target's last hidden state (Medusa)",
        settings=_DRAFT_SETTINGS,
        n_least=1,
        check=_later("drafters.medusa", "check_medusa"),
        build=_later("drafters.medusa", "build_medusa"),
        detects=lambda file: file.architecture == "medusa",
        taps=_later("models.draft", "taps_of"),
        limit=_later("models.medusa", "draft_limit"),
        limited_by="the number of Medusa heads",
    ),
)
DRAFTERS: Mapping[str, DrafterSpec] = {row.name: row for row in _ROWS}


def detect_type(file: GGUFFile) -> str | None:
    """The type a draft file is of, or None if no type knows it."""
    return next((row.name for row in DRAFTERS.values() if isinstance(row, NetworkSpec) and row.detects(file)), None)
