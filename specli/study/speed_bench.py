"""Measurements in the schema of llama.cpp's SPEED-Bench client (`tools/server/bench/speed-bench`, b11434).

Its script `speed_bench_compare.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from specli.drafters.stats import ratio
from specli.study.load import Level, Reply


def speed_bench_record(level: Level, config: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one level.

    Args:
        level: What was measured.
        config: `url`, `model`, `bench`, `category`, `osl`, `concurrency`, `extra_inputs`.
    """
    results = [_result(turns) for turns in _samples(level.replies)]
    categories = dict.fromkeys(result["category"] for result in results)
    groups = [(name, [result for result in results if result["category"] == name]) for name in categories]
    n_done = sum(result["ok"] for result in results)
    return {
        "config": dict(config),
        "selected_samples": len(results),
        "completed_samples": n_done,
        "failed_samples": len(results) - n_done,
        "summary": [_summary(name, group) for name, group in [*groups, ("overall", results)]],
        "results": results,
    }


def _samples(replies: Iterable[Reply]) -> list[list[Reply]]:
    """The turns of each conversation, in the order in which these ended; repeats are conversations of their own."""
    under_way: dict[str, list[list[Reply]]] = {}
    samples = []
    for reply in replies:
        waiting = under_way.setdefault(reply.prompt, [])
        turns = next((turns for turns in waiting if len(turns) == reply.turn), None)
        if turns is None or not reply.turn:
            turns = []
            waiting.append(turns)
            samples.append(turns)
        turns.append(reply)
    return samples


def _result(turns: Sequence[Reply]) -> dict[str, Any]:
    """One conversation; after an error everything but the time is 0, as there."""
    first, last = turns[0], turns[-1]
    is_done = last.error is None
    counted = turns if is_done else ()
    prompt_n, predicted_n = (sum(getattr(turn, name) for turn in counted) for name in ("prompt_n", "predicted_n"))
    prompt_ms, predicted_ms = (
        sum(getattr(turn, name) or 0.0 for turn in counted) for name in ("prompt_ms", "predicted_ms")
    )
    is_single = len(turns) == 1
    return {
        "id": first.prompt,
        "category": first.category,
        "ok": is_done,
        "turns": len(turns),
        "latency_s": sum(turn.latency_ms for turn in turns if turn.error is None) / 1e3,
        "prompt_tokens": prompt_n,
        "completion_tokens": predicted_n,
        "total_tokens": prompt_n + predicted_n,
        "finish_reason": last.finish if is_done else None,
        "draft_n": sum(turn.draft_n for turn in counted),
        "draft_n_accepted": sum(turn.draft_n_accepted for turn in counted),
        "prompt_ms": prompt_ms or None,
        "predicted_ms": predicted_ms or None,
        "prompt_per_second": (last.prompt_per_second if is_single else ratio(prompt_n * 1e3, prompt_ms))
        if is_done
        else None,
        "predicted_per_second": (last.predicted_per_second if is_single else ratio(predicted_n * 1e3, predicted_ms))
        if is_done
        else None,
        "error": last.error,
    }


def _summary(name: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    done = [result for result in results if result["ok"]]
    draft_n, accepted = (sum(result[key] for result in done) for key in ("draft_n", "draft_n_accepted"))
    return {
        "category": name,
        "requests": len(done),
        "turns": sum(result["turns"] for result in done),
        "failed": len(results) - len(done),
        "avg_prompt_t_s": _mean(result["prompt_per_second"] for result in done),
        "avg_pred_t_s": _mean(result["predicted_per_second"] for result in done),
        "avg_latency": _mean(result["latency_s"] for result in done),
        "draft_n": draft_n,
        "accepted": accepted,
        "accept_rate": ratio(accepted, draft_n),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
