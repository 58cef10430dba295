"""`generate --prompts F --workers N`: the same results as one process, whatever dies on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_batch import n_lines, settled

N_PROMPTS = 10
LONG = 150  # prompts of a run that lasts longer than until somebody is killed
TABLES = "ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache"
NETWORKS = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")


def command(*more: str) -> list[str]:
    return [
        sys.executable, "-m", "specli", "generate", "-m", "demo", "-t", "1", "-c", "256", "-n", "32", "--no-perf",
        "--no-spec-adaptive", "--prompts", "p.jsonl", "--stats-json", "out.jsonl", "--logprobs", "2", *more,
    ]  # fmt: skip


def write_prompts(folder: Path) -> None:
    words = ["a fox", "a dog", "the old wolf", "seven hens", "two cats and a cow"]
    lines = [f'"Once {words[i % 5]} and {words[i * 3 % 5]} went to the {i}. market"\n' for i in range(N_PROMPTS)]
    (folder / "p.jsonl").write_text("".join(lines))


def generate(
    folder: Path, *more: str, during: Callable[[subprocess.Popen[str]], None] | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run; `during` is called again and again while it lasts."""
    write_prompts(folder)
    with (folder / "err").open("w") as err, (folder / "text").open("w") as text:
        process = subprocess.Popen(command(*more), cwd=folder, stdout=text, stderr=err, text=True)
        while process.poll() is None:
            if during is not None:
                during(process)
            time.sleep(0.005)
    return process.returncode, (folder / "text").read_text(), (folder / "err").read_text()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes of the workers that run."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    except OSError:
        return []


def compared(folder: Path, *more: str) -> tuple[list[dict[str, Any]], str]:
    folder.mkdir()
    code, text, errors = generate(folder, *more)
    assert code == 0, errors
    return settled(folder / "out.jsonl"), text


def same_with_workers(tmp_path: Path, counts: tuple[int, ...], *more: str) -> None:
    """Compares tokens, texts, log-probabilities, counts of every drafter, and stdout."""
    expected = compared(tmp_path / "one", *more)
    assert len(expected[0]) == N_PROMPTS
    for n in counts:
        assert compared(tmp_path / f"{n} workers", *more, "--workers", str(n)) == expected


def test_two_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    options = ("--seed", "5", "--seed-per-prompt", "--temp", "0.8", "--spec-type", f"draft-eagle3,{TABLES}")
    same_with_workers(tmp_path, (2,), "-md", "demo", *options)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", [*(("-md", "demo", "--spec-type", name) for name in NETWORKS),
                                     *(("--spec-type", name) for name in TABLES.split(","))], ids=" ".join)  # fmt: skip
def test_one_two_and_four_workers_give_the_same(tmp_path: Path, drafter: tuple[str, ...]) -> None:
    same_with_workers(tmp_path, (1, 2, 4), *drafter, "--temp", "0")


@pytest.mark.slow
def test_mtp_with_workers(tmp_path: Path) -> None:
    same_with_workers(tmp_path, (2,), "-m", "demo-mtp", "--spec-type", "draft-mtp", "--temp", "0")


