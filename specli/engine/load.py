"""From file names to a running engine: check cheap things first, then metadata, pairing, memory, and weights last.

This is the Python API: `open_engine(RunConfig(...))` gives a `Run`, whose `generate` streams `TokenEvent`s and whose
`result` has text, statistics and the JSON record. The commands use nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from specli._version import __version__
from specli.drafters import DRAFTERS, DrafterInputs, DrafterSpec, detect_type
from specli.drafters.chain import DrafterChain
from specli.engine.advice import drafting_line, plain_step
from specli.engine.chain import with_model_defaults
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.loop import Engine, Generation, TokenLogprob
from specli.engine.plan import MemoryPlan, available_bytes, fit_context
from specli.engine.session import Session
from specli.engine.stats import Statistics, dump_record, run_record
from specli.engine.verify import lossless_rule, resolve_synthetic, synthetic_rule
from specli.errors import IncompatibleError, ResourceError, UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels import open_executor
from specli.kernels.ops import Executor
from specli.models import load_model, model_class
from specli.models.base import Model, ModelOptions
from specli.tokenizer import ChatTemplate, Tokenizer

MIN_OUTPUTS = 64  # rows of logits there is room for at least; prompt log-probabilities are read in pieces of this size


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

    def lines(self, *, details: bool = False) -> list[str]:
        """llama.cpp's statistics lines, and one that says what drafting brought."""
        busiest = max(self.statistics.drafters, key=lambda stats: stats.gen_tokens, default=None)
        option = DRAFTERS[busiest.name].length_option if busiest else None
        brought = drafting_line(self.generation.timings, self.plain_step_ns, option)
        return [*self.statistics.lines(details=details), *([brought] if brought else [])]

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
    """An engine with its files, ready for requests. Made by `open_engine`.

    Attributes:
        engine: The loop.
        tokenizer: The target's.
        plan: Memory, by purpose.
    """

    def __init__(
        self, engine: Engine, file: GGUFFile, config: RunConfig, plan: MemoryPlan, lines: list[str], load_ns: int
    ) -> None:
        self.engine = engine
        self.tokenizer = engine.tokenizer
        self.plan = plan
        self._file = file
        self._config = config
        self._lines = lines
        self._load_ns = load_ns
        self._template: ChatTemplate | None = None
        self._prompt_text = ""
        self._generation: Generation | None = None

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
        """What runs where: target, kernels, drafters and why, memory."""
        return list(self._lines)

    def encode(self, text: str) -> list[int]:
        """Prompt tokens of a text; special tokens in it are recognised, BOS is added where the model wants it."""
        self._prompt_text = text
        return self.tokenizer.encode(text, add_special=True, parse_special=True)

    def generate(self, prompt: Sequence[int], request: RequestConfig) -> Generation:
        """Starts a request; iterate the result for `TokenEvent`s.

        The model's own sampling defaults (`general.sampling.*`) stand in for settings that are not explicit.

        Raises:
            IncompatibleError: See `Engine.generate`.
        """
        sampling = with_model_defaults(request.sampling, self._file.metadata, request.sampling.explicit)
        self._generation = self.engine.generate(prompt, replace(request, sampling=sampling))
        return self._generation

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
        return RunResult(generation, statistics, _target_record(self._file), prompt_text, plain_step_ns)

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            self._template = ChatTemplate.from_gguf(self._file, self.tokenizer, self._config.chat_template)
        return self._template


