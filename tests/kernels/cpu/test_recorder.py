"""How operations are grouped into steps and where images of activations are made."""

from __future__ import annotations

import torch

from specli.gguf.quant import QuantType
from specli.kernels.cpu.library import native_exports
from specli.kernels.cpu.recorder import Recorder
from specli.kernels.ops import Activation, AttentionSpec, Buffer, Extent, RopeTable
from tests.support.native import Bench


def steps(recorder: Recorder) -> list[list[str]]:
    """Names of the operations, step by step."""
    names = {code: name for (kind, name), code in native_exports().numbers.items() if kind == "operation"}
    found: list[list[str]] = []
    for op in recorder.ops:
        if op.step:
            found.append([])
        found[-1].append(names[op.code])
    assert [op.step for op in recorder.ops if op.step] == [len(step) for step in found]
    return found


def test_a_layer_waits_only_where_rows_meet(bench: Bench) -> None:
    """Norm and image; products; rotation and cache writing; attention; … — eight steps for a llama layer."""
    x, h, qkv, joined = bench.rows(64), bench.rows(64), bench.rows(128), bench.rows(96)
    q, k, v = qkv.columns(0, 64), qkv.columns(64, 96), qkv.columns(96, 128)
    layer = bench.executor.kv_layer(1, 1, 32, 32, 32, QuantType.F16, QuantType.F16)
    wq, wk, wo, wide, narrow = (
        bench.weight(QuantType.Q8_0, *shape)[0] for shape in ((64, 64), (32, 64), (64, 64), (96, 64), (64, 96))
    )
    positions, slots, norm = bench.ints([0]), bench.ints([0]), bench.random(64)
    table = RopeTable(bench.random(32, 16), bench.random(32, 16), interleaved=True)
    recorder = Recorder(exact=False)
    recorder.rms_norm(h, x, norm, eps=1e-5)
    recorder.linear([q, k, v], h, [wq, wk, wk])
    recorder.rope(q, positions, table, head_size=32)
    recorder.rope(k, positions, table, head_size=32)
    recorder.store(layer, k, v, positions, slots)
    recorder.attention(h, q, layer, positions, slots, AttentionSpec(n_heads=2, scale=1.0))
    recorder.linear([x], h, [wo], accumulate=True)
    recorder.rms_norm(h, x, norm, eps=1e-5)
    recorder.gated_linear(joined, h, wide, wide, Activation.SILU)
    recorder.linear([x], joined, [narrow], accumulate=True)
    assert steps(recorder) == [
        ["rms_norm", "quantise"],
        ["linear", "linear", "linear"],
        ["rope", "rope", "store"],
        ["attention"],
        ["quantise"],
        ["linear"],
        ["rms_norm", "quantise"],
        ["gated"],
        ["quantise"],
        ["linear"],
    ]


def test_an_image_is_made_once_per_value(bench: Bench) -> None:
    weight, _ = bench.weight(QuantType.Q4_0, 32, 64)
    other, _ = bench.weight(QuantType.F16, 32, 64)
    x, out = bench.rows(64), bench.rows(32)
    recorder = Recorder(exact=False)
    recorder.linear([out], x, [other])  # float weights need none
    recorder.linear([out], x, [weight])
    recorder.linear([out], x, [weight])
    recorder.scale(x.columns(32, 64), 2.0)  # part of x is new
    recorder.linear([out], x, [weight])
    names = [name for step in steps(recorder) for name in step]
    assert names == ["linear", "quantise", "linear", "linear", "scale", "quantise", "linear"]


def test_exact_programs_make_no_images(bench: Bench) -> None:
    weight, _ = bench.weight(QuantType.Q4_0, 32, 64)
    recorder = Recorder(exact=True)
    recorder.linear([bench.rows(32)], bench.rows(64), [weight])
    assert steps(recorder) == [["linear"]]


def test_other_row_counts_and_other_rows_start_a_step(bench: Bench) -> None:
    tokens, outputs, one = bench.rows(8), bench.rows(8, Extent.OUTPUTS), bench.rows(8, Extent.SEQUENCES)
    rows = bench.ints([0], Extent.OUTPUTS)
    shifted = Buffer(tokens.data[1:], Extent.TOKENS)
    recorder = Recorder(exact=False)
    recorder.scale(tokens, 2.0)
    recorder.scale(outputs, 2.0)
    recorder.gather(outputs, tokens, rows)
    recorder.scale(outputs, 2.0)
    recorder.scale(one, 2.0)
    recorder.add(tokens, tokens)
    recorder.add(tokens, shifted)  # reads what the row behind writes
    assert [len(step) for step in steps(recorder)] == [1, 1, 1, 1, 1, 1, 1]


def test_places_in_blocks_wait_for_the_place_before(bench: Bench) -> None:
    """Rows of different blocks do not: those of one place run next to each other, in one step."""
    blocks = bench.rows(8)
    recorder = Recorder(exact=False)
    for i in range(1, 4):
        recorder.add(blocks.per_sequence(i, step=4), blocks.per_sequence(i - 1, step=4))
        recorder.scale(blocks.per_sequence(i, step=4), 2.0)
    assert steps(recorder) == [["add", "scale", "add", "scale", "add", "scale"]]


def test_a_repeated_part_shares_no_step_and_no_image(bench: Bench) -> None:
    """It may run after itself, or not at all: images are made anew in it and behind it."""
    weight, _ = bench.weight(QuantType.Q4_0, 32, 64)
    x, out = bench.rows(64), bench.rows(32)
    recorder = Recorder(exact=False)
    recorder.linear([out], x, [weight])
    recorder.scale(out, 2.0)

    def body() -> None:
        recorder.scale(out, 2.0)
        recorder.linear([out], x, [weight])

    recorder.repeat(body)
    recorder.linear([out], x, [weight])
    assert steps(recorder) == [
        ["quantise"],
        ["linear"],
        ["scale"],
        ["scale", "quantise"],
        ["linear"],
        ["quantise"],
        ["linear"],
    ]
    assert recorder.repeated == (3, 6)


def test_a_program_outlives_its_trace(bench: Bench) -> None:
    """The recorder keeps everything that operations point to."""
    out = bench.zeros(16)
    x = bench.rows(16)

    def program() -> object:
        row = bench.random(16)
        temporary = Buffer(torch.ones(x.capacity, 16), Extent.TOKENS)

        def trace(ops: object) -> None:
            ops.copy(out, x)  # type: ignore[attr-defined]
            ops.add_row(out, row)  # type: ignore[attr-defined]
            ops.add(out, temporary)  # type: ignore[attr-defined]

        return bench.executor.compile(trace), row.clone()

    compiled, row = program()  # type: ignore[misc]
    torch.full((1000, 16), 7.0)
    compiled.run(5)
    torch.testing.assert_close(out.data[:5], x.data[:5] + row + 1)
