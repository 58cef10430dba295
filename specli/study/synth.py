"""Synthetic acceptance: what drafting brings at a given acceptance, predicted from costs and measured.

The engine accepts draft tokens by chance (docs/speculation.md §7) and does all the work of real decoding. Output is not
valid model output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from specli.drafters import DRAFTERS
from specli.drafters.settings import SpeculationConfig, SynthConfig
from specli.drafters.stats import DrafterStats
from specli.engine.config import RunConfig
from specli.engine.drafting import DrafterPlan, DrafterSet
from specli.engine.load import Run
from specli.errors import UsageError
from specli.study.compare import Plan, StudyPrompt, encode_prompt, measure
from specli.study.costs import CostModel, expected_length, verification_costs
from specli.study.counts import Totals

SCHEMA = "specli.synth/1"
SWEEP_N_MAX = (1, 2, 4, 8, 16)
ACCEPTANCES = tuple(tenth / 10 for tenth in range(1, 10))
SWEEP_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Share of the draft tokens that stand; share s of K tokens is a length of 1 + s·K."""


@dataclass(frozen=True)
class SynthPoint:
    """One setting, measured.

    Attributes:
        n_max: Effective maximum draft length K.
        rates: Unconditional acceptance per position.
        totals: Counters of the drafted runs.
        measured: Speed against plain decoding, run in between; None without tokens.
        predicted: The cost model's word on the rounds that were run.
        costs: The cost model, with this setting's drafts.
    """

    n_max: int
    rates: tuple[float, ...]
    totals: Totals
    measured: float | None
    predicted: float | None
    costs: CostModel

    @property
    def length(self) -> float:
        """Mean tokens per round asked for."""
        return 1.0 + sum(self.rates)

    @property
    def drafters(self) -> Sequence[DrafterStats]:
        """Counters by drafter."""
        return self.totals.drafters

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "n_max": self.n_max,
            "rates": list(self.rates),
            "length": self.length,
            "length_measured": self.totals.timings.mean_acc_len,
            "tokens_per_second": self.totals.tokens_per_second,
            "speed_up_measured": self.measured,
            "speed_up_predicted": self.predicted,
            "break_even": self.costs.break_even(self.n_max),
            "break_even_length": self.costs.break_even_length(self.n_max),
            "draft_ms": self.costs.draft / 1e6,
            "timings": asdict(self.totals.timings),
            "drafters": [asdict(stats) for stats in self.drafters],
        }


