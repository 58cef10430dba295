"""Whatever stands on the command line, in the environment or in a config file: a message, never a traceback."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from specli.cli import main
from specli.cli.options import OPTIONS
from specli.cli.options.arguments import config_paths, read_command_line, read_config_file
from specli.cli.options.option import Option
from specli.cli.options.settings import resolve
from specli.cli.tree import COMMANDS
from specli.errors import UsageError
from tests.cli.upstream_options import OPTIONS as UPSTREAM

SPELLINGS = sorted({spelling for option in OPTIONS for spelling in option.spellings})
VARIABLES = sorted({option.env for option in OPTIONS if option.env} | {"LLAMA_ARG_NO_PERF"})
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    TEXTS,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", "none", "auto", "on", "0-3", "ff", "a,b", "{}", "1+1", "-1", "nan", "1e999", "9" * 5000]),
)
ARGUMENTS = st.lists(
    st.one_of(st.sampled_from(SPELLINGS), VALUES, st.builds("{}={}".format, st.sampled_from(SPELLINGS), VALUES))
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*COMMANDS, "", "x"]), ARGUMENTS)
def test_no_command_line_leads_to_a_traceback(command: str, arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with patch.dict("os.environ", {"HOME": "/nonexistent"}, clear=True), redirect_stdout(out), redirect_stderr(err):
        code = main([command, *arguments, "--zzz"])
    assert code == 2
    assert len(err.getvalue().splitlines()) <= 2


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.lists(st.tuples(st.sampled_from(OPTIONS), VALUES), max_size=4),
    st.dictionaries(st.sampled_from(VARIABLES), VALUES, max_size=3),
)
def test_any_value_is_taken_or_refused_with_a_message(
    command: str, given_options: list[tuple[Option, str]], environ: dict[str, str]
) -> None:
    arguments = [f"{o.name}={value}" if o.kind.takes_value else o.name for o, value in given_options]
    with suppress(UsageError):
        resolved = resolve(command, read_command_line(command, arguments), environ, read_files=False)
        json.dumps(resolved.effective())


USES = [
    [name, *([value] if row.values else [])]
    for row in UPSTREAM
    if row.programs != "S"
    for name in (*row.names, *row.negative)
    for value in row.values or [""]
    if value != "@"
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["generate", "chat"]), st.lists(st.sampled_from(USES), max_size=8))
def test_upstream_command_lines_are_taken_or_refused_by_name(command: str, uses: list[list[str]]) -> None:
    """Several of llama.cpp's options at once, each with a value it takes."""
    arguments = [argument for use in uses for argument in use]
    refusal = ""
    try:
        resolved = resolve(command, read_command_line(command, arguments), {}, read_files=False)
        json.dumps(resolved.effective())
        resolved.config()
    except UsageError as error:
        refusal = str(error)
    reasons = ("not available in specli: ", "has been removed", "expected value", "cannot be combined", "given twice")
    assert not refusal or any(reason in refusal for reason in reasons)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            "{}{}{}".format,
            st.sampled_from([*(spelling.lstrip("-") for spelling in SPELLINGS), "[*]", "[", "", ";", "x", *VARIABLES]),
            st.sampled_from(["=", " = ", "", ":"]),
            VALUES,
        ),
        max_size=6,
    )
)
def test_no_config_file_leads_to_a_traceback(lines: list[str]) -> None:
    text = "\n".join(lines)
    with patch.object(Path, "read_text", return_value=text):
        for path in config_paths({})[:1]:
            with suppress(UsageError):
                read_config_file("generate", path)
