"""Opening a run and giving it requests. This is the Python API.

`open_engine(RunConfig(...))` gives a `Run`, whose `generate` streams `TokenEvent`s and whose `result` has text,
statistics and the JSON record. The commands use nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specli.engine.advice import plain_step
from specli.engine.binding import Binding
from specli.engine.config import RequestConfig, RunConfig
from specli.engine.loader import Loader
from specli.engine.loop import Engine, Generation
from specli.engine.memory import NetworkMemory
from specli.engine.placement import weight_lines
from specli.engine.result import RunResult
from specli.engine.sequence import Sequence as Request
from specli.engine.session import Session
from specli.engine.stats import Statistics
from specli.errors import UsageError
from specli.files import FileIdentity
from specli.gguf.file import GGUFFile
from specli.models import model_class
from specli.models.architecture import ModelConfig
from specli.sampling.chain import with_model_defaults
from specli.sampling.settings import SamplingSettings
from specli.tokenizer import ChatTemplate, Tokenizer


class Run:
    """A target with drafters, ready for requests. Made by `open_engine`.

    Args:
        binding: The target, and the drafters on it.

    Attributes:
        binding: As given.
        loader: The target's file, and what is known and loaded of it.
        tokenizer: The target's.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.loader = binding.loader
        self.tokenizer = self.loader.tokenizer
        self._template: ChatTemplate | None = None
        self._latest: Generation | None = None

    @property
    def engine(self) -> Engine:
        """The engine; there once drafters have been built."""
        return self.binding.engine

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template in force, or None if the model has none and none was given; compiled when first used."""
        return self._chat_template() if self.has_template else None

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template in force; nothing is compiled to find out."""
        loader = self.loader
        return "tokenizer.chat_template" in loader.file.metadata or loader.config.chat_template is not None

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """Types of the drafters at work, in priority order."""
        return tuple(drafter.name for drafter in self.engine.chain.drafters)

    def change_drafters(self, config: RunConfig) -> None:
        """Replaces the drafters in use; if that fails, the old ones are used on.

        Raises:
            SpecliError: The new ones do not fit.
        """
        self.binding.change(config)

    @property
    def files(self) -> tuple[FileIdentity, ...]:
        """The model files, by content; they are read whole."""
        return file_identities(self.loader.config)

    def renew(self) -> None:
        """Nothing of earlier requests is left, as in a fresh process: n-gram tables, counters and cache are empty."""
        used = self.binding.used
        if used is not None:
            used.renew()
            self.binding.use(used)

    def start_lines(self) -> list[str]:
        """What runs where: target, kernels, drafters and why, placement of weights, memory."""
        loader, used, target = self.loader, self.binding.used, self.engine.target
        return [
            f"{loader.line()}; kernels: {target.executor.describe()}",
            *loader.lines(),
            *(used.plan.lines if used else ()),
            *(expert_lines(target.config) if self.drafter_names else ()),
            *weight_lines(loader.config.target, loader.file, target.executor),
            *(used.weight_lines if used else ()),
            *device_lines(loader.networks),
            loader.memory_line(),
        ]

    def encode(self, text: str) -> list[int]:
        """Prompt tokens of a text; special tokens in it are recognised, BOS is added where the model wants it."""
        return self.tokenizer.encode(text, add_special=True, parse_special=True)

    def generate(self, prompt: str | Sequence[int], request: RequestConfig, *, text: str | None = None) -> Generation:
        """Starts a request; iterate the result for `TokenEvent`s.

        What the request leaves open of the sampling is filled in by `sampling`.

        Args:
            prompt: Text, for `encode`, or tokens.
            request: What is asked for.
            text: What the tokens were made of, for the record; without it they are decoded.

        Raises:
            IncompatibleError: The prompt is empty, too long, or has a token that the target does not know.
            UsageError: A sampling setting is out of range.
        """
        generation = self.engine.generate(self._ids(prompt), self._completed(request))
        generation.prompt_text = prompt if isinstance(prompt, str) else text
        self._latest = generation
        return generation

    def sequence(self, prompt: str | Sequence[int], request: RequestConfig, *, text: str | None = None) -> Request:
        """As `generate`, for `Engine.step`, which serves many requests at once."""
        sequence = self.engine.sequence(self._ids(prompt), self._completed(request))
        sequence.prompt_text = prompt if isinstance(prompt, str) else text
        return sequence

    def sampling(self, request: RequestConfig) -> SamplingSettings:
        """The sampling of a request, with the model's own choices (`general.sampling.*`) where it leaves some open."""
        return with_model_defaults(request.sampling, self.loader.file.metadata)

    def session(self, *, system: str | None = None, variables: Mapping[str, Any] | None = None) -> Session:
        """A conversation, with the model's chat template or, without one, ChatML."""
        return Session(self.generate, self.tokenizer, self._chat_template(), system, variables or {})

    def result(self, sequence: Request | None = None) -> RunResult:
        """Text and statistics of the latest request that `generate` started, or of a given one.

        The drafters' totals are those since the program started, or of the given request alone; with a given one, which
        has shared its time with others, nothing is said about the speed of plain decoding.

        Raises:
            UsageError: There is none.
        """
        done = sequence or self._latest
        if done is None:
            raise UsageError("nothing has been generated yet")
        chain, used, timings = self.engine.chain, self.binding.used, done.timings
        timings.load_ns = self.binding.load_ns
        text = done.prompt_text
        totals = chain.stats if sequence is None else sequence.drafters
        return RunResult(
            done,
            Statistics(timings, totals, done.rounds if done.request.trace else None, chain.max_draft),
            replace(used.plan.config if used else self.loader.config, n_ctx=self.engine.n_ctx),
            self.loader.record,
            self.tokenizer.decode(done.prompt, special=True) if text is None else text,
            plain_step(timings, done.plain_steps, self.engine.plain_step_ns) if sequence is None else 0.0,
        )

    def close(self) -> None:
        """Releases everything."""
        self.binding.close()

    def _ids(self, prompt: str | Sequence[int]) -> Sequence[int]:
        return self.encode(prompt) if isinstance(prompt, str) else prompt

    def _completed(self, request: RequestConfig) -> RequestConfig:
        """The request with all its sampling decided."""
        return replace(request, sampling=self.sampling(request))

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            loader = self.loader
            self._template = ChatTemplate.from_gguf(loader.file, self.tokenizer, loader.config.chat_template)
            for line in self._template.lines():
                loader.report(line)
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
    with open_target(config, report) as run:
        run.binding.use(run.binding.build([config])[0])
        yield run


