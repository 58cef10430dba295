"""Throughput of one engine at several numbers of requests at once, per choice of drafters.

Like llama.cpp's `llama-batched-bench -npl`, but with real prompts and drafters. As many requests as a level says are
kept under way; the engine is the same for all levels and has a slot for each request of the largest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice, pairwise

from specli.engine.drafting import DrafterSet
from specli.engine.load import Run
from specli.engine.scheduler import Scheduler
from specli.engine.sequence import Sequence as Request
from specli.study.compare import Entry, Plan, StudyPrompt, encode_prompt, group_by_draft_file, need_not_be_plain
from specli.study.load import DraftCount, Level, LoadStudy, Reply

PER_LEVEL = 2
"""Requests of a level at least, as a multiple of those at once; a smaller set of prompts is gone through again."""

Encoded = tuple[StudyPrompt, list[int]]


def measure_levels(
    run: Run, entries: Sequence[Entry], prompts: Sequence[StudyPrompt], levels: Sequence[int], plan: Plan
) -> LoadStudy:
    """Runs all entries, `plain` among them, at all levels; contenders take turns at each.

    Every level begins with empty tables and caches. Each request reads its prompt anew.

    Args:
        run: An open target with a slot for each request of the largest level.
        entries: The choices of drafters.
        prompts: What is asked.
        levels: Numbers of requests at once.
        plan: How.

    Raises:
        SpecliError: Drafters do not fit, or a prompt does not fit into the context.
    """
    encoded = [
        (prompt, encode_prompt(run, prompt.text, applies_template=plan.applies_template, variables=plan.variables))
        for prompt in prompts
    ]
    sampling = run.sampling(plan.request)
    groups = group_by_draft_file(entries)
    found: dict[tuple[str, int], Level] = {}
    references: dict[str, list[int]] = {}
    total = sum(map(len, groups)) * len(levels) * plan.repeats
    done = 0
    for group in groups:
        built = run.binding.build([entry.config for entry in group], keeps_files=True)
        sets = dict(zip([entry.name for entry in group], built, strict=True))
        for drafters in sets.values():
            for _ in range(plan.warmup):
                _measure(run, drafters, Level("", 1), encoded[:1], plan, {})
        for n in levels:
            wanted = list(islice(cycle(encoded), max(len(encoded), PER_LEVEL * n)))
            for _ in range(plan.repeats):
                for name, drafters in sets.items():
                    if plan.is_stopped():
                        break
                    plan.on_progress(done, total, f"{name}: {n} at once")
                    level = found.setdefault((name, n), Level(name, n))
                    is_free = need_not_be_plain(drafters, sampling)
                    _measure(run, drafters, level, wanted, plan, references if not is_free else {})
                    done += 1
    plan.on_progress(total, total, "")
    names = dict.fromkeys(entry.name for group in groups for entry in group)
    request = {
        "n_predict": plan.request.n_predict,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "chat_template": plan.applies_template,
        "template_variables": dict(plan.variables or {}) if plan.applies_template else {},
        "repeats": plan.repeats,
        "n_prompts": len(prompts),
        "n_ctx": run.engine.n_ctx,
    }
    source = {"target": run.loader.record, "kernels": run.engine.target.executor.describe()}
    return LoadStudy(source, request, [found[name, n] for name in names for n in levels if (name, n) in found])


@dataclass
class _Timed:
    """A request under way, and when its tokens came, in nanoseconds."""

    prompt: StudyPrompt
    begun: int
    came: list[int] = field(default_factory=list)


def _measure(
    run: Run,
    drafters: DrafterSet,
    level: Level,
    wanted: Sequence[Encoded],
    plan: Plan,
    references: dict[str, list[int]],
) -> None:
    """Adds one run through the prompts to a level."""
    drafters.renew()
    run.binding.use(drafters)
    under_way: dict[Request, _Timed] = {}
    start = time.perf_counter_ns()

    def requests() -> Iterator[Request]:
        for prompt, ids in wanted:
            begun = time.perf_counter_ns()
            request = run.sequence(ids, plan.request)
            request.reuses = False
            under_way[request] = _Timed(prompt, begun)
            yield request

    for request in Scheduler(run.engine, level.concurrency).run(requests(), plan.is_stopped):
        now, timed = time.perf_counter_ns(), under_way[request]
        timed.came += [now] * len(request.events)
        request.events.clear()
        if not request.is_done:
            continue
        del under_way[request]
        level.replies.append(_reply(request, timed, start, now))
        if request.error is None:
            reference = references.setdefault(timed.prompt.id, request.tokens)
            level.n_different += bool(reference != request.tokens)
    level.n_cut += len(under_way)
    level.seconds += (time.perf_counter_ns() - start) / 1e9


def _reply(request: Request, timed: _Timed, start: int, now: int) -> Reply:
    timings, came = request.timings, timed.came
    return Reply(
        prompt=timed.prompt.id,
        category=timed.prompt.category,
        begun_ms=(timed.begun - start) / 1e6,
        latency_ms=(now - timed.begun) / 1e6,
        first_ms=(came[0] - timed.begun) / 1e6 if came else None,
        gaps_ms=tuple((after - before) / 1e6 for before, after in pairwise(came)),
        prompt_n=timings.prompt_n,
        predicted_n=timings.predicted_n,
        draft_n=timings.draft_n,
        draft_n_accepted=timings.draft_n_accepted,
        drafters=tuple(DraftCount(stats.name, stats.gen_tokens, stats.acc_tokens) for stats in request.drafters),
        prompt_ms=timings.prompt_ns / 1e6,
        predicted_ms=timings.predicted_ns / 1e6,
        prompt_per_second=timings.prompt_per_second,
        predicted_per_second=timings.predicted_per_second,
        finish=request.stop,
        error=None if request.error is None else str(request.error),
    )
