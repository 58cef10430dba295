"""Every option of llama.cpp's programs, in every spelling and with its values, is taken or refused by name."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from specli.cli.conversation.repl import template_variables
from specli.cli.options import spellings_of
from specli.cli.options.arguments import read_command_line
from specli.cli.options.option import Option
from specli.cli.options.settings import Settings, resolve
from specli.errors import UsageError
from tests.cli.upstream_options import OPTIONS, UpstreamOption

REFUSED = {
    "generate": {
        "--server-base", "--numa", "--rpc", "--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled",
        "--control-vector-layer-range", "--check-tensors", "--rope-scaling", "--rope-scale", "--rope-freq-base",
        "--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow",
        "--yarn-beta-fast", "--grp-attn-n", "--image", "--vision-gemma-4b-default", "--vision-gemma-12b-default",
        "--gpt-oss-20b-default", "--gpt-oss-120b-default", "--model-url", "--docker-repo", "--log-jsonl",
        "--log-prompts-dir", "--prompt-cache", "--prompt-cache-all", "--prompt-cache-ro", "--in-prefix", "--in-suffix",
        "--in-prefix-bos", "--context-shift", "--conversation", "--interactive", "--interactive-first", "--output",
        "--draft", "--draft-min",
    },
}  # fmt: skip
REFUSED["chat"] = REFUSED["generate"] - {"--interactive", "--interactive-first", "--output"}
REFUSED["serve"] = REFUSED["chat"] | {
    "--lora-init-without-apply",
    "--embedding",
    "--rerank",
    "--pooling",
    "--path",
    "--cache-reuse",
    "--ssl-key-file",
    "--ssl-cert-file",
    "--tools",
    "--tools-runtime",
    "--agent",
    "--mcp-servers-config",
    "--mcp-servers-json",
    "--ui-mcp-proxy",
    "--media-path",
    "--models-dir",
    "--models-preset",
    "--sleep-idle-seconds",
    "--embd-gemma-default",
    "--fim-qwen-1.5b-default",
    "--fim-qwen-3b-default",
    "--fim-qwen-7b-default",
    "--fim-qwen-7b-spec",
    "--fim-qwen-14b-spec",
    "--fim-qwen-30b-default",
    "--spec-ngram-size-n",
    "--spec-ngram-size-m",
    "--spec-ngram-min-hits",
}
"""What changes the text or leaves a file that nobody writes; by the first long spelling of the option."""

NO_TEMPLATE = "generate takes the prompt as it is; specli chat applies the chat template"
PROGRAMS = {"generate": "CGP", "chat": "CGP", "serve": "S"}
"""Whose options a command takes."""


def rows_of(command: str) -> list[UpstreamOption]:
    """The options that a command has to know."""
    return [row for row in OPTIONS if set(row.programs) & set(PROGRAMS[command])]


CASES = [pytest.param(command, row, id=f"{command}-{row.names[0]}") for command in PROGRAMS for row in rows_of(command)]


def settle(command: str, arguments: list[str]) -> Settings:
    return resolve(command, read_command_line(command, arguments), {}, read_files=False)


def long_name(row: UpstreamOption) -> str:
    return next((name for name in row.names if name.startswith("--")), row.names[0])


def uses(row: UpstreamOption, file: Path) -> Iterator[list[str]]:
    """Command lines with the option: every spelling, and every value."""
    values = [str(file) if value == "@" else value for value in row.values]
    for number, name in enumerate(row.names):
        for value in values if number == 0 else values[:1]:
            yield [name, *value.split(",")] if name == "--control-vector-layer-range" else [name, value]
        if not values:
            yield [name]
    for name in row.negative:
        yield [name]


def asked(option: Option, arguments: list[str]) -> str:
    """What `Option.satisfied` holds for such a use."""
    if option.kind.takes_value:
        return str(option.kind.parse(arguments[1]))
    return "on" if arguments[0] in option.names else "off"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_text('root ::= "a"')
    return path


@pytest.mark.parametrize(("command", "row"), CASES)
def test_option_is_taken_or_refused_by_name(row: UpstreamOption, command: str, file: Path) -> None:
    known = spellings_of(command)
    reasons = []
    for arguments in uses(row, file):
        option = known[arguments[0]]
        try:
            warnings = settle(command, arguments).warnings
        except UsageError as error:
            reasons.append(str(error))
        else:
            has_effect = option.field or option.implies or asked(option, arguments) in option.satisfied
            assert has_effect or any(line.startswith(f"{arguments[0]} has no effect: ") for line in warnings)
    if long_name(row) in REFUSED[command]:
        assert reasons
        assert all("not available in specli: " in reason or "has been removed. use " in reason for reason in reasons)
    else:
        assert reasons == []


@pytest.mark.parametrize(
    ("command", "arguments", "warnings"),
    [
        ("generate", "-co on -st --simple-io --no-display-prompt --no-warmup", ["-co generate writes plain text"]),
        ("generate", "-sys a --jinja", [f"-sys {NO_TEMPLATE}", f"--jinja {NO_TEMPLATE}"]),
        ("generate", "--chat-template chatml --reasoning-budget 0", [
            f"--chat-template {NO_TEMPLATE}", f"--reasoning-budget {NO_TEMPLATE}",
        ]),
        ("generate", "--no-show-timings -mli", [
            "--no-show-timings --no-perf leaves out the statistics lines", "-mli generate reads no input",
        ]),
        ("chat", "-cnv -st --color auto --jinja -sys a -i", []),
        ("chat", "--no-display-prompt --no-jinja", [
            "--no-display-prompt a chat shows the first message on a terminal, and only there",
            "--no-jinja templates are always rendered with Jinja",
        ]),
        ("chat", "-ptc 5 --no-perf", [
            "-ptc the statistics count the tokens at the end",
            "--no-perf only generate has statistics lines at the end; in a chat /stats shows them",
        ]),
    ],
)  # fmt: skip
def test_one_liners_of_upstream(command: str, arguments: str, warnings: list[str]) -> None:
    expected = [f"{name} has no effect: {reason}" for name, _, reason in (line.partition(" ") for line in warnings)]
    assert settle(command, arguments.split()).warnings == expected


@pytest.mark.parametrize(
    ("arguments", "thinks"),
    [
        ("--reasoning-budget 0", False),
        ("--reasoning on --reasoning-budget 0", False),
        ("--reasoning on --reasoning-budget -1", True),
        ("--reasoning-budget -1", None),
    ],
)
def test_reasoning_budget_of_nothing_means_off(arguments: str, thinks: bool | None) -> None:
    variables = template_variables(settle("chat", arguments.split()).config())
    assert variables.get("enable_thinking") is thinks


def test_option_of_another_command_is_left_alone_outside_the_command_line(tmp_path: Path) -> None:
    """A template in the environment, or a transcript in a config file, is meant for chats."""
    environ = {"LLAMA_ARG_CHAT_TEMPLATE": "chatml", "LLAMA_ARG_JINJA": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "config.ini").write_text("output = log.txt\nsystem-prompt = Be brief.\ncnv = 1\n")
    settings = resolve("generate", read_command_line("generate", []), environ)
    assert (settings.warnings, settings.values) == ([], {})
    chat = resolve("chat", read_command_line("chat", []), environ).config().chat
    assert (chat.template, chat.system, str(chat.transcript)) == ("chatml", "Be brief.", "log.txt")


@pytest.mark.parametrize("command", PROGRAMS)
def test_spellings_and_variables_are_those_of_upstream(command: str) -> None:
    known = spellings_of(command)
    for row in rows_of(command):
        option = known[row.names[0]]
        assert set(row.names) <= set(option.names), row
        assert set(row.negative) == set(option.negative), row
        assert option.env == row.env, row
        assert option.kind.takes_value == bool(row.values), row


@pytest.mark.parametrize(
    ("program", "letter"),
    [("llama-cli", "C"), ("llama-completion", "G"), ("llama-speculative-simple", "P"), ("llama-server", "S")],
)
def test_table_is_what_the_programs_have(program: str, letter: str, programs: Path) -> None:
    done = subprocess.run([programs / program, "--help"], capture_output=True, text=True, check=True)
    found = dict(help_options(done.stdout))
    found.pop(frozenset(("-h", "--help", "--usage")))
    assert found == {frozenset(row.names + row.negative): row.env for row in OPTIONS if letter in row.programs}


def help_options(text: str) -> Iterator[tuple[frozenset[str], str | None]]:
    """Spellings and variable of each option in llama.cpp's help."""
    for entry in re.split(r"\n(?=-)(?!-----)", text):
        spellings = re.match(r"(?:-[-\w.]+,\s+)*-[-\w.]+", entry)
        if spellings and not entry.startswith("-----"):
            variable = re.search(r"\(env:\s+(\w+)\)", entry)
            yield frozenset(re.split(r",\s+", spellings[0])), variable[1] if variable else None
