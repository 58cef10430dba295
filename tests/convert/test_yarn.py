"""YaRN's magnitude: what transformers multiplies cos and sin by, through a file and back, for targets and drafters.

The figures are those of `_compute_yarn_parameters` (transformers 5.24, modeling_rope_utils.py), by hand: factor 4 has
0.1·ln 4 + 1 = 1.13863; with mscale 0.707 and mscale_all_dim 1 it has (0.0707·ln 4 + 1) / 1.13863 = 0.96433.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from specli.convert import ConvertConfig, convert
from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.kernels.reference import ReferenceExecutor
from specli.models.architecture import ModelConfig
from specli.models.rope import rope_table
from tests.support.checkpoints import CASES
from tests.support.hf_files import write_json

SETTINGS: list[tuple[dict[str, Any], float]] = [
    ({}, 1.138629436),
    ({"attention_factor": None}, 1.138629436),
    ({"attention_factor": 1.0}, 1.0),
    ({"attention_factor": 0.7}, 0.7),
    ({"attn_factor": 0.5}, 0.5),
    ({"attention_factor": None, "attn_factor": 0.5}, 0.5),
    ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
    ({"mscale": 0.707, "mscale_all_dim": 1.0}, 0.964326915),
    ({"mscale": 1.0}, 1.138629436),
    ({"attention_factor": 2.0, "mscale": 0.7, "mscale_all_dim": 1.0}, 2.0),
    ({"factor": 0.5}, 1.0),
    ({"factor": 32.0, "mscale": 0.707, "mscale_all_dim": 1.0}, 0.924589296),
]
LAYOUTS = ["llama", "qwen3", "gpt-oss", "qwen35", "eagle3-specforge", "eagle3-speculators", "dflash-zlab",
           "dspark-specforge"]  # fmt: skip


def with_yarn(tmp_path: Path, name: str, settings: dict[str, Any]) -> ConvertConfig:
    """A checkpoint with YaRN of factor 4, in the place where its layout has rope settings."""
    case = CASES[name]
    case.write(tmp_path / name)
    if case.target is not None:
        CASES[case.target].write(tmp_path / "target")
    config = json.loads((tmp_path / name / "config.json").read_text())
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4, **settings}
    place = config.get("transformer_layer_config", config.get("text_config", config))
    place.pop("rope_scaling", None)
    place["rope_parameters"] = rope
    write_json(tmp_path / name / "config.json", config)
    target = None if case.target is None else tmp_path / "target"
    return ConvertConfig(tmp_path / name, outfile=tmp_path / "x.gguf", target=target)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(("settings", "magnitude"), SETTINGS, ids=[str(s) for s, _ in SETTINGS])
def test_magnitude_survives(tmp_path: Path, name: str, settings: dict[str, Any], magnitude: float) -> None:
    (path,) = convert(with_yarn(tmp_path, name, settings)).paths
    rope = ModelConfig.from_gguf(GGUFFile.open(path)).layers[0].rope
    table = rope_table(rope, 9, ReferenceExecutor())
    found = (table.cos**2 + table.sin**2) ** 0.5
    assert found.min().item() == pytest.approx(magnitude, rel=1e-6)
    assert found.max().item() == pytest.approx(magnitude, rel=1e-6)


def test_transformers_has_the_same_figures() -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    llama = pytest.importorskip("transformers").LlamaConfig
    for settings, magnitude in SETTINGS:
        if "attn_factor" not in settings:  # llama.cpp's converter knows that name, transformers does not
            rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
            config = llama(max_position_embeddings=16384, rope_parameters={**rope, **settings})
            assert utils.ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")[1] == pytest.approx(magnitude, rel=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_factor": -1.0}, "attention factor of yarn rope scaling is -1, expected more than 0"),
        ({"mscale": 1.0, "mscale_all_dim": -99.0}, "attention factor of yarn rope scaling is -0.0"),
        ({"factor": 0.0}, "factor of yarn rope scaling is 0, expected more than 0"),
    ],
)
def test_no_magnitude(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        convert(with_yarn(tmp_path, "qwen3", settings))


def test_settings_that_no_reader_looks_at_are_named(tmp_path: Path) -> None:
    settings = {"beta_fast": 64, "beta_slow": 1, "extrapolation_factor": 0.5, "truncate": False}
    report = convert(with_yarn(tmp_path, "qwen3", settings))
    assert report.warnings == (
        "yarn rope scaling with beta_fast 64 (taken as 32), extrapolation_factor 0.5 (taken as 1): no program "
        "reads this from the file",
    )
    assert "yarn's correction range is rounded to whole pairs, as llama.cpp does (truncate is false)" in report.notes
