"""The role of workers that compare drafters: how many tokens they get right, prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from specli.engine.config import RequestConfig, RunConfig
from specli.engine.drafting import DrafterSet
from specli.engine.load import Run, open_target
from specli.study.compare import Entry, Plan, StudyPrompt, assemble, compare_prompt, encode_prompt
from specli.study.comparison import Comparison, Sample
from specli.workers.pool import share


@dataclass(frozen=True)
class Compared:
    """What a worker found with one prompt.

    Attributes:
        target: The target, as a comparison records it.
        kernels: What ran it.
        request: What was asked for, and the sampling in force.
        n_tokens: Of the prompt.
        types: Name of a contender → its drafters.
        samples: Name of a contender → its requests.
    """

    target: dict[str, Any]
    kernels: str
    request: dict[str, Any]
    n_tokens: int
    types: Mapping[str, tuple[str, ...]]
    samples: Mapping[str, Sequence[Sample]]


@dataclass
class Comparing:
    """Workers that compare drafters; a task is the number of a group of entries and a prompt, a result `Compared`.

    Attributes:
        plain: The run without drafters.
        groups: Entries that are built side by side, `plain` in each.
        request: What every run generates.
        repeats: Runs per prompt and entry.
        template: Whether prompts are messages to the chat template; None = if the model has one.
        variables: For the template.
    """

    plain: RunConfig
    groups: list[list[Entry]]
    request: RequestConfig
    repeats: int
    template: bool | None
    variables: Mapping[str, Any]
    _built: tuple[int, dict[str, DrafterSet]] | None = field(default=None, init=False)

    def divided(self, worker: int, n_workers: int) -> Comparing:
        """With a share of the threads."""

        def shared(config: RunConfig) -> RunConfig:
            return share(config, worker, n_workers)

        groups = [[replace(entry, config=shared(entry.config)) for entry in group] for group in self.groups]
        return replace(self, plain=shared(self.plain), groups=groups)

    @contextmanager
    def open(self) -> Iterator[Run]:
        """Loads the target, and the drafters of the first group."""
        with open_target(self.plain) as run:
            run.loader.fit([entry.config for entry in group] for group in self.groups)
            self._sets(run, 0)
            yield run

    def lines(self, run: Run) -> list[str]:
        """The target."""
        return [run.loader.line()]

    def answer(self, run: Run, task: tuple[int, StudyPrompt]) -> Compared:
        """Runs a group of entries on a prompt."""
        number, prompt = task
        sets = self._sets(run, number)
        plan = Plan(
            request=self.request,
            repeats=self.repeats,
            warmup=0,
            applies_template=run.has_template if self.template is None else self.template,
            variables=self.variables,
        )
        ids = encode_prompt(run, prompt.text, applies_template=plan.applies_template, variables=plan.variables)
        samples = compare_prompt(run, sets, prompt.id, ids, plan)
        types = {name: drafters.names for name, drafters in sets.items()}
        kernels = run.engine.target.executor.describe()
        return Compared(run.loader.record, kernels, plan.record(run.sampling(self.request)), len(ids), types, samples)

    def _sets(self, run: Run, number: int) -> dict[str, DrafterSet]:
        """The drafters of a group; those of the group before are closed."""
        if self._built is None or self._built[0] != number:
            group = self.groups[number]
            built = run.binding.build([entry.config for entry in group], keeps_files=True)
            self._built = number, dict(zip([entry.name for entry in group], built, strict=True))
        return self._built[1]


def together(
    entries: Sequence[Entry], prompts: Sequence[StudyPrompt], found: Sequence[tuple[int, Compared]]
) -> Comparison:
    """The comparison made of what workers found.

    Args:
        entries: All contenders.
        prompts: The whole set; those without a result are left out.
        found: Worker and result, in the order of groups and prompts.
    """
    samples: dict[str, list[Sample]] = {entry.name: [] for entry in entries}
    n_tokens: dict[str, int] = {}
    types: dict[str, tuple[str, ...]] = {}
    for worker, result in found:
        types.update(result.types)
        for name, more in result.samples.items():
            samples[name] += [replace(sample, worker=worker + 1) for sample in more]
            n_tokens.update((sample.prompt, result.n_tokens) for sample in more)
    first = found[0][1]
    return assemble(entries, prompts, types, samples, n_tokens, first.target, first.kernels, first.request)
