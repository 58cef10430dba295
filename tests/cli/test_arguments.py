"""The grammar of the command line, and its errors in full."""

import os

import pytest

from specli.cli import main
from specli.cli.options.arguments import read_command_line
from specli.cli.options.kinds import SPEC_TYPES
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings, resolve
from specli.cli.tree import COMMANDS
from specli.errors import UsageError


def settle(*arguments: str, command: str = "generate") -> Settings:
    return resolve(command, read_command_line(command, arguments), {}, read_files=False)


def config(*arguments: str) -> CommandConfig:
    return settle(*arguments).config()


def test_multi_letter_short_options_are_not_bundles() -> None:
    result = config("-ngld", "9", "-md", "d.gguf", "-ctkd", "q8_0", "-n", "3")
    assert result.draft.n_gpu_layers == 9
    assert result.source.draft_model == "d.gguf"
    assert result.draft.type_k == "q8_0"
    assert result.request.n_predict == 3


def test_underscores_stand_for_dashes_in_long_options_only() -> None:
    assert config("--spec_draft_n_max", "5").speculation.draft.n_max == 5
    assert config("--spec_draft_n_max=5").speculation.draft.n_max == 5
    with pytest.raises(UsageError, match="invalid argument: -no_cnv"):
        settle("-no_cnv")


def test_value_may_follow_an_equals_sign() -> None:
    assert config("--temp=0", "-n=4").request.n_predict == 4
    assert config("--prompt=a=b").prompt.text == "a=b"
    assert config("--prompt=--temp").prompt.text == "--temp"
    assert config("--prompt=").prompt.text == ""


def test_negative_numbers_and_dashed_texts_are_values() -> None:
    assert config("--top-n-sigma", "-1", "-s", "-1").request.sampling.seed == 4294967295
    assert config("-p", "- one\n- two").prompt.text == "- one\n- two"
    assert config("-p", "-").prompt.text == "-"


def test_repeated_spec_types_add_up() -> None:
    assert config("--spec-type", "ngram-mod", "--spec-type", "draft-eagle3").speculation.types == (
        "ngram-mod",
        "draft-eagle3",
    )


def test_repeated_option_warns_that_the_last_one_counts() -> None:
    settings = settle("--top-k", "1", "--top-k", "2", "-r", "a", "-r", "b")
    assert settings.config().request.sampling.top_k == 2
    assert settings.warnings == [
        "DEPRECATED: argument '--top-k' specified multiple times, use comma-separated values instead "
        "(only last value will be used)"
    ]


def test_value_that_another_spelling_replaces_warns() -> None:
    settings = settle("-p", "x", "-n", "3", "--predict", "4", "--binary-file", os.devnull)
    assert settings.warnings == [
        "-n has no effect: --predict replaces it",
        "-p has no effect: --binary-file replaces it",
    ]
    assert settle("--grammar", "x", "-j", "{}").warnings == ["--grammar has no effect: -j replaces it"]
    assert settle("-C", "1", "-Cr", "1-1").warnings == []


def test_hint_of_a_wrong_word_lists_the_words() -> None:
    with pytest.raises(UsageError) as caught:
        settle("--spec-type", "ngram_mod")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("[one of: " + " ".join(SPEC_TYPES) + "]")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["--spec-type", "dflsh"], "draft-dflash"),
        (["--spec-type", "ngram-simple,EAGLE3"], "draft-eagle3"),
        (["--spec-type", "ngram_mod"], "ngram-mod"),
        (["--spec-type=draft_mtp"], "draft-mtp"),
        (["-ctk", "q80"], "q8_0"),
        (["-ctvd", "FP16"], "f16"),
        (["--kernels", "refrence"], "reference"),
        (["-lm", "mmlock"], "mlock"),
        (["-ngl", "al"], "all"),
        (["--spec-draft-sampling", "probabilistc"], "probabilistic"),
    ],
)
def test_hint_of_a_wrong_word_names_the_near_one(arguments: list[str], near: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle(*arguments)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"did you mean {near}?")


