"""The parts as draft networks use them: wider input, values from keys, sinks, injected context, sight ahead."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from specli.kernels.ops import Activation, Extent, Ops, RopeTable
from specli.kernels.reference import ReferenceExecutor
from specli.kernels.threads import ThreadConfig
from specli.models.architecture import LayerConfig, RopeConfig
from specli.models.cache import CacheLayer, KVCache
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm, Rows, Scratch
from specli.models.rope import rope_table
from specli.models.tensors import Tensors

D, EPS = 48, 1e-5
CONFIG = LayerConfig(
    n_heads=4,
    n_kv_heads=2,
    head_size_k=16,
    head_size_v=16,
    n_ff=80,
    rope=RopeConfig(n_rot=16, base=100.0),
    attention_scale=0.25,
)
SHAPES = {
    "attn_q.weight": (64, D),
    "attn_k.weight": (32, D),
    "attn_v.weight": (32, D),
    "attn_output.weight": (D, 64),
    "attn_q_norm.weight": (16,),
    "attn_k_norm.weight": (16,),
    "attn_sinks.weight": (4,),
    "attn_norm.weight": (D,),
    "ffn_norm.weight": (D,),
    "ffn_gate.weight": (80, D),
    "ffn_up.weight": (80, D),
    "ffn_down.weight": (D, 80),
    "layer_output_scale.weight": (1,),
}


class Bench:
    """A file with one layer's tensors, and six rows at positions 0 … 5 of one slot."""

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]], config: LayerConfig = CONFIG) -> None:
        rng = np.random.default_rng(11)
        self.values = {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
        with GGUFWriter(path, "drafter") as writer:
            for name, array in self.values.items():
                writer.add_tensor(f"blk.0.{name}", QuantType.F32, array.shape, array.reshape(-1).view(np.uint8))
        self.tensors = Tensors(GGUFFile.open(path))
        self.executor = ReferenceExecutor(threads=ThreadConfig(n_threads=1))
        cache = KVCache(self.executor, [config], n_slots=1, capacity=16, type_k=QuantType.F32, type_v=QuantType.F32)
        self.cache: CacheLayer = cache.layers[0]
        self.rope: RopeTable = rope_table(config.rope, 16, self.executor)
        self.rows = self.rows_at(list(range(6)))

    def rows_at(self, positions: list[int], ends: list[int] | None = None) -> Rows:
        new = self.executor.buffer
        columns = [new(6, 1, Extent.TOKENS, np.int32) for _ in range(3)]
        for column, values in zip(columns, (positions, [0] * len(positions), ends), strict=True):
            if values is not None:
                column.data[: len(values), 0] = torch.tensor(values)
        scratch = Scratch(self.executor, 6, Extent.TOKENS)
        return Rows(columns[0], columns[1], scratch, columns[2] if ends is not None else None)

    def load(self) -> None:
        self.tensors.check()
        self.tensors.load(self.executor)

    def run(self, trace: Callable[[Ops], None], tokens: int = 6) -> None:
        self.executor.compile(trace).run(tokens)

    def value(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self.values[name])


def turned(heads: torch.Tensor, positions: list[int], weight: torch.Tensor | None = None) -> torch.Tensor:
    """`[T, n, 16]` heads after an optional norm and split-half angles."""
    if weight is not None:
        heads = F.rms_norm(heads, (16,), weight, EPS)
    angle = torch.tensor(positions)[:, None, None] * 100.0 ** (-torch.arange(8) / 8)
    a, b = heads.split(8, dim=2)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=2)


def attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: list[int], sinks: torch.Tensor | None = None
) -> torch.Tensor:
    """`[T, 64]`: attention of heads `[T, 4, 16]` over cells `[n, 2, 16]`, row t seeing cells below ends[t]."""
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    scores = torch.einsum("thd,chd->htc", q, k) * 0.25
    hidden = torch.arange(len(k))[None] >= torch.tensor(ends)[:, None]
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(4, len(q), 1)], dim=2)
    weights = scores.softmax(2)[..., : len(k)]
    return torch.einsum("htc,chd->thd", weights, v).flatten(1)


def named(*names: str) -> dict[str, tuple[int, ...]]:
    return {name: SHAPES[name] for name in names}


LAYER_TENSORS = (
    "attn_norm.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "layer_output_scale.weight",
)
PROJECTIONS = ("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight")


