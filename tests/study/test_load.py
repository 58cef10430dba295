"""Many requests at once in one engine: sums, quantiles, equal texts; the schema of llama.cpp's SPEED-Bench client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specli.engine.config import ModelLoadConfig, RequestConfig, RunConfig
from specli.engine.load import Run, open_target
from specli.errors import FormatError
from specli.study.compare import Entry, Plan, StudyPrompt
from specli.study.concurrency import measure_levels
from specli.study.load import DraftCount, Level, LoadStudy, Reply, quantiles
from specli.study.speed_bench import speed_bench_record
from tests.support.runs import GREEDY, ONE_THREAD, executors, speculation
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

TEXTS = [
    StudyPrompt("a", "one", "the cat sat on the cat"),
    StudyPrompt("b", "two", "a b a b a b"),
    StudyPrompt("c", "one", "b b b b b b"),
]
REQUEST = RequestConfig(n_predict=12, sampling=replace(GREEDY, ignore_eos=True))


def test_quantiles_lie_between_the_values() -> None:
    assert quantiles([]) is None
    assert quantiles([None]) is None
    assert quantiles([3.0, None]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0}
    assert quantiles(float(i) for i in range(101)) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert quantiles([0.0, 10.0]) == {"p50": 5.0, "p95": 9.5, "p99": 9.9}


def level() -> Level:
    """Two requests that worked and one that did not, in two seconds."""
    return Level(
        "x",
        2,
        seconds=2.0,
        replies=[
            Reply("a", "one", 0, 0.0, 900.0, 100.0, (300.0, 0.0, 500.0), 7, 4, 6, 2, (DraftCount("t", 6, 2),)),
            Reply("b", "two", 0, 0.0, 50.0, 50.0, (), 3, 1, n_retries=2),
            Reply("c", "two", 0, 0.0, 10.0, error="status 500: no"),
        ],
    )


def test_rates_are_of_what_worked() -> None:
    found = level()
    assert found.tokens_per_second == 2.5
    assert found.requests_per_second == 1.0
    assert found.errors == {"status 500: no": 1}
    assert found.first_ms is not None
    assert found.first_ms["p50"] == 75.0
    assert found.between_ms is not None
    assert found.between_ms["p50"] == 300.0
    assert found.per_token_ms is not None
    assert found.per_token_ms["p50"] == pytest.approx(800 / 3)  # of the answer with several tokens
    assert found.acceptance == pytest.approx(1 / 3)
    assert found.drafters == [DraftCount("t", 6, 2)]
    record = found.to_dict()
    assert (record["n_requests"], record["n_failed"], record["n_retries"]) == (2, 1, 2)


def test_nothing_measured_has_no_rates() -> None:
    empty = Level("x", 1)
    assert (empty.tokens_per_second, empty.first_ms, empty.acceptance) == (None, None, None)
    assert LoadStudy({}, {}, [empty]).speed_up(empty) is None


def test_saved_studies_come_back_and_broken_ones_are_refused() -> None:
    plain = replace(level(), name="plain", seconds=4.0)
    study = LoadStudy({"server": "u"}, {"n": 1}, [plain, level(), replace(level(), concurrency=None, rate=2.0)])
    record = json.loads(json.dumps(study.to_dict()))
    assert LoadStudy.from_dict(record, "t").to_dict() == study.to_dict()
    assert [row["speed_up"] for row in record["levels"]] == [1.0, 2.0, None]
    for broken in ({}, {**record, "levels": [{}]}, {**record, "levels": [{**record["levels"][0], "replies": [{}]}]}):
        with pytest.raises(FormatError, match="t: broken measurements of load"):
            LoadStudy.from_dict(broken, "t")


# In one engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    path = tiny_gguf(tmp_path_factory.mktemp("load") / "t.gguf", "llama")
    load = ModelLoadConfig(path, device="cpu", kernels=executors()[-1], threads=ONE_THREAD)
    return RunConfig(load, speculation=speculation(["none"], 1), n_ctx=128, n_slots=4)


@pytest.fixture
def run(base: RunConfig) -> Iterator[Run]:
    with open_target(base) as run:
        yield run


def entries(base: RunConfig) -> list[Entry]:
    draft = replace(base.target, path=tiny_eagle3(base.target.path.with_name("e.gguf"), follows_target=True))
    return [
        Entry("plain", base),
        Entry("ngram-simple", replace(base, speculation=speculation(["ngram-simple"], 4))),
        Entry("draft-eagle3", replace(base, draft=draft, speculation=speculation(["draft-eagle3"], 3))),
    ]


def test_every_level_has_its_requests_and_the_texts_of_one_alone(run: Run, base: RunConfig) -> None:
    study = measure_levels(run, entries(base), TEXTS, (1, 4), Plan(REQUEST, repeats=2, warmup=1))
    assert [(row.name, row.concurrency, len(row.replies)) for row in study.levels] == [
        (name, n, 2 * count) for name in ("plain", "ngram-simple", "draft-eagle3") for n, count in ((1, 3), (4, 8))
    ]  # with 4 at once the set is gone through until there are twice as many
    for row in study.levels:
        assert row.n_different == row.n_cut == 0
        assert all(reply.predicted_n == 12 and len(reply.gaps_ms) == 11 for reply in row.replies)
        assert row.seconds > 0
        assert (sum(count.draft_n for count in row.drafters) > 0) == (row.name != "plain")
        assert sum(reply.draft_n for reply in row.replies) == sum(count.draft_n for count in row.drafters)
        for reply in row.replies:  # times add up as they were seen
            assert reply.first_ms is not None
            assert reply.first_ms + sum(reply.gaps_ms) == pytest.approx(reply.latency_ms)
    one, four = (row for row in study.levels if row.name == "draft-eagle3")
    assert {(r.prompt, r.draft_n, r.draft_n_accepted) for r in one.replies} == {
        (r.prompt, r.draft_n, r.draft_n_accepted) for r in four.replies
    }


def test_other_tokens_are_noticed(run: Run, base: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that accepts whatever is drafted."""
    from specli.engine.drafting import DrafterSet
    from specli.engine.verify import Verdict

    def accept_all(draft: Any, rows: Any, sampler: Any) -> Verdict:
        last = sampler.sample(rows[len(draft.tokens)])
        return Verdict([*draft.tokens, last])

    renew = DrafterSet.renew

    def bad(self: DrafterSet) -> None:
        renew(self)
        if self.names == ("ngram-simple",):
            self.rule = accept_all  # type: ignore[assignment]

    monkeypatch.setattr(DrafterSet, "renew", bad)
    study = measure_levels(run, entries(base)[:2], TEXTS, (2,), Plan(REQUEST, repeats=1, warmup=0))
    assert [row.n_different > 0 for row in study.levels] == [False, True]


