"""default < config file < environment < command line, and the rules of each layer."""

from pathlib import Path

import pytest

from specli.cli.options import options_of
from specli.cli.options.arguments import config_paths, read_command_line, unknown_variables
from specli.cli.options.settings import Settings, resolve
from specli.cli.tree import COMMANDS
from specli.errors import UsageError
from tests.cli.upstream_options import OPTIONS, OTHER_VARIABLES


def settle(environ: dict[str, str], *arguments: str, command: str = "generate", files: bool = False) -> Settings:
    return resolve(command, read_command_line(command, arguments), environ, read_files=files)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose config directory is empty."""
    for name in ("llama.cpp", "specli"):
        (tmp_path / name).mkdir()
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(home: dict[str, str], name: str, text: str) -> Path:
    path = Path(home["XDG_CONFIG_HOME"]) / name / "config.ini"
    path.write_text(text)
    return path


def test_each_layer_beats_the_one_below(home: dict[str, str]) -> None:
    field = "request.sampling.top_k"
    assert settle(home, files=True).origin(field).source == "default"
    path = write(home, "llama.cpp", "top-k = 1\n")
    settings = settle(home, files=True)
    assert (settings.config().request.sampling.top_k, settings.origin(field).name) == (1, f"{path}: top-k")
    environ = {**home, "LLAMA_ARG_TOP_K": "2"}
    settings = settle(environ, files=True)
    assert (settings.config().request.sampling.top_k, settings.origin(field).name) == (2, "LLAMA_ARG_TOP_K")
    settings = settle(environ, "--top-k", "3", files=True)
    assert (settings.config().request.sampling.top_k, settings.origin(field).source) == (3, "flag")
    assert settings.warnings == [
        "LLAMA_ARG_TOP_K environment variable is set, but will be overwritten by command line argument --top-k"
    ]


def test_draft_settings_are_shown_with_their_origins() -> None:
    settings = settle({"LLAMA_ARG_SPEC_DRAFT_N_MAX": "8"}, "--spec-draft-p-min", "0.5", "--spec-type", "draft-mtp")
    assert settings.describe(["draft-mtp", "ngram-simple"]) == (
        "draft settings: --spec-draft-n-max 8 (environment), --spec-draft-n-min 0 (default), "
        "--spec-draft-p-min 0.5 (flag), --spec-draft-sampling greedy (default), "
        "--spec-draft-tree 0 (default), --spec-draft-p-split 0.1 (default), "
        "--spec-ngram-simple-size-n 12 (default), --spec-ngram-simple-size-m 48 (default)"
    )
    assert settings.describe([]) is None


def test_config_files_are_read_weakest_first() -> None:
    paths = config_paths({"HOME": "/home/me"})
    assert [str(path) for path in paths] == [
        "/etc/llama.cpp/config.ini",
        "/home/me/.config/llama.cpp/config.ini",
        "/etc/specli/config.ini",
        "/home/me/.config/specli/config.ini",
    ]
    assert config_paths({"HOME": "/h", "XDG_CONFIG_HOME": "/x"})[1] == Path("/x/llama.cpp/config.ini")


def test_config_file_sections_keys_and_comments(home: dict[str, str]) -> None:
    write(
        home,
        "specli",
        "; comment\n  temp = 0.1\n  # another\nLLAMA_ARG_TOP_P = 0.5\nno-escape = 1\nignore-eos\n"
        "[*]\ntemp = 0.9\nmin_p = 0.2\nspec-type = ngram-mod\n"
        "[default]\n--spec-type = ngram-simple\n[other]\ntop-k = 9\n",
    )
    config = settle(home, files=True).config()
    assert config.request.sampling.temperature == 0.1  # [default] after [*]
    assert config.request.sampling.top_p == 0.5
    assert config.request.sampling.min_p == 0.2
    assert config.request.sampling.top_k == 40
    assert config.request.sampling.ignore_eos
    assert not config.prompt.escape
    assert config.speculation.types == ("ngram-mod", "ngram-simple")


def test_unknown_key_of_a_config_file_warns(home: dict[str, str]) -> None:
    path = write(home, "specli", "frobnicate = 1\nouttype = f16\ntop_kk = 1\n")
    assert settle(home, files=True).warnings == [
        f"{path}: unknown key frobnicate",
        f"{path}: unknown key top_kk (did you mean top-k?)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("top-k = x\n", 'error while handling setting "{path}: top-k": stoi: "x" is not an integer'),
        ("top-k\n", 'error while handling setting "{path}: top-k": expected value for argument'),
        ("no-escape = maybe\n", 'error while handling setting "{path}: no-escape": invalid boolean value'),
        ("ignore-eos = maybe\n", 'error while handling setting "{path}: ignore-eos": invalid boolean value'),
        ("numa = isolate\n", 'error while handling setting "{path}: numa": not available in specli: '
         "memory is placed by the system; start specli with numactl"),
        ("\xff[", "{path}: cannot be read: "),
        ("= 1\n", "{path}: not an INI file: "),
    ],
)  # fmt: skip
def test_broken_config_file(home: dict[str, str], text: str, message: str) -> None:
    path = write(home, "specli", "")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        settle(home, files=True)
    assert str(caught.value).startswith(message.format(path=path))


def test_command_line_replaces_spec_types_of_the_environment() -> None:
    environ = {"LLAMA_ARG_SPEC_TYPE": "ngram-mod"}
    assert settle(environ).config().speculation.types == ("ngram-mod",)
    assert settle(environ, "--spec-type", "ngram-simple").config().speculation.types == ("ngram-simple",)


def test_empty_variable_counts_as_unset() -> None:
    environ = {"LLAMA_ARG_SPEC_DRAFT_N_MAX": "", "LLAMA_ARG_NO_PERF": "", "LLAMA_ARG_OFFLINE": ""}
    config = settle(environ).config()
    assert config.speculation.draft.n_max == 3
    assert config.output.perf
    assert not config.source.offline


@pytest.mark.parametrize("value", ["0", "1", "off", "anything"])
def test_negative_variable_switches_off_whatever_its_value(value: str) -> None:
    environ = {"LLAMA_ARG_NO_PERF": value, "LLAMA_ARG_PERF": "on"}
    assert settle(environ).config().output.perf is False


@pytest.mark.parametrize(
    ("value", "is_on"), [("on", True), ("enabled", True), ("true", True), ("1", True), ("0", False)]
)
def test_boolean_words_of_the_environment(value: str, is_on: bool) -> None:
    assert settle({"LLAMA_ARG_PERF": value, "LLAMA_ARG_OFFLINE": value}).config().output.perf is is_on
    assert settle({"LLAMA_ARG_OFFLINE": value}).config().source.offline is is_on


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("LLAMA_ARG_PERF", "TRUE", "invalid boolean value"),
        ("LLAMA_ARG_OFFLINE", "yes", "invalid boolean value"),
        ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "abc", 'stoi: "abc" is not an integer'),
        ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "-1", "invalid value"),
        ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "3.5", 'stoi: "3.5" is not an integer'),
        ("LLAMA_ARG_SPEC_TYPE", "mtp", "unknown speculative type: mtp"),
        (
            "LLAMA_ARG_NUMA", "isolate",
            "not available in specli: memory is placed by the system; start specli with numactl",
        ),
        (
            "LLAMA_ARG_DRAFT_MAX", "8",
            "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max",
        ),
    ],
)  # fmt: skip
def test_wrong_variable(name: str, value: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle({name: value})
    assert str(caught.value) == f'error while handling environment variable "{name}": {text}'


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LLAMA_ARG_CTXSIZE", "LLAMA_ARG_CTX_SIZE"),
        ("LLAMA_ARG_SPEC_DRAFT_MAX", "LLAMA_ARG_SPEC_DRAFT_N_MAX"),
        ("LLAMA_ARG_SPEC_TYPES", "LLAMA_ARG_SPEC_TYPE"),
        ("LLAMA_ARG_NO_JINJAA", "LLAMA_ARG_NO_JINJA"),
        ("LLAMA_ARGS_TOP_K", None),
        ("LLAMA_ARG_FROBNICATE", None),
        ("LLAMA_ARG_", None),
    ],
)
@pytest.mark.parametrize("command", ["generate", "convert"])
def test_unknown_variable_draws_one_warning_with_the_near_name(name: str, near: str | None, command: str) -> None:
    meant = f" (did you mean {near}?)" if near else ""
    expected = [f"{name} has no effect: there is no such environment variable{meant}"]
    assert settle({name: "1"}, command=command).warnings == expected
    assert settle({name: ""}, command=command).warnings == []


@pytest.mark.parametrize("command", COMMANDS)
def test_variables_of_upstream_are_known(command: str) -> None:
    own = {option.env for option in options_of(command)}
    for name in OTHER_VARIABLES:
        if name in own:  # of the server, which serve reads
            continue
        assert settle({name: "x"}, command=command).warnings == [], name
    known = {row.env for row in OPTIONS if row.env} | {
        row.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") for row in OPTIONS if row.env and row.negative
    }
    assert unknown_variables(dict.fromkeys(known, "1")) == []


@pytest.mark.parametrize(
    ("environ", "warnings"),
    [
        ({"LLAMA_ARG_NO_MMAP": "1"}, ["LLAMA_ARG_NO_MMAP has no effect: files are always mapped, and not locked"]),
        ({"LLAMA_ARG_NO_MMAP": "0"}, ["LLAMA_ARG_NO_MMAP has no effect: files are always mapped, and not locked"]),
        ({"LLAMA_ARG_MMAP": "yes"}, []),
        ({"LLAMA_ARG_MLOCK": "yes"}, ["LLAMA_ARG_MLOCK has no effect: files are always mapped, and not locked"]),
        ({"LLAMA_ARG_MLOCK": "0"}, []),
        ({"LLAMA_ARG_CONTEXT_SHIFT": "0"}, []),
        ({"LLAMA_ARG_NO_CONTEXT_SHIFT": "1"}, []),
        ({"LLAMA_ARG_CACHE_RAM": "2048"}, ["LLAMA_ARG_CACHE_RAM has no effect: it belongs to the server's slots"]),
        ({"LLAMA_ARG_HOST": "0.0.0.0", "LLAMA_ARG_PORT": "8080", "LLAMA_ARG_ENDPOINT_METRICS": "1"}, []),
        ({"LLAMA_ARG_MMPROJ": "/models/mmproj.gguf"}, ["LLAMA_ARG_MMPROJ has no effect: specli runs text models"]),
    ],
)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_variables_of_old_containers_do_not_end_a_run(
    environ: dict[str, str], warnings: list[str], command: str
) -> None:
    assert settle(environ, command=command).warnings == warnings


def test_sequences_at_once_of_a_container() -> None:
    environ = {"LLAMA_ARG_N_PARALLEL": "4"}
    assert settle(environ, command="generate").warnings == []  # with --prompts it has an effect
    idle = ["LLAMA_ARG_N_PARALLEL has no effect: one sequence is generated at a time"]
    assert settle(environ, command="chat").warnings == idle


def test_effective_settings_hide_the_token() -> None:
    effective = settle({"HF_TOKEN": "hf_secret"}, "--temp", "0").effective()
    assert effective["--temp"] == 0.0
    assert "hf_secret" not in str(effective)