@dataclass(frozen=True)
class Synthesis:
    """A whole study.

    Attributes:
        target: path, arch, quant, n_params, bytes.
        kernels: What ran the target.
        types: Drafter types.
        costs: Verification by rows, and sampling; drafts are in the points.
        points: One per setting.
    """

    target: dict[str, Any]
    kernels: str
    types: tuple[str, ...]
    costs: CostModel
    points: list[SynthPoint]

    @property
    def by_length(self) -> dict[int, CostModel]:
        """The costs by maximum draft length; of several points with one length those of the cheapest drafts."""
        found: dict[int, CostModel] = {}
        for point in self.points:
            known = found.get(point.n_max)
            if known is None or point.costs.draft < known.draft:
                found[point.n_max] = point.costs
        return dict(sorted(found.items()))

    def best_length(self, acceptance: float) -> int:
        """The draft length that brings most where every token is accepted with this chance, 0 included.

        It is what is chosen while running (`specli.drafters.adaptive`) from these costs and acceptance, if lengths
        between the measured ones are left out.
        """
        speeds = {k: costs.speed_up(k, expected_length(acceptance, k)) for k, costs in self.by_length.items()}
        best = max(speeds, key=speeds.__getitem__, default=0)
        return best if speeds.get(best, 0.0) > 1 else 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON, schema `specli.synth/1`."""
        return {
            "schema": SCHEMA,
            "note": "output is not valid model output",
            "target": self.target,
            "kernels": self.kernels,
            "drafters": list(self.types),
            "costs": self.costs.to_dict(),
            "points": [point.to_dict() for point in self.points],
            "break_even": [
                {
                    "n_max": k,
                    "acceptance": costs.break_even(k),
                    "length": costs.break_even_length(k),
                    "draft_ms": costs.draft / 1e6,
                }
                for k, costs in self.by_length.items()
            ],
            "best_n_max": [{"acceptance": p, "n_max": self.best_length(p)} for p in ACCEPTANCES],
        }


def synthesise(run: Run, config: RunConfig, prompts: Sequence[StudyPrompt], plan: Plan, *, sweeps: bool) -> Synthesis:
    """Measures the settings of `config.speculation.synth`, or a sweep over draft length and mean length.

    Raises:
        UsageError: The settings contradict each other or the drafters, or nothing was asked for.
    """
    settings = sweep(run, config) if sweeps else [config]
    if not sweeps and not _is_on(config.speculation.synth):
        raise UsageError(
            "synth needs an acceptance", hint="give --spec-synth-len L, --spec-synth-rates P0,P1,…, or --sweep"
        )
    types = tuple(spec.name for spec in _without_synth(run, config).specs)
    if not types:
        raise UsageError("synthetic acceptance requires at least one speculative token", hint="name a --spec-type")
    plain = replace(config, draft=None, speculation=SpeculationConfig(types=("none",)))
    prompt_ids = [
        encode_prompt(run, prompt.text, applies_template=plan.applies_template, variables=plan.variables)
        for prompt in prompts
    ]
    measured: list[tuple[DrafterSet, Totals, Totals]] = []
    costs = CostModel({1: 0.0})
    for number, setting in enumerate(settings):
        plan.on_progress(number, len(settings), "synthetic acceptance")
        drafted, reference = run.binding.build([setting, plain], keeps_files=True)
        totals, base = Totals(), Totals()
        for repeat in range(-plan.warmup, plan.repeats):
            for ids in prompt_ids:
                for drafters, into in ((reference, base), (drafted, totals)):
                    sample, _ = measure(run, drafters, "", ids, repeat, plan.request)
                    if repeat >= 0:
                        into.count(sample.timings, sample.drafters)
        measured.append((drafted, totals, base))
        if drafted.chain.max_draft + 1 > max(costs.verify):
            sample_ns = base.timings.sample_ns / max(1, base.timings.n_steps)
            costs = CostModel(verification_costs(run.engine, _sizes(drafted.chain.max_draft)), sample_ns)
        if plan.is_stopped():
            break
    plan.on_progress(1, 1, "")
    points = [_point(drafted, totals, base, costs) for drafted, totals, base in measured]
    return Synthesis(run.loader.record, run.engine.target.executor.describe(), types, costs, points)


def sweep(run: Run, config: RunConfig) -> list[RunConfig]:
    """Settings over draft length, as far as the drafters go, and share of the draft that stands."""
    types = tuple(spec.name for spec in _without_synth(run, config).specs)
    bounded = [replace(config, speculation=_with_length(config.speculation, types, n)) for n in SWEEP_N_MAX]
    by_length = {_without_synth(run, setting).needs.max_draft: setting for setting in bounded}
    return [
        replace(setting, speculation=replace(setting.speculation, synth=SynthConfig(length=1 + share * k)))
        for k, setting in by_length.items()
        if k > 0
        for share in SWEEP_SHARES
    ]


def _with_length(speculation: SpeculationConfig, types: Sequence[str], length: int) -> SpeculationConfig:
    """Drafts of at most `length` tokens for all types that can be bounded."""
    for name in types:
        speculation = DRAFTERS[name].with_length(speculation, length)
    return speculation


def _is_on(synth: SynthConfig) -> bool:
    return synth.length is not None or bool(synth.rates)


def _without_synth(run: Run, config: RunConfig) -> DrafterPlan:
    return run.loader.check(replace(config, speculation=replace(config.speculation, synth=SynthConfig())))


def _point(drafted: DrafterSet, totals: Totals, base: Totals, costs: CostModel) -> SynthPoint:
    assert drafted.synthetic is not None
    timings = totals.timings
    of_point = replace(costs, draft=timings.draft_ns / max(1, timings.n_rounds_drafted))
    speed, plain_speed = totals.tokens_per_second, base.tokens_per_second
    return SynthPoint(
        drafted.chain.max_draft,
        drafted.synthetic.rates,
        totals,
        speed / plain_speed if speed and plain_speed else None,
        predicted_speed_up(of_point, totals),
        of_point,
    )


def predicted_speed_up(costs: CostModel, totals: Totals) -> float | None:
    """What the cost model says of the rounds that were run, drafted or not, on average; None without rounds."""
    timings, per_round = totals.timings, totals.tokens_per_round
    if per_round is None:
        return None
    verification = _mean_verification(costs, timings.draft_n / timings.n_rounds)
    drafts = costs.draft * timings.n_rounds_drafted / timings.n_rounds
    return per_round * costs.plain / (verification + drafts + costs.sample * per_round)


def _mean_verification(costs: CostModel, n_draft: float) -> float:
    """A verification with a mean number of draft tokens, on the line between the two whole numbers around it."""
    low = int(n_draft)
    return costs.verification(low + 1) + (n_draft - low) * (costs.verification(low + 2) - costs.verification(low + 1))


def _sizes(k: int) -> list[int]:
    """Rows that are measured: all up to 9, then every fourth."""
    return [*range(1, min(k + 1, 9) + 1), *range(12, k + 1, 4), k + 1]
