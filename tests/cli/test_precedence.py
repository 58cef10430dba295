"""default < config file < environment < command line, and the rules of each layer."""

from pathlib import Path

import pytest

from specli.cli.options.arguments import config_paths, read_command_line
from specli.cli.options.settings import Settings, resolve
from specli.errors import UsageError


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
        "--spec-draft-p-min 0.5 (flag), "
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
    path = write(home, "specli", "frobnicate = 1\nouttype = f16\n")
    assert settle(home, files=True).warnings == [f"{path}: unknown key frobnicate"]


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


def test_effective_settings_hide_the_token() -> None:
    effective = settle({"HF_TOKEN": "hf_secret"}, "--temp", "0").effective()
    assert effective["--temp"] == 0.0
    assert "hf_secret" not in str(effective)