@contextmanager
def open_target(config: RunConfig, report: Callable[[str], None] = lambda line: None) -> Iterator[Run]:
    """Opens the target without drafters; its weights are read when `Binding.build` is called.

    Raises:
        SpecliError: As `open_engine`.
    """
    with closing(GGUFFile.open(config.target.path, config.target.metadata)) as file:
        model_class(file)
        with closing(Run(Binding(Loader(config, file, Tokenizer.from_gguf(file), report)))) as run:
            yield run


def file_identities(config: RunConfig) -> tuple[FileIdentity, ...]:
    """The files of target and draft model, all shards, by content; they are read whole.

    Raises:
        SpecliError: One of them is no model file or cannot be read.
    """
    paths: list[Path] = []
    for load in filter(None, (config.target, config.draft)):
        with closing(GGUFFile.open(load.path)) as file:
            paths += file.shards
    return tuple(FileIdentity.of(path) for path in dict.fromkeys(paths))


def device_lines(networks: Sequence[NetworkMemory]) -> list[str]:
    """Draft networks that run elsewhere than the target, which comes first (docs/faults.md P1)."""
    here = networks[0].device
    return [
        f"drafting: the draft network runs on {network.device}, the target on {here}; -devd chooses its device"
        for network in networks[1:]
        if network.weights and network.device != here
    ]


def expert_lines(config: ModelConfig) -> list[str]:
    """What drafting meets on a mixture of experts; nothing for a dense target (docs/faults.md P4)."""
    experts = next((layer.experts for layer in config.layers if layer.experts), None)
    if experts is None:
        return []
    return [
        f"experts: {experts.n_used} of {experts.n_experts} per token; draft tokens wake others, so a verification "
        "costs more than on a dense target: compare with specli stats"
    ]
