"""Metadata to configuration: defaults, per-layer arrays, ranges, and what a family adds."""

import math
from pathlib import Path

import pytest

from specli.errors import FormatError, IncompatibleError, SpecliError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation
from specli.models import ARCHITECTURES, model_class
from specli.models.architecture import ModelConfig, RopeConfig
from tests.support.tiny_gguf import tiny_gguf


def config_of(path: Path) -> ModelConfig:
    with GGUFFile.open(path) as file:
        return model_class(file).configure(file)


def test_absent_keys_take_the_defaults(tmp_path: Path) -> None:
    absent = ["attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"]
    absent += ["rope.freq_base", "vocab_size"]
    path = tiny_gguf(tmp_path / "m.gguf", "qwen3", metadata={f"qwen3.{name}": None for name in absent})
    config = config_of(path)
    with GGUFFile.open(path) as file:
        assert config.n_vocab == len(file.metadata.require("tokenizer.ggml.tokens", "[str]"))
    layer = config.layers[0]
    assert (layer.n_kv_heads, layer.head_size_k, layer.head_size_v, layer.window) == (4, 16, 16, 0)
    assert layer.rope == RopeConfig(n_rot=16, base=10000.0, n_ctx_original=512)
    assert layer.attention_scale == 0.25
    assert (config.n_layers, config.n_nextn_layers, config.is_causal, config.nextn_is_normed) == (2, 0, True, True)


def test_per_layer_arrays_are_kept_apart(tmp_path: Path) -> None:
    metadata = {
        "qwen3.feed_forward_length": ("[u32]", [96, 160]),
        "qwen3.attention.head_count": ("[i32]", [4, 8]),
        "qwen3.attention.head_count_kv": ("[i32]", [2, 4]),
    }
    first, second = config_of(tiny_gguf(tmp_path / "m.gguf", "qwen3", metadata=metadata)).layers
    assert (first.n_ff, first.n_heads, first.n_kv_heads) == (96, 4, 2)
    assert (second.n_ff, second.n_heads, second.n_kv_heads) == (160, 8, 4)


def test_mtp_layers_are_not_part_of_the_trunk(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "qwen3", metadata={"qwen3.nextn_predict_layers": ("u32", 1)})
    config = config_of(path)
    assert (config.n_layers, config.n_nextn_layers, len(config.layers)) == (1, 1, 2)


def test_llama_rotates_adjacent_pairs(tmp_path: Path) -> None:
    assert config_of(tiny_gguf(tmp_path / "a.gguf", "llama")).layers[0].rope.interleaved
    assert not config_of(tiny_gguf(tmp_path / "b.gguf", "qwen2")).layers[0].rope.interleaved


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (None, [16] * 5 + [0, 16]),  # period 6 by default
        (("u32", 2), [16, 0, 16, 0, 16, 0, 16]),
        (("u32", 0), [16] * 7),
        (("[bool]", [True, False, False, True, True, False, False]), [16, 0, 0, 16, 16, 0, 0]),
    ],
)
def test_gemma3_windows_follow_the_pattern(tmp_path: Path, pattern: tuple | None, windows: list[int]) -> None:
    metadata = {
        "gemma3.attention.sliding_window_pattern": pattern,
        "gemma3.rope.freq_base": ("f32", 1e6),
        "gemma3.rope.scaling.factor": ("f32", 8.0),
    }
    config = config_of(tiny_gguf(tmp_path / "m.gguf", "gemma3", n_layer=7, metadata=metadata))
    assert [layer.window for layer in config.layers] == windows
    for layer in config.layers:
        expected = (1e4, 1.0) if layer.window else (1e6, 8.0)
        assert (layer.rope.base, layer.rope.factor) == expected
    assert config.activation == Activation.GELU
    assert config.embedding_scale == math.sqrt(64)


def test_gemma3_without_a_window_has_none(tmp_path: Path) -> None:
    metadata = {"gemma3.attention.sliding_window": None}
    assert {
        layer.window for layer in config_of(tiny_gguf(tmp_path / "m.gguf", "gemma3", metadata=metadata)).layers
    } == {0}


