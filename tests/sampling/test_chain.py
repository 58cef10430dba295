from pathlib import Path

import pytest

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.gguf.write import GGUFWriter
from specli.sampling.chain import BUILDERS, with_model_defaults
from specli.sampling.names import SAMPLER_LETTERS, canonical_sampler
from specli.sampling.settings import DEFAULT_SAMPLERS, SamplingConfig, SamplingSettings


def test_every_sampler_has_a_builder_and_a_letter() -> None:
    assert set(SAMPLER_LETTERS.values()) == {*BUILDERS, "adaptive_p"}
    assert tuple(SAMPLER_LETTERS[letter] for letter in "edskypmxt") == DEFAULT_SAMPLERS


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("top_k", "top_k"),
        ("top-k", "top_k"),
        ("TopK", "top_k"),
        ("nucleus", "top_p"),
        ("temp", "temperature"),
        ("typ", "typ_p"),
        ("top_n-sigma", None),
        ("topnsigma", "top_n_sigma"),
        ("adaptive-p", "adaptive_p"),
        ("", None),
    ],
)
def test_spellings(text: str, name: str | None) -> None:
    assert canonical_sampler(text) == name


def model_file(path: Path, *entries: tuple[str, str, object]) -> GGUFFile:
    writer = GGUFWriter(path, "llama")
    for name, kind, value in entries:
        writer.add(f"general.sampling.{name}", kind, value)
    writer.close()
    return GGUFFile.open(path)


def test_model_defaults_replace_what_the_user_did_not_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = model_file(
        tmp_path / "m.gguf",
        ("temp", "f32", 0.5),
        ("top_k", "i32", 20),
        ("penalty_last_n", "i32", 7),
        ("mirostat_tau", "f32", 4.0),
        ("sequence", "str", "topk;Temp;unheard"),
    )
    config = SamplingConfig(top_k=3, seed=9)
    changed = with_model_defaults(config, file.metadata)
    assert changed == SamplingSettings(
        top_k=3, seed=9, temperature=0.5, repeat_last_n=7, mirostat_ent=4.0, samplers=("top_k", "temperature")
    )
    assert caplog.messages == ["general.sampling.sequence: unable to match sampler by name 'unheard'"]
    asked = SamplingConfig(samplers=("top_p",), temperature=0.8)
    assert with_model_defaults(asked, file.metadata) == SamplingSettings(
        samplers=("top_p",), temperature=0.8, top_k=20, repeat_last_n=7, mirostat_ent=4.0
    )


def test_a_model_without_defaults_changes_nothing(tmp_path: Path) -> None:
    config = SamplingConfig(temperature=0.1)
    settings = with_model_defaults(config, model_file(tmp_path / "m.gguf").metadata)
    assert settings == SamplingSettings(temperature=0.1) == config.settings() == settings.settings()


def test_a_default_of_the_wrong_type_is_a_format_error(tmp_path: Path) -> None:
    file = model_file(tmp_path / "m.gguf", ("top_k", "str", "many"))
    with pytest.raises(FormatError, match=r"general\.sampling\.top_k"):
        with_model_defaults(SamplingConfig(), file.metadata)