def killed_at_random(folder: Path, seed: int) -> tuple[int, int]:
    """Kills workers now and then, then the whole run, goes on, and so forth; how many workers and runs were killed."""
    n_killed = [0, 0]
    chance = random.Random(seed)
    options = ("--temp", "0", "--spec-type", "ngram-mod", "--workers", "2", "--retries", "9")
    expected = compared(folder / "whole", *options[:-4])[0]
    folder = folder / "killed"
    folder.mkdir()
    until = 0.0
    is_driver = False

    def kill(process: subprocess.Popen[str]) -> None:
        nonlocal until
        if time.monotonic() < until:
            return
        victims = [process.pid] if is_driver else workers_of(process)
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
            n_killed[is_driver] += 1
        until = time.monotonic() + (99 if is_driver else chance.uniform(1.0, 2.0))

    for attempt in range(6):
        is_driver = attempt % 2 == 0 and attempt < 4  # the last attempts are left to end
        until = time.monotonic() + (chance.uniform(1.0, 2.5) if attempt < 4 else 99)
        code, _, errors = generate(folder, *options, *["--resume"] * (attempt > 0), during=kill)
        if code == 0 and (folder / "out.jsonl").exists():
            break
        assert code == -signal.SIGKILL, errors
    assert settled(folder / "out.jsonl") == expected
    assert not (folder / "out.jsonl.part").exists()
    return n_killed[0], n_killed[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_killed_every_line_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("tests.workers.test_side_by_side.N_PROMPTS", LONG)
    assert sum(killed_at_random(tmp_path, seed)) > 0


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_workers_end_with_the_run(tmp_path: Path) -> None:
    seen: set[int] = set()
    options = ("--temp", "0", "--spec-type", "ngram-mod", "-n", "200", "--ignore-eos", "-c", "512", "--workers", "2")

    def kill_one(process: subprocess.Popen[str]) -> None:
        running = workers_of(process)
        if n_lines(tmp_path / "out.jsonl.part") >= 1 and len(running) == 2 and len(seen) < 3:
            seen.update(running)
            os.kill(running[0] if len(seen) == 2 else process.pid, signal.SIGKILL)

    code, _, errors = generate(tmp_path, *options, "--retries", "5", during=kill_one)
    if code:  # the run was killed after it had replaced the worker
        assert code == -signal.SIGKILL
        assert len(seen) >= 3
        assert "warn: worker" in errors
        assert generate(tmp_path, *options, "--resume")[0] == 0
    assert [record["index"] for record in settled(tmp_path / "out.jsonl")] == list(range(N_PROMPTS))
    limit = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in seen) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not [pid for pid in seen if Path(f"/proc/{pid}/cmdline").exists()]


@pytest.mark.slow
def test_full_disk_leaves_a_file_to_go_on_with(tmp_path: Path) -> None:
    """No file may become longer than a few lines: as on a full disk, the write fails in the driver."""
    options = ("--temp", "0", "--spec-type", "ngram-mod")
    expected = compared(tmp_path / "whole", *options)[0]
    write_prompts(tmp_path)
    whole = (tmp_path / "whole" / "out.jsonl").stat().st_size
    limited = ("sh", "-c", 'ulimit -f "$0"; exec "$@"', str(whole // 2 // 512), *command(*options, "--workers", "2"))
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"error: {tmp_path}/out.jsonl.part: cannot be written: File too large"
    assert 1 <= n_lines(tmp_path / "out.jsonl.part") < N_PROMPTS
    assert generate(tmp_path, *options, "--workers", "2", "--resume")[0] == 0
    assert settled(tmp_path / "out.jsonl") == expected


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    options = ("--temp", "0", "-n", "400", "--ignore-eos", "-c", "512", "--workers", "2")

    def interrupt(process: subprocess.Popen[str]) -> None:
        if n_lines(tmp_path / "out.jsonl.part") >= 1:
            os.kill(process.pid, signal.SIGINT)
            process.wait()

    code, _, errors = generate(tmp_path, *options, during=interrupt)
    assert code == 130
    assert errors.splitlines()[-2].endswith("of 10 prompts are done; --resume does the rest")
    assert 1 <= n_lines(tmp_path / "out.jsonl.part") < N_PROMPTS
    assert "Traceback" not in errors


def test_interrupt_of_the_whole_group_while_workers_load(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to workers, too; they leave it to the run, whatever they are doing."""
    write_prompts(tmp_path)
    process = subprocess.Popen(
        command("--workers", "2"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    while len(workers_of(process)) < 2 and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130
    assert not (tmp_path / "out.jsonl.part").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--verify-lossless", "error: --verify-lossless needs one process\nhint: leave out --workers\n"),
        ("--verbose-prompt", "error: --verbose-prompt needs one process\nhint: leave out --workers\n"),
    ],
)
def test_what_needs_one_process_is_refused(tmp_path: Path, option: str, message: str) -> None:
    assert generate(tmp_path, option, "--workers", "2") == (2, "", message)
