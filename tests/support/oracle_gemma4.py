"""What only gemma4 has: experts beside the dense part, inputs of each layer (docs/targets.md §3.5)."""

import numpy as np

from tests.support.oracle_experts import experts
from tests.support.oracle_weights import Weights, gelu


def mixture(w: Weights, at: str, dense: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Dense part and experts, normed apart and added."""
    router = w.normalise(x) / np.sqrt(x.shape[1]) * w.need(f"{at}ffn_gate_inp.scale")
    mixed = experts(w, at, w.norm(x, f"{at}pre_ffw_norm_2.weight"), w.linear(router, f"{at}ffn_gate_inp"))
    return w.norm(dense, f"{at}post_ffw_norm_1.weight") + w.norm(mixed, f"{at}post_ffw_norm_2.weight")


class LayerInputs:
    """The numbers that each layer gets of a token; x₀ `[T, D]` is the scaled embedding."""

    def __init__(self, w: Weights, x0: np.ndarray, tokens: list[int]) -> None:
        self._w = w
        n = w.integer("embedding_length_per_layer_input")
        projected = (w.linear(x0, "per_layer_model_proj") / np.sqrt(x0.shape[1])).reshape(len(tokens), -1, n)
        embedded = w.need("per_layer_token_embd.weight")[tokens].reshape(projected.shape)
        self._inputs = (w.norm(projected, "per_layer_proj_norm.weight") + np.sqrt(n) * embedded) / np.sqrt(2)

    def add(self, layer: int, x: np.ndarray) -> np.ndarray:
        w, at = self._w, f"blk.{layer}."
        gated = gelu(w.linear(x, f"{at}inp_gate")) * self._inputs[:, layer]
        return x + w.norm(w.linear(gated, f"{at}proj"), f"{at}post_norm.weight")
