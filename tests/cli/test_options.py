"""The option table against the facts about llama.cpp's options, and against itself."""

import shlex
from collections import Counter

import pytest

from specli.cli.options import OPTIONS, PANELS, options_of, spellings_of
from specli.cli.options.arguments import read_command_line
from specli.cli.options.kinds import SPEC_TYPES
from specli.cli.options.option import Option
from specli.cli.options.request import DEFAULTS, read_field
from specli.cli.options.settings import Settings, resolve
from specli.cli.prepare import request_config
from specli.cli.tree import COMMANDS
from specli.drafters import DRAFTERS
from specli.errors import UsageError
from specli.sampling.settings import SamplingConfig, SamplingSettings
from tests.cli.facts import ERRORS, FACTS, IDLE, REFUSED, REMOVED, SATISFIED, VALUES


def command_of(spelling: str) -> str:
    """The first command in which an option has an effect, or the first that knows it."""
    owners = [name for name in COMMANDS if spelling in spellings_of(name)]
    return next((name for name in owners if spellings_of(name)[spelling].is_listed), owners[0])


def find(spelling: str) -> Option:
    """The row of a spelling where it has an effect."""
    return spellings_of(command_of(spelling))[spelling]


def accepts(option: Option, value: str) -> bool:
    try:
        option.kind.parse(value)
    except ValueError:
        return not option.kind.takes_value
    return True


def settle(line: str) -> Settings:
    arguments = shlex.split(line, posix=False)
    command = command_of(arguments[0].partition("=")[0])
    return resolve(command, read_command_line(command, arguments), {}, read_files=False)


@pytest.mark.parametrize(("spellings", "default", "env"), FACTS, ids=[row[0].split()[0] for row in FACTS])
def test_option_has_upstream_spellings_default_and_variable(spellings: str, default: object, env: str | None) -> None:
    positive, _, negative = spellings.partition(" / ")
    option = find(positive.split()[0])
    assert set(option.names) == set(positive.split())
    assert set(option.negative) == set(negative.split())
    assert option.env == env
    assert option.field is not None
    assert read_field(DEFAULTS, option.field) == default


@pytest.mark.parametrize(("line", "field", "value"), VALUES, ids=[row[0] for row in VALUES])
def test_value_arrives_in_its_field(line: str, field: str, value: object) -> None:
    assert read_field(settle(line).config(), field) == value


@pytest.mark.parametrize(("line", "text"), ERRORS, ids=[row[0] for row in ERRORS])
def test_wrong_value_is_answered_with_upstream_text(line: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle(line)
    assert str(caught.value) == f'error while handling argument "{line.split()[0]}": {text}'


@pytest.mark.parametrize("spelling", ["-t", "-tb", "-td", "-tbd"])
def test_more_threads_than_possible_are_refused(spelling: str) -> None:
    assert settle(f"{spelling} 512")
    with pytest.raises(UsageError, match=f'argument "{spelling}": 513 threads, at most 512 are possible'):
        settle(f"{spelling} 513")


@pytest.mark.parametrize("spelling", REFUSED)
def test_option_without_meaning_is_refused_with_a_reason(spelling: str) -> None:
    option = find(spelling)
    assert option.refused
    values = (*option.kind.values, "7", "0-1", "1")
    bad = next(value for value in values if value not in option.satisfied and accepts(option, value))
    line = f"{spelling} {bad}" if option.kind.takes_value else spelling
    with pytest.raises(UsageError) as caught:
        settle(line)
    assert str(caught.value) == f'error while handling argument "{spelling}": not available in specli: {option.refused}'


@pytest.mark.parametrize("line", IDLE)
def test_option_without_effect_is_taken_with_a_warning(line: str) -> None:
    spelling = line.split()[0]
    assert settle(line).warnings == [f"{spelling} has no effect: {find(spelling).idle}"]
    assert not find(spelling).is_listed


@pytest.mark.parametrize("line", SATISFIED)
def test_option_that_asks_for_what_happens_anyway_is_taken_in_silence(line: str) -> None:
    assert settle(line).warnings == []


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("--samplers top_k;foo", "--samplers: unable to match sampler by name 'foo'"),
        ("--samplers top_kk;x", "--samplers: unable to match sampler by name 'top_kk' (did you mean top_k?), 'x'"),
        ("--sampler-seq kzzi", "--sampler-seq: unable to match sampler by letter 'z', 'i'"),
        ("--dry-base 0.5", "--dry-base: 0.5 is below 1 and has no effect"),
    ],
)
def test_value_that_is_not_taken_as_given_draws_a_warning(line: str, warning: str) -> None:
    assert settle(line).warnings == [warning]


