"""Writes a model of any size with random weights, for measuring speed: dense (qwen3) or with experts (qwen3moe).

    python -m tests.benchmarks.random_model OUT.gguf --experts 64 --used 8 --n-ff 512 --layers 12 --width 1024

Without `--experts` the feed-forward is dense. Rows are drawn from a pool of quantised rows, so a file of a gigabyte
takes seconds. The vocabulary is the tests' small one, filled up with tokens that nothing is split into.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from tests.support.blocks import random_rows
from tests.support.tiny_vocab import bpe_vocab

POOL = 1024  # different rows per width


def shapes(args: argparse.Namespace) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in torch order."""
    width, n_ff = args.width, args.n_ff
    q_width, kv_width = args.heads * args.head_size, args.kv_heads * args.head_size
    yield "token_embd.weight", (args.vocab, width)
    yield "output_norm.weight", (width,)
    yield "output.weight", (args.vocab, width)
    for index in range(args.layers):
        at = f"blk.{index}."
        for name in ("attn_norm", "ffn_norm"):
            yield f"{at}{name}.weight", (width,)
        for name in ("attn_q_norm", "attn_k_norm"):
            yield f"{at}{name}.weight", (args.head_size,)
        yield f"{at}attn_q.weight", (q_width, width)
        yield f"{at}attn_k.weight", (kv_width, width)
        yield f"{at}attn_v.weight", (kv_width, width)
        yield f"{at}attn_output.weight", (width, q_width)
        suffix, stack = ("_exps", (args.experts,)) if args.experts else ("", ())
        yield f"{at}ffn_gate{suffix}.weight", (*stack, n_ff, width)
        yield f"{at}ffn_up{suffix}.weight", (*stack, n_ff, width)
        yield f"{at}ffn_down{suffix}.weight", (*stack, width, n_ff)
        if args.experts:
            yield f"{at}ffn_gate_inp.weight", (args.experts, width)


def keys(args: argparse.Namespace) -> dict[str, tuple[str, object]]:
    """Metadata without prefix."""
    counts = {
        "context_length": 4096,
        "embedding_length": args.width,
        "block_count": args.layers,
        "feed_forward_length": args.n_ff,
        "attention.head_count": args.heads,
        "attention.head_count_kv": args.kv_heads,
        "attention.key_length": args.head_size,
        "attention.value_length": args.head_size,
    }
    if args.experts:
        counts |= {
            "expert_count": args.experts,
            "expert_used_count": args.used,
            "expert_feed_forward_length": args.n_ff,
        }
    floats = {"rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-6}
    return {name: ("u32", n) for name, n in counts.items()} | {name: ("f32", x) for name, x in floats.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    for name, value in {
        "layers": 12, "width": 1024, "heads": 16, "kv-heads": 4, "head-size": 64, "n-ff": 512, "experts": 0, "used": 8,
        "vocab": 32000,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--type", default="q4_k")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    type, pools = QuantType.from_label(args.type), {}

    def draw(kind: QuantType, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, np.float32).view(np.uint8)
        n = shape[-1]
        if (kind, n) not in pools:
            pools[kind, n] = random_rows(kind, POOL, n, rng, std=n**-0.5)
        return pools[kind, n][rng.integers(0, POOL, int(np.prod(shape[:-1])))]

    architecture, words = "qwen3moe" if args.experts else "qwen3", bpe_vocab()
    filled = {name: list(words.metadata[f"tokenizer.ggml.{name}"][1]) for name in ("tokens", "token_type")}  # type: ignore[call-overload]
    filled["tokens"] += [f"filler{i}" for i in range(args.vocab - words.size)]
    filled["token_type"] += [1] * (args.vocab - words.size)
    n_active = n_all = 0
    with GGUFWriter(args.path, architecture) as writer:
        for name, pair in keys(args).items():
            writer.add(f"{architecture}.{name}", *pair)
        for key, (kind, value) in words.metadata.items():
            writer.add(key, kind, filled.get(key.removeprefix("tokenizer.ggml."), value))
        for name, shape in shapes(args):
            stored = QuantType.F32 if len(shape) == 1 or "gate_inp" in name else type
            writer.add_tensor(name, stored, shape, partial(draw, stored, shape))
            n_all += int(np.prod(shape))
            n_active += 0 if "token_embd" in name else int(np.prod(shape[-2:])) * (args.used if "_exps" in name else 1)
    size = args.path.stat().st_size / 2**20
    print(f"{args.path}: {n_all / 1e6:.0f} M parameters, {n_active / 1e6:.0f} M per token, {size:.0f} MiB")


if __name__ == "__main__":
    main()
