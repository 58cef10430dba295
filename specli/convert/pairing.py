"""Whether a drafter file fits a target file, from headers alone (`--check`; docs/draft-networks.md §§1-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specli.errors import FormatError, IncompatibleError
from specli.gguf.file import GGUFFile

PLAIN = "specli check -m TARGET -md DRAFT compares a plain draft model with its target"


@dataclass(frozen=True)
class _Pair:
    draft: GGUFFile
    target: GGUFFile

    @property
    def width(self) -> int:
        """The target's hidden size."""
        return self.target.metadata.require(f"{self.target.architecture}.embedding_length", "u32")

    @property
    def n_layers(self) -> int:
        """The target's decoder layers, MTP blocks excluded."""
        meta, arch = self.target.metadata, self.target.architecture
        return meta.require(f"{arch}.block_count", "u32") - meta.get(f"{arch}.nextn_predict_layers", "u32", 0)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a draft tensor that must be there."""
        tensor = self.draft.tensors.get(name)
        if tensor is None:
            raise FormatError(f"{self.draft.path}: tensor {name} is missing")
        return tensor.shape

    def expect(self, what: str, found: object, expected: object) -> None:
        """Raises unless two values agree."""
        if found != expected:
            raise IncompatibleError(f"{self.draft.path}: {what} {found} does not match {self.target.path} ({expected})")


def check_pair(draft: Path, target: Path) -> tuple[str, ...]:
    """What was compared, one line each; the pair fits when nothing is raised.

    Raises:
        IncompatibleError: Widths, layers or vocabularies do not fit, or the file is no drafter for this target.
        FormatError: A file is broken.
    """
    pair = _Pair(GGUFFile.open(draft), GGUFFile.open(target))
    rules = _RULES.get(pair.draft.architecture)
    if rules is None:
        if pair.draft.architecture != pair.target.architecture:
            raise IncompatibleError(
                f"{draft}: architecture {pair.draft.architecture} is no drafter for {target} "
                f"({pair.target.architecture})",
                hint=PLAIN,
            )
        rules = _mtp
    return (*rules(pair), *_vocabulary(pair))


def _taps(pair: _Pair, key: str, width: int) -> Iterator[str]:
    taps = pair.draft.metadata.require(key, "[int]")
    outside = [tap for tap in taps if not 0 <= tap <= pair.n_layers]
    if outside or not taps:
        raise IncompatibleError(
            f"{pair.draft.path}: target layers {taps} do not fit {pair.target.path} (0 to {pair.n_layers})"
        )
    columns = pair.shape("fc.weight")[-1]
    pair.expect("width of the fused states", columns, len(taps) * width)
    yield f"target layers {', '.join(map(str, taps))} of {pair.n_layers}, {len(taps)} x {width} = {columns} wide"


def _rope(pair: _Pair) -> Iterator[str]:
    meta, arch = pair.draft.metadata, pair.draft.architecture
    base = meta.get(f"{arch}.rope.freq_base", "f32", 10000.0)
    scaling = meta.get(f"{arch}.rope.scaling.type", "str", "none")
    own = pair.target.metadata.get(f"{pair.target.architecture}.rope.freq_base", "f32", 10000.0)
    yield f"rope base {base:g}, scaling {scaling} (the target's base is {own:g}; each uses its own)"


def _borrowed(pair: _Pair, width: int) -> Iterator[str]:
    borrowed = [name for name in ("token_embd.weight", "output.weight") if name not in pair.draft.tensors]
    if borrowed:
        pair.expect("hidden size", width, pair.width)
        yield f"{' and '.join(borrowed)} from the target, {pair.width} wide"


def _eagle3(pair: _Pair) -> Iterator[str]:
    meta = pair.draft.metadata
    pair.expect("target hidden size", meta.require("eagle3.target_hidden_size", "u32"), pair.width)
    yield from _taps(pair, "eagle3.target_layers", pair.width)
    yield from _borrowed(pair, meta.require("eagle3.embedding_length", "u32"))
    yield from _rope(pair)


def _last_state(pair: _Pair) -> Iterator[str]:
    meta, arch = pair.draft.metadata, pair.draft.architecture
    pair.expect("hidden size", meta.require(f"{arch}.embedding_length", "u32"), pair.width)
    pair.expect("target layers", meta.require(f"{arch}.target_layers", "[int]"), [pair.n_layers])
    yield f"reads the state behind layer {pair.n_layers}, {pair.width} wide, with the target's last norm"


def _eagle(pair: _Pair) -> Iterator[str]:
    yield from _last_state(pair)
    yield from _rope(pair)


def _medusa(pair: _Pair) -> Iterator[str]:
    yield from _last_state(pair)
    n_heads = pair.draft.metadata.require("medusa.block_count", "u32")
    yield f"{n_heads} heads, at most {n_heads} draft tokens"


def _dflash(pair: _Pair) -> Iterator[str]:
    meta = pair.draft.metadata
    width = meta.require("dflash.embedding_length", "u32")
    pair.expect("hidden size", width, pair.width)
    yield from _taps(pair, "dflash.target_layers", width)
    yield from _borrowed(pair, width)
    yield from _rope(pair)
    block, mask = meta.require("dflash.block_size", "u32"), meta.require("tokenizer.ggml.mask_token_id", "u32")
    if mask >= _n_tokens(pair.target):
        raise IncompatibleError(f"{pair.draft.path}: mask token {mask} is not in {pair.target.path}")
    is_dspark = "markov_w1.weight" in pair.draft.tensors
    n_drafts = block if meta.get("dflash.sample_from_anchor", "bool", is_dspark) else block - 1
    yield f"block size {block}, at most {n_drafts} draft tokens, mask token {mask}"


def _assistant(pair: _Pair) -> Iterator[str]:
    out = pair.draft.metadata.require("gemma4-assistant.embedding_length_out", "u32")
    pair.expect("output width", out, pair.width)
    pair.expect("target architecture", "gemma4", pair.target.architecture)
    yield f"projections from and to {out}"
    yield from _rope(pair)


def _mtp(pair: _Pair) -> Iterator[str]:
    meta, arch = pair.draft.metadata, pair.draft.architecture
    n_blocks = meta.get(f"{arch}.nextn_predict_layers", "u32", 0)
    if not n_blocks:
        raise IncompatibleError(
            f"{pair.draft.path}: has no MTP blocks, so it is no drafter of {pair.target.path}", hint=PLAIN
        )
    pair.expect("hidden size", meta.require(f"{arch}.embedding_length", "u32"), pair.width)
    pair.expect("trunk layers", meta.require(f"{arch}.block_count", "u32") - n_blocks, pair.n_layers)
    yield f"{n_blocks} MTP block{'s' if n_blocks > 1 else ''} after {pair.n_layers} layers, {pair.width} wide"


_RULES: dict[str, Callable[[_Pair], Iterator[str]]] = {
    "eagle": _eagle,
    "eagle3": _eagle3,
    "dflash": _dflash,
    "gemma4-assistant": _assistant,
    "medusa": _medusa,
}


def _n_tokens(file: GGUFFile) -> int:
    return len(file.metadata.require("tokenizer.ggml.tokens", "[str]"))


def _vocabulary(pair: _Pair) -> Iterator[str]:
    draft = pair.draft.metadata.require("tokenizer.ggml.tokens", "[str]")
    target = pair.target.metadata.require("tokenizer.ggml.tokens", "[str]")
    pair.expect("vocabulary size", len(draft), len(target))
    different = [number for number, (a, b) in enumerate(zip(draft, target, strict=True)) if a != b]
    if different:
        first = different[0]
        raise IncompatibleError(
            f"{pair.draft.path}: {len(different)} tokens differ from {pair.target.path}, "
            f"first {first}: {draft[first]!r} and {target[first]!r}"
        )
    table = pair.draft.tensors.get("d2t")
    if table is None:
        yield f"vocabulary of {len(target)} tokens, the same in both"
        return
    ids = table.numbers()
    if ids.min() < 0 or ids.max() >= len(target) or len(set(ids.tolist())) != len(ids):
        raise FormatError(f"{pair.draft.path}: d2t does not name distinct tokens below {len(target)}")
    yield f"vocabulary of {len(target)} tokens, the same in both; {len(ids)} of them can be drafted"