def test_gemma3_27b_scales_by_the_width_per_head(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "gemma3", n_layer=62, head_size=32, n_head_kv=1)
    assert config_of(path).layers[0].attention_scale == (64 // 4) ** -0.5


@pytest.mark.parametrize(
    ("key", "pair", "message"),
    [
        ("block_count", ("u32", 0), "key llama.block_count is 0, expected 1 to 512"),
        ("block_count", None, "key 'llama.block_count' is missing, expected u32"),
        ("block_count", ("i32", 2), "key 'llama.block_count' is i32, expected u32"),
        ("embedding_length", ("u32", 0), "key llama.embedding_length is 0, expected 1 to 2147483647"),
        ("nextn_predict_layers", ("u32", 3), "key llama.nextn_predict_layers is 3, expected at most block_count (2)"),
        (
            "attention.head_count",
            ("u32", 3),
            "key llama.attention.head_count is 3, expected a multiple of head_count_kv (2)",
        ),
        (
            "feed_forward_length",
            ("[u32]", [1, 2, 3]),
            "key llama.feed_forward_length is an array of 3, expected 2, one per block",
        ),
        (
            "rope.dimension_count",
            ("u32", 18),
            "key llama.rope.dimension_count is 18, expected even and at most the head size (16)",
        ),
        (
            "rope.dimension_count",
            ("u32", 8),
            "key llama.attention.key_length is 16, 16 and 8, expected equal to value_length and rope.dimension_count",
        ),
        (
            "rope.scaling.type",
            ("str", "ntk"),
            "key llama.rope.scaling.type is 'ntk', expected one of none, linear, yarn, longrope",
        ),
        (
            "rope.freq_base",
            ("f32", 0.0),
            "key llama.rope.freq_base is 0.0, expected more than 0",
        ),
        *(
            (key, ("f32", value), f"key llama.{key} is {value}, expected a finite number, 0 or more")
            for key in (
                "attention.layer_norm_rms_epsilon",
                "rope.freq_base",
                "rope.scaling.factor",
                "rope.scale_linear",
                "rope.scaling.attn_factor",
            )
            for value in (math.nan, math.inf, -math.inf, -1.0)
        ),
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, key: str, pair: tuple | None, message: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama", metadata={f"llama.{key}": pair})
    with pytest.raises(FormatError) as error:
        config_of(path)
    assert str(error.value) == f"{path}: {message}"


def test_gated_attention_needs_values_as_wide_as_keys(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "qwen35", metadata={"qwen35.attention.value_length": ("u32", 8)})
    with pytest.raises(FormatError, match=r"key qwen35.attention.value_length is 8, expected the key length \(16\)"):
        config_of(path)


def test_yarn_needs_angles_that_differ(tmp_path: Path) -> None:
    """A base of 1 turns all pairs alike, and the logarithm that yarn divides by is 0."""
    metadata = {"llama.rope.freq_base": ("f32", 1.0)}
    assert config_of(tiny_gguf(tmp_path / "m.gguf", "llama", metadata=metadata)).layers[0].rope.base == 1
    metadata |= {"llama.rope.scaling.type": ("str", "yarn"), "llama.rope.scaling.factor": ("f32", 4.0)}
    path = tiny_gguf(tmp_path / "y.gguf", "llama", metadata=metadata)
    with pytest.raises(FormatError, match=r"key llama.rope.freq_base is 1.0, expected another base than 1 with yarn"):
        config_of(path)


@pytest.mark.parametrize(
    ("metadata", "kind", "message"),
    [
        (
            {"general.architecture": ("str", "mamba")},
            UnsupportedError,
            "unknown architecture 'mamba', expected one of " + ", ".join(sorted(ARCHITECTURES)),
        ),
        (
            {"general.architecture": ("str", "eagle3")},
            IncompatibleError,
            "architecture eagle3 is a drafter, not a target",
        ),
    ],
)
def test_models_that_are_not_handled_say_so(
    tmp_path: Path, metadata: dict, kind: type[SpecliError], message: str
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama", metadata=metadata)
    with pytest.raises(kind) as error:
        config_of(path)
    assert str(error.value) == f"{path}: {message}"
