"""Which drafters run on a target: chosen, checked by metadata, built, and what the target must offer them.

Checks come before weights: a `DrafterPlan` holds open files and passed checks, `DrafterSet` what was built of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from specli.drafters import (
    DRAFTERS,
    DrafterSpec,
    FilePair,
    NetworkParts,
    NetworkSpec,
    TableSpec,
    detect_type,
    networks_of,
)
from specli.drafters.adaptive import TABLE_PRIOR, AdaptiveLengths, DrafterTraits
from specli.drafters.base import Drafter
from specli.drafters.chain import DrafterChain
from specli.drafters.costs import RowCosts
from specli.drafters.pairing import context_doubt, target_config
from specli.drafters.vocabulary import check_texts, vocabulary_doubts
from specli.engine.config import ModelLoadConfig, RunConfig
from specli.engine.memory import NetworkMemory
from specli.engine.placement import executor_of, weight_lines
from specli.engine.plan import memory_for
from specli.engine.verify import SyntheticRates, VerifyRule, lossless_rule, resolve_synthetic, synthetic_rule
from specli.errors import IncompatibleError, UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.origin import other_target
from specli.gguf.quant import QuantType
from specli.kernels.counting import CountingExecutor
from specli.kernels.ops import Executor
from specli.models.base import Model, ModelOptions
from specli.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Report = Callable[[str], None]

DEFAULT_CACHE_TYPE = "f16"


@dataclass(frozen=True)
class TargetNeeds:
    """What drafters ask of the target they run on.

    Attributes:
        max_draft: Longest draft, tokens; of a tree all its nodes.
        taps: Boundaries whose hidden states they read.
        reads_nextn: They read the state of MTP heads.
        tree_depth: Levels of their draft trees; 0 = drafts are chains.
    """

    max_draft: int = 0
    taps: tuple[int, ...] = ()
    reads_nextn: bool = False
    tree_depth: int = 0

    @classmethod
    def union(cls, needs: Iterable[TargetNeeds]) -> TargetNeeds:
        """What several sets of drafters ask together.

        Raises:
            UsageError: Two of them read different hidden states; only one such choice can be captured.
        """
        needs = list(needs)
        taps = {need.taps for need in needs if need.taps}
        if len(taps) > 1:
            raise UsageError("drafters that read different hidden states cannot share a target")
        return cls(
            max((need.max_draft for need in needs), default=0),
            next(iter(taps), ()),
            any(need.reads_nextn for need in needs),
            max((need.tree_depth for need in needs), default=0),
        )

    def covers(self, other: TargetNeeds) -> bool:
        """Whether a target made for these needs serves the other ones, too."""
        return (
            self.max_draft >= other.max_draft
            and other.taps in ((), self.taps)
            and self.reads_nextn >= other.reads_nextn
            and self.tree_depth >= other.tree_depth
        )


@dataclass(frozen=True, eq=False)
class DrafterPlan:
    """Drafters that were chosen and fit the target by metadata.

    Attributes:
        config: What asked for them.
        specs: Their rows, in priority order.
        lines: One line per drafter that says why it runs.
        pair: The target, and the file that networks are read from.
        tokenizer: The target's.
        vocabulary_lines: What speaks against the tokens of the draft file, although it fits.
    """

    config: RunConfig
    specs: tuple[DrafterSpec, ...]
    lines: tuple[str, ...]
    pair: FilePair
    tokenizer: Tokenizer
    vocabulary_lines: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[NetworkSpec, ...]:
        """Those of the rows that have a network."""
        return tuple(spec for spec in self.specs if isinstance(spec, NetworkSpec))

    def tables(self) -> list[Drafter]:
        """New drafters of the rows that have no network."""
        tables = [spec for spec in self.specs if isinstance(spec, TableSpec)]
        return [spec.make(self.config.speculation, self.tokenizer.n_vocab) for spec in tables]

    def length(self, spec: DrafterSpec) -> int:
        """Longest draft of one of the rows."""
        return spec.draft_length(
            self.config.speculation, file_of(spec, self.specs, self.pair.target_file, self.pair.file)
        )

    def pair_of(self, spec: NetworkSpec) -> FilePair:
        """The target, and the file that one of the networks is read from."""
        file = file_of(spec, self.specs, self.pair.target_file, self.pair.file)
        return self.pair if file is self.pair.file else replace(self.pair, file=file, draft_vocabulary=None)

    def load_of(self, spec: NetworkSpec) -> ModelLoadConfig:
        """How a network is loaded; heads in the target's file as the target, with default cache types."""
        config, pair = self.config, self.pair_of(spec)
        if config.draft is not None and pair.file is not pair.target_file:
            return config.draft
        return replace(config.target, type_k=DEFAULT_CACHE_TYPE, type_v=DEFAULT_CACHE_TYPE)

    @property
    def needs(self) -> TargetNeeds:
        """What they ask of the target."""
        networks = self.networks
        tree = self.config.speculation.draft.tree if networks else 0
        return TargetNeeds(
            max([tree, *map(self.length, self.specs)]),
            tuple(tap for spec in networks for tap in spec.taps(self.pair_of(spec).file)),
            any(spec.reads_nextn for spec in networks),
            max([0, *map(self.length, networks)]) if tree else 0,
        )

    def doubts(self, n_ctx: int) -> list[str]:
        """What speaks against the draft file in a context of `n_ctx` tokens, although it fits."""
        pair = next((pair for spec in self.networks if (pair := self.pair_of(spec)).file is not pair.target_file), None)
        if pair is None:
            return []
        context = context_doubt(pair.file, n_ctx)
        return [*self.vocabulary_lines, *([context] if context else [])]

    def load_beside(self, spec: NetworkSpec, target: Model) -> ModelLoadConfig:
        """As `load_of`, and where the head of a target is that is split over several devices."""
        load = self.load_of(spec)
        return replace(load, device=target.executor.device, tensor_split=()) if "," in load.device else load

    def parts(self, spec: NetworkSpec, target: Model, executor: Executor) -> NetworkParts:
        """What the drafter of one of the rows is made of, on a target."""
        load, options = self.load_of(spec), target.options
        draft = replace(self.config.speculation.draft, n_max=self.length(spec))
        own = ModelOptions(
            capacity=options.capacity + draft.n_max + 1,
            n_slots=options.n_slots,
            type_k=QuantType.from_label(load.type_k),
            type_v=QuantType.from_label(load.type_v),
            max_tokens=options.max_tokens,
            max_outputs=options.max_outputs,
            max_rewind=rewind_for(draft.n_max),
            log_probabilities=self.config.speculation.adaptive,
        )
        return NetworkParts(self.pair_of(spec), draft, target, executor, own)

    def count(self, target: Model) -> Iterator[CountingExecutor]:
        """Makes the networks without weights on a target that was made so; gives what counted each."""
        for spec in self.networks:
            with closing(executor_of(self.load_beside(spec, target), self.pair_of(spec).file)) as executor:
                counting = CountingExecutor(executor)
                spec.build(self.parts(spec, target, counting))
                yield counting

    def table_memory(self, n_slots: int) -> list[NetworkMemory]:
        """What the drafters without a network take from the start, with tables for `n_slots` sequences."""
        shared_pool = self.config.speculation.shared_pool
        return [
            NetworkMemory("cpu", tables=spec.n_bytes * (1 if spec.can_share and shared_pool else n_slots))
            for spec in self.specs
            if isinstance(spec, TableSpec) and spec.n_bytes
        ]


