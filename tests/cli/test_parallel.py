"""`generate --prompts F -np N`: several prompts at once in one engine, with the results of one after another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specli.cli import main
from specli.cli.batch import with_slots
from specli.cli.options.request import BatchConfig, CommandConfig, PromptConfig
from specli.engine.config import ModelLoadConfig, RunConfig
from tests.cli.scripted import ScriptedOpener
from tests.cli.test_batch import n_lines, settled

TABLES = "ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache"
SHORT = (
    "-n",
    "80",
    "--ignore-eos",
    "--seed",
    "5",
    "--spec-ngram-simple-size-n",
    "1",
    "--spec-ngram-map-k-size-n",
    "1",
    "--spec-ngram-map-k4v-size-n",
    "2",
)
WORDS = ["a fox", "a dog", "the old wolf", "seven hens", "two cats and a cow"]
PROMPTS = "".join(
    f'{{"id": "p{i}", "prompt": "Once {WORDS[i % 5]} and {WORDS[i * 3 % 5]} went to the {i}. market{" and" * i}"}}\n'
    for i in range(9)
)


def command(*more: str) -> list[str]:
    return [
        "generate", "-m", "demo", "-t", "1", "-c", "1024", "-kvu", "-n", "24", "--no-perf", "--no-spec-adaptive",
        "-lv", "2", "--prompts", "p.jsonl", "--stats-json", "out.jsonl", "--logprobs", "2", *more,
    ]  # fmt: skip


def results(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[list[dict[str, Any]], str]:
    """Records and stdout of a run."""
    Path("p.jsonl").write_text(PROMPTS)
    Path("out.jsonl").unlink(missing_ok=True)
    assert main(command(*more)) == 0, capsys.readouterr().err
    found = settled(Path("out.jsonl"))
    assert [record["index"] for record in found] == list(range(9))
    return found, capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ("--spec-type", "none", "--temp", "0"),
        ("--spec-type", TABLES, *SHORT, "--temp", "0"),
        ("-md", "demo", "--spec-type", f"draft-eagle3,{TABLES}", "--temp", "0.8", "--seed-per-prompt", *SHORT),
    ],
    ids=["plain", "tables", "network"],
)
def test_records_and_texts_are_those_of_one_after_another(
    workdir: Path, capsys: pytest.CaptureFixture[str], options: Sequence[str]
) -> None:
    """Tokens, texts, log-probabilities, stop reasons and the counts of every drafter."""
    expected = results(capsys, *options)
    if "none" not in options:
        assert sum(item["acc_tokens"] for record in expected[0] for item in record["statistics"]) > 0
    for n in ("2", "16"):
        assert results(capsys, *options, "-np", n) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["draft-simple", "draft-dflash", "draft-dspark", "draft-mtp"])
def test_other_networks(workdir: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    options = ["-md", "demo", "--spec-type", kind, "--temp", "0"]
    if kind == "draft-mtp":
        options = ["-m", "demo-mtp", *options[2:]]
    expected = results(capsys, *options)
    assert results(capsys, *options, "-np", "4") == expected


def test_a_prompt_that_does_not_fit_fails_alone_and_resume_does_the_rest(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text(f'"one"\n"{"word " * 400}"\n"three"\n')
    small = ("-c", "256", "--spec-type", "none", "--temp", "0", "-np", "2")
    assert main(command(*small)) == 1
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert ["error" in line for line in lines] == [False, True, False]
    assert "error: prompt 2: the prompt has" in capsys.readouterr().err
    assert main(command("--resume", *small)) == 1
    out = capsys.readouterr()
    assert out.out == ""  # the two that were done are not done again
    assert "2 of 3 prompts are done" not in out.err  # -lv 2


def test_stdout_has_the_order_of_the_file_and_json_the_records(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text(PROMPTS)
    arguments = ["generate", "-m", "demo", "-t", "1", "-c", "256", "-n", "8", "--temp", "0", "-lv", "1"]
    assert main([*arguments, "--prompts", "p.jsonl", "--json", "-np", "2", "-kvu"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [f"p{i}" for i in range(9)]


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C: finished prompts are in the file and on stdout, those under way in neither."""
    (tmp_path / "p.jsonl").write_text(PROMPTS)
    arguments = command("-np", "2", "--temp", "0", "-n", "150", "--ignore-eos", "--spec-type", "none", "-lv", "3")
    with (tmp_path / "text").open("w") as text, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen([sys.executable, "-m", "specli", *arguments], cwd=tmp_path, stdout=text, stderr=err)
        part = tmp_path / "out.jsonl.part"
        while process.poll() is None and n_lines(part) < 2:
            time.sleep(0.002)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130, (tmp_path / "err").read_text()
    n_done = n_lines(part)
    assert 2 <= n_done < 9
    assert all(record["stop"] == "limit" for record in settled(part))
    assert f"{n_done} of 9 prompts are done; --resume does the rest" in (tmp_path / "err").read_text()
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompts", "p.jsonl", "-np", "2", "--workers", "2"),
         "error: --parallel needs one process\nhint: leave out --workers\n"),
        (("--prompts", "p.jsonl", "-np", "2", "-lcd", "d", "--spec-type", "ngram-cache"),
         "error: --lookup-cache-dynamic grows from prompt to prompt, --parallel keeps the prompts of a file apart\n"
         "hint: leave out one of them; --json writes records, too\n"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_loaded(
    opener: ScriptedOpener, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    Path("p.jsonl").write_text('"a"\n')
    assert main(["generate", "-m", "t.gguf", *arguments]) == 2
    assert capsys.readouterr().err == message
    assert not opener.configs


@pytest.mark.parametrize(
    ("n_parallel", "is_unified", "n_ctx", "each"),
    [
        (1, False, 4096, 4096),
        (3, False, 4096, 1365),
        (3, True, 4096, 4096),
        (3, False, 0, 0),
        (3, False, 770, 341),
        (600, False, 4, 1),
    ],
)
def test_slots_share_the_context_unless_it_is_unified(n_parallel: int, is_unified: bool, n_ctx: int, each: int) -> None:
    """llama.cpp divides `-c` by `-np` unless the cache is unified (`src/llama-context.cpp`, n_ctx_seq)."""
    config = CommandConfig(
        prompt=PromptConfig(file=Path("p.jsonl")), batch=BatchConfig(n_parallel=n_parallel, is_unified=is_unified)
    )
    setup = with_slots(config, RunConfig(ModelLoadConfig(Path("t.gguf")), n_ctx=n_ctx))
    assert (setup.n_slots, setup.n_ctx) == (n_parallel, each)


def test_one_prompt_needs_one_slot(opener: ScriptedOpener, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable that a container sets for its server does not end a run with one prompt."""
    assert main(["generate", "-m", "t.gguf", "-p", "a", "-np", "2", "-c", "512"]) == 0
    assert "warn: -np has no effect without --prompts\n" in capsys.readouterr().err
    assert [(config.n_slots, config.n_ctx) for config in opener.configs] == [(1, 512)]