@pytest.mark.parametrize(("spelling", "replacement"), REMOVED.items())
def test_removed_option_names_its_replacement(spelling: str, replacement: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle(f"{spelling} 8")
    assert str(caught.value) == (
        f'error while handling argument "{spelling}": the argument has been removed. {replacement}'
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_no_spelling_belongs_to_two_rows(command: str) -> None:
    counts = Counter(spelling for option in options_of(command) for spelling in option.spellings)
    assert [spelling for spelling, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_row_is_complete(option: Option) -> None:
    assert option.panel in PANELS
    assert option.help
    assert not option.help.endswith(".")
    assert option.field or option.refused or option.removed or option.implies or option.idle
    if option.field:
        read_field(DEFAULTS, option.field)


def test_same_spelling_reads_its_value_alike_in_all_commands() -> None:
    kinds: dict[str, tuple[bool, str | None]] = {}
    for option in OPTIONS:
        for spelling in option.spellings if option.is_listed else ():
            value = (option.kind.takes_value, option.kind.files)
            assert kinds.setdefault(spelling, value) == value, spelling


def test_spec_default_sets_ngram_mod_sizes_and_keeps_other_types() -> None:
    config = settle("--spec-type ngram-simple --spec-ngram-mod-n-max 8 --spec-default").config()
    assert config.speculation.types == ("ngram-simple", "ngram-mod")
    assert config.speculation.tables["ngram-mod"] == {"n_match": 24, "n_min": 48, "n_max": 64}


def test_last_of_grammar_and_schema_wins() -> None:
    sampling = settle("--grammar g -j {}").config().request.sampling
    assert (sampling.grammar, sampling.json_schema) == (None, "{}")
    sampling = settle("-j {} --grammar g").config().request.sampling
    assert (sampling.grammar, sampling.json_schema) == ("g", None)


def test_what_was_not_set_of_the_sampling_is_left_to_the_model() -> None:
    """What was set stays, also where it is llama.cpp's default."""
    config = settle("--temp 0.8 --top-k 40 --sampler-seq kt --seed 3").config()
    samplers = ("top_k", "temperature")
    assert request_config(config).sampling == SamplingConfig(temperature=0.8, top_k=40, samplers=samplers, seed=3)
    assert config.request.sampling == SamplingSettings(samplers=samplers, seed=3)
    assert request_config(settle("--seed -1").config()).sampling == SamplingConfig()


def test_effective_settings_are_those_in_force() -> None:
    settings = settle("--top-k 7")
    assert settings.effective()["--temp"] == 0.8
    effective = settings.effective(SamplingSettings(top_k=7, temperature=0.25, samplers=("top_k",)))
    assert (effective["--temp"], effective["--top-k"], effective["--samplers"]) == (0.25, 7, ["top_k"])


def test_every_drafter_can_be_chosen() -> None:
    assert set(DRAFTERS) <= set(SPEC_TYPES)


def test_metadata_overrides_add_up() -> None:
    first, second = "tokenizer.ggml.add_bos_token=bool:false,general.name=str:a", "llama.block_count=int:3"
    settings = settle(f"--override-kv {first} --override-kv {second}")
    assert settings.config().target.metadata == (
        ("tokenizer.ggml.add_bos_token", False),
        ("general.name", "a"),
        ("llama.block_count", 3),
    )
    assert settings.warnings == []