class DrafterSet:
    """The drafters of one plan on a loaded target.

    Args:
        plan: What to build.
        target: The target they read.
        report: Takes a line of progress.

    Attributes:
        plan: As given.
        chain: The drafters in priority order.
        rule: How their drafts are verified.
        synthetic: The rates of synthetic acceptance, if it is on.
        weight_lines: Where the networks' weights lie, and how they had to be converted.
    """

    def __init__(self, plan: DrafterPlan, target: Model, report: Report) -> None:
        self.plan = plan
        self._target = target
        self.weight_lines: list[str] = []
        self._lengths: AdaptiveLengths | None = None
        with ExitStack() as stack:
            self.chain = DrafterChain([self._build(spec, report, stack) for spec in plan.specs])
            end_ids = plan.tokenizer.eog_ids
            self.rule: VerifyRule = lossless_rule(end_ids)
            synth = plan.config.speculation.synth
            self.synthetic: SyntheticRates | None = resolve_synthetic(synth, self.chain.max_draft, plan.needs.max_draft)
            if self.synthetic is not None:
                self.rule = synthetic_rule(self.synthetic, end_ids)
            self._networks = stack.pop_all()

    @property
    def names(self) -> tuple[str, ...]:
        """Types, in priority order."""
        return tuple(spec.name for spec in self.plan.specs)

    @property
    def adapts(self) -> bool:
        """Draft lengths are chosen while running."""
        speculation = self.plan.config.speculation
        is_fixed = self.synthetic is not None or (speculation.draft.tree > 0 and bool(self.plan.networks))
        return speculation.adaptive and not is_fixed and bool(self.chain.drafters)

    def adapt(self, costs: RowCosts) -> None:
        """Chooses draft lengths from now on, from what forwards of the target cost.

        What was learnt of the drafters' acceptance stays when they are renewed.
        """
        if self._lengths is not None and self._lengths.costs is costs:
            self.chain.lengths = self._lengths
            return
        speculation, traits = self.plan.config.speculation, []
        for spec, drafter in zip(self.plan.specs, self.chain.drafters, strict=True):
            if isinstance(spec, NetworkSpec):
                traits.append(DrafterTraits(drafter.max_draft, max(1, speculation.draft.n_min), is_block=spec.is_block))
            else:
                traits.append(DrafterTraits(drafter.max_draft, is_table=True, prior=TABLE_PRIOR))
        self._lengths = self.chain.lengths = AdaptiveLengths(costs, traits, ordered=speculation.ordered)

    def renew(self) -> None:
        """Tables start empty and counters at zero, as in a fresh process; what earlier requests taught is dropped.

        Networks are kept: nothing of a request outlives it there.
        """
        drafters = [
            self._table(spec) if isinstance(spec, TableSpec) else drafter
            for spec, drafter in zip(self.plan.specs, self.chain.drafters, strict=True)
        ]
        self.chain = DrafterChain(drafters)

    def close(self, *, keeps_files: bool = False) -> None:
        """Releases the networks; tables write their files, unless `keeps_files`."""
        if not keeps_files:
            for spec, drafter in zip(self.plan.specs, self.chain.drafters, strict=True):
                if isinstance(spec, TableSpec):
                    drafter.close()
        self._networks.close()

    def _table(self, spec: TableSpec) -> Drafter:
        return spec.make(self.plan.config.speculation, self.plan.tokenizer.n_vocab)

    def _build(self, spec: DrafterSpec, report: Report, networks: ExitStack) -> Drafter:
        if isinstance(spec, TableSpec):
            return self._table(spec)
        assert isinstance(spec, NetworkSpec)
        pair, load = self.plan.pair_of(spec), self.plan.load_beside(spec, self._target)
        report(f"loading {pair.file.path}")
        spec.warn_of_limit(self.plan.config.speculation, pair.file)
        executor = executor_of(load, pair.file)
        parts = self.plan.parts(spec, self._target, executor)
        with memory_for(pair.file, "draft model", parts.options.capacity):
            drafter = spec.build(parts)
        networks.enter_context(closing(drafter))
        self.weight_lines += weight_lines(load, pair.file, executor)
        return drafter


