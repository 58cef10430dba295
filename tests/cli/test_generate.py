"""`specli generate` with a scripted engine: streams, files, exit codes."""

import json
from pathlib import Path

import pytest

from specli.cli import main
from tests.cli.scripted import ScriptedOpener

ACCEPTANCE = "draft acceptance = 0.50000 (    1 accepted /     2 generated), mean len =  1.50"


def generate(*arguments: str) -> int:
    return main(["generate", "-m", "t.gguf", *arguments])


def test_text_goes_to_stdout_and_the_rest_to_stderr(opener: ScriptedOpener, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("-p", "a b c", "--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "9") == 0
    captured = capsys.readouterr()
    assert captured.out == "a b c "
    assert captured.err.splitlines() == [
        "drafting: ngram-mod",
        "draft settings: --spec-ngram-mod-n-match 24 (default), --spec-ngram-mod-n-min 48 (default), "
        "--spec-ngram-mod-n-max 9 (flag)",
        "the prompt is used as it is; specli chat --single-turn applies the model's chat template",
        ACCEPTANCE,
    ]
    assert opener.n_open == 0


@pytest.mark.parametrize(
    ("arguments", "n_lines"), [(["-lv", "2"], 0), (["--no-perf"], 2), (["-lv", "4"], 4), (["--log-disable"], 0)]
)
def test_messages_by_level(
    opener: ScriptedOpener, capsys: pytest.CaptureFixture[str], arguments: list[str], n_lines: int
) -> None:
    assert generate("-p", "a", *arguments) == 0
    assert len(capsys.readouterr().err.splitlines()) == n_lines


def test_settings_reach_the_engine(opener: ScriptedOpener) -> None:
    assert (
        generate("-p", "a b c", "-n", "2", "--temp", "0", "-md", "d.gguf", "--logprobs", "3", "-r", "x", "-c", "512")
        == 0
    )
    config, request = opener.configs[0], opener.requests[0]
    assert config.n_ctx == 512
    assert config.draft is not None
    assert (request.n_predict, request.logprobs, request.stop) == (2, 3, ("x",))
    assert request.sampling.temperature == 0
    assert request.sampling.top_k is None


def test_json_is_one_object_per_prompt(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text('"one two"\n\n{"prompt": "three", "id": "x"}\n')
    assert generate("--prompts", "p.jsonl", "--json", "--stats-json", "out.json") == 0
    out = capsys.readouterr().out
    records = [json.loads(line) for line in out.splitlines()]
    assert [(record.get("id"), record["text"]) for record in records] == [(None, "one two "), ("x", "three ")]
    assert records[0]["settings"]["--prompts"] == "p.jsonl"
    assert records[0]["settings"]["--top-p"] == 0.75  # as the engine says
    assert Path("out.json").read_text() == out


def test_texts_of_several_prompts_are_told_apart(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text('"one"\n"two"\n')
    assert generate("--prompts", "p.jsonl") == 0
    assert capsys.readouterr().out == "one \ntwo \n"


def test_prompt_file_may_begin_with_a_byte_order_mark(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text('"one"\n', encoding="utf-8-sig")
    assert generate("--prompts", "p.jsonl") == 0
    assert capsys.readouterr().out == "one "


def test_line_separators_inside_a_json_string_do_not_end_the_line(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.jsonl").write_text('"one\u2028two\u0085three"\r\n"four"\n')
    assert generate("--prompts", "p.jsonl") == 0
    assert capsys.readouterr().out == "one\u2028two\u0085three \nfour \n"


def test_an_id_is_a_text_or_a_number(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A deep one could be read, and not be written again."""
    deep = "[" * 900 + "]" * 900
    Path("p.jsonl").write_text(f'{{"prompt": "x", "id": {deep}}}\n')
    assert generate("--prompts", "p.jsonl", "--json") == 1
    assert capsys.readouterr().err == "error: p.jsonl: line 1: id is not a text or a number\n"


def test_prompt_from_a_file_loses_one_newline(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.txt").write_text("x y\n")
    assert generate("-f", "p.txt", "--display-prompt") == 0
    assert capsys.readouterr().out == "x yx y "


def test_verbose_prompt_lists_tokens(opener: ScriptedOpener, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("-p", "hi", "--verbose-prompt", "-lv", "3") == 0
    assert "   104 -> 'h'" in capsys.readouterr().err.splitlines()


def test_interrupt_keeps_text_statistics_and_files(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate("-p", "a INTERRUPT c d", "--stats-json", "out.json") == 130
    captured = capsys.readouterr()
    assert captured.out == "a INTERRUPT "
    assert ACCEPTANCE in captured.err
    assert json.loads(Path("out.json").read_text())["stop"] == "interrupt"
    assert opener.n_open == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "error: no prompt was given\nhint: use -p TEXT, -f FILE or --prompts FILE.jsonl\n"),
        (["-p", "a", "--prompts", "p"], 2, "error: --prompt and --prompts exclude each other\n"),
        (["--prompts", "missing"], 1,
         "error: missing: cannot be read: No such file or directory\n"),
        (["--prompts", "bad.jsonl"], 1,
         "error: bad.jsonl: line 2: expected a string or an object with a string prompt\n"),
        (["--prompts", "t.gguf"], 1, "error: t.gguf: no prompts in it\n"),
        (["-p", "a", "-hf", "u/m"], 2,
         "error: --model and --hf-repo exclude each other\nhint: -hff chooses a file of the repository\n"),
    ],
)  # fmt: skip
def test_errors_before_anything_is_loaded(
    opener: ScriptedOpener,
    workdir: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    Path("bad.jsonl").write_text('"fine"\n{"text": 1}\n')
    assert generate(*arguments) == code
    assert capsys.readouterr().err == message
    assert opener.configs == []


@pytest.mark.parametrize(
    ("name", "reason"), [("missing/out.json", "No such file or directory"), (".", "Is a directory")]
)
def test_stats_file_that_cannot_be_written_is_refused_before_the_work(
    opener: ScriptedOpener, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    assert generate("-p", "a", "--stats-json", name, "-lv", "1") == 1
    assert capsys.readouterr().err == f"error: {name}: cannot be written: {reason}\n"
    assert opener.configs == []


def test_prompt_file_that_is_not_text(
    opener: ScriptedOpener, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.txt").write_bytes(b"caf\xe9 au lait")
    assert generate("-f", "p.txt") == 2
    assert capsys.readouterr().err.startswith(
        """error while handling argument "-f": 'p.txt' is not UTF-8 text: invalid continuation byte at byte 3\n"""
    )


def test_version_is_printed_by_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["generate", "--version"], ["convert", "--version"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out.startswith("specli ")


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-devices"]) == 0
    assert capsys.readouterr().out.startswith("Available devices:\n")