@contextmanager
def open_engine(config: RunConfig, report: Callable[[str], None] = lambda line: None) -> Iterator[Run]:
    """Loads target, drafters and tokenizer.

    Args:
        config: Files and settings.
        report: Takes a line of progress while loading.

    Raises:
        SpecliError: A file is broken, the pair does not fit, or something is missing; before weights are read where
            that can be known.
    """
    begun = time.perf_counter_ns()
    with ExitStack() as stack:
        target_file = stack.enter_context(_opened(config.target))
        architecture = model_class(target_file)
        tokenizer = Tokenizer.from_gguf(target_file)
        draft_file = stack.enter_context(_opened(config.draft)) if config.draft else None
        specs, reasons = choose_drafters(config, draft_file)
        draft_vocabulary = _draft_vocabulary(draft_file, specs)
        inputs = DrafterInputs(
            config=config.speculation,
            target_file=target_file,
            vocabulary=tokenizer,
            draft_file=draft_file,
            draft_vocabulary=draft_vocabulary,
        )
        for spec in specs:
            spec.check(inputs)
        max_draft = max((spec.draft_length(config.speculation, draft_file) for spec in specs), default=0)
        model_config = architecture.configure(target_file)
        n_ctx, note = fit_context(config.n_ctx, model_config, config.target, target_file.n_bytes, available_bytes())
        options = ModelOptions(
            capacity=n_ctx,
            type_k=QuantType.from_label(config.target.type_k),
            type_v=QuantType.from_label(config.target.type_v),
            taps=_taps(specs, draft_file),
            nextn=any(spec.reads_nextn for spec in specs),
            max_tokens=max(min(config.n_batch, n_ctx), 1 + max_draft),
            max_outputs=max(MIN_OUTPUTS, 1 + max_draft),
        )
        report(f"loading {target_file.path}")
        executor = _executor(config.target)
        target = _load(target_file, executor, options, "the target")
        stack.callback(target.close)
        chain = DrafterChain([_build(spec, inputs, target, config, options, report) for spec in specs])
        stack.callback(chain.close)
        rule = lossless_rule(tokenizer.eog_ids)
        rates = resolve_synthetic(config.speculation.synth, chain.max_draft, max_draft)
        if rates is not None:
            rule = synthetic_rule(rates, tokenizer.eog_ids)
        engine = Engine(target, tokenizer, chain, rule, n_ctx=n_ctx)
        plan = MemoryPlan.of(target_file, target, draft_file)
        lines = [
            _target_line(target_file, executor, n_ctx),
            *([note] if note else []),
            *reasons,
            plan.line(),
        ]
        yield Run(engine, target_file, config, plan, lines, time.perf_counter_ns() - begun)


def choose_drafters(config: RunConfig, draft_file: GGUFFile | None) -> tuple[list[DrafterSpec], list[str]]:
    """The rows of `DRAFTERS` that run, in priority order, and one line per drafter that says why.

    Without `--spec-type` the type is read off the draft file, as llama.cpp does, plain models and EAGLE-3 included.

    Raises:
        UsageError: A type needs a draft file and there is none, or the draft file would not be used.
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
        if spec.needs_draft_file and draft_file is None:
            raise UsageError(f"{spec.name} needs a draft model", hint="give one with -md FILE")
        source = f", {draft_file.path}" if spec.needs_draft_file and draft_file is not None else ""
        n_max = spec.draft_length(config.speculation, draft_file)
        lines.append(f"drafting: {spec.name} ({why}{source}), up to {n_max} tokens: {spec.summary}")
    if draft_file is not None and not any(spec.needs_draft_file for spec in specs):
        lines.append(f"drafting: {draft_file.path} is not used, none of {', '.join(types)} reads a draft model")
    return specs, lines


def _opened(config: ModelLoadConfig) -> Any:
    from contextlib import closing

    return closing(GGUFFile.open(config.path))


def _executor(config: ModelLoadConfig) -> Executor:
    return open_executor(config.device, kernels=config.kernels, threads=config.threads, exact=config.exact)


def _load(file: GGUFFile, executor: Executor, options: ModelOptions, what: str) -> Model:
    try:
        return load_model(file, executor, options)
    except MemoryError:
        raise ResourceError(
            f"{file.path}: not enough memory for {what} with a context of {options.capacity} tokens",
            hint="lower --ctx-size, or choose smaller cache types with -ctk and -ctv",
        ) from None


def _draft_vocabulary(file: GGUFFile | None, specs: Sequence[DrafterSpec]) -> Tokenizer | None:
    """The draft file's own tokenizer, for the checks of drafters that are whole models."""
    if file is None or not any(spec.needs_draft_file for spec in specs) or "tokenizer.ggml.model" not in file.metadata:
        return None
    return Tokenizer.from_gguf(file)


def _taps(specs: Sequence[DrafterSpec], draft_file: GGUFFile | None) -> tuple[int, ...]:
    if draft_file is None:
        return ()
    return tuple(tap for spec in specs if spec.needs_draft_file for tap in spec.taps(draft_file))


def _build(
    spec: DrafterSpec,
    inputs: DrafterInputs,
    target: Model,
    config: RunConfig,
    options: ModelOptions,
    report: Callable[[str], None],
) -> Any:
    if not spec.needs_draft_file:
        return spec.build(replace(inputs, target=target))
    assert config.draft is not None
    assert inputs.draft_file is not None
    report(f"loading {inputs.draft_file.path}")
    draft_options = replace(
        options,
        capacity=options.capacity + spec.draft_length(config.speculation, inputs.draft_file) + 1,
        type_k=QuantType.from_label(config.draft.type_k),
        type_v=QuantType.from_label(config.draft.type_v),
        taps=(),
        nextn=False,
    )
    return spec.build(replace(inputs, target=target, executor=_executor(config.draft), options=draft_options))


def _target_line(file: GGUFFile, executor: Executor, n_ctx: int) -> str:
    quant = _quant(file)
    return f"target: {file.path.name} ({file.architecture}, {quant}), context {n_ctx}; kernels: {executor.describe()}"


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
