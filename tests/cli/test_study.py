"""`stats`, `synth` and `check` as commands, on a tiny model: reports at any width, files, errors."""

from __future__ import annotations

import csv
import hashlib
import json
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest

from specli.cli import main
from specli.demo import resolve
from specli.gguf.file import GGUFFile
from specli.kernels.counting import CountingExecutor
from specli.kernels.ops import Executor
from specli.models import load_model
from specli.models.base import Model, ModelOptions
from specli.tokenizer.named_templates import NAMED_TEMPLATES
from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf

COMMON = ["-c", "256", "-n", "8", "--repeat", "1", "--warmup-runs", "0", "-t", "1", "--ignore-eos"]
NGRAM = ["--spec-type", "ngram-simple,ngram-map-k", "--spec-ngram-simple-size-n", "1", "--spec-ngram-map-k-size-n", "1"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny_gguf(folder / "target.gguf", "llama")
    tiny_eagle3(folder / "eagle3.gguf", follows_target=True, reduced=200)
    tiny_eagle3(folder / "wide.gguf", target_width=128)
    return folder


@pytest.fixture
def target(models: Path, workdir: Path) -> str:
    (workdir / "p.jsonl").write_text('{"id": "x", "prompt": "the cat the cat", "category": "one"}\n"a b a b"\n')
    return str(models / "target.gguf")


def specli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def saved(target: str, capsys: pytest.CaptureFixture[str]) -> Path:
    code, _, _ = specli(capsys, "stats", "-m", target, "--prompts", "p.jsonl", *NGRAM, *COMMON, "--save", "run.json")
    assert code == 0
    return Path("run.json")


def test_report_names_all_contenders(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = specli(capsys, "stats", "-m", target, "--prompts", "p.jsonl", *NGRAM, *COMMON)
    assert code == 0
    for text in (
        "plain", "ngram-simple+ngram-map-k", "2 prompts × 1 repeats", "temperature 0.0, seed 1",
        "chat template applied", "have exactly the tokens of plain decoding",
        "--spec-ngram-simple-size-n 1 (flag), --spec-ngram-simple-size-m 48 (default)",
    ):  # fmt: skip
        assert text in " ".join(out.split())
    assert err.startswith("target: target.gguf")
    assert "\x1b" not in out + err


@pytest.mark.parametrize("columns", [30, 40, 80, 200])
@pytest.mark.parametrize("color", ["", "1"])
def test_report_keeps_within_the_terminal(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, color: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", color)
    code, out, _ = specli(capsys, "stats", "show", str(saved))
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns


def test_json_totals_are_sums_of_its_samples(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", target, "--prompts", "p.jsonl", *NGRAM, *COMMON, "--json", "-no-cnv"]
    _, out, _ = specli(capsys, "stats", *arguments)
    record = json.loads(out)
    assert record["schema"] == "specli.stats/1"
    assert record["request"]["chat_template"] is False
    assert [prompt["id"] for prompt in record["prompts"]] == ["x", "2"]
    for row in record["contenders"]:
        for name in ("predicted_n", "predicted_ns", "draft_n", "draft_n_accepted", "verify_ns", "n_rounds"):
            total = sum(sample["timings"][name] for sample in row["samples"])
            assert row["totals"]["timings"][name] == total


def test_files_of_a_saved_run(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stats", "show", str(saved), "--csv", "t.csv", "--plot", "p.svg", "--save", "again.json"]
    assert specli(capsys, *arguments)[0] == 0
    assert json.loads(Path("again.json").read_text()) == json.loads(saved.read_text())
    rows = list(csv.DictReader(Path("t.csv").read_text().splitlines()))
    assert len(rows) == 5 * 3
    for name in ("plain", "ngram-simple"):
        parts = [int(row["predicted_n"]) for row in rows if row["drafter"] == name and row["prompt"]]
        [total] = [int(row["predicted_n"]) for row in rows if row["drafter"] == name and not row["prompt"]]
        assert total == sum(parts) == 16
    assert ElementTree.parse("p.svg").getroot().tag.endswith("svg")
    assert specli(capsys, "stats", "show", str(saved), "--plot", "p.png")[0] == 0
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib_is_refused_before_anything_is_measured(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specli.cli.studies.plot.find_spec", lambda name: None)
    code, _, err = specli(capsys, "stats", "-m", "missing.gguf", "--plot", "p.png")
    assert (code, err) == (
        1, "error: --plot needs matplotlib, which is not installed\nhint: pip install 'specli[plot]'\n"
    )  # fmt: skip


def test_runs_side_by_side(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.json").write_text(saved.read_text())
    code, out, _ = specli(capsys, "stats", "show", str(saved), "other.json")
    assert code == 0
    assert "other: ngram-simple" in out
    assert "+0.0 %" in out


def test_single_draft_file_names_its_type(target: str, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", target, "-md", str(models / "eagle3.gguf"), "-p", "a cat", *COMMON, "--json"]
    _, out, _ = specli(capsys, "stats", *arguments)
    assert [row["name"] for row in json.loads(out)["contenders"]] == ["plain", "draft-eagle3", "adaptive"]


def test_without_drafter_plain_is_measured(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = specli(capsys, "stats", "-m", target, "-p", "a cat", *COMMON)
    assert code == 0
    assert "plain" in out


def test_replay_reads_no_weights(
    target: str, models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("text.txt").write_text("the cat sat on the mat. " * 6)
    arguments = ["stats", "-m", target, *NGRAM, "--replay", "text.txt"]

    def counted(file: GGUFFile, executor: Executor, options: ModelOptions) -> Model:
        assert isinstance(executor, CountingExecutor)  # for the memory plan: shapes, no weights
        return load_model(file, executor, options)

    with monkeypatch.context() as patch:
        patch.setattr("specli.engine.loader.load_model", counted)
        code, out, _ = specli(capsys, *arguments)
        assert code == 0
        assert "ngram-simple+ngram-map-k" in out
        assert "cover" in out
        _, out, _ = specli(capsys, *arguments, "--json")
        record = json.loads(out)
        assert record["replays"][0]["coverage"] > 0.25
    network = ["stats", "-m", target, "-md", str(models / "eagle3.gguf"), "--replay", "text.txt", "-c", "256"]
    code, out, _ = specli(capsys, *network)
    assert code == 0
    assert "draft-eagle3" in out


def test_replay_says_why_ngram_cache_gets_nothing_from_a_plain_text(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.txt").write_text("the cat sat on the mat. " * 6)
    note = "ngram-cache learns from prompts and accepted drafts"
    for types in ("ngram-cache", "ngram-mod"):
        _, out, _ = specli(capsys, "stats", "-m", target, "--spec-type", types, "--replay", "text.txt")
        assert (note in " ".join(out.split())) == (types == "ngram-cache")
    assert (
        specli(capsys, "generate", "-m", target, "-p", "a b a b", "-n", "4", "--json", "--stats-json", "r.json")[0] == 0
    )
    _, out, _ = specli(capsys, "stats", "-m", target, "--spec-type", "ngram-cache", "--replay", "r.json")
    assert note not in " ".join(out.split())


def test_tune_ends_with_a_flag_line_that_runs(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", target, "-p", "the cat the cat", *NGRAM, *COMMON, "--tune", "--tune-seconds", "5"]
    code, out, _ = specli(capsys, "stats", *arguments)
    assert code == 0
    flags = out.splitlines()[-1].split()
    assert flags[0] == "--spec-type"
    assert specli(capsys, "generate", "-m", target, "-p", "a", "-n", "4", "-c", "256", *flags)[0] == 0


def test_synth_reports_prediction_and_measurement(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["synth", "-m", target, "-p", "the cat the cat", "--spec-type", "ngram-simple", *COMMON]
    base += ["--spec-ngram-simple-size-n", "1", "--spec-ngram-simple-size-m", "4"]
    code, out, err = specli(capsys, *base, "--spec-synth-len", "3", "--csv", "s.csv", "--plot", "s.png")
    assert code == 0
    assert "output is not valid model output" in out
    assert "output is not valid model output" in err
    assert "predicted" in out
    assert len(list(csv.DictReader(Path("s.csv").read_text().splitlines()))) == 1
    assert Path("s.png").is_file()
    _, out, _ = specli(capsys, *base, "--spec-synth-rates", "0.9,0.8,0.5,0.1", "--json")
    record = json.loads(out)
    assert record["points"][0]["n_max"] == 4
    assert record["points"][0]["length"] == pytest.approx(3.3)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["stats", "frob"], 2, "error: invalid argument: frob"),
        (["stats", "show"], 2, "error: show needs a file"),
        (["stats", "show", "missing.json"], 1, "error: missing.json: cannot be read as a comparison"),
        (["stats", "show", "p.jsonl"], 1, "error: p.jsonl: cannot be read as a comparison"),
        (["stats", "-m", "T", "--plot", "x.bmp"], 2, "error: x.bmp: expected a file name that ends in"),
        (["stats", "-m", "T", "--replay", "p.jsonl", "--tune"], 2, "error: --replay and --tune exclude each other"),
        (["stats", "-m", "T", "--spec-synth-len", "2"], 2, "error: stats compares real acceptance"),
        (["stats", "-m", "T", "--replay", "p.jsonl", "--spec-type", "ngram-mod"], 1, "error: p.jsonl: line 1: not"),
        (["stats", "-m", "T", "--replay", "missing", "--spec-type", "ngram-mod"], 1, "error: missing: cannot be read"),
        (["stats", "-m", "T", "--tune"], 2, "error: --tune needs a drafter"),
        (["stats", "-m", "T", "-p", "a", "--prompts", "p.jsonl"], 2, "error: --prompt and --prompts exclude"),
        (["stats", "-m", "T", "--prompts", "twice.jsonl"], 2, "error: twice.jsonl: two prompts have the id x"),
        (["stats"], 2, "error: --model is required"),
        (["stats", "-m", "missing.gguf", "--save", "no/r.json"], 1, "error: no/r.json: cannot be written: No such"),
        (["stats", "-m", "missing.gguf", "--csv", "."], 1, "error: .: cannot be written: Is a directory"),
        (["synth", "-m", "missing.gguf", "--plot", "no/p.png"], 1, "error: no/p.png: cannot be written: No such"),
        (["synth", "-m", "missing.gguf", "--plot", "x.bmp"], 2, "error: x.bmp: expected a file name that ends in"),
        (["stats", "-m", "T", "--replay", "p.jsonl", "--csv", "t.csv"], 2, "error: --csv does not go with --replay"),
        (["stats", "-m", "T", "--tune", "--plot", "p.png"], 2, "error: --plot does not go with --tune"),
        (["stats", "show", "a.json", "b.json", "--save", "c.json"], 2, "error: --save takes one run, show was given 2"),
        (["synth", "-m", "T", "--spec-type", "ngram-mod"], 2, "error: synth needs an acceptance"),
        (["synth", "-m", "T", "--spec-synth-len", "2"], 2, "error: synthetic acceptance requires at least one"),
        (["check", "-m", "T"], 2, "error: check needs a drafter"),
        (["generate", "-m", "T", "-p", "a", "--verify-lossless", "--spec-synth-len", "2"], 2, "error: --verify-"),
        (
            ["generate", "-m", "T", "-p", "a", "--verify-lossless", "--spec-draft-sampling", "probabilistic"], 2,
            "error: --verify-lossless compares tokens",
        ),
    ],
)  # fmt: skip
def test_errors(target: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str) -> None:
    Path("twice.jsonl").write_text('{"id": "x", "prompt": "a"}\n' * 2)
    found, _, err = specli(capsys, *(target if word == "T" else word for word in arguments))
    lines = [line for line in err.splitlines() if not line.startswith(("warn", "target", "hint"))]
    assert found == code
    assert lines[0].startswith(message)
    assert "Traceback" not in err


def test_check_tells_whether_a_pair_fits(target: str, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.txt").write_text("the cat and é")
    code, out, _ = specli(capsys, "check", "-m", target, "-md", str(models / "eagle3.gguf"), "--text", "text.txt")
    assert code == 0
    assert "of 12 tokens are in the draft vocabulary" in out or "tokens are in the draft vocabulary" in out
    assert out.rstrip().endswith("The drafter fits.")
    code, out, _ = specli(capsys, "check", "-m", target, "-md", str(models / "wide.gguf"))
    assert code == 1
    assert "DIFFERS" in out
    assert "The drafter does not fit: " in out
    code, out, _ = specli(capsys, "check", "-m", target, "-md", str(models / "wide.gguf"), "--json")
    assert (code, json.loads(out)["fits"]) == (1, False)


def test_verify_lossless_says_so(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["generate", "-m", target, "-p", "the cat the cat", "-n", "12", "-c", "256", "--ignore-eos", *NGRAM]
    code, _, err = specli(capsys, *arguments, "--verify-lossless")
    assert code == 0
    assert "lossless: all 12 tokens are those of plain decoding" in err

    from specli.study import lossless

    monkeypatch.setattr(lossless, "first_difference", lambda *found: lossless.Difference(3, 5, 6, 0.25))
    code, _, err = specli(capsys, *arguments, "--verify-lossless")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("error: prompt 1: token 3 is 5 ")
    assert last.endswith("its best two tokens differ by 0.25 in log-probability")


def test_shipped_models_are_listed(capsys: pytest.CaptureFixture[str], workdir: Path) -> None:
    code, out, _ = specli(capsys, "check", "--list-models")
    assert code == 0
    assert "-m demo" in out
    assert "-md demo --spec-type draft-eagle3" in out
    assert "mean accepted length" in out
    assert "MIT; trained on text under the PSF licence" in out
    assert specli(capsys, "--list-models") == (0, out, "")


def stored_template() -> str:
    with closing(GGUFFile.open(resolve("demo"))) as file:
        return file.metadata.require("tokenizer.chat_template", "str")


@pytest.mark.parametrize(("given", "name"), [([], ""), (["--chat-template", "llama3"], "built-in llama3, ")])
@pytest.mark.parametrize("command", [["chat", "-st", "-n", "1"], ["stats", "-n", "2", "--repeat", "1"]])
def test_template_in_use_and_its_hash_are_shown_at_level_4(
    command: list[str], given: list[str], name: str, capsys: pytest.CaptureFixture[str], workdir: Path
) -> None:
    arguments = [*command, "-m", "demo", "-p", "Hi", *given]
    assert "sha256" not in specli(capsys, *arguments)[2]
    code, _, err = specli(capsys, *arguments, "-lv", "4")
    source = NAMED_TEMPLATES["llama3"] if name else stored_template()
    digest = hashlib.sha256(source.encode()).hexdigest()
    lines = err.splitlines()
    [found] = [number for number, line in enumerate(lines) if line.endswith(f"sha256 {digest}")]
    assert code == 0
    assert f"chat template: {name}{len(source)} characters" in lines[found]
    assert source.startswith(lines[found + 1])