def rewind_for(n_draft: int) -> int:
    """Tokens that recurrent layers must be able to take back: a rejected draft and, between requests, two more."""
    return n_draft + 2


def plan_drafters(
    config: RunConfig, target_file: GGUFFile, tokenizer: Tokenizer, draft_file: GGUFFile | None
) -> DrafterPlan:
    """Chooses the drafters of a run and checks that they fit.

    Raises:
        SpecliError: They do not, or something is missing.
    """
    specs, lines = choose_drafters(config, target_file, draft_file)
    pair = FilePair(
        config=config.speculation,
        target_file=target_file,
        vocabulary=tokenizer,
        file=draft_file or target_file,
        draft_vocabulary=_draft_vocabulary(draft_file, specs),
    )
    n_nodes = config.speculation.draft.tree
    if n_nodes and networks_of(spec.name for spec in specs):
        check_tree(pair)
        lines.append(f"drafting: networks' drafts are trees of up to {n_nodes} tokens; no adaptive lengths")
    plan = DrafterPlan(config, tuple(specs), tuple(lines), pair, tokenizer)
    for spec in plan.networks:
        try:
            spec.check(plan.pair_of(spec))
        except IncompatibleError as error:
            served = next((other.name for other in plan.networks if other.detects(plan.pair_of(spec).file)), None)
            if served is None or spec.detects(plan.pair_of(spec).file):
                raise
            raise UsageError(
                f"{spec.name} needs a draft model of its own: {pair.file.path} serves {served}",
                hint="there can be one draft file; leave out one of the types",
            ) from error
    if draft_file is not None and pair.draft_vocabulary is not None:
        paths = {"target_path": target_file.path, "draft_path": draft_file.path}
        check_texts(tokenizer, pair.draft_vocabulary, **paths)
        doubts = tuple(vocabulary_doubts(tokenizer, pair.draft_vocabulary, **paths))
        pair = replace(pair, draft_vocabulary=None)  # compared, and large
        plan = replace(plan, pair=pair, vocabulary_lines=doubts)
    other = other_target(draft_file, target_file) if draft_file is not None and plan.networks else None
    if other is not None:
        log.warning(other)
    return plan


