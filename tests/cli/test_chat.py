"""`specli chat` in a pipe with a scripted engine: commands, history, files, interrupts."""

import ast
import io
import json
import sys
from pathlib import Path

import pytest

from specli.cli import main
from specli.tokenizer.reasoning import Reasoning
from tests.cli.scripted import TOO_LONG, ScriptedOpener


class Talk:
    """Runs a chat on given lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.code = 0
        self.err = ""

    def __call__(self, lines: str, *arguments: str) -> str:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        self.code = main(["chat", "-m", "t.gguf", *arguments])
        captured = self._capsys.readouterr()
        self.err = captured.err
        return captured.out


@pytest.fixture
def talk(opener: ScriptedOpener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    return Talk(monkeypatch, capsys)


def test_answers_to_stdout_timings_to_stderr(talk: Talk, opener: ScriptedOpener) -> None:
    assert talk("hello you\n\nbye\n") == "hello you \nbye \n"
    assert talk.err.splitlines() == [
        "drafting: off",
        "[ Prompt: 100.0 t/s | Generation: 50.0 t/s ]",
        "[ Prompt: 100.0 t/s | Generation: 50.0 t/s ]",
    ]
    assert (talk.code, opener.n_open) == (0, 0)


def test_prompt_option_is_the_first_message(talk: Talk) -> None:
    assert talk("two\n", "-p", "one\\t!") == "one\t! \ntwo \n"
    assert talk("two\n", "-p", "one", "-st", "--no-show-timings") == "one \n"
    assert talk.err == "drafting: off\n"


def test_exit_and_end_of_input_leave_with_0(talk: Talk) -> None:
    assert talk("/exit\nhello\n") == ""
    assert talk.code == 0
    assert talk("") == ""
    assert talk.code == 0


def test_message_that_finds_no_room_is_forgotten_and_the_session_goes_on(talk: Talk) -> None:
    assert talk(f"one\n{TOO_LONG}\ntwo\n/save s.json\n") == "one \ntwo \n"
    assert (talk.code, "error: the prompt is too long" in talk.err.splitlines()) == (0, True)
    messages = json.loads(Path("s.json").read_text())["messages"]
    assert [message["content"] for message in messages] == ["one", "one ", "two", "two "]


def test_verbose_prompt_lists_the_rendered_conversation(talk: Talk) -> None:
    talk("", "-st", "-p", "hi", "-sys", "S", "--verbose-prompt")
    shown = [line.split(" -> ")[1] for line in talk.err.splitlines() if " -> " in line]
    assert "".join(map(ast.literal_eval, shown)) == "system: S\nuser: hi\n"


def test_single_turn_that_finds_no_room_fails(talk: Talk) -> None:
    assert talk("", "-st", "-p", TOO_LONG) == ""
    assert talk.code == 1


def test_unknown_commands_are_text_and_a_note_says_so(talk: Talk) -> None:
    assert talk("/frob nicate\n/read\n/usr/bin\n", "--no-show-timings") == "/frob nicate \n/read \n/usr/bin \n"
    assert talk.err.splitlines()[1:] == [
        "/frob is no command, so the line goes to the model; /help lists the commands",
        "/read needs FILE, so the line goes to the model; /help lists the commands",
    ]


def test_regenerate_and_clear(talk: Talk) -> None:
    assert talk("/regen\na\n/regen\n/clear\n/regen\n") == "a \na \n"
    messages = [line for line in talk.err.splitlines() if not line.startswith("[")]
    assert messages == [
        "drafting: off",
        "error: No message to regenerate.",
        "Chat history cleared.",
        "error: No message to regenerate.",
    ]


def test_read_waits_for_the_next_message(talk: Talk, workdir: Path) -> None:
    Path("f.txt").write_text("content\n")
    out = talk("/read f.txt\n/read missing\nwhat?\n", "-o", "log.txt")
    assert out == "what? \n"
    assert "Loaded text from 'f.txt'" in talk.err
    assert "error: file does not exist or cannot be opened: 'missing'" in talk.err
    assert Path("log.txt").read_text() == "User: Added text file: f.txt\nUser:\nwhat?\n\nAssistant:\nwhat? \n"


def test_glob_reads_at_most_100_files(talk: Talk, workdir: Path) -> None:
    Path("many").mkdir()
    for i in range(101):
        Path(f"many/{i:03}.txt").write_text("x")
    talk("/glob many/*.txt\n/glob none*\n")
    assert "Maximum number of globbed files allowed (100) reached." in talk.err
    assert talk.err.count("Loaded text from") == 100
    assert "error: no file matches 'none*'" in talk.err


def test_path_that_cannot_be_looked_at_does_not_end_the_session(talk: Talk) -> None:
    bad = ("x" * 300, "~nosuchuser/x", "/" + "x" * 300 + "/y")
    lines = [f"{command} {path}" for command in ("/read", "/glob", "/save", "/load") for path in (*bad, "**x", "~")]
    assert talk("\n".join([*lines, "one\n"])) == "one \n"


def test_save_and_load(talk: Talk, workdir: Path) -> None:
    talk("one\n/save c.json\n", "-sys", "be brief")
    saved = json.loads(Path("c.json").read_text())
    assert saved["system"] == "be brief"
    assert [message["content"] for message in saved["messages"]] == ["one", "one "]
    assert talk("/load c.json\n/regen\n/load t.gguf\n") == "one \n"
    assert "Loaded 'c.json': 2 messages" in talk.err
    assert "error: t.gguf: cannot be read as a conversation" in talk.err
    (workdir / "deep.json").write_text("[" * 100_000)
    assert talk("/load deep.json\n") == ""
    assert "error: deep.json: cannot be read as a conversation: " in talk.err


def test_spec_changes_drafters_on_the_same_engine_and_keeps_the_messages(talk: Talk, opener: ScriptedOpener) -> None:
    assert talk("one\n/spec ngram-mod\n/regen\n/spec frob\ntwo\n") == "one \none \ntwo \n"
    assert [config.speculation.types for config in opener.configs] == [()]
    assert [config.speculation.types for config in opener.changes] == [("ngram-mod",)]
    assert 'error: error while handling argument "--spec-type": unknown speculative type: frob' not in talk.err
    assert 'error while handling argument "--spec-type": unknown speculative type: frob' in talk.err


def test_set_changes_the_request_without_loading_again(talk: Talk, opener: ScriptedOpener) -> None:
    talk("one\n/set temp 0.2\ntwo\n/set -n 1\n/set --top_k 5\nthree four\n/set frob 1\n")
    assert len(opener.configs) == 1
    assert [request.sampling.temperature for request in opener.requests] == [None, 0.2, 0.2]
    assert opener.requests[2].n_predict == 1
    assert opener.requests[2].sampling.top_k == 5
    assert "error: invalid argument: --frob" in talk.err


def test_set_of_another_model_or_draft_setting_says_what_runs_then(talk: Talk, opener: ScriptedOpener) -> None:
    talk("/set spec-ngram-mod-n-max 9\n/set c 512\n/set temp 0\n", "--spec-type", "ngram-mod")
    assert (len(opener.configs), len(opener.changes)) == (2, 1)
    assert talk.err.count("drafting: ngram-mod") == 3


def test_set_changes_the_system_prompt(talk: Talk) -> None:
    talk("/set system-prompt 'be a cat'\none\n/set temp 0.2\n/save c.json\n", "-sys", "be brief")
    assert json.loads(Path("c.json").read_text())["system"] == "be a cat"


@pytest.mark.parametrize("option", ["-v", "prompt x", "stats-json x", "simple-io", "version", "log-file x"])
def test_set_refuses_what_is_read_at_the_start(talk: Talk, option: str) -> None:
    assert talk(f"/set {option}\none\n") == "one \n"
    assert " cannot be set during a chat: it is read at the start" in talk.err


def test_set_warns_of_options_without_effect_and_has_no_help_of_its_own(talk: Talk) -> None:
    talk("/set spec-ngram-mod-n-max 9\n/set temp 0.5\n/set --help\n")
    assert talk.err.count("warn: --spec-ngram-mod-n-max has no effect: it is read by ngram-mod") == 1
    assert "error: there is no option to set\nhint: specli chat --help lists them" in talk.err


def test_statistics_command(talk: Talk) -> None:
    talk("/stats\none\n/stats\n")
    assert "error: no answer yet" in talk.err
    assert talk.err.splitlines()[-2:] == [
        "the last answer:",
        "draft acceptance = 0.50000 (    1 accepted /     2 generated), mean len =  1.50",
    ]


def test_help_lists_every_command(talk: Talk) -> None:
    talk("/help\n")
    for name in ("/exit", "/regen", "/clear", "/read FILE", "/glob", "/stats", "/spec", "/set", "/save", "/load"):
        assert name in talk.err


def test_interrupt_stops_the_answer_and_keeps_the_session(talk: Talk) -> None:
    assert talk("a INTERRUPT b c\nnext\n") == "a INTERRUPT \nnext \n"
    assert talk.code == 0
    assert talk("a INTERRUPT b\n", "-st") == "a INTERRUPT \n"
    assert talk.code == 130


def test_interrupt_after_the_last_token_counts_at_the_prompt(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk("a INTERRUPT\nnext\n") == "a INTERRUPT \n"  # a pipe: it leaves
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = talk("a INTERRUPT\nnext\nlast INTERRUPT\n", "--color", "off")
    assert [word for word in ("a", "next", "last") if word in shown] == ["a", "next", "last"]
    assert talk.err.count("Ctrl-C once more leaves") == 2
    assert talk("a INTERRUPT\n", "--color", "off", "-st") == "a INTERRUPT \n\n"
    assert talk.code == 130


def test_accepted_tokens_are_coloured_by_drafter(talk: Talk) -> None:
    assert talk("a b c\n", "--color", "on") == "a \x1b[32mb \x1b[0mc \n"
    assert "drafted by: \x1b[32mngram-mod\x1b[0m" in talk.err
    assert talk("a b c\n", "--color", "on", "--simple-io") == "a b c \n"


def test_thoughts_are_framed_and_kept_apart(talk: Talk, workdir: Path) -> None:
    line = "<think>hm </think> yes\n/save c.json\n"
    assert talk(line) == "[Start thinking]\nhm \n[End thinking]\n\n yes \n"
    answer = json.loads(Path("c.json").read_text())["messages"][1]
    assert answer == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    assert talk(line, "--reasoning-format", "none") == "<think>hm </think> yes \n"
    talk(line, "--no-reasoning-preserve")
    assert "reasoning_content" not in json.loads(Path("c.json").read_text())["messages"][1]
    assert talk("hm </think> yes\n", "--chat-template-kwargs", '{"think": true}') == (
        "[Start thinking]\nhm \n[End thinking]\n\n yes \n"
    )


def test_channels_of_gpt_oss_are_thoughts_and_answers(
    talk: Talk, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Reasoning("<|channel|>analysis<|message|>", "<|end|>", has_channels=True)
    monkeypatch.setattr("tests.cli.scripted.PlainTemplate.reasoning", form)
    answer = "<|channel|>analysis<|message|>hm <|end|><|start|>assistant<|channel|>final<|message|>yes"
    assert talk(answer + "\n/save c.json\n") == "[Start thinking]\nhm \n[End thinking]\n\nyes \n"
    saved = json.loads(Path("c.json").read_text())["messages"][1]
    assert saved == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}


def test_records_of_all_answers_are_written(talk: Talk, workdir: Path) -> None:
    talk("one\ntwo\n", "--stats-json", "out.json")
    assert [json.loads(line)["text"] for line in Path("out.json").read_text().splitlines()] == ["one ", "two "]


def test_messages_of_several_lines(talk: Talk) -> None:
    assert talk("one\\\ntwo\n") == "two \n"
    assert talk("one\ntwo/\nthree\n", "-mli") == "two \nthree \n"


def test_transcript_that_cannot_be_written_is_an_error_at_the_start(talk: Talk) -> None:
    assert talk("one\n", "-o", "missing/log.txt") == ""
    assert talk.code == 1
    assert talk.err == "error: missing/log.txt: cannot be written: No such file or directory\n"
