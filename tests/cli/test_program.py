"""The program as users start it: a tiny model, real processes, a pseudo-terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.support.tiny_drafters import tiny_eagle3
from tests.support.tiny_gguf import tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama that writes nonsense."""
    return tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", "llama")


def environ(folder: Path, **more: str) -> dict[str, str]:
    """An environment without any setting of specli."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_ARG_", "SPECLI_"))}
    return {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder), **more}


def test_script_written_for_llama_cpp_runs_unchanged(model: Path, tmp_path: Path) -> None:
    """Model and type from the environment, statistics lines read with awk."""
    script = (
        f"'{sys.executable}' -m specli generate -p 'the cat the cat the cat' -n 16 --temp 0 --no-warmup -ngl 99 2>&1 "
        ">/dev/null | awk '/^statistics +ngram-mod: #calls/ { print $2, $6 }'"
    )
    more = {"LLAMA_ARG_MODEL": str(model), "LLAMA_ARG_SPEC_TYPE": "ngram-mod", "LLAMA_ARG_SPEC_DRAFT_N_MAX": ""}
    result = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env=environ(tmp_path, **more), timeout=120, check=True
    )
    name, calls = result.stdout.split()
    assert (name, int(calls) > 0) == ("ngram-mod:", True)


def test_reader_that_leaves_early_is_no_error_message(model: Path, tmp_path: Path) -> None:
    command = (
        f"'{sys.executable}' -m specli generate -m '{model}' -p a -n 200 -lv 1 --ignore-eos | head -c 1 >/dev/null"
    )
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environ(tmp_path), timeout=120)
    assert result.stderr == ""


def test_acceptance_lines_are_read_as_llama_cpp_s(model: Path, tmp_path: Path) -> None:
    """A script that adds up accepted and generated draft tokens over the drafters and compares with the request's."""
    script = (
        f"'{sys.executable}' -m specli generate -p 'the cat the cat the cat' -n 48 --temp 0 --ignore-eos "
        "--spec-ngram-simple-size-n 1 --spec-ngram-simple-size-m 4 2>&1 >/dev/null | awk '"
        '/^draft acceptance = / { gsub(/[^0-9. ]/, ""); a = $2; g = $3 } '
        "function count(name) { match($0, name); split(substr($0, RSTART, RLENGTH), f, /= +/); return f[2] } "
        '/^statistics / { gen += count("#gen tokens = +[0-9]+"); acc += count("#acc tokens = +[0-9]+") } '
        "END { print a, g, acc, gen }'"
    )
    more = {"LLAMA_ARG_MODEL": str(model), "LLAMA_ARG_SPEC_TYPE": "ngram-simple"}
    result = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env=environ(tmp_path, **more), timeout=120, check=True
    )
    accepted, generated, acc_tokens, gen_tokens = map(int, result.stdout.split())
    assert (accepted, generated) == (acc_tokens, gen_tokens)
    assert generated > 0


def test_chat_with_a_drafter_that_is_changed_midway(model: Path, tmp_path: Path) -> None:
    """A recorded conversation: EAGLE-3, its statistics, then /spec to n-grams on the same target, then to none."""
    draft = tiny_eagle3(tmp_path / "e.gguf", follows_target=True)
    arguments = ["-m", "specli", "chat", "-m", str(model), "-md", str(draft), "-n", "8", "--temp", "0", "-c", "512"]
    arguments += ["--spec-ngram-simple-size-n", "1", "--spec-ngram-simple-size-m", "4", "--ignore-eos", "-lv", "4"]
    terminal = environ(tmp_path, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
    log = (tmp_path / "log").open("w", encoding="utf-8")
    chat = pexpect.spawn(
        sys.executable, arguments, env=terminal, encoding="utf-8", timeout=60, dimensions=(40, 160), cwd=str(tmp_path)
    )
    chat.logfile_read = log
    chat.expect("drafting: draft-eagle3")
    chat.expect(">")
    chat.sendline("hello hello hello")
    chat.expect(r"Generation: [0-9.]+ t/s \]")
    chat.sendline("/stats")
    chat.expect(r"statistics     draft-eagle3: #calls\(b,g,a\) = +1 ")
    chat.sendline("/spec ngram-simple,ngram-mod")
    chat.expect("drafting: ngram-simple")
    chat.expect("drafting: ngram-mod")
    chat.sendline("hello hello hello")
    chat.expect(r"Generation: [0-9.]+ t/s \]")
    chat.sendline("/stats")
    chat.expect("statistics     ngram-simple: #calls")
    chat.sendline("/spec draft-dflash")
    chat.expect("error: .*does not fit draft-dflash")
    chat.sendline("/spec none")
    chat.expect(r"drafting: off \(--spec-type none\)")
    chat.sendline("/exit")
    chat.expect(pexpect.EOF)
    chat.close()
    log.close()
    assert chat.exitstatus == 0
    recorded = (tmp_path / "log").read_text(encoding="utf-8")
    assert recorded.count(f"loading {model}") == 1
    assert "Traceback" not in recorded


@pytest.mark.parametrize(
    ("dimensions", "more"), [((24, 80), {}), ((10, 40), {"NO_COLOR": "1"}), ((24, 80), {"TERM": "dumb"})]
)
def test_chat_on_a_terminal(model: Path, tmp_path: Path, dimensions: tuple[int, int], more: dict[str, str]) -> None:
    arguments = ["-m", "specli", "chat", "-m", str(model), "-n", "4", "--temp", "0", "-c", "256"]
    terminal = environ(tmp_path, **{"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **more})  # pexpect answers no query
    chat = pexpect.spawn(
        sys.executable, arguments, env=terminal, encoding="utf-8", timeout=30, dimensions=dimensions, cwd=str(tmp_path)
    )
    chat.expect(">")
    chat.sendline("/help")
    chat.expect("/load FILE")
    chat.sendline("hello")
    chat.expect(r"Generation: [0-9.]+ t/s \]")
    chat.sendline("/clear")
    chat.expect("Chat history cleared")
    chat.expect(">")
    chat.send("\x03")
    chat.expect("Ctrl-C once more leaves")
    chat.expect(">")
    chat.sendline("/clear")
    chat.expect("Chat history cleared")
    for _ in range(2):
        chat.expect(">")
        chat.send("\x03")
    chat.expect("Exiting")
    chat.expect(pexpect.EOF)
    chat.close()
    assert chat.exitstatus == 0


def test_end_of_input_leaves_a_chat_on_a_terminal(model: Path, tmp_path: Path) -> None:
    terminal = environ(tmp_path, TERM="xterm")
    arguments = ["-m", "specli", "chat", "-m", str(model), "-n", "4"]
    chat = pexpect.spawn(sys.executable, arguments, env=terminal, encoding="utf-8", timeout=30, cwd=str(tmp_path))
    chat.expect(">")
    chat.send("\x04")
    chat.expect("Exiting")
    chat.expect(pexpect.EOF)
    chat.close()
    assert chat.exitstatus == 0


@pytest.mark.parametrize("columns", [30, 40, 80])
@pytest.mark.parametrize("arguments", [["--help"], ["--usage"], ["check", "--help"]], ids=" ".join)
def test_help_fits_the_terminal(tmp_path: Path, arguments: list[str], columns: int) -> None:
    command = [sys.executable, "-m", "specli", *arguments]
    env = environ(tmp_path, COLUMNS=str(columns))
    shown = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=True).stdout
    texts = [line for line in shown.splitlines() if not line.startswith("  -")]  # spellings are not broken
    assert max(map(len, texts)) <= columns
