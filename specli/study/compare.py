"""Measures drafters against each other on one target.

The runs of all contenders are interleaved, prompt by prompt and repeat by repeat, so that a machine that slows down or
is busy for a while slows all of them. Every run starts with an empty cache, empty tables and counters at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specli.engine.config import RequestConfig, RunConfig
from specli.engine.drafting import DrafterSet
from specli.engine.load import Run
from specli.sampling.settings import SamplingSettings
from specli.study.comparison import PLAIN, Comparison, Contender, PromptRecord, Sample

ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class StudyPrompt:
    """One prompt of a set.

    Attributes:
        id: Its name in reports.
        category: What kind of text it asks for.
        text: What the model is given, or the user's message if a chat template is applied.
        turns: Further messages of the user, each after an answer; only servers are asked several.
    """

    id: str
    category: str
    text: str
    turns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A contender to be.

    Attributes:
        name: Its name in reports.
        config: Drafters, draft model and settings.
        settings: What the report says about the settings.
    """

    name: str
    config: RunConfig
    settings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Plan:
    """How a comparison is made.

    Attributes:
        request: What every run generates; the seed is fixed.
        repeats: Measured runs per prompt and contender.
        warmup: Unmeasured runs per contender before them.
        applies_template: Prompts are messages to the model's chat template.
        variables: For the template.
        on_progress: Is told (runs done, runs in all, what runs next).
        is_stopped: Asked between runs; true ends the comparison with what there is.
    """

    request: RequestConfig
    repeats: int = 3
    warmup: int = 1
    applies_template: bool = False
    variables: Mapping[str, Any] | None = None
    on_progress: Callable[[int, int, str], None] = lambda done, total, what: None
    is_stopped: Callable[[], bool] = lambda: False

    def record(self, sampling: SamplingSettings) -> dict[str, Any]:
        """What was asked for, as a comparison keeps it."""
        return {
            "n_predict": self.request.n_predict,
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "chat_template": self.applies_template,
            "template_variables": dict(self.variables or {}) if self.applies_template else {},
            "repeats": self.repeats,
        }


def encode_prompt(
    run: Run, text: str, *, applies_template: bool, variables: Mapping[str, Any] | None = None
) -> list[int]:
    """Tokens of a prompt, as `generate` makes them, or as the first message of a chat."""
    if not applies_template:
        return run.encode(text)
    session = run.session(variables=variables)
    session.messages.append({"role": "user", "content": text})
    return run.tokenizer.encode_chat(session.render())


def compare(run: Run, entries: Sequence[Entry], prompts: Sequence[StudyPrompt], plan: Plan) -> Comparison:
    """Runs all entries, `plain` among them, on all prompts.

    Raises:
        SpecliError: Drafters do not fit, or a prompt does not fit into the context.
    """
    encoded = [
        (prompt, encode_prompt(run, prompt.text, applies_template=plan.applies_template, variables=plan.variables))
        for prompt in prompts
    ]
    contenders = {entry.name: Contender(entry.name, (), [dict(item) for item in entry.settings]) for entry in entries}
    groups = group_by_draft_file(entries)
    n_rounds = plan.warmup + plan.repeats * len(encoded)
    total, done = n_rounds * sum(map(len, groups)), 0
    references: dict[str, list[int]] = {}
    sampling = run.sampling(plan.request)
    for group in groups:
        built = run.binding.build([entry.config for entry in group], keeps_files=True)
        sets = dict(zip([entry.name for entry in group], built, strict=True))
        for name, drafters in sets.items():
            contenders[name].types = drafters.names
        rounds = [(encoded[0], -1)] * plan.warmup
        rounds += [(pair, repeat) for repeat in range(plan.repeats) for pair in encoded]
        for (prompt, ids), repeat in rounds:
            for name, drafters in sets.items():
                if plan.is_stopped():
                    break
                plan.on_progress(done, total, f"{name}: {prompt.id}")
                sample, tokens = measure(run, drafters, prompt.id, ids, repeat, plan.request)
                done += 1
                if repeat < 0:
                    continue
                reference = references.setdefault(prompt.id, tokens) if name == PLAIN else references.get(prompt.id)
                contenders[name].samples.append(with_verdict(sample, tokens, reference, drafters, sampling))
    plan.on_progress(total, total, "")
    kernels = run.engine.target.executor.describe()
    return assemble(
        entries,
        prompts,
        {name: contender.types for name, contender in contenders.items()},
        {name: contender.samples for name, contender in contenders.items()},
        {prompt.id: len(ids) for prompt, ids in encoded},
        run.loader.record,
        kernels,
        plan.record(sampling),
    )


