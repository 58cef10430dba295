"""From settings to the engine's records."""

from dataclasses import replace
from pathlib import Path

import pytest

from specli.cli.options.arguments import read_command_line
from specli.cli.options.settings import resolve
from specli.cli.prepare import prompt_text, request_config, run_config, unescape
from specli.engine.config import RequestConfig, RunConfig
from specli.errors import SpecliError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a target and a draft file, entered."""
    for name in ("t.gguf", "d.gguf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(*arguments: str) -> tuple[RunConfig, RequestConfig]:
    settings = resolve("generate", read_command_line("generate", arguments), {}, read_files=False)
    return run_config(settings, settings.config()), request_config(settings.config())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\nb\tc\rd", "a\nb\tc\rd"),
        (r"\'\"\\", "'\"\\"),
        (r"\x41\x4", "A\x04"),
        (r"\xc3\xa9", "é"),
        (r"\q \ end", r"\q \ end"),
        ("é", "é"),
        ("\\", "\\"),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert unescape(text) == expected


def test_escapes_apply_to_prompt_stops_and_breakers_unless_switched_off(files: Path) -> None:
    arguments = ["-m", "t.gguf", "-p", r"a\n", "-r", r"b\n", "--dry-sequence-breaker", r"c\n"]
    for extra, end in (([], "\n"), (["--no-escape"], r"\n")):
        settings = resolve("generate", read_command_line("generate", [*arguments, *extra]), {}, read_files=False)
        request = request_config(settings.config())
        assert prompt_text(settings.config()) == f"a{end}"
        assert request.stop == (f"b{end}",)
        assert request.sampling.dry_sequence_breakers == (f"c{end}",)


def test_draft_model_follows_the_target_unless_told_otherwise(files: Path) -> None:
    run, _ = prepare("-m", "t.gguf", "-md", "d.gguf", "-t", "4", "-C", "3", "--poll", "10", "-ngl", "0", "-ctk", "q8_0")
    assert run.draft is not None
    assert run.draft.path == Path("d.gguf")
    assert run.draft.threads == run.target.threads
    assert run.draft.device == run.target.device == "cpu"
    assert (run.target.type_k, run.draft.type_k) == ("q8_0", "f16")
    run, _ = prepare("-m", "t.gguf", "-md", "d.gguf", "-t", "4", "-Cd", "4", "-devd", "cuda:1")
    assert run.draft is not None
    assert run.draft.threads == replace(run.target.threads, cpu_mask=frozenset({2}))
    assert (run.target.device, run.draft.device) == ("auto", "cuda:1")


def test_batch_size_bounds_the_micro_batch(files: Path) -> None:
    assert prepare("-m", "t.gguf")[0].n_batch == 512
    assert prepare("-m", "t.gguf", "-b", "100")[0].n_batch == 100
    assert prepare("-m", "t.gguf", "-ub", "64")[0].n_batch == 64


def test_generate_until_context_is_full_has_two_spellings(files: Path) -> None:
    assert prepare("-m", "t.gguf", "-n", "-2")[1].n_predict == -1


def test_shipped_drafter_is_none_where_no_type_is_a_network(files: Path) -> None:
    assert prepare("-m", "t.gguf", "-md", "demo", "--spec-type", "ngram-mod")[0].draft is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model is required"),
        (["-m", "x.gguf"], "x.gguf: no such file"),
        (["-m", "."], ".: is a directory, expected a GGUF file"),
        (["-m", "t.gguf", "-md", "x.gguf"], "x.gguf: no such file"),
        (["-m", "t.gguf", "-md", "demo"], "-md demo needs one --spec-type with a draft network"),
        (
            ["-m", "t.gguf", "--spec-draft-n-min", "5"],
            "--spec-draft-n-min 5 is larger than --spec-draft-n-max 3",
        ),
        (
            ["--spec-synth-len", "2", "--spec-synth-rates", "0.5"],
            "--spec-synth-len and --spec-synth-rates exclude each other",
        ),
    ],
)
def test_errors(files: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SpecliError) as caught:
        prepare(*arguments)
    assert str(caught.value) == message
