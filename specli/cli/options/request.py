"""What a command line asks for, as one frozen tree; option rows name its fields by path (`request.sampling.top_k`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from specli.convert.records import ConvertConfig
from specli.drafters import default_speculation
from specli.engine.config import ModelLoadConfig, RequestConfig, SpeculationConfig
from specli.sampling.settings import SamplingSettings
from specli.serve.config import ServeConfig
from specli.workers.config import WorkersConfig


@dataclass(frozen=True)
class SourceConfig:
    """Where the model files come from.

    Attributes:
        model: Target file, or `demo`.
        hf_repo: Target repository `user/model[:quant]`.
        hf_file: File in that repository.
        hf_token: Access token.
        offline: Use the cache only.
        draft_model: Draft file, or `demo`.
        draft_hf_repo: Draft repository.
    """

    model: str | None = None
    hf_repo: str | None = None
    hf_file: str | None = None
    hf_token: str | None = None
    offline: bool = False
    draft_model: str | None = None
    draft_hf_repo: str | None = None


@dataclass(frozen=True)
class PromptConfig:
    """What the model is given.

    Attributes:
        text: The prompt.
        file: JSON Lines file of prompts.
        escape: Process backslash escapes in prompt, stop strings and DRY breakers.
        display: Print the prompt before the generated text.
        verbose: Print the prompt's tokens to stderr.
        seed_per_prompt: Each prompt of a file has a seed of its own, made of the given one and its place.
    """

    text: str | None = None
    file: Path | None = None
    escape: bool = True
    display: bool = False
    verbose: bool = False
    seed_per_prompt: bool = False


@dataclass(frozen=True)
class ChatConfig:
    """How a conversation is held and shown.

    Attributes:
        system: System prompt.
        single_turn: Leave after one answer.
        multiline: A message ends with `/` at the end of a line, not with the line.
        simple_io: No line editing.
        color: `on`, `off` or `auto`.
        transcript: File the conversation is written to.
        template: Jinja template or built-in name instead of the model's.
        variables: Further template variables.
        reasoning: `on` and `off` set the template's `enable_thinking`.
        reasoning_budget: 0 = as `reasoning` off, -1 = no limit.
        reasoning_effort: Passed to the template.
        reasoning_format: `none` leaves thoughts as the model writes them; the others take them out of the answer.
        reasoning_preserve: Give earlier thoughts back to the template.
        skip_parsing: Leave the model's text as it is.
    """

    system: str | None = None
    single_turn: bool = False
    multiline: bool = False
    simple_io: bool = False
    color: str = "auto"
    transcript: Path | None = None
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str = "auto"
    reasoning_budget: int = -1
    reasoning_effort: str = "default"
    reasoning_format: str = "deepseek"
    reasoning_preserve: bool = True
    skip_parsing: bool = False


@dataclass(frozen=True)
class OutputConfig:
    """What is reported and where.

    Attributes:
        show: Something to print instead of running: `version`, `devices`, `models`, `cache` or `completion`.
        json: One JSON object per prompt on stdout.
        stats_json: File for the same object.
        csv: Table file (stats, synth).
        plot: Picture file (stats, synth).
        save: File of a comparison that `stats show` reads.
        perf: Statistics lines at the end of a run.
        timings: A timing line after each answer.
    """

    show: str | None = None
    json: bool = False
    stats_json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    save: Path | None = None
    perf: bool = True
    timings: bool = True


@dataclass(frozen=True)
class LogConfig:
    """Messages on stderr.

    Attributes:
        verbosity: 0 output, 1 error, 2 warning, 3 info, 4 trace, 5 debug; messages up to this level are shown.
        prefix: Put time and level before each message.
        timestamps: Whether the prefix has the time.
        colors: `on`, `off` or `auto`.
        file: A copy of all messages.
    """

    verbosity: int = 3
    prefix: bool = False
    timestamps: bool = True
    colors: str = "auto"
    file: Path | None = None


@dataclass(frozen=True)
class StudyConfig:
    """Settings of `stats` and `synth` beyond those of a run.

    Attributes:
        repeat: Measured runs per prompt and drafter.
        warmup: Runs before the measured ones.
        n_prompts: Prompts taken from the set; 0 = all.
        template: Whether prompts are messages to the chat template; None = if the model has one.
        replay: Text file on which drafters are replayed.
        tune: Search for the best draft settings.
        tune_seconds: Time budget of the search.
        sweep: Measure a range of draft lengths.
        levels: Numbers of requests at once in one engine; empty = one after another, in detail.
        is_unified: Each of them may use all of `-c`, which they share otherwise.
    """

    repeat: int = 3
    warmup: int = 1
    n_prompts: int = 0
    template: bool | None = None
    replay: Path | None = None
    tune: bool = False
    tune_seconds: float = 300.0
    sweep: bool = False
    levels: tuple[int, ...] = ()
    is_unified: bool = False


@dataclass(frozen=True)
class ClientConfig:
    """How `stats` puts load on a server.

    Attributes:
        server: Its address; None = there is none.
        concurrency: Numbers of requests that are kept under way, a level each.
        rates: Requests that arrive per second instead, a level each.
        api_key: Shown with every request.
        model: Name of the model in requests.
        timeout: Seconds that a request may take.
        streams: Answers come token by token.
        extra: Further members of every request.
        speed_bench: File in the schema of llama.cpp's SPEED-Bench client.
    """

    server: str | None = None
    concurrency: tuple[int, ...] = (1,)
    rates: tuple[float, ...] = ()
    api_key: str | None = None
    model: str | None = None
    timeout: float = 600.0
    streams: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    speed_bench: Path | None = None


@dataclass(frozen=True)
class BatchConfig:
    """How a run through many prompts is carried out; nothing here changes a result.

    Attributes:
        resume: Go on with the results that are there.
        unordered: Results stay in the order in which they came.
        workers: Who answers prompts side by side; None = this process, and what prompts taught stays.
        retries: How often a prompt is tried again after its worker died.
        n_parallel: Prompts that one engine answers at once.
        is_unified: Each of them may use all of `-c`, which they share otherwise.
    """

    resume: bool = False
    unordered: bool = False
    workers: WorkersConfig | None = None
    retries: int = 1
    n_parallel: int = 1
    is_unified: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether workers answer, and not this process."""
        return self.workers is not None and self.workers.is_shared