def assemble(
    entries: Sequence[Entry],
    prompts: Sequence[StudyPrompt],
    types: Mapping[str, tuple[str, ...]],
    samples: Mapping[str, list[Sample]],
    n_tokens: Mapping[str, int],
    target: dict[str, Any],
    kernels: str,
    request: dict[str, Any],
) -> Comparison:
    """A comparison made of its parts, by names of contenders and prompts; prompts without a length are left out."""
    contenders = [
        Contender(entry.name, types.get(entry.name, ()), [dict(item) for item in entry.settings], samples[entry.name])
        for entry in entries
    ]
    records = [PromptRecord(p.id, p.category, n_tokens[p.id]) for p in prompts if p.id in n_tokens]
    return Comparison(target, kernels, request, records, contenders)


def compare_prompt(
    run: Run, sets: Mapping[str, DrafterSet], prompt: str, ids: Sequence[int], plan: Plan
) -> dict[str, list[Sample]]:
    """Runs sets of drafters, `plain` first, on one prompt: name → samples."""
    samples: dict[str, list[Sample]] = {name: [] for name in sets}
    sampling = run.sampling(plan.request)
    reference: list[int] | None = None
    for repeat in range(plan.repeats):
        for name, drafters in sets.items():
            sample, tokens = measure(run, drafters, prompt, ids, repeat, plan.request)
            if name == PLAIN and reference is None:
                reference = tokens
            samples[name].append(with_verdict(sample, tokens, reference, drafters, sampling))
    return samples


def group_by_draft_file(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Entries that can be measured side by side: one draft file per group, `plain` in each, tables in the first."""
    groups: dict[Any, list[Entry]] = {}
    plain, tables = [], []
    for entry in entries:
        if entry.name == PLAIN:
            plain.append(entry)
        elif entry.config.draft is None:
            tables.append(entry)
        else:
            groups.setdefault(entry.config.draft.path, []).append(entry)
    first, *others = list(groups.values()) or [[]]
    return [[*plain, *tables, *first], *([*plain, *group] for group in others)]


def measure(
    run: Run, drafters: DrafterSet, prompt: str, ids: Sequence[int], repeat: int, request: RequestConfig
) -> tuple[Sample, list[int]]:
    """One run from scratch, and its tokens."""
    drafters.renew()
    run.binding.use(drafters)
    generation = run.generate(ids, request)
    for _ in generation:
        pass
    stats = drafters.chain.stats
    return Sample(prompt, repeat, generation.timings, stats, None), generation.tokens


def with_verdict(
    sample: Sample, tokens: list[int], reference: list[int] | None, drafters: DrafterSet, sampling: SamplingSettings
) -> Sample:
    """The sample with a word on whether its tokens are those of plain decoding, where they have to be.

    They need not be with synthetic acceptance, nor with rejection sampling, which keeps the distribution only.
    """
    if need_not_be_plain(drafters, sampling) or reference is None:
        return sample
    return Sample(sample.prompt, sample.repeat, sample.timings, sample.drafters, tokens == reference)


def need_not_be_plain(drafters: DrafterSet, sampling: SamplingSettings) -> bool:
    """Whether tokens may be others than those of plain decoding: with synthetic acceptance or rejection sampling."""
    probabilistic = drafters.plan.config.speculation.draft.probabilistic
    return drafters.synthetic is not None or (probabilistic and sampling.temperature > 0)