def check_tree(pair: FilePair) -> None:
    """Refuses draft trees where they cannot be verified.

    Raises:
        UsageError: Another setting needs chains.
        IncompatibleError: The target has recurrent layers.
    """
    draft, synth, file = pair.config.draft, pair.config.synth, pair.target_file
    conflicts = {
        "--spec-draft-sampling probabilistic": draft.probabilistic,
        "--spec-draft-p-min": draft.p_min > 0,
        "--spec-synth-len": synth.length is not None,
        "--spec-synth-rates": bool(synth.rates),
    }
    other = next((option for option, is_given in conflicts.items() if is_given), None)
    if other is not None:
        raise UsageError(f"--spec-draft-tree does not go with {other}", hint="leave one of them out")
    if any(layer.delta is not None for layer in target_config(pair).layers):
        raise IncompatibleError(
            f"{file.path}: draft trees need attention in all layers, {file.architecture} has recurrent ones",
            hint="leave out --spec-draft-tree",
        )


def file_of(spec: DrafterSpec, specs: Iterable[DrafterSpec], target_file: GGUFFile, draft_file: GGUFFile) -> GGUFFile:
    """The file that one of several drafters reads: the draft file.

    If that serves another of them and the target has the heads of this one, the target's own.
    """
    networks = [other for other in specs if isinstance(other, NetworkSpec)]
    if not isinstance(spec, NetworkSpec) or not spec.serves_itself or spec.detects(draft_file):
        return draft_file
    serves_another = any(other.detects(draft_file) for other in networks)
    return target_file if serves_another and spec.detects(target_file) else draft_file


def choose_drafters(
    config: RunConfig, target_file: GGUFFile, draft_file: GGUFFile | None
) -> tuple[list[DrafterSpec], list[str]]:
    """The rows of `DRAFTERS` that run, in priority order, and one line per drafter that says why.

    Without `--spec-type` the type is read off the draft file, as llama.cpp does, plain models and EAGLE-3 included.

    Raises:
        UsageError: A type needs a draft file and there is none.
        IncompatibleError: The draft file is of no known kind.
    """
    types = config.speculation.types
    if types == ("none",):
        return [], ["drafting: off (--spec-type none)"]
    why = "--spec-type"
    if not types and draft_file is not None:
        detected = detect_type(draft_file)
        if detected is None:
            raise IncompatibleError(
                f"{draft_file.path}: architecture {draft_file.architecture} is no known kind of drafter",
                hint=f"name one with --spec-type: {', '.join(DRAFTERS)}",
            )
        types, why = (detected,), "read off the draft file"
    if not types:
        return [], ["drafting: off (no --spec-type and no draft model)"]
    unknown = next((name for name in types if name not in DRAFTERS), None)
    if unknown is not None:
        raise UsageError(f"speculative type {unknown} is not available, expected one of {', '.join(DRAFTERS)}")
    specs = [spec for spec in DRAFTERS.values() if spec.name in types]
    lines = []
    for spec in specs:
        has_network = isinstance(spec, NetworkSpec)
        if isinstance(spec, NetworkSpec) and draft_file is None and not spec.serves_itself:
            raise UsageError(f"{spec.name} needs a draft model", hint="give one with -md FILE")
        file = file_of(spec, specs, target_file, draft_file or target_file)
        source = f", {file.path}" if has_network and draft_file is not None else ""
        n_max = spec.draft_length(config.speculation, file)
        lines.append(f"drafting: {spec.name} ({why}{source}), up to {n_max} tokens: {spec.summary}")
    if draft_file is not None and not networks_of(types):
        lines.append(f"drafting: {draft_file.path} is not used, none of {', '.join(types)} reads a draft model")
    return specs, lines


def _draft_vocabulary(file: GGUFFile | None, specs: Sequence[DrafterSpec]) -> Tokenizer | None:
    """The draft file's own tokenizer, for the checks of drafters that are whole models."""
    if file is None or not networks_of(spec.name for spec in specs) or "tokenizer.ggml.model" not in file.metadata:
        return None
    return Tokenizer.from_gguf(file)
