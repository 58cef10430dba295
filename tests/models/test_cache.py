"""The cache: lengths, sizes, types, and when heads are rotated before they are quantised."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.errors import IncompatibleError
from specli.gguf.quant import QuantType, dequantise
from specli.kernels.reference import ReferenceExecutor
from specli.models.architecture import DeltaConfig, LayerConfig, RopeConfig
from specli.models.cache import KVCache
from tests.support.running import forward, open_model
from tests.support.tiny_gguf import tiny_gguf

LAYER = LayerConfig(
    n_heads=4,
    n_kv_heads=2,
    head_size_k=64,
    head_size_v=64,
    n_ff=128,
    rope=RopeConfig(n_rot=64, base=1e4),
    attention_scale=0.125,
)


def cache_of(*layers: LayerConfig, type_k: QuantType = QuantType.F16, type_v: QuantType = QuantType.F16) -> KVCache:
    return KVCache(ReferenceExecutor(), layers, n_slots=2, capacity=8, type_k=type_k, type_v=type_v)


def test_lengths_follow_what_is_written_and_cut() -> None:
    cache = cache_of(LAYER)
    cache.written(np.array([0, 1, 2, 0], np.int32), np.array([0, 0, 0, 1], np.int32))
    assert (cache.length(0), cache.length(1)) == (3, 1)
    cache.truncate(0, 1)
    assert (cache.length(0), cache.length(1)) == (1, 1)
    cache.written(np.array([1], np.int32), np.array([0], np.int32))
    assert cache.length() == 2


def test_bytes_are_those_of_the_types() -> None:
    cache = cache_of(LAYER, LAYER, type_k=QuantType.Q8_0, type_v=QuantType.F32)
    assert cache.nbytes == 2 * 2 * 2 * 8 * (2 * 34 + 64 * 4)  # layers · slots · heads · cells · (key + value bytes)


@pytest.mark.parametrize(
    ("sizes", "rotations"),
    [
        ((64, 64), (64, 64)),
        ((256, 256), (256, 64)),
        ((192, 128), (64, 64)),
        ((96, 96), (0, 0)),
        ((128, 96), (128, 0)),
    ],
)
def test_rotation_block_is_the_power_of_two_in_the_head_size(
    sizes: tuple[int, int], rotations: tuple[int, int]
) -> None:
    layer = replace(LAYER, head_size_k=sizes[0], head_size_v=sizes[1])
    quantised = cache_of(layer, type_k=QuantType.Q8_0, type_v=QuantType.Q4_0).layers[0]
    assert (quantised.rotation_k, quantised.rotation_v) == rotations
    plain = cache_of(layer).layers[0]
    assert (plain.rotation_k, plain.rotation_v) == (0, 0)
    keys_only = cache_of(layer, type_k=QuantType.Q8_0).layers[0]
    assert (keys_only.rotation_k, keys_only.rotation_v) == (rotations[0], 0)


def test_unequal_key_heads_of_one_kind_are_not_rotated() -> None:
    """Full layers of 64 and 128 decide together, the sliding one of 64 by itself; values look at their own size."""
    large = replace(LAYER, head_size_k=128)
    sliding = replace(LAYER, window=16)
    layers = cache_of(LAYER, large, sliding, type_k=QuantType.Q8_0, type_v=QuantType.Q8_0).layers
    assert [layer.rotation_k for layer in layers] == [0, 0, 64]
    assert [layer.rotation_v for layer in layers] == [64, 64, 64]


def test_a_type_that_caches_do_not_have_is_refused() -> None:
    with pytest.raises(IncompatibleError) as error:
        cache_of(LAYER, type_k=QuantType.Q4_K)
    assert str(error.value) == (
        "cache type q4_k does not exist, expected one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"
    )


def test_heads_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(IncompatibleError) as error:
        cache_of(replace(LAYER, head_size_v=80), type_v=QuantType.Q8_0)
    assert str(error.value) == "cache type q8_0 needs head sizes in multiples of 32, found 80"


def test_quantised_cells_hold_rotated_heads(tmp_path: Path) -> None:
    """The first layer's cells in q8_0 are the f32 cells times the Walsh-Hadamard matrix, to q8_0's precision."""
    path = tiny_gguf(tmp_path / "m.gguf", "llama", width=128, n_head=2, n_head_kv=1)
    exact, quantised = open_model(path), open_model(path, type_k=QuantType.Q8_0, type_v=QuantType.Q8_0)
    for model in (exact, quantised):
        forward(model, [1, 2, 3])
    matrix = torch.ones(1, 1)
    while len(matrix) < 64:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    plain, stored = exact.cache.layers[0].kv, quantised.cache.layers[0].kv
    for cells, rows in ((plain.k, stored.k), (plain.v, stored.v)):
        expected = cells[0, 0, :3].view(torch.float32) @ matrix / 8
        found = torch.from_numpy(dequantise(QuantType.Q8_0, rows[0, 0, :3].numpy()))
        torch.testing.assert_close(found, expected, rtol=0, atol=float(expected.abs().max()) / 200)


def recurrent_cache(max_rewind: int) -> KVCache:
    delta = replace(LAYER, delta=DeltaConfig(n_taps=4, n_key_heads=2, n_heads=4, head_size=16))
    return KVCache(
        ReferenceExecutor(),
        (delta, LAYER),
        n_slots=2,
        capacity=64,
        type_k=QuantType.F16,
        type_v=QuantType.F16,
        max_rewind=max_rewind,
    )


def write(cache: KVCache, start: int, stop: int) -> None:
    cache.written(np.arange(start, stop, dtype=np.int32), np.zeros(stop - start, np.int32))


def test_recurrent_layers_can_be_cut_as_far_as_their_states_reach() -> None:
    """Rewind 3: after 20 tokens the states before 17 … 20 are there; cut to 18, grown to 19, those before 17 … 19."""
    cache = recurrent_cache(3)
    write(cache, 0, 20)
    assert [n for n in range(21) if cache.can_truncate(0, n)] == [0, 17, 18, 19, 20]
    cache.truncate(0, 18)
    write(cache, 18, 19)
    assert [n for n in range(20) if cache.can_truncate(0, n)] == [0, 17, 18, 19]
    write(cache, 19, 22)
    assert [n for n in range(23) if cache.can_truncate(0, n)] == [0, 19, 20, 21, 22]
    cache.truncate(0, 0)
    write(cache, 0, 2)
    assert all(cache.can_truncate(0, n) for n in range(3))
    assert cache_of(LAYER).can_truncate(0, 0)


def test_states_count_towards_the_bytes() -> None:
    cache = recurrent_cache(3)
    states, inputs = (
        2 * 4 * 4 * 16 * 16 * 4,
        2 * 7 * 128 * 4,
    )  # slots · states · heads · S² · 4, slots · kept · width · 4
    assert cache.nbytes == states + inputs + 2 * 2 * 64 * 2 * 64 * 2
