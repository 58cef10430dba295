"""From file names to a running engine: check cheap things first, then metadata, pairing, memory, and weights last.

This is the Python API: `open_engine(RunConfig(...))` gives a `Run`, whose `generate` streams `TokenEvent`s and whose
`result` has text, statistics and the JSON record. The commands use nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from specli._version import __version__
from specli.drafters import DRAFTERS
from specli.drafters.chain import DrafterChain
from specli.engine.advice import drafting_line, plain_step
from specli.engine.config import RequestConfig, RunConfig
from specli.engine.drafting import (
    DrafterPlan,
    DrafterSet,
    Report,
    TargetNeeds,
    plan_drafters,
    rewind_for,
)
from specli.engine.loop import PROMPT_SHARE, Engine, Generation
from specli.engine.memory import NetworkMemory, target_memory
from specli.engine.placement import executor_of, weight_lines
from specli.engine.plan import Fitted, MemoryPlan, available_bytes, check_memory, fit_context, memory_for
from specli.engine.sequence import TokenLogprob
from specli.engine.session import Session
from specli.engine.stats import Statistics, dump_record, run_record
from specli.engine.verify import lossless_rule
from specli.errors import SpecliError, UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.ops import Executor
from specli.models import load_model, model_class
from specli.models.base import Model, ModelOptions
from specli.models.config import ModelConfig
from specli.sampling.chain import with_model_defaults
from specli.sampling.config import SamplingSettings
from specli.tokenizer import ChatTemplate, Tokenizer

MIN_OUTPUTS = 65  # rows of logits there is room for at least: any default draft, so that /spec need not load again


@dataclass(frozen=True)
class RunResult:
    """What one request left behind.

    Attributes:
        generation: Tokens, text, stop reason, timings.
        statistics: The same timings, and every drafter's totals.
        record_head: The parts of the JSON record that do not change between requests.
        prompt_text: The prompt as text, control tokens included.
        plain_step_ns: What a token costs without drafting; 0 if nothing was drafted.
    """

    generation: Generation
    statistics: Statistics
    record_head: Mapping[str, Any]
    prompt_text: str
    plain_step_ns: float

    @property
    def sampling(self) -> SamplingSettings:
        """The sampling that was in force."""
        return self.generation.request.sampling.settings()

    def lines(self, *, details: bool = False) -> list[str]:
        """llama.cpp's statistics lines, and one that says what drafting brought."""
        lines = self.statistics.lines(details=details)
        busiest = max(self.statistics.drafters, key=lambda stats: stats.gen_tokens, default=None)
        if busiest is None:
            return lines
        length = DRAFTERS[busiest.name].length
        brought = drafting_line(self.generation.timings, self.plain_step_ns, length.option if length else None)
        return [*lines, *([brought] if brought else [])]

    def to_dict(self) -> dict[str, Any]:
        """The JSON record, schema `specli.run/1`."""
        done = self.generation
        return run_record(
            version=__version__,
            target=self.record_head,
            settings={},
            prompt={
                "text": self.prompt_text,
                "n_tokens": len(done.prompt),
                "ids": done.prompt,
                "logprobs": [_logprob_record(item) for item in done.prompt_logprobs],
            },
            tokens=done.tokens,
            text=done.text,
            logprobs=[_logprob_record(item) for item in done.logprobs],
            stop=done.stop,
            statistics=self.statistics,
        )

    def to_json(self) -> str:
        """The record as JSON text."""
        return dump_record(self.to_dict())