@pytest.mark.parametrize("arguments", [["--spec-type", "xyzzy"], ["-ngl", "-5"], ["--spec-type", "none,ngram-mod"]])
def test_hint_names_no_word_that_is_not_near(arguments: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        settle(*arguments)
    assert "did you mean" not in (caught.value.hint or "")


def test_option_of_another_drafter_warns() -> None:
    settings = settle("--spec-type", "ngram-simple", "--spec-ngram-mod-n-match", "12", "--spec-draft-n-max", "4")
    assert settings.warnings == [
        "--spec-draft-n-max has no effect: it is read by draft-simple draft-eagle3 draft-mtp draft-dflash draft-dspark "
        "draft-eagle draft-medusa",
        "--spec-ngram-mod-n-match has no effect: it is read by ngram-mod",
    ]
    assert settle("-md", "d.gguf", "--spec-draft-n-max", "4").warnings == []


def test_loading_a_draft_model_without_one_warns() -> None:
    expected = ["-cmoed has no effect: there is no draft model of its own (-md)"]
    assert settle("-cmoed").warnings == expected
    assert settle("--spec-type", "draft-mtp", "-cmoed").warnings == expected
    for model in (["-md", "d.gguf"], ["-hfd", "a/b"], ["-hf", "a/b", "--spec-type", "draft-eagle3"]):
        assert settle(*model, "-cmoed", "-ctkd", "q8_0").warnings == []


def test_option_that_another_one_must_go_with_draws_a_warning() -> None:
    warnings = settle("--logprobs", "3", "--prompt-logprobs", "--trace").warnings
    assert [line.partition(" ")[0] for line in warnings] == ["--trace", "--logprobs", "--prompt-logprobs"]
    assert {line.partition(" ")[2] for line in warnings} == {"has no effect without --json or --stats-json"}
    for record in (["--json"], ["--stats-json", "r.json"]):
        assert settle("--logprobs", "3", "--trace", *record).warnings == []
    assert settle("--logprobs", "0").warnings == []
    assert settle("--trace", command="chat").warnings == ["--trace has no effect without --stats-json"]
    assert settle("--tune-seconds", "9", command="stats").warnings == ["--tune-seconds has no effect without --tune"]
    draft = ["-md", "d.gguf", "--spec-draft-survival"]
    assert settle(*draft).warnings == ["--spec-draft-survival has no effect without --spec-draft-p-min"]
    assert settle(*draft, "--spec-draft-p-min", "0.5").warnings == []


def test_hits_are_counted_by_one_type_only() -> None:
    for name in ("ngram-simple", "ngram-map-k"):
        option = f"--spec-{name}-min-hits"
        expected = [f"{option} has no effect: only ngram-map-k4v counts hits"]
        assert settle("--spec-type", name, option, "2").warnings == expected
        assert settle("--spec-type", "ngram-mod", option, "2").warnings == expected
    assert settle("--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-min-hits", "2").warnings == []


def test_statistics_lines_are_generates() -> None:
    assert settle("--no-perf").warnings == []
    for command in ("chat", "stats", "synth"):
        (warning,) = settle("--no-perf", command=command).warnings
        assert warning.startswith("--no-perf has no effect: only generate has statistics lines")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["-fa", "--temp", "0"], 'error while handling argument "-fa": expected value for argument', None),
        (
            ["--spec-type", "--temp", "0"],
            'error while handling argument "--spec-type": expected value for argument',
            "--spec-type TYPE[,TYPE…]: drafters, comma-separated; repeated options add up, their order does not matter "
            f"[one of: {' '.join(SPEC_TYPES)}]",
        ),
        (
            ["--temp"],
            'error while handling argument "--temp": expected value for argument',
            "--temp N: temperature; 0 = greedy",
        ),
        (
            ["--temp", "--help"],
            'error while handling argument "--temp": expected value for argument',
            "--temp N: temperature; 0 = greedy",
        ),
        (
            ["--ignore-eos=1"],
            'error while handling argument "--ignore-eos": takes no value',
            "--ignore-eos: never end at an end token",
        ),
        (["--draft-n-max", "8"], "invalid argument: --draft-n-max", "did you mean --spec-draft-n-max?"),
        (["--draft-model", "x"], "invalid argument: --draft-model", "did you mean --spec-draft-model?"),
        (["--csv", "f"], "invalid argument: --csv", "--csv is an option of specli stats and synth"),
        (["--outtype", "f16"], "invalid argument: --outtype", "--outtype is an option of specli convert"),
        (
            ["--control-vector-layer-range", "1"],
            'error while handling argument "--control-vector-layer-range": expected value for argument',
            None,
        ),
        (
            ["--control-vector-layer-range", "1", "2"],
            'error while handling argument "--control-vector-layer-range": '
            "not available in specli: adapters are not applied",
            None,
        ),
        (["--zzz"], "invalid argument: --zzz", "see specli generate --help"),
        (["file.gguf"], "invalid argument: file.gguf", "see specli generate --help"),
        (["-xyz"], "invalid argument: -xyz", "see specli generate --help"),
    ],
)
def test_error_texts(arguments: list[str], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        settle(*arguments)
    assert (str(caught.value), caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("arguments", "stderr"),
    [
        (["generat"], "error: unknown command: generat\nhint: did you mean generate?\n"),
        (["nonsense"], f"error: unknown command: nonsense\nhint: commands are {', '.join(COMMANDS)}\n"),
        (["generate", "--zzz"], "error: invalid argument: --zzz\nhint: see specli generate --help\n"),
        (
            ["generate", "--draft-max", "8"],
            'error while handling argument "--draft-max": the argument has been removed. '
            "use --spec-draft-n-max or --spec-ngram-mod-n-max\n",
        ),
        (["convert"], "error: SRC is required\nhint: specli convert SRC, a checkpoint directory or hub id\n"),
        (["convert", "a", "b"], "error: invalid argument: b\nhint: see specli convert --help\n"),
        (["--zzz"], "error: invalid argument: --zzz\nhint: see specli --help\n"),
    ],
)
def test_usage_errors_exit_with_2(
    arguments: list[str], stderr: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/nonexistent")
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", stderr)


def test_help_wins_over_a_missing_model_but_not_over_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Drafting:" in out
    assert "[default: 3; env: LLAMA_ARG_SPEC_DRAFT_N_MAX]" in " ".join(out.split())
    assert main(["generate", "--temp", "x", "--help"]) == 2
