"""Finds the draft settings that pay most for a target, its drafters and a prompt set.

Every drafter type is tuned on its own. Tables of n-grams are tuned on paper: the target writes its answers once, each
setting is replayed on them (`specli.study.replay`), and a measured cost model turns rounds into time, so hundreds of
settings take seconds and the same costs give the same result. Networks are measured, setting by setting.

The search varies one setting after the other, from those in force on and in an order drawn from the seed, until none
helps or the time is up. A setting wins only if it is better by more than 1 %, so that noise does not choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specli.drafters import DRAFTERS, DrafterSpec, TableSpec, tables_of
from specli.drafters.chain import DrafterChain
from specli.drafters.settings import AUTO_LENGTH, SpeculationConfig
from specli.engine.config import RequestConfig, RunConfig
from specli.engine.load import Run
from specli.errors import UsageError
from specli.rng import MersenneTwister
from specli.study.compare import Plan, StudyPrompt, encode_prompt, measure
from specli.study.costs import CostModel, verification_costs
from specli.study.counts import Totals
from specli.study.replay import replay, tokens_only

SCHEMA = "specli.tune/1"
MARGIN = 1.01  # a new setting must be faster by this factor
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 65)  # rows of a verification that are measured


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    Attributes:
        values: Option → value.
        speed_up: Against plain decoding.
        tokens_per_round: Tokens per target forward.
    """

    values: dict[str, float]
    speed_up: float
    tokens_per_round: float

    def flags(self, name: str) -> str:
        """As command line."""
        return " ".join((f"--spec-type {name}", *(f"{option} {value:g}" for option, value in self.values.items())))


@dataclass
class TypeResult:
    """What was found for one drafter type.

    Attributes:
        name: The type.
        is_replayed: Speed-ups are computed from replays and costs, not measured.
        trials: All settings, in the order they were tried; the first is the one in force.
        is_complete: The search ended by itself, not by the clock.
    """

    name: str
    is_replayed: bool
    trials: list[Trial] = field(default_factory=list)
    is_complete: bool = True

    @property
    def best(self) -> Trial:
        """The fastest setting; the earlier one of two that differ by less than the margin."""
        best = self.trials[0]
        for trial in self.trials[1:]:
            if trial.speed_up > best.speed_up * MARGIN:
                best = trial
        return best


@dataclass
class Tuning:
    """The result for a pair.

    Attributes:
        costs: What verifications of the target cost.
        plain_per_second: Tokens per second without drafting.
        types: One result per type.
    """

    costs: CostModel
    plain_per_second: float
    types: list[TypeResult] = field(default_factory=list)

    @property
    def best(self) -> TypeResult | None:
        """The type that pays most; None if none does."""
        best = max(self.types, key=lambda result: result.best.speed_up, default=None)
        return best if best is not None and best.best.speed_up > 1 else None

    @property
    def flags(self) -> str:
        """The flag line to use."""
        return self.best.best.flags(self.best.name) if self.best else "--spec-type none"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": SCHEMA,
            "flags": self.flags,
            "plain_per_second": self.plain_per_second,
            "costs": self.costs.to_dict(),
            "types": [
                {
                    "type": result.name,
                    "is_replayed": result.is_replayed,
                    "is_complete": result.is_complete,
                    "flags": result.best.flags(result.name),
                    "speed_up": result.best.speed_up,
                    "trials": [vars(trial) for trial in result.trials],
                }
                for result in self.types
            ],
        }


@dataclass
class Answers:
    """What the target wrote, and what that cost without drafting."""

    sequences: list[tuple[list[int], int]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)


def tune(
    run: Run,
    config: RunConfig,
    drafts: Sequence[tuple[str, RunConfig]],
    prompts: Sequence[StudyPrompt],
    plan: Plan,
    *,
    seconds: float,
) -> Tuning:
    """Searches for the best settings of every type.

    Args:
        run: An open target.
        config: The run without drafters.
        drafts: Drafter type and its run, settings in force included.
        prompts: What is answered.
        plan: Request, template and progress; repeats do not count.
        seconds: Time the search may take; each type gets an equal share of what is left.

    Raises:
        UsageError: There is nothing to tune.
    """
    if not drafts:
        raise UsageError("--tune needs a drafter", hint="name some with --spec-type, or give one with -md")
    deadline = time.monotonic() + seconds
    tables = [draft for name, draft in drafts if tables_of([name])]
    # The tables are built, too, so that the target gets room for their drafts.
    plain, *_ = run.binding.build([config, *tables], keeps_files=True)
    answers = Answers()
    for number, prompt in enumerate(prompts):
        plan.on_progress(number, len(prompts), f"plain: {prompt.id}")
        ids = encode_prompt(run, prompt.text, applies_template=plan.applies_template, variables=plan.variables)
        sample, tokens = measure(run, plain, prompt.id, ids, 0, plan.request)
        answers.totals.count(sample.timings, ())
        answers.sequences.append(([*ids, *tokens], len(ids)))
    timings = answers.totals.timings
    costs = CostModel(verification_costs(run.engine, SIZES), timings.sample_ns / max(1, timings.n_steps))
    tuning = Tuning(costs, answers.totals.tokens_per_second or 0.0)
    for index, (name, draft) in enumerate(drafts):
        share = (deadline - time.monotonic()) / (len(drafts) - index)
        spec = DRAFTERS[name]
        setting = draft.speculation
        if setting.draft.n_max == AUTO_LENGTH:
            setting = spec.with_length(setting, run.loader.check(draft).length(spec))
        search = Search(spec, setting, plan, time.monotonic() + share)
        if isinstance(spec, TableSpec):
            tuning.types.append(search.run(Replayer(run, spec, answers, costs), is_replayed=True))
        else:
            tuning.types.append(search.run(Measurer(run, draft, config, prompts, plan), is_replayed=False))
    plan.on_progress(1, 1, "")
    return tuning