class Run:
    """A target with its files, ready for requests, and the drafters in use. Made by `open_engine`.

    Other drafters can be built on the same target: its weights are read again only if they need hidden states that
    it does not capture, or longer drafts than it has room for.

    Args:
        config: What was asked for.
        file: The target's open file.
        tokenizer: The target's.
        report: Takes a line of progress.

    Attributes:
        tokenizer: As given.
        engine: The loop; there once drafters are in use.
        networks: What the target and the draft networks built last take.
    """

    engine: Engine
    networks: tuple[NetworkMemory, ...] = ()

    def __init__(self, config: RunConfig, file: GGUFFile, tokenizer: Tokenizer, report: Report) -> None:
        self.tokenizer = tokenizer
        self._begun = time.perf_counter_ns()
        self._config = config
        self._file = file
        self._report = report
        self._model_config = model_class(file).configure(file)
        self._fitted: Fitted | None = None
        self._notes: list[str] = []
        self._target: Model | None = None
        self._needs = TargetNeeds()
        self._built: list[DrafterSet] = []
        self._draft_files = ExitStack()
        self._drafters: DrafterSet | None = None
        self._load_ns = 0
        self._template: ChatTemplate | None = None
        self._prompt_text = ""
        self._generation: Generation | None = None

    def build(self, configs: Sequence[RunConfig], *, keeps_files: bool = False) -> list[DrafterSet]:
        """Builds the drafters of several settings side by side; those built before are closed.

        Args:
            configs: One per set; only drafters, draft model and synthetic acceptance count.
            keeps_files: The files of the sets built before are left as they are.

        Raises:
            SpecliError: Drafters do not fit; those built before stay in use if metadata says so already.
        """
        with ExitStack() as files:
            plans = [self._plan(config, files) for config in configs]
            needs = TargetNeeds.union(plan.needs for plan in plans)
            self.close_drafters(keeps_files=keeps_files)
            self._draft_files = files.pop_all()
        target = self._target_for(needs, plans)
        for plan in plans:
            self._built.append(DrafterSet(plan, target, self._report))
        self._load_ns = self._load_ns or time.perf_counter_ns() - self._begun
        return list(self._built)

    def check(self, config: RunConfig) -> DrafterPlan:
        """Chooses and checks drafters by metadata; nothing is built, and what is in use stays.

        Raises:
            SpecliError: They do not fit.
        """
        with ExitStack() as files:
            return self._plan(config, files)

    def fit(self, groups: Iterable[Sequence[RunConfig]]) -> None:
        """Checks settings by metadata, and chooses the context that leaves room for any of the groups.

        Args:
            groups: Settings whose drafters will be built side by side.

        Raises:
            SpecliError: They do not fit.
        """
        for group in groups:
            with ExitStack() as files:
                fitted = self._fit([self._plan(config, files) for config in group])
            if self._fitted is None or fitted.n_ctx < self._fitted.n_ctx:
                self._fitted = fitted

    def use(self, drafters: DrafterSet) -> None:
        """From now on requests use these drafters, one of those that `build` returned last; the cache starts empty."""
        self._drafters = drafters
        self.engine.use(drafters.chain, drafters.rule)

    def change_drafters(self, config: RunConfig) -> None:
        """Replaces the drafters in use; if that fails, the old ones are used on.

        Raises:
            SpecliError: The new ones do not fit.
        """
        before = self._drafters
        try:
            self.use(self.build([config])[0])
        except SpecliError:
            if before is not None and not self._built:
                self.use(self.build([before.plan.config])[0])
            raise

    def close_drafters(self, *, keeps_files: bool = False) -> None:
        """Releases all drafters; the engine is left without any."""
        built, self._built = self._built, []
        if self._target is not None:
            self.engine.use(DrafterChain(()), lossless_rule(self.tokenizer.eog_ids))
        for drafters in built:
            drafters.close(keeps_files=keeps_files)
        self._draft_files.close()

    def close(self) -> None:
        """Releases everything."""
        self.close_drafters()
        if self._target is not None:
            self._target.close()

    @property
    def target_record(self) -> dict[str, Any]:
        """Path, architecture, quant type, parameters and bytes of the target."""
        return _target_record(self._file)

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template in force, or None if the model has none and none was given; compiled when first used."""
        return self._chat_template() if self.has_template else None

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template in force; nothing is compiled to find out."""
        return "tokenizer.chat_template" in self._file.metadata or self._config.chat_template is not None

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Types of the drafters at work, in priority order."""
        return tuple(stats.name for stats in self.engine.chain.stats)

    def start_lines(self) -> list[str]:
        """What runs where: target, kernels, drafters and why, placement of weights, memory."""
        executor = self.engine.target.executor
        return [
            f"{self.target_line()}; kernels: {executor.describe()}",
            *([self._fitted.note] if self._fitted and self._fitted.note else []),
            *self._notes,
            *(self._drafters.plan.lines if self._drafters else ()),
            *(expert_lines(self.engine.target.config) if self.drafter_names else ()),
            *weight_lines(self._config.target, self._file, executor),
            *(self._drafters.weight_lines if self._drafters else ()),
            *device_lines(self.networks),
            MemoryPlan.of(self.networks, self._context(())).line(),
        ]

    def target_line(self) -> str:
        """The target in one line."""
        file = self._file
        return f"target: {file.path.name} ({file.architecture}, {_quant(file)}), context {self._context(())}"

    def encode(self, text: str) -> list[int]:
        """Prompt tokens of a text; special tokens in it are recognised, BOS is added where the model wants it."""
        self._prompt_text = text
        return self.tokenizer.encode(text, add_special=True, parse_special=True)

    def generate(self, prompt: Sequence[int], request: RequestConfig) -> Generation:
        """Starts a request; iterate the result for `TokenEvent`s.

        What the request leaves open of the sampling is filled in by `sampling`.

        Raises:
            IncompatibleError: See `Engine.generate`.
        """
        request = replace(request, sampling=self.sampling(request))
        self._generation = self.engine.generate(prompt, request)
        return self._generation

    def sampling(self, request: RequestConfig) -> SamplingSettings:
        """The sampling of a request, with the model's own choices (`general.sampling.*`) where it leaves some open."""
        return with_model_defaults(request.sampling, self._file.metadata)

    def session(self, *, system: str | None = None, variables: Mapping[str, Any] | None = None) -> Session:
        """A conversation, with the model's chat template or, without one, ChatML."""
        return Session(self.generate, self.tokenizer, self._chat_template(), system, variables or {})

    def result(self) -> RunResult:
        """Text and statistics of the latest request."""
        if self._generation is None:
            raise UsageError("nothing has been generated yet")
        generation, chain = self._generation, self.engine.chain
        generation.timings.load_ns = self._load_ns
        rounds = generation.rounds if generation.request.trace else None
        statistics = Statistics(generation.timings, chain.stats, rounds, chain.max_draft)
        prompt_text = self._prompt_text or self.tokenizer.decode(generation.prompt, special=True)
        plain_step_ns = plain_step(generation.timings, self.engine.plain_step_ns)
        return RunResult(generation, statistics, self.target_record, prompt_text, plain_step_ns)

    def _plan(self, config: RunConfig, files: ExitStack) -> DrafterPlan:
        draft = GGUFFile.open(config.draft.path, config.draft.metadata) if config.draft else None
        draft_file = files.enter_context(closing(draft)) if draft else None
        return plan_drafters(config, self._file, self.tokenizer, draft_file)

    def _target_for(self, needs: TargetNeeds, plans: Sequence[DrafterPlan]) -> Model:
        """The target, loaded so that it serves the needs, if it fits into memory with the drafters of the plans."""
        if self._target is not None and self._needs.covers(needs):
            self._check_memory(self._target.executor, self._target.options, plans, is_loaded=True)
            return self._target
        with ExitStack() as opened:
            executor = executor_of(self._config.target, self._file)
            opened.callback(executor.close)
            n_ctx = self._context(plans, executor)
            options = self._options(needs, n_ctx)
            self._check_memory(executor, options, plans, is_loaded=False)
            if self._target is not None:
                self._target.close()
            self._report(f"loading {self._file.path}")
            with memory_for(self._file, "target", n_ctx):
                self._target = target = load_model(self._file, executor, options)
            opened.pop_all()
        n_rows = min(options.max_outputs, options.max_tokens) // options.n_slots
        room = min(n_rows - 1, target.cache.max_rewind - rewind_for(0))
        self._needs = replace(needs, max_draft=max(needs.max_draft, room))
        rule = lossless_rule(self.tokenizer.eog_ids)
        self.engine = Engine(target, self.tokenizer, DrafterChain(()), rule, n_ctx=n_ctx)
        return target

    def _options(self, needs: TargetNeeds, n_ctx: int) -> ModelOptions:
        config = self._config
        n_rows = config.n_slots * (1 + needs.max_draft)  # no request's draft is cut because of others
        reserve = n_rows // (PROMPT_SHARE - 1) + 1 if config.n_slots > 1 else 0  # nor waits a prompt for answers
        return ModelOptions(
            capacity=n_ctx,
            n_slots=config.n_slots,
            type_k=QuantType.from_label(config.target.type_k),
            type_v=QuantType.from_label(config.target.type_v),
            taps=needs.taps,
            nextn=needs.reads_nextn,
            max_tokens=max(min(config.n_batch, n_ctx), n_rows + reserve),
            max_outputs=max(MIN_OUTPUTS, n_rows),
            max_rewind=rewind_for(needs.max_draft),
        )

    def _context(self, plans: Sequence[DrafterPlan], executor: Executor | None = None) -> int:
        """Tokens of the context; what is asked first decides, with the drafters that are known then."""
        if self._fitted is None:
            self._fitted = self._fit(plans, executor)
        return self._fitted.n_ctx

    def _fit(self, plans: Sequence[DrafterPlan], executor: Executor | None = None) -> Fitted:
        needs = TargetNeeds.union(plan.needs for plan in plans)
        networks = self._networks(executor, self._options(needs, self._config.n_batch), plans)
        trained = self._model_config.n_ctx_train
        return fit_context(self._config.n_ctx, trained, networks, available_bytes(networks[0].device))

    def _check_memory(
        self, executor: Executor, options: ModelOptions, plans: Sequence[DrafterPlan], *, is_loaded: bool
    ) -> None:
        """Plans memory, and refuses what does not fit; a loaded target has its share already."""
        networks = self._networks(executor, options, plans)
        plan = MemoryPlan.of(networks, options.capacity)
        note = check_memory(self._file, networks[1:] if is_loaded else networks, options.capacity, plan)
        self.networks = tuple(networks)
        if note is not None and note not in self._notes:
            self._notes.append(note)

    def _networks(
        self, executor: Executor | None, options: ModelOptions, plans: Sequence[DrafterPlan]
    ) -> list[NetworkMemory]:
        """The target, then the draft networks of all plans."""
        load = self._config.target
        if executor is not None:
            kernels, device = executor.name, str(executor.device)
        else:  # not decided yet
            kernels = "reference" if load.kernels == "reference" else "cpu"
            device = "cpu" if load.device == "auto" else load.device
        target = target_memory(load, self._file, options, kernels=kernels, device=device)
        return [target, *(draft for plan in plans for draft in plan.memory(options, kernels=kernels, device=device))]

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            self._template = ChatTemplate.from_gguf(self._file, self.tokenizer, self._config.chat_template)
            for line in self._template.lines():
                self._report(line)
        return self._template


