"""`generate --prompts F --stats-json OUT`: one line per prompt, exactly once, also over crashes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specli.cli import main
from tests.cli.scripted import ScriptedOpener

THREE = '"one two"\n{"prompt": "three four", "id": "x"}\n"five"\n'
BATCH = ("--prompts", "p.jsonl", "--stats-json", "out.jsonl")


def generate(*arguments: str) -> int:
    return main(["generate", "-m", "t.gguf", *BATCH, *arguments])


def records(path: str | Path = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.fixture
def prompts(workdir: Path, opener: ScriptedOpener) -> ScriptedOpener:
    """The engine made of words, and a file of three prompts."""
    Path("p.jsonl").write_text(THREE)
    return opener


def test_a_line_per_prompt_with_place_and_name(prompts: ScriptedOpener) -> None:
    assert generate() == 0
    found = [(record["index"], record.get("id"), record["text"]) for record in records()]
    assert found == [(0, None, "one two "), (1, "x", "three four "), (2, None, "five ")]
    assert not Path("out.jsonl.part").exists()
    assert prompts.n_renewed == 3


def test_a_prompt_that_fails_has_an_error_line(prompts: ScriptedOpener, capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.jsonl").write_text('"one"\n{"prompt": "TOOLONG", "id": "x"}\n"five"\n')
    assert generate() == 1
    assert [record.get("error") for record in records()] == [None, "the prompt is too long", None]
    assert records()[1].keys() == {"index", "id", "schema", "error", "key"}
    assert "error: prompt x: the prompt is too long\n" in capsys.readouterr().err
    prompts.requests.clear()
    assert generate("--resume") == 1
    assert len(prompts.requests) == 1  # the one that failed is tried again
    assert [record["index"] for record in records()] == [0, 1, 2]


def test_interrupt_keeps_what_is_finished_and_resume_does_the_rest(
    prompts: ScriptedOpener, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text('"one"\n"a INTERRUPT b"\n"five"\n')
    assert generate() == 130
    assert [record["text"] for record in records("out.jsonl.part")] == ["one "]
    assert not Path("out.jsonl").exists()
    assert "out.jsonl.part: 1 of 3 prompts are done; --resume does the rest\n" in capsys.readouterr().err
    Path("p.jsonl").write_text('"one"\n"a b"\n"five"\n')
    prompts.requests.clear()
    assert generate("--resume") == 0
    assert [record["text"] for record in records()] == ["one ", "a b ", "five "]
    assert len(prompts.requests) == 2


def test_lines_of_another_model_or_setting_are_not_taken_over(prompts: ScriptedOpener) -> None:
    assert generate() == 0
    for more, n_done_again in (((), 0), (("-n", "1"), 3), (("-n", "1"), 0), (("-n", "1", "--seed", "7"), 3)):
        prompts.requests.clear()
        assert generate("--resume", *more) == 0
        assert len(prompts.requests) == n_done_again
        assert [record["index"] for record in records()] == [0, 1, 2]


def test_torn_line_is_written_again(prompts: ScriptedOpener) -> None:
    assert generate() == 0
    whole = Path("out.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    for n_bytes in (0, 5, len(lines[0]), len(lines[0]) + 1, len(whole) - 1, len(whole)):
        Path("out.jsonl").unlink()
        Path("out.jsonl.part").write_bytes(whole[:n_bytes])
        assert generate("--resume") == 0
        assert Path("out.jsonl").read_bytes() == whole
        assert not Path("out.jsonl.part").exists()


def test_order_of_the_file_unless_unordered(prompts: ScriptedOpener) -> None:
    assert generate() == 0
    lines = Path("out.jsonl").read_text().splitlines(keepends=True)
    for more, order in (((), [0, 1, 2]), (("--unordered",), [2, 0, 1])):
        Path("out.jsonl").unlink()
        Path("out.jsonl.part").write_text(lines[2])
        assert generate("--resume", *more) == 0
        assert [record["index"] for record in records()] == order


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*BATCH,), "error: {part}: holds results of a run that did not end\n"
         "hint: go on with --resume, or remove the file\n"),
        (("-p", "a", "--stats-json", "o", "--resume"), "error: --resume goes with --prompts\n"),
        (("-p", "a", "--stats-json", "o", "--unordered"), "error: --unordered goes with --prompts\n"),
        (("--prompts", "p.jsonl", "--resume"),
         "error: --resume goes on with a file\nhint: name it with --stats-json\n"),
        (("--prompts", "p.jsonl", "--resume", "--stats-json", "/dev/null"),
         "error: /dev/null: is no file that --resume could go on with\n"),
        ((*BATCH[:3], "o", "-lcd", "d", "--spec-type", "ngram-cache"),
         "error: --lookup-cache-dynamic grows from prompt to prompt, --stats-json keeps the prompts of a file apart\n"
         "hint: leave out one of them; --json writes records, too\n"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_loaded(
    prompts: ScriptedOpener, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    part = Path("out.jsonl.part")
    part.write_text("{}\n")
    assert main(["generate", "-m", "t.gguf", *arguments]) == 2
    assert capsys.readouterr().err == message.format(part=part.absolute())
    assert not prompts.configs
    assert part.read_text() == "{}\n"


def test_seeds_per_prompt(prompts: ScriptedOpener) -> None:
    """Each prompt has its own, the same in every run; without the option all have the given one."""
    assert generate("--seed", "3", "--seed-per-prompt") == 0
    seeds = [request.sampling.seed for request in prompts.requests]
    assert len(set(seeds)) == 3
    prompts.requests.clear()
    Path("out.jsonl").unlink()
    assert generate("--seed", "3", "--seed-per-prompt") == 0
    assert [request.sampling.seed for request in prompts.requests] == seeds
    prompts.requests.clear()
    assert generate("--seed", "3") == 0
    assert [request.sampling.seed for request in prompts.requests] == [3, 3, 3]


# Real processes

DEMO = (
    sys.executable, "-m", "specli", "generate", "-m", "demo", "-t", "1", "--temp", "0", "-n", "24", "-c", "256",
    "--spec-type", "ngram-mod", *BATCH,
)  # fmt: skip


def settled(path: Path) -> list[dict[str, Any]]:
    """Records without what differs between runs: times and paths."""
    kept = [
        {name: value for name, value in record.items() if name not in ("timings", "settings", "worker")}
        for record in records(path)
    ]
    for record in kept:
        record["statistics"] = [
            {name: value for name, value in item.items() if name != "dur_ms"} for item in record.get("statistics", [])
        ]
    return kept


def demo(
    folder: Path, *more: str, until: Callable[[], bool] | None = None, limit: int | None = None
) -> tuple[int, str]:
    """Runs the program in a folder with six prompts; exit code and stderr.

    Args:
        folder: Where.
        more: Further arguments.
        until: The process is killed when this becomes true.
        limit: No file may become longer, in bytes.
    """
    (folder / "p.jsonl").write_text("".join(f'"A fox and {word} went"\n' for word in "abcdef"))

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.Popen(
        [*DEMO, "--no-spec-adaptive", *more], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=limited,
    )  # fmt: skip
    while until is not None and process.poll() is None:
        if until():
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What six prompts give if nothing comes between."""
    folder = tmp_path_factory.mktemp("whole")
    code, errors = demo(folder)
    assert code == 0, errors
    return settled(folder / "out.jsonl")


def test_killed_and_resumed(tmp_path: Path, expected: list[dict[str, Any]]) -> None:
    part = tmp_path / "out.jsonl.part"
    assert demo(tmp_path, until=lambda: n_lines(part) >= 1)[0] == -signal.SIGKILL
    assert demo(tmp_path, "--resume", until=lambda: n_lines(part) >= 3)[0] == -signal.SIGKILL
    assert 3 <= n_lines(part) < 6
    assert demo(tmp_path, "--resume")[0] == 0
    assert settled(tmp_path / "out.jsonl") == expected
    assert not part.exists()


def test_full_disk_leaves_a_file_to_go_on_with(tmp_path: Path, expected: list[dict[str, Any]]) -> None:
    code, errors = demo(tmp_path, "--no-perf", "-lv", "1", limit=12_000)
    assert (code, errors) == (1, f"error: {tmp_path}/out.jsonl.part: cannot be written: File too large\n")
    assert 1 <= n_lines(tmp_path / "out.jsonl.part") < 6
    assert demo(tmp_path, "--resume")[0] == 0
    assert settled(tmp_path / "out.jsonl") == expected