def test_input_may_be_wider_than_the_residual_stream(tmp_path: Path) -> None:
    """EAGLE-3: token and feature side by side go in, D comes out; sinks as in gpt-oss drafts."""
    wide = {name: (shape[0], 2 * D) if name[5] in "qkv" else shape for name, shape in named(*PROJECTIONS).items()}
    bench = Bench(tmp_path / "m.gguf", wide | named("attn_sinks.weight"))
    part = Attention(bench.tensors, "blk.0.", CONFIG, D, eps=EPS, n_in=2 * D, biases="no", sinks="optional")
    bench.load()
    x, out = bench.executor.buffer(6, 2 * D, Extent.TOKENS), bench.executor.buffer(6, D, Extent.TOKENS)
    x.data.normal_(generator=torch.Generator().manual_seed(1))
    bench.run(lambda ops: part.trace(ops, out, x, bench.rows, bench.cache, bench.rope))
    at = list(range(6))
    q, k, v = ((x.data @ bench.value(f"attn_{name}.weight").T).view(6, -1, 16) for name in "qkv")
    heads = attended(turned(q, at), turned(k, at), v, [t + 1 for t in at], bench.value("attn_sinks.weight"))
    torch.testing.assert_close(out.data, heads @ bench.value("attn_output.weight").T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_values", [True, False])
def test_injected_context_and_a_block_that_sees_ahead(tmp_path: Path, has_values: bool) -> None:
    """DFlash: four context rows write only keys and values; a block of two at 4, 5 sees them and all of itself.

    Without `attn_v` the values are the raw keys, normed per head without weight.
    """
    names = [name for name in PROJECTIONS if has_values or name != "attn_v.weight"]
    bench = Bench(tmp_path / "m.gguf", named(*names, "attn_q_norm.weight", "attn_k_norm.weight"))
    part = Attention(bench.tensors, "blk.0.", CONFIG, D, eps=EPS, biases="no", head_norms="required", values="optional")
    bench.load()
    x, out = bench.executor.buffer(6, D, Extent.TOKENS), bench.executor.buffer(6, D, Extent.TOKENS)
    sequence = torch.randn(6, D, generator=torch.Generator().manual_seed(2))
    x.data[:4] = sequence[:4]
    bench.run(lambda ops: part.inject(ops, x, bench.rows, bench.cache, bench.rope), tokens=4)
    x.data[:2] = sequence[4:]
    block = bench.rows_at([4, 5], ends=[6, 6])
    bench.run(lambda ops: part.trace(ops, out, x, block, bench.cache, bench.rope), tokens=2)
    k = (sequence @ bench.value("attn_k.weight").T).view(6, 2, 16)
    q = (sequence[4:] @ bench.value("attn_q.weight").T).view(2, 4, 16)
    v = (sequence @ bench.value("attn_v.weight").T).view(6, 2, 16) if has_values else F.rms_norm(k, (16,), None, EPS)
    heads = attended(
        turned(q, [4, 5], bench.value("attn_q_norm.weight")),
        turned(k, list(range(6)), bench.value("attn_k_norm.weight")),
        v,
        [6, 6],
    )
    torch.testing.assert_close(out.data[:2], heads @ bench.value("attn_output.weight").T, rtol=1e-4, atol=1e-4)


def test_layer_output_scale_multiplies_the_stream(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "m.gguf", named(*PROJECTIONS, *LAYER_TENSORS))

    def norm(name: str) -> RMSNorm:
        return RMSNorm(bench.tensors, f"blk.0.{name}.weight", D, eps=EPS)

    scaled = Layer(
        attn_norm=norm("attn_norm"),
        attention=Attention(bench.tensors, "blk.0.", CONFIG, D, eps=EPS),
        ffn_norm=norm("ffn_norm"),
        feed_forward=FeedForward(bench.tensors, "blk.0.", D, 80, Activation.SILU),
        layer_output_scale=bench.tensors.scalar("blk.0.layer_output_scale.weight"),
    )
    bench.load()
    plain = replace(scaled, layer_output_scale=None)
    streams = []
    for layer in (plain, scaled):
        x = bench.executor.buffer(6, D, Extent.TOKENS)
        x.data.normal_(generator=torch.Generator().manual_seed(3))
        bench.run(lambda ops, layer=layer, x=x: layer.trace(ops, x, bench.rows, bench.cache, bench.rope))
        streams.append(x.data)
    assert torch.equal(streams[1], streams[0] * bench.value("layer_output_scale.weight"))
