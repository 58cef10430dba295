"""Many prompts in one run: what becomes of each is one line, written once, also over crashes (docs/batch.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from specli._version import __version__
from specli.cli.console import ERROR, Console, error_lines
from specli.cli.options.request import CommandConfig
from specli.cli.prepare import request_config
from specli.cli.prompts import Prompt
from specli.cli.record import dump, write_lines
from specli.errors import SpecliError, UsageError
from specli.files import FileIdentity, Journal, check_writable, is_special
from specli.rng import RANDOM_SEED
from specli.workers.config import WorkersConfig

if TYPE_CHECKING:
    from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig

SCHEMA = "specli.run/1"
ELSEWHERE = ("path", "threads")
"""Settings of a model file that change no result."""


@dataclass(frozen=True)
class Task:
    """One prompt of a batch.

    Attributes:
        index: Its place among the prompts, from 0.
        prompt: The prompt.
        request: What is asked for.
    """

    index: int
    prompt: Prompt
    request: RequestConfig

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"prompt {self.index + 1 if self.prompt.id is None else self.prompt.id}"


def tasks_of(config: CommandConfig, prompts: Sequence[Prompt]) -> list[Task]:
    """The prompts with their requests; with `--seed-per-prompt` each has a seed of its own."""
    request = request_config(config)
    tasks = [Task(index, prompt, request) for index, prompt in enumerate(prompts)]
    return [seeded(task) for task in tasks] if config.prompt.seed_per_prompt else tasks


def seeded(task: Task) -> Task:
    """The task with a seed made of the given one and its place; a random seed is another one each time anyway."""
    sampling = task.request.sampling
    if sampling.seed & RANDOM_SEED == RANDOM_SEED:
        return task
    digest = hashlib.sha256(f"{sampling.seed & RANDOM_SEED} {task.index}".encode()).digest()
    seed = int.from_bytes(digest[:4], "little") % RANDOM_SEED
    return replace(task, request=replace(task.request, sampling=replace(sampling, seed=seed)))


def check_batch(config: CommandConfig, setup: RunConfig) -> None:
    """Refuses options that do not go together, and results of an earlier run that would be lost.

    Raises:
        UsageError: There are such.
    """
    batch, path = config.batch, config.output.stats_json
    if config.prompt.file is None:
        for option, is_given in (
            ("--resume", batch.resume),
            ("--unordered", batch.unordered),
            ("--workers", batch.is_shared),
        ):
            if is_given:
                raise UsageError(f"{option} goes with --prompts")
        return
    if batch.is_shared:
        check_cluster(batch.workers, (setup.target, setup.draft))
        for option, is_given in (
            ("--verify-lossless", config.verify_lossless),
            ("--verbose-prompt", config.prompt.verbose),
            ("--parallel", batch.n_parallel > 1),
        ):
            if is_given:
                raise UsageError(f"{option} needs one process", hint="leave out --workers")
    if is_apart(config) and setup.speculation.tables.get("ngram-cache", {}).get("dynamic"):
        option = "--stats-json" if path is not None else "--parallel" if batch.n_parallel > 1 else "--workers"
        raise UsageError(
            f"--lookup-cache-dynamic grows from prompt to prompt, {option} keeps the prompts of a file apart",
            hint="leave out one of them; --json writes records, too",
        )
    if path is None:
        if batch.resume:
            raise UsageError("--resume goes on with a file", hint="name it with --stats-json")
        return
    if not is_special(path) and not batch.resume:
        Journal(path).check_unused()
    elif is_special(path) and batch.resume:
        raise UsageError(f"{path}: is no file that --resume could go on with")


def check_cluster(where: WorkersConfig | None, loads: Iterable[ModelLoadConfig | None]) -> None:
    """Refuses settings that workers on a cluster cannot have.

    Raises:
        UsageError: There are such.
    """
    if where is None or where.ray is None:
        return
    for load in filter(None, loads):
        threads = load.threads
        if threads.cpu_mask is not None or threads.strict or threads.priority:
            raise UsageError(
                "--workers ray does not go with --cpu-mask, --cpu-range, --cpu-strict and --prio",
                hint="they name CPUs of this machine; --threads is for each worker",
            )


def is_apart(config: CommandConfig) -> bool:
    """Whether each prompt starts from nothing, so that its record does not depend on those before it."""
    batch = config.batch
    return config.output.stats_json is not None or batch.workers is not None or batch.n_parallel > 1


def with_slots(config: CommandConfig, setup: RunConfig) -> RunConfig:
    """The engine with a slot for each request that runs at once; they share `--ctx-size` unless it is unified."""
    from specli.engine.config import shared_context

    n_slots = 1 if config.prompt.file is None else config.batch.n_parallel
    n_ctx = setup.n_ctx if config.batch.is_unified else shared_context(setup.n_ctx, n_slots)
    return replace(setup, n_slots=n_slots, n_ctx=n_ctx)


class Results:
    """What became of the prompts: records on stdout (`--json`), and in the file of `--stats-json`, a line each.

    Args:
        config: Where they go.
        console: The streams.
        tasks: All prompts.

    Attributes:
        n_failed: Prompts that have an error instead of a text.
    """

    def __init__(self, config: CommandConfig, console: Console, tasks: Sequence[Task]) -> None:
        self.n_failed = 0
        self._config = config
        self._console = console
        self._tasks = tasks
        self._keys: dict[int, str] = {}
        self._lines: dict[int, str] = {}
        path = config.output.stats_json
        self._journal = Journal(path) if path is not None and not is_special(path) else None

    def open(self, setup: RunConfig, files: Iterable[FileIdentity]) -> list[Task]:
        """Begins, or goes on with what is there.

        Args:
            setup: What the engine is made of.
            files: The model files in use.

        Returns:
            The prompts that are left to do.

        Raises:
            SpecliError: The file cannot be written or gone on with.
        """
        if self._journal is None:
            return list(self._tasks)
        common = _settings_text(setup, files)
        self._keys = {task.index: _key(common, task) for task in self._tasks}
        self._journal.open(self._number_of if self._config.batch.resume else None)
        there = self._journal.numbers
        if there:
            self._console.info(f"{self._journal.part}: {len(there)} of {len(self._tasks)} prompts are done")
        return [task for task in self._tasks if task.index not in there]

    def add(self, task: Task, record: Mapping[str, Any]) -> None:
        """Takes the record of a prompt and shows it; one that was interrupted does not go to the file.

        Raises:
            ResourceError: The file cannot be written.
        """
        line = self.keep(task, record)
        if self._config.output.json:
            self._console.write(line)

    def keep(self, task: Task, record: Mapping[str, Any]) -> str:
        """Puts the record of a prompt into the file; the line, to be shown.

        Raises:
            ResourceError: The file cannot be written.
        """
        named = {"index": task.index, **({} if task.prompt.id is None else {"id": task.prompt.id}), **record}
        if self._keys:
            named["key"] = self._keys[task.index]
        line = dump(named)
        if self._journal is None:
            self._lines[task.index] = line
        elif record.get("stop") != "interrupt":
            self._journal.append(task.index, line.encode())
        return line

    def failure(self, task: Task, error: SpecliError) -> dict[str, Any]:
        """Says what is wrong with a prompt; the record that stands in the place of its text."""
        self.n_failed += 1
        for line in error_lines(error):
            self._console.log(ERROR, line.replace("error: ", f"error: {task.name}: ", 1))
        return {"schema": SCHEMA, "error": str(error)}

    def finish(self, *, is_interrupted: bool) -> None:
        """Gives the file its name; after an interrupt the part stays, and a line says how to go on.

        Raises:
            ResourceError: It cannot be written.
        """
        if self._journal is None:
            if self._config.output.stats_json is not None:
                order = self._lines if self._config.batch.unordered else sorted(self._lines)
                write_lines(self._config.output.stats_json, [self._lines[index] for index in order])
        elif not is_interrupted:
            self._journal.finish(ordered=not self._config.batch.unordered)
        elif self._journal.numbers:
            n_done = len(self._journal.numbers)
            self._console.info(
                f"{self._journal.part}: {n_done} of {len(self._tasks)} prompts are done; --resume does the rest"
            )

    def close(self) -> None:
        """Lets go of the file."""
        if self._journal is not None:
            self._journal.close()

    def _number_of(self, line: bytes) -> int | None:
        """The place of a line that is taken over: the same prompt, settings and models, and no error."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict) or "error" in record or not isinstance(record.get("index"), int):
            return None
        index: int = record["index"]
        return index if record.get("key") == self._keys.get(index, "") else None


def check_stats_file(config: CommandConfig) -> None:
    """Raises now what would keep the file of `--stats-json` from being written.

    Raises:
        ResourceError: It cannot be.
    """
    if config.output.stats_json is not None:
        check_writable(config.output.stats_json)


def _settings_text(setup: RunConfig, files: Iterable[FileIdentity]) -> str:
    """Everything but prompt and request that a result depends on, as text."""
    loads = [_load_settings(load) for load in (setup.target, setup.draft) if load is not None]
    contents = [[file.n_bytes, file.sha256] for file in files]
    return _text([__version__, contents, loads, asdict(setup.speculation), setup.n_ctx, setup.n_batch])


def _load_settings(load: ModelLoadConfig) -> dict[str, Any]:
    return {name: value for name, value in asdict(load).items() if name not in ELSEWHERE}


def _key(common: str, task: Task) -> str:
    prompt = task.prompt
    return hashlib.sha256(_text([common, asdict(task.request), prompt.id, prompt.text]).encode()).hexdigest()[:32]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