@dataclass(frozen=True)
class CommandConfig:
    """Everything a command line can set.

    Attributes:
        verify_lossless: Generate again without drafters and compare.
        check_text: Text whose coverage by the draft vocabulary is wanted.
        chosen: Fields of the sampling that were set; the model may have its own defaults for others.
    """

    source: SourceConfig = field(default_factory=SourceConfig)
    target: ModelLoadConfig = field(default_factory=lambda: ModelLoadConfig(path=Path()))
    draft: ModelLoadConfig = field(default_factory=lambda: ModelLoadConfig(path=Path()))
    speculation: SpeculationConfig = field(default_factory=default_speculation)
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    request: RequestConfig = field(default_factory=lambda: RequestConfig(sampling=SamplingSettings()))
    prompt: PromptConfig = field(default_factory=PromptConfig)
    chat: ChatConfig = field(default_factory=ChatConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    log: LogConfig = field(default_factory=LogConfig)
    study: StudyConfig = field(default_factory=StudyConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
    verify_lossless: bool = False
    check_text: str | None = None
    chosen: frozenset[str] = frozenset()
    convert: ConvertConfig = field(default_factory=lambda: ConvertConfig(source=""))


DEFAULTS = CommandConfig()

Record = TypeVar("Record")


def read_field(record: object, path: str) -> Any:
    """The value at a dotted path through records and mappings; AttributeError or KeyError if there is none."""
    for name in path.split("."):
        record = record[name] if isinstance(record, Mapping) else getattr(record, name)
    return record


def with_fields(record: Record, values: Mapping[str, Any]) -> Record:
    """A copy of a tree of frozen records and mappings with the values at the given dotted paths."""
    changes: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            changes[name] = value
    for name, inner in nested.items():
        changes[name] = with_fields(read_field(record, name), inner)
    if isinstance(record, Mapping):
        return {**record, **changes}  # type: ignore[return-value]
    assert is_dataclass(record)
    assert not isinstance(record, type)
    return replace(record, **changes)
