"""Draft lengths chosen while running against plain decoding and against fixed lengths, by pair and kind of prompt.

    python tests/benchmarks/adaptive.py -m TARGET [--pairs TYPE[+TYPE][=DRAFT.gguf]…] [--threads 1] [--repeats 3]
        [--n-prompts 8] [--n-predict 48] [--lengths 1,2,4,8] [--json FILE]

A target is a file or `demo`; `TYPE=demo` stands for the shipped drafter. All settings of a pair take turns on a prompt:
plain, fixed lengths as configured by default, every fixed length of `--lengths`, adaptive, and for networks adaptive
with `--spec-draft-n-max auto`. A cell is the geometric mean over prompts of medians of ratios of neighbouring runs, and
behind it the worst kind of prompt. The best fixed length has the highest mean over all prompts, 0 (plain) included.
Texts are compared with those of plain decoding; the last column counts those that differ, and must be 0. Reports only.

A pair takes about 8 settings, 8 prompts, 3 repeats and 48 tokens by default: some 10 s with the demo models, a minute
and a half with SmolLM2-135M on two threads.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from specli.demo import resolve
from specli.drafters import DRAFTERS, default_speculation, networks_of
from specli.drafters.settings import AUTO_LENGTH, SpeculationConfig
from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import Run, open_target
from specli.kernels.threads import ThreadConfig
from specli.sampling.settings import SamplingConfig
from specli.study.compare import encode_prompt, measure
from specli.study.prompts import spread_over_categories

PLAIN, DEFAULT, ADAPTIVE, AUTO = "plain", "default", "adaptive", "auto"
DEMO_PAIRS = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")  # MTP heads have a target of their own
TABLES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")


def settings_of(types: Sequence[str], lengths: Iterable[int]) -> dict[str, SpeculationConfig]:
    """The settings that are compared, by name; fixed lengths by number."""
    start = replace(default_speculation(), types=tuple(types))
    found = {PLAIN: SpeculationConfig(types=("none",)), DEFAULT: replace(start, adaptive=False)}
    for length in lengths:
        fixed = replace(start, adaptive=False)
        for name in types:
            fixed = DRAFTERS[name].with_length(fixed, length)
        found[str(length)] = fixed
    found[ADAPTIVE] = start
    if networks_of(types):
        found[AUTO] = replace(start, draft=replace(start.draft, n_max=AUTO_LENGTH))
    return found


def measured(run: Run, config: RunConfig, args: argparse.Namespace, types: Sequence[str]) -> dict[str, Any]:
    """Nanoseconds per token by setting and prompt, a value per repeat, and how many texts differ from plain ones."""
    settings = settings_of(types, args.lengths)
    configs = [
        replace(config, speculation=each, draft=None if n == PLAIN else config.draft) for n, each in settings.items()
    ]
    sets = dict(zip(settings, run.binding.build(configs, keeps_files=True), strict=True))
    request = RequestConfig(n_predict=args.n_predict, sampling=SamplingConfig(temperature=0.0, seed=1))
    prompts = [(each, encode_prompt(run, each.text, applies_template=run.has_template)) for each in args.prompts]
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    n_different = 0
    for repeat in range(-1, args.repeats):  # the first warms up
        for prompt, ids in prompts if repeat >= 0 else prompts[:1]:
            reference: list[int] = []
            order = list(sets) if repeat % 2 == 0 else [PLAIN, *reversed([name for name in sets if name != PLAIN])]
            for name in order:
                sample, tokens = measure(run, sets[name], prompt.id, ids, repeat, request)
                if name == PLAIN:
                    reference = tokens
                n_different += tokens != reference
                if repeat >= 0 and len(tokens) > 4:
                    times[name][prompt.id].append(sample.timings.predicted_ns / sample.timings.n_steps)
    return {"times": times, "n_different": n_different}


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def ratios(times: dict[str, dict[str, list[float]]], name: str, to: str, kinds: dict[str, str]) -> dict[str, float]:
    """How many times as fast one setting is as another, by kind; "" is the mean over all prompts."""
    found = {
        prompt: median(b / a for a, b in zip(mine, times[to][prompt], strict=True))
        for prompt, mine in times[name].items()
    }
    by_kind: dict[str, list[float]] = defaultdict(list)
    for prompt, ratio in found.items():
        by_kind[kinds[prompt]].append(ratio)
    return {"": mean(found.values()), **{kind: mean(values) for kind, values in by_kind.items()}}


def cell(by_kind: dict[str, float]) -> str:
    """`.98 (.94 prose)`."""
    worst = min((kind for kind in by_kind if kind), key=by_kind.__getitem__)
    return f"{by_kind['']:.2f} ({by_kind[worst]:.2f} {worst})"


def rows_of(pair: str, found: dict[str, Any], kinds: dict[str, str], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """A row for adaptive lengths within the default cap, and one with the cap lifted."""
    times = found["times"]
    speeds = {str(n): ratios(times, str(n), PLAIN, kinds)[""] for n in lengths} | {PLAIN: 1.0}
    best = max(speeds, key=speeds.__getitem__)
    rows = []
    for name in (ADAPTIVE, AUTO):
        if name in times:
            rows.append(
                {
                    "pair": pair + (" auto" if name == AUTO else ""),
                    "plain": ratios(times, name, PLAIN, kinds),
                    "default": ratios(times, name, DEFAULT, kinds),
                    "best": ratios(times, name, best, kinds),
                    "best_length": 0 if best == PLAIN else int(best),
                    "default_speed": ratios(times, DEFAULT, PLAIN, kinds)[""],
                    "n_different": found["n_different"],
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="target", default="demo")
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--n-prompts", type=int, default=8)
    parser.add_argument("--n-predict", type=int, default=48)
    parser.add_argument("--lengths", type=lambda text: [int(item) for item in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    is_demo = args.target == "demo"
    args.prompts = list(spread_over_categories())[: args.n_prompts]
    kinds = {prompt.id: prompt.category for prompt in args.prompts}
    pairs = args.pairs or [*(f"{name}=demo" for name in DEMO_PAIRS if is_demo), *TABLES]
    load = ModelLoadConfig(
        resolve("demo") if is_demo else Path(args.target), device="cpu", threads=ThreadConfig(n_threads=args.threads)
    )
    print("| pair | against plain | fixed against plain | against fixed | against best length | length | other texts |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for pair in pairs:
        names, _, draft = pair.partition("=")
        types = names.split("+")
        network = next(iter(networks_of(types)), None)
        path = resolve("demo", network) if draft == "demo" else Path(draft) if draft else None
        config = RunConfig(load, replace(load, path=path) if path else None, n_ctx=2048)
        with open_target(replace(config, draft=None, speculation=SpeculationConfig(types=("none",)))) as run:
            found = measured(run, config, args, types)
        for row in rows_of(names, found, kinds, args.lengths):
            rows.append(row)
            cells = [
                row["pair"],
                cell(row["plain"]),
                f"{row['default_speed']:.2f}",
                cell(row["default"]),
                cell(row["best"]),
            ]
            print(f"| {' | '.join(cells)} | {row['best_length']} | {row['n_different']} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