def test_an_interrupt_leaves_what_was_finished(run: Run, base: RunConfig) -> None:
    n_asked = 0

    def is_stopped() -> bool:
        nonlocal n_asked
        n_asked += 1
        return n_asked > 20

    plan = Plan(REQUEST, repeats=1, warmup=0, is_stopped=is_stopped)
    [row] = measure_levels(run, entries(base)[:1], TEXTS, (1,), plan).levels
    assert (len(row.replies), row.n_cut) == (1, 1)


# llama.cpp's SPEED-Bench client


def turns() -> Level:
    """A conversation of two turns, one of one, and one that fails at its second turn."""
    times: dict[str, Any] = {"prompt_ms": 10.0, "predicted_ms": 40.0}
    rates: dict[str, Any] = {"prompt_per_second": 500.0, "predicted_per_second": 75.0}
    return Level(
        "m",
        2,
        seconds=1.0,
        replies=[
            Reply("q1", "coding", 0, 0.0, 100.0, prompt_n=5, predicted_n=4, draft_n=6, draft_n_accepted=3, **times),
            Reply("q2", "qa", 0, 0.0, 300.0, prompt_n=5, predicted_n=4, finish="stop", **times, **rates),
            Reply("q1", "coding", 1, 0.0, 200.0, prompt_n=15, predicted_n=6, draft_n=4, finish="length", **times),
            Reply("q3", "qa", 0, 0.0, 400.0, prompt_n=5, predicted_n=4, **times),
            Reply("q3", "qa", 1, 0.0, 500.0, error="status 500: x"),
        ],
    )


