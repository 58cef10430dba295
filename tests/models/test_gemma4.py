"""Gemma 4's parts that a file may have or lack, and what it is refused for."""

from pathlib import Path

import numpy as np
import pytest

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from tests.support.oracle import run_oracle
from tests.support.running import all_logits, open_model
from tests.support.tiny_gguf import tiny_gguf

TOKENS = np.random.default_rng(7).integers(0, 200, 40).tolist()
LAYER_INPUTS = ("per_layer_token_embd.weight", "per_layer_model_proj.weight", "per_layer_proj_norm.weight")
MIXTURE = (
    "ffn_gate_inp.weight", "ffn_gate_inp.scale", "ffn_gate_up_exps.weight", "ffn_down_exps.weight",
    "ffn_down_exps.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight",
)  # fmt: skip


def error_of(path: Path, **options: object) -> float:
    with GGUFFile.open(path) as file:
        expected = run_oracle(file, TOKENS).logits
    found = all_logits(open_model(path, **options), TOKENS, chunk=17).numpy()
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def of_layers(names: tuple[str, ...], n: int = 2) -> dict[str, None]:
    return {f"blk.{layer}.{name}": None for layer in range(n) for name in names}


def test_last_layers_read_keys_and_values_of_earlier_ones(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "gemma4", n_layer=6)
    assert error_of(path) < 1e-5
    layers = open_model(path).cache.layers
    assert [layers.index(layer) for layer in layers] == [0, 1, 2, 3, 2, 3]


def test_dense_without_layer_inputs(tmp_path: Path) -> None:
    """The 31B form."""
    left_out = of_layers(("inp_gate.weight", "proj.weight", "post_norm.weight", *MIXTURE))
    path = tiny_gguf(
        tmp_path / "m.gguf",
        "gemma4",
        metadata={
            "gemma4.embedding_length_per_layer_input": ("u32", 0),
            "gemma4.expert_count": None,
            "gemma4.expert_used_count": None,
        },
        tensors={**left_out, **dict.fromkeys(LAYER_INPUTS)},
    )
    assert error_of(path) < 1e-5


def test_separate_expert_projections(tmp_path: Path) -> None:
    joined = tiny_gguf(tmp_path / "a.gguf", "gemma4")
    changes: dict[str, np.ndarray | None] = {}
    with GGUFFile.open(joined) as file:
        for layer in range(2):
            name = f"blk.{layer}.ffn_gate_up_exps.weight"
            gate, up = np.split(file.tensors[name].dequantise(), 2, axis=1)
            changes |= {name: None, f"blk.{layer}.ffn_gate_exps.weight": gate, f"blk.{layer}.ffn_up_exps.weight": up}
    assert error_of(tiny_gguf(tmp_path / "b.gguf", "gemma4", tensors=changes)) < 1e-5


def test_soft_cap_is_30_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    default = tiny_gguf(tmp_path / "a.gguf", "gemma4")
    other = tiny_gguf(tmp_path / "b.gguf", "gemma4", metadata={"gemma4.final_logit_softcapping": ("f32", 3.0)})
    assert open_model(default).config.logit_softcap == 30.0
    assert open_model(other).config.logit_softcap == 3.0
    assert error_of(other) < 1e-5


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"attention.sliding_window_pattern": ("u32", 2)},
            "key gemma4.attention.sliding_window_pattern is missing or no array, expected one entry per block",
        ),
        (
            {"attention.value_length_swa": ("u32", 16)},
            "key gemma4.attention.value_length is 16, expected equal to the key length, also _swa",
        ),
        (
            {"attention.shared_kv_layers": ("u32", 1)},
            "key gemma4.attention.shared_kv_layers is 1, expected to leave a sliding and then a full layer before them",
        ),
        (
            {"expert_count": ("u32", 0)},
            "key gemma4.expert_count is 0, expected at least 1, there is blk.0.ffn_gate_inp.weight",
        ),
        ({"expert_used_count": ("u32", 7)}, "key gemma4.expert_used_count is 7, expected 1 to 6"),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path: Path, metadata: dict, message: str) -> None:
    keys = {f"gemma4.{name}": pair for name, pair in metadata.items()}
    path = tiny_gguf(tmp_path / "m.gguf", "gemma4", metadata=keys)
    with pytest.raises(FormatError) as error:
        open_model(path)
    assert str(error.value) == f"{path}: {message}"