@contextmanager
def open_engine(config: RunConfig, report: Report = lambda line: None) -> Iterator[Run]:
    """Loads target, drafters and tokenizer.

    Args:
        config: Files and settings.
        report: Takes a line of progress while loading.

    Raises:
        SpecliError: A file is broken, the pair does not fit, or something is missing; before weights are read where
            that can be known.
    """
    with open_target(config, report) as run:
        run.use(run.build([config])[0])
        yield run


@contextmanager
def open_target(config: RunConfig, report: Report = lambda line: None) -> Iterator[Run]:
    """Opens the target without drafters; its weights are read when `Run.build` is called.

    Raises:
        SpecliError: As `open_engine`.
    """
    with closing(GGUFFile.open(config.target.path, config.target.metadata)) as file:
        model_class(file)
        with closing(Run(config, file, Tokenizer.from_gguf(file), report)) as run:
            yield run


def device_lines(networks: Sequence[NetworkMemory]) -> list[str]:
    """Draft networks that run elsewhere than the target, which comes first (reports.md P1)."""
    here = networks[0].device
    return [
        f"drafting: the draft network runs on {network.device}, the target on {here}; -devd chooses its device"
        for network in networks[1:]
        if network.weights and network.device != here
    ]


def expert_lines(config: ModelConfig) -> list[str]:
    """What drafting meets on a mixture of experts; nothing for a dense target (reports.md P4)."""
    experts = next((layer.experts for layer in config.layers if layer.experts), None)
    if experts is None:
        return []
    return [
        f"experts: {experts.n_used} of {experts.n_experts} per token; draft tokens wake others, so a verification "
        "costs more than on a dense target: compare with specli stats"
    ]


def _quant(file: GGUFFile) -> str:
    """The quant type that holds most of the weights."""
    sizes: dict[QuantType, int] = {}
    for tensor in file.tensors.values():
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.nbytes
    return max(sizes, key=lambda kind: sizes[kind]).label if sizes else "none"


def _target_record(file: GGUFFile) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "arch": file.architecture,
        "quant": _quant(file),
        "n_params": sum(tensor.n_elements for tensor in file.tensors.values()),
        "bytes": file.n_bytes,
    }


def _logprob_record(item: TokenLogprob) -> dict[str, Any]:
    return {"id": item.id, "logprob": item.logprob, "top": [list(pair) for pair in item.top]}
