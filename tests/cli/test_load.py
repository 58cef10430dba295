"""`stats -np` and `stats --server` as commands: reports at any width, files, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from specli.cli import main
from specli.study.compare import StudyPrompt
from specli.study.load import Level, LoadStudy, Reply
from tests.cli.test_study import COMMON, NGRAM, models, specli, target

__all__ = ["models", "target"]  # fixtures


@pytest.fixture
def saved(target: str, capsys: pytest.CaptureFixture[str]) -> Path:
    arguments = [
        "stats",
        "-m",
        target,
        "--prompts",
        "p.jsonl",
        *NGRAM,
        *COMMON,
        "-c",
        "768",
        "-np",
        "1,3",
        "--save",
        "run.json",
    ]
    assert specli(capsys, *arguments)[0] == 0
    return Path("run.json")


def test_levels_of_all_contenders(saved: Path) -> None:
    record = json.loads(saved.read_text())
    assert record["schema"] == "specli.load/1"
    names = ["plain", "ngram-simple", "ngram-map-k", "ngram-simple+ngram-map-k", "adaptive"]
    assert [(row["name"], row["concurrency"]) for row in record["levels"]] == [(n, c) for n in names for c in (1, 3)]
    assert record["request"]["n_ctx"] == 256  # 768 are shared by the most requests at once
    assert all(row["n_different"] == 0 and row["tokens_per_second"] > 0 for row in record["levels"])
    assert [row["predicted_n"] for row in record["levels"]] == [16, 48] * 5  # 2 prompts, and 6 with 3 at once


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_report_keeps_within_the_terminal(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = specli(capsys, "stats", "show", str(saved))
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    if columns == 80:
        for text in ("at once", "tok/s", "between p50", "all 40 answers have the tokens that they have alone"):
            assert text in " ".join(out.split())


def test_files(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stats", "show", str(saved), "--csv", "t.csv", "--plot", "p.svg", "--save", "again.json"]
    assert specli(capsys, *arguments)[0] == 0
    assert json.loads(Path("again.json").read_text()) == json.loads(saved.read_text())
    rows = list(csv.DictReader(Path("t.csv").read_text().splitlines()))
    assert [row["concurrency"] for row in rows] == ["1", "3"] * 5
    assert all(float(row["between_ms_p95"]) >= float(row["between_ms_p50"]) for row in rows)
    assert ElementTree.parse("p.svg").getroot().tag.endswith("svg")
    code, out, _ = specli(capsys, "stats", "show", str(saved), "--json")
    assert code == 0
    assert json.loads(out) == json.loads(saved.read_text())


def test_levels_are_shown_one_file_at_a_time(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = specli(capsys, "stats", "show", str(saved), str(saved))
    assert (code, err) == (2, "error: measurements of many requests at once are shown one by one\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-np", "2", "--replay", "p.jsonl"), "--replay and --parallel exclude each other"),
        (("-np", "2", "--server", "x:1"), "--parallel and --server exclude each other"),
        (("--server", "x:1", "--tune"), "--tune and --server exclude each other"),
        (("--server", "x:1", "-m", "demo"), "-m does not go with --server\nhint: the server has settings of its own"),
        (("--server", "x:1", "--mirostat", "1"),
         "--mirostat does not go with --server\nhint: --extra-inputs puts anything into the requests"),
        (("--server", "x:1", "--concurrency", "1,2", "--speed-bench-json", "f"),
         "--speed-bench-json takes one level, there are 2"),
        (("--server", "a b"), "a b: expected the address of a server, such as http://127.0.0.1:8080"),
        (("-np", "0"), 'error while handling argument "-np": expected numbers from 1 to 256'),
        (("-np", "2,x"), 'error while handling argument "-np": stoi: "x" is not an integer'),
        (("--server", "x:1", "--rate", "0"), 'error while handling argument "--rate": expected rates above 0'),
    ],
)  # fmt: skip
def test_refused_before_anything_is_loaded(
    workdir: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    Path("p.jsonl").write_text('"a"\n')
    code, _, err = specli(capsys, "stats", *arguments)
    assert code == 2
    assert err.startswith((f"error: {message}", message))


def test_options_that_need_a_server_say_so(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = specli(capsys, "stats", "-m", target, "-p", "a cat", *COMMON, "--rate", "2", "-kvu")
    for line in (
        "warn: --rate has no effect without --server",
        "warn: -kvu has no effect without --parallel",
    ):
        assert line in err


def test_without_httpx(workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specli.cli.studies.load.find_spec", lambda name: None)
    code, out, err = specli(capsys, "stats", "--server", "localhost:1")
    assert (code, out) == (1, "")
    assert err == "error: --server needs httpx, which is not installed\nhint: pip install 'specli[client]'\n"


def test_conversations_are_for_servers(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.jsonl").write_text('"a"\n{"question_id": "q", "category": "c", "turns": ["a", "b"]}\n')
    code, _, err = specli(capsys, "stats", "-m", target, "--prompts", "p.jsonl", *COMMON)
    assert code == 1
    assert "p.jsonl: line 2: a conversation of several turns\nhint: specli stats --server holds" in err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What `measure_server` was given; it answers with a level of one reply each, and an error."""
    pytest.importorskip("httpx", reason="needs the extra specli[client]")
    calls: list[tuple[object, ...]] = []

    def measure(config: object, prompts: list[StudyPrompt], plan: object) -> LoadStudy:
        calls.append((config, prompts, plan))
        replies = [
            Reply("q1", "c", 0, 0.0, 50.0, 10.0, (20.0,), 4, 3, 5, 2, predicted_ms=40.0, predicted_per_second=50.0),
            Reply("q2", "c", 0, 0.0, 5.0, error="status 500: it is broken"),
        ]
        levels = [
            Level("m", load.concurrency, load.rate, 2.0, list(replies), n_cut=1)
            for load in plan.loads  # type: ignore[attr-defined]
        ]
        return LoadStudy({"server": "http://x:1", "model": "m", "n_slots": 1}, {"n_prompts": 2, "repeats": 1}, levels)

    monkeypatch.setattr("specli.study.client.measure_server", measure)
    return calls