Score = Callable[[SpeculationConfig], tuple[float, float]]
"""Settings → (speed-up, tokens per round)."""


@dataclass
class Search:
    """The search of one type.

    Attributes:
        spec: The type.
        start: Settings in force.
        plan: For progress and the seed.
        deadline: When to end.
    """

    spec: DrafterSpec
    start: SpeculationConfig
    plan: Plan
    deadline: float

    def run(self, score: Score, *, is_replayed: bool) -> TypeResult:
        """Setting by setting, until a whole turn changes nothing or the time is up."""
        result = TypeResult(self.spec.name, is_replayed)
        tried: dict[tuple[float, ...], Trial] = {}
        best = self._try(self.start, score, tried, result)
        assert best is not None
        config = self.start
        order = MersenneTwister(self.plan.request.sampling.seed)
        varied = [setting for setting in self.spec.settings if setting.tries]
        is_better = True
        while is_better and result.is_complete:
            is_better = False
            for setting in shuffled(varied, order):
                for value in shuffled(setting.tries, order):
                    candidate = self.spec.with_values(config, {setting.name: value})
                    trial = self._try(candidate, score, tried, result) if self.spec.is_sound(candidate) else None
                    if trial is not None and trial.speed_up > best.speed_up * MARGIN:
                        best, config, is_better = trial, candidate, True
                    if time.monotonic() > self.deadline or self.plan.is_stopped():
                        result.is_complete = False
                        return result
        return result

    def _try(
        self, config: SpeculationConfig, score: Score, tried: dict[tuple[float, ...], Trial], result: TypeResult
    ) -> Trial | None:
        values = self.spec.values(config)
        shown = {setting.option: values[setting.name] for setting in self.spec.settings if setting.tries}
        key = tuple(shown.values())
        if key in tried:
            return None
        self.plan.on_progress(len(tried), 0, f"{self.spec.name}: {len(tried)} settings")
        speed_up, per_round = score(config)
        trial = Trial(shown, speed_up, per_round)
        tried[key] = trial
        result.trials.append(trial)
        return trial


def shuffled(items: Sequence[Any], order: MersenneTwister) -> list[Any]:
    """The items in an order that the generator draws (Fisher-Yates)."""
    left, drawn = list(items), []
    while left:
        drawn.append(left.pop(int(order.double() * len(left))))
    return drawn


@dataclass
class Replayer:
    """Scores settings of a table by replaying the target's answers."""

    run: Run
    spec: TableSpec
    answers: Answers
    costs: CostModel

    def __call__(self, setting: SpeculationConfig) -> tuple[float, float]:
        """The time of all rounds, a forward per round, against as many plain steps as there are tokens."""
        n_tokens = n_rounds = 0
        spent = 0.0
        for tokens, n_prompt in self.answers.sequences:
            chain = DrafterChain([self.spec.make(setting, self.run.tokenizer.n_vocab)])
            found = replay(chain, tokens, n_prompt=n_prompt, feed=tokens_only(chain))
            n_tokens += found.n_tokens
            n_rounds += found.n_rounds
            spent += sum(self.costs.verification(rows) * count for rows, count in found.rows.items())
        if not n_rounds:
            return 1.0, 1.0
        spent += n_tokens * self.costs.sample
        return n_tokens * self.costs.plain / spent, n_tokens / n_rounds


@dataclass
class Measurer:
    """Scores settings of a network by running them and plain decoding on the prompts, in turns."""

    run: Run
    config: RunConfig
    plain: RunConfig
    prompts: Sequence[StudyPrompt]
    plan: Plan

    def __call__(self, setting: SpeculationConfig) -> tuple[float, float]:
        """Measured speed against plain decoding, run in between."""
        entry = replace(self.config, speculation=setting)
        drafted, plain = self.run.binding.build([entry, self.plain], keeps_files=True)
        request: RequestConfig = self.plan.request
        totals, reference = Totals(), Totals()
        for prompt in self.prompts:
            ids = encode_prompt(
                self.run, prompt.text, applies_template=self.plan.applies_template, variables=self.plan.variables
            )
            for drafters, into in ((drafted, totals), (plain, reference)):
                sample, _ = measure(self.run, drafters, prompt.id, ids, 0, request)
                into.count(sample.timings, sample.drafters)
        speed, base = totals.tokens_per_second, reference.tokens_per_second
        return (speed / base if speed and base else 1.0), totals.tokens_per_round or 1.0
