"""Families, made tiny, against a float64 NumPy forward pass; and what holds for all of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from specli.errors import IncompatibleError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.types import CACHE_TYPES
from tests.support.oracle import FAMILIES, Oracle, run_oracle
from tests.support.running import all_logits, forward, open_model
from tests.support.tiny_gguf import tiny_gguf

TOKENS = np.random.default_rng(7).integers(0, 200, 40).tolist()  # longer than gemma3's window of 16
VARIANTS = {
    "plain": {},
    "tied": {"tied": True},
    "wide heads": {"head_size": 32, "n_head_kv": 1},
    "one group": {"n_head_kv": 4},
    "q8_0": {"quant": "q8_0"},
}
TOLERANCE = {"deepseek2": 3e-5}  # scores are four products away from the stream, those of others two


def oracle(path: Path, tokens: list[int] = TOKENS) -> Oracle:
    with GGUFFile.open(path) as file:
        return run_oracle(file, tokens)


def relative(found: torch.Tensor, expected: np.ndarray) -> float:
    return float(np.abs(found.numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_the_numpy_forward(tmp_path: Path, architecture: str, variant: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, **VARIANTS[variant])
    found = relative(all_logits(open_model(path), TOKENS, chunk=17), oracle(path).logits)
    assert found < TOLERANCE.get(architecture, 1e-5)


def test_soft_cap_bounds_gemma3_logits(tmp_path: Path) -> None:
    cap = {"gemma3.final_logit_softcapping": ("f32", 3.0)}
    path = tiny_gguf(tmp_path / "m.gguf", "gemma3", metadata=cap)
    logits = all_logits(open_model(path), TOKENS)
    assert relative(logits, oracle(path).logits) < 1e-5
    assert 2.5 < float(logits.abs().max()) < 3.0


def test_mixtral_is_a_llama_with_experts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    dense = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
    tensors: dict[str, np.ndarray | None] = {f"blk.{i}.{name}": None for i in range(2) for name in dense}
    shapes = {
        "ffn_gate_inp": (4, 64),
        "ffn_gate_exps": (4, 32, 64),
        "ffn_up_exps": (4, 32, 64),
        "ffn_down_exps": (4, 64, 32),
    }
    for name, shape in ((f"blk.{i}.{name}.weight", shape) for i in range(2) for name, shape in shapes.items()):
        tensors[name] = rng.normal(0, 2 / np.sqrt(shape[-1]), shape)
    keys = {"llama.expert_count": ("u32", 4), "llama.expert_used_count": ("u32", 2)}
    path = tiny_gguf(tmp_path / "m.gguf", "llama", n_ff=32, metadata=keys, tensors=tensors)
    assert relative(all_logits(open_model(path), TOKENS, chunk=17), oracle(path).logits) < 1e-5


def test_qwen2_output_bias_is_added(tmp_path: Path) -> None:
    plain = open_model(tiny_gguf(tmp_path / "a.gguf", "qwen2"))
    bias = np.linspace(-1, 1, plain.config.n_vocab, dtype=np.float32)
    path = tiny_gguf(tmp_path / "b.gguf", "qwen2", tensors={"output.bias": bias})
    difference = all_logits(open_model(path), TOKENS) - all_logits(plain, TOKENS)
    np.testing.assert_allclose(difference.numpy(), np.broadcast_to(bias, difference.shape), atol=1e-5)


@pytest.mark.parametrize("bias", ["none", "fused", "separate"])
def test_fused_projection_equals_separate_ones(tmp_path: Path, bias: str) -> None:
    separate = tiny_gguf(tmp_path / "a.gguf", "llama" if bias == "none" else "qwen2")
    architecture = "llama" if bias == "none" else "qwen2"
    changes: dict[str, np.ndarray | None] = {}
    with GGUFFile.open(separate) as file:
        for layer in range(2):
            parts = [f"blk.{layer}.attn_{part}" for part in "qkv"]
            kinds = ["weight"] + (["bias"] if bias == "fused" else [])
            for kind in kinds:
                joined = np.concatenate([file.tensors[f"{part}.{kind}"].dequantise() for part in parts])
                changes[f"blk.{layer}.attn_qkv.{kind}"] = joined
                changes |= {f"{part}.{kind}": None for part in parts}
    fused = tiny_gguf(tmp_path / "b.gguf", architecture, tensors=changes)
    torch.testing.assert_close(all_logits(open_model(fused), TOKENS), all_logits(open_model(separate), TOKENS))


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_boundary_can_be_tapped(tmp_path: Path, architecture: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, n_layer=3)
    expected = oracle(path)
    model = open_model(path, taps=(0, 3, 1, 2), nextn=True)
    output = forward(model, TOKENS, outputs=[])
    assert output.logits.shape == (0, model.config.n_vocab)
    layers = output.features["layers"].data[: len(TOKENS)]
    tolerance = TOLERANCE.get(architecture, 1e-5)
    assert relative(layers, np.concatenate([expected.hidden[tap] for tap in (0, 3, 1, 2)], 1)) < tolerance
    assert relative(output.features["nextn"].data[: len(TOKENS)], expected.nextn) < tolerance


def test_capturing_states_leaves_logits_alone(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "qwen3")
    plain = all_logits(open_model(path), TOKENS)
    captured = all_logits(open_model(path, taps=(0, 1, 2), nextn=True), TOKENS)
    assert torch.equal(plain, captured)


def test_tap_beyond_the_last_boundary_is_refused(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", "llama")
    with pytest.raises(IncompatibleError) as error:
        open_model(path, taps=(3,))
    assert str(error.value) == f"{path}: no hidden state 3, the model has 0 to 2"


# Normalised mean square error of the logits of these models, about three times what was measured.
CACHE_ERRORS = {"f32": 1e-11, "f16": 5e-6, "bf16": 2e-4, "q8_0": 3e-3, "q5_1": 0.1, "q5_0": 0.1}
FOUR_BIT_ERROR = 0.5
SENSITIVITY = {"llama": 1.0, "gemma3": 0.01}  # gemma3's post-norms keep the branches small beside the embedding


@pytest.mark.parametrize("head_size", [64, 32])  # rotated before they are quantised; too small for that
@pytest.mark.parametrize("architecture", SENSITIVITY)
@pytest.mark.parametrize("type", CACHE_TYPES)
def test_cache_types_cost_their_precision(tmp_path: Path, architecture: str, type: QuantType, head_size: int) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", architecture, width=2 * head_size, n_head=2, n_head_kv=1)
    exact = oracle(path).logits
    found = all_logits(open_model(path, type_k=type, type_v=type), TOKENS).numpy()
    error = float(((found - exact) ** 2).mean() / (exact**2).mean())
    assert error < SENSITIVITY[architecture] * CACHE_ERRORS.get(type.label, FOUR_BIT_ERROR)