CONFIG = {"url": "u", "model": None, "bench": "b", "category": "all", "osl": 9, "concurrency": 2, "extra_inputs": {}}


def test_speed_bench_record_sums_conversations() -> None:
    """Rates of one turn are the server's, those of several are all tokens / all time, as that client has it."""
    record = speed_bench_record(turns(), CONFIG)
    first, second, third = record["results"]
    assert first == {
        "id": "q1", "category": "coding", "ok": True, "turns": 2, "latency_s": pytest.approx(0.3), "prompt_tokens": 20,
        "completion_tokens": 10, "total_tokens": 30, "finish_reason": "length", "draft_n": 10, "draft_n_accepted": 3,
        "prompt_ms": 20.0, "predicted_ms": 80.0, "prompt_per_second": 1000.0, "predicted_per_second": 125.0,
        "error": None,
    }  # fmt: skip
    assert (second["prompt_per_second"], second["predicted_per_second"]) == (500.0, 75.0)
    assert (third["ok"], third["completion_tokens"], third["error"]) == (False, 0, "status 500: x")
    assert (record["selected_samples"], record["completed_samples"], record["failed_samples"]) == (3, 2, 1)
    assert [row["category"] for row in record["summary"]] == ["coding", "qa", "overall"]
    assert record["summary"][2] == {
        "category": "overall", "requests": 2, "turns": 3, "failed": 1, "avg_prompt_t_s": 750.0, "avg_pred_t_s": 100.0,
        "avg_latency": pytest.approx(0.3), "draft_n": 10, "accepted": 3, "accept_rate": 0.3,
    }  # fmt: skip


def test_repeats_of_a_conversation_are_samples_of_their_own() -> None:
    twice = Level("m", 1, replies=[Reply("q", "c", turn) for turn in (0, 0, 1, 1)])
    assert [result["turns"] for result in speed_bench_record(twice, CONFIG)["results"]] == [2, 2]


def peer_scripts() -> Path:
    source = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not source:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    return Path(source) / "tools" / "server" / "bench" / "speed-bench"


def stand_ins(folder: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    """An environment in which the package `datasets` gives those rows; `tqdm` and `requests` are real if installed."""
    (folder / "datasets.py").write_text(
        "class Rows(list):\n"
        "    def __getitem__(self, key):\n"
        "        return [row[key] for row in self] if isinstance(key, str) else list.__getitem__(self, key)\n"
        "def get_dataset_config_names(repository):\n    return ['qualitative']\n"
        f"def load_dataset(repository, **more):\n    return Rows({rows!r})\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_llama_cpp_s_compare_script_reads_our_file(tmp_path: Path) -> None:
    scripts = peer_scripts()
    pytest.importorskip("requests", reason="the script imports requests")
    pytest.importorskip("tqdm", reason="the script imports tqdm")
    fast = turns()
    fast.replies = [
        replace(reply, predicted_ms=20.0, predicted_per_second=reply.predicted_per_second and 150.0)
        for reply in fast.replies
    ]
    for name, one in (("base", turns()), ("spec", fast)):
        (tmp_path / f"{name}.json").write_text(json.dumps(speed_bench_record(one, CONFIG)))
    done = subprocess.run(
        [sys.executable, scripts / "speed_bench_compare.py", "--baseline", "base.json", "--speculative", "spec.json"],
        cwd=tmp_path, env=stand_ins(tmp_path, []), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["coding"][1:4] == ["125.00", "250.00", "2.00x"]
    assert rows["qa"][1:4] == ["75.00", "150.00", "2.00x"]
    assert rows["overall"][1:] == ["100.00", "200.00", "2.00x", "0.300s", "0.300s", "1.00x", "0.3000"]