def test_what_a_server_is_asked(
    workdir: Path, capsys: pytest.CaptureFixture[str], asked: list[tuple[object, ...]]
) -> None:
    Path("p.jsonl").write_text(
        '"a"\n{"id": 7, "prompt": "b", "category": "k"}\n'
        '{"question_id": "q", "category": "c", "turns": [" first ", "", "second"]}\n'
    )
    arguments = [
        "stats", "--server", "x:1", "--concurrency", "1,4", "--prompts", "p.jsonl", "-n", "9", "--top-k", "5",
        "--extra-inputs", '{"seed": 3}', "--api-key", "k", "--timeout", "7", "--reasoning", "off",
    ]  # fmt: skip
    code, out, err = specli(capsys, *arguments)
    assert (code, err) == (0, "")
    [(config, prompts, plan)] = asked
    assert (config.url, config.api_key, config.timeout, config.streams) == ("x:1", "k", 7.0, True)  # type: ignore[attr-defined]
    assert config.fields == {  # type: ignore[attr-defined]
        "max_tokens": 9, "temperature": 0.0, "seed": 3, "top_k": 5, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert prompts == [
        StudyPrompt("1", "own", "a"), StudyPrompt("7", "k", "b"), StudyPrompt("q", "c", "first", ("second",)),
    ]  # fmt: skip
    assert [load.concurrency for load in plan.loads] == [1, 4]  # type: ignore[attr-defined]
    assert plan.repeats == 1  # type: ignore[attr-defined]
    shown = " ".join(out.split())
    for text in (
        "m, 1: 1 × status 500: it is broken", "m, 4: 1 requests were cut off and do not count",
        "the server runs 1 requests at once, further ones wait", "40.0 %",
    ):  # fmt: skip
        assert text in shown


def test_a_server_that_answers_nothing_is_an_error(
    workdir: Path, capsys: pytest.CaptureFixture[str], asked: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report comes all the same."""
    monkeypatch.setattr(Level, "done", [])
    code, out, err = specli(capsys, "stats", "--server", "x:1")
    assert code == 1
    assert "status 500: it is broken" in out
    assert err == "error: x:1: not one of 2 requests was answered: status 500: it is broken\n"


def test_speed_bench_file(workdir: Path, capsys: pytest.CaptureFixture[str], asked: list[tuple[object, ...]]) -> None:
    arguments = ["stats", "--server", "x:1", "--rate", "2.5", "-n", "9", "--speed-bench-json", "s.json", "--json"]
    code, out, _ = specli(capsys, *arguments)
    assert code == 0
    assert json.loads(out)["levels"][0]["rate"] == 2.5
    record = json.loads(Path("s.json").read_text())
    assert (record["selected_samples"], record["completed_samples"]) == (2, 1)
    assert record["summary"][-1]["accept_rate"] == 0.4
    assert record["config"] == {
        "url": "x:1", "model": None, "bench": "own", "category": "all", "osl": 9, "concurrency": None,
        "extra_inputs": {"max_tokens": 9, "temperature": 0.0, "seed": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"turns": "a"}', "turns is not a list of texts"),
        ('{"turns": ["a", 1]}', "turns is not a list of texts"),
        ('{"turns": [" "]}', "there is no text in turns"),
        ('{"turns": ["a"], "question_id": {}}', "id is not a text or a number"),
    ],
)
def test_broken_conversations(
    workdir: Path, capsys: pytest.CaptureFixture[str], asked: list[tuple[object, ...]], line: str, message: str
) -> None:
    Path("p.jsonl").write_text(f"{line}\n")
    assert main(["stats", "--server", "x:1", "--prompts", "p.jsonl"]) == 1
    assert capsys.readouterr().err.endswith(f"p.jsonl: line 1: {message}\n")
    assert not asked
