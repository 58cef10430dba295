"""Whether a draft file fits a target, and how well: by metadata alone, before any weight is read.

The verdict is that of the drafter's own check, which a run makes, too. The facts beside it say what was compared, and
what does not decide but explains: rotary settings, borrowed tensors, a reduced draft vocabulary and what it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specli.drafters import DRAFTERS, NetworkSpec, detect_type
from specli.drafters.vocabulary import MAX_DIFFERING, differing_tokens
from specli.engine.config import RunConfig
from specli.engine.drafting import plan_drafters
from specli.errors import FormatError, SpecliError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.models import model_class
from specli.models.cache import bytes_per_token
from specli.models.draft import draft_vocabulary
from specli.tokenizer import Tokenizer

SCHEMA = "specli.check/1"
MAX_MISSING = 12  # tokens listed that a draft vocabulary lacks


@dataclass(frozen=True)
class Fact:
    """One thing that was compared.

    Attributes:
        what: Its name.
        target: What the target says.
        draft: What the draft file says.
        is_match: Whether they fit; None where they need not.
        is_doubtful: Whether it speaks against the pair without ruling it out.
    """

    what: str
    target: str
    draft: str
    is_match: bool | None = None
    is_doubtful: bool = False


@dataclass(frozen=True)
class Coverage:
    """How much of a text a draft vocabulary can write.

    Attributes:
        n_tokens: Tokens of the text.
        n_covered: Those in the draft vocabulary.
        missing: The most frequent tokens outside it, with their counts.
    """

    n_tokens: int
    n_covered: int
    missing: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Fit:
    """The result for a pair.

    Attributes:
        target: The target's path.
        draft: The draft file's path.
        types: Drafter types that were checked.
        error: Why the pair does not fit; None if it does.
        hint: What can be done about it.
        facts: What was compared.
        coverage: Of the text, where one was given and the draft vocabulary is reduced.
        notes: What else there is to know.
        doubts: What speaks against the pair without ruling it out.
    """

    target: str
    draft: str
    types: tuple[str, ...]
    error: str | None
    hint: str | None
    facts: tuple[Fact, ...]
    coverage: Coverage | None = None
    notes: tuple[str, ...] = field(default=())
    doubts: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema": SCHEMA, "fits": self.error is None, **asdict(self)}


def check_fit(config: RunConfig, text: str | None = None) -> Fit:
    """Compares target and draft file of a run.

    Args:
        config: Files and types; without types the draft file's own.
        text: Text whose coverage by the draft vocabulary is wanted.

    Raises:
        SpecliError: A file is broken, or the target is none.
    """
    with ExitStack() as stack:
        target = stack.enter_context(closing(GGUFFile.open(config.target.path, config.target.metadata)))
        own = GGUFFile.open(config.draft.path, config.draft.metadata) if config.draft else None
        draft = stack.enter_context(closing(own)) if own else target
        model_class(target).check(target)
        tokenizer = Tokenizer.from_gguf(target)
        error: SpecliError | None = None
        doubts: list[str] = []
        types = config.speculation.types or tuple(filter(None, (detect_type(draft),)))
        try:
            plan = plan_drafters(config, target, tokenizer, draft if config.draft else None)
            types = tuple(spec.name for spec in plan.specs)
            doubts = plan.doubts(model_class(target).configure(target).n_ctx_train)
        except SpecliError as problem:
            error = problem
        mapping = _mapping(draft, tokenizer)
        return Fit(
            str(target.path),
            str(draft.path),
            types,
            str(error) if error else None,
            error.hint if error else None,
            tuple(_facts(target, draft, tokenizer, types, mapping)),
            _coverage(tokenizer, mapping, text) if text is not None and mapping is not None else None,
            tuple(_notes(draft, types, mapping, text)),
            tuple(doubts),
        )


def _mapping(draft: GGUFFile, tokenizer: Tokenizer) -> list[int] | None:
    """Ids of a reduced draft vocabulary; None without one, or if it is broken, which the check says."""
    try:
        ids = draft_vocabulary(draft, tokenizer.n_vocab)
    except FormatError:
        return None
    return None if ids is None else ids.tolist()


def _facts(
    target: GGUFFile, draft: GGUFFile, tokenizer: Tokenizer, types: Sequence[str], mapping: list[int] | None
) -> Iterator[Fact]:
    config = model_class(target).configure(target)
    yield Fact("architecture", target.architecture, draft.architecture)
    yield Fact(
        "drafter type", "", ", ".join(types) or "unknown", bool(types) and all(name in DRAFTERS for name in types)
    )
    yield Fact("weights", _size(target), _size(draft))
    read_width = _number(draft, "target_hidden_size")
    width = _number(draft, "embedding_length")
    if read_width is not None:
        yield Fact("hidden width read", str(config.n_embd), str(read_width), read_width == config.n_embd)
    if width is not None:
        borrows = not {"token_embd.weight", "output.weight"} <= draft.tensors.keys()
        must_match = borrows and draft.architecture in ("eagle3", "dflash")
        yield Fact("hidden width", str(config.n_embd), str(width), width == config.n_embd if must_match else None)
    taps = draft.metadata.get(f"{draft.architecture}.target_layers", "[int]", [])
    if taps:
        yield Fact("hidden states", f"0 to {config.n_layers}", ", ".join(map(str, taps)), max(taps) <= config.n_layers)
    yield from _vocabulary_facts(draft, tokenizer, types)
    if mapping is not None:
        yield Fact("draft vocabulary", str(tokenizer.n_vocab), f"{len(mapping)} tokens")
    for name in ("token_embd.weight", "output.weight"):
        own = "own" if name in draft.tensors else "borrowed from the target"
        yield Fact(name, "present" if name in target.tensors else "tied", own)
    yield Fact("rope base", _base(target), _base(draft))
    trained = _number(draft, "context_length")
    is_short = trained is not None and trained < config.n_ctx_train
    n_bytes = bytes_per_token(config.layers[: config.n_layers], QuantType.F16, QuantType.F16)
    yield Fact("cache per token", f"{n_bytes} bytes in f16", "")
    yield Fact("context", str(config.n_ctx_train), str(trained or "n/a"), is_doubtful=is_short)
    block = _number(draft, "block_size")
    if block is not None:
        yield Fact("draft block", "", f"{block} slots")


def _vocabulary_facts(draft: GGUFFile, tokenizer: Tokenizer, types: Sequence[str]) -> Iterator[Fact]:
    n_vocab = _number(draft, "vocab_size")
    specs = [DRAFTERS.get(name) for name in types]
    is_compared = any(isinstance(spec, NetworkSpec) and spec.shares_tokens for spec in specs)
    if n_vocab is not None and not is_compared:
        yield Fact("vocabulary", str(tokenizer.n_vocab), str(n_vocab), n_vocab == tokenizer.n_vocab)
    if "tokenizer.ggml.model" not in draft.metadata or "tokenizer.ggml.tokens" not in draft.metadata:
        return
    own = Tokenizer.from_gguf(draft)
    n_differing = len(differing_tokens(tokenizer, own))
    most = 0 if is_compared else MAX_DIFFERING * min(tokenizer.n_vocab, own.n_vocab)
    kinds = Fact("tokenizer", tokenizer.kind, own.kind, tokenizer.kind == own.kind)
    tokens = Fact("tokens", str(tokenizer.n_vocab), f"{own.n_vocab}, {n_differing} differ", not n_differing)
    for fact in (kinds, tokens):
        is_harmless = not fact.is_match and n_differing <= most
        yield replace(fact, is_match=None, is_doubtful=True) if is_harmless else fact


def _notes(draft: GGUFFile, types: Sequence[str], mapping: list[int] | None, text: str | None) -> Iterator[str]:
    if text is not None and mapping is None:
        yield "the drafter has the whole vocabulary, so it covers any text"
    if "tokenizer.chat_template" in draft.metadata:
        yield "the draft file has a chat template; the target's is used"
    for name in types:
        if name in DRAFTERS:
            yield f"{name}: {DRAFTERS[name].summary}"


def _coverage(tokenizer: Tokenizer, mapping: list[int], text: str) -> Coverage:
    known = set(mapping)
    tokens = tokenizer.encode(text, add_special=False, parse_special=False)
    missing = Counter(token for token in tokens if token not in known)
    listed = tuple((tokenizer.decode([token], special=True), n) for token, n in missing.most_common(MAX_MISSING))
    return Coverage(len(tokens), len(tokens) - missing.total(), listed)


def _number(file: GGUFFile, name: str) -> int | None:
    key = f"{file.architecture}.{name}"
    return file.metadata.require(key, "u32") if key in file.metadata else None


def _base(file: GGUFFile) -> str:
    key, scaling = f"{file.architecture}.rope.freq_base", f"{file.architecture}.rope.scaling.type"
    base = f"{file.metadata.require(key, 'f32'):g}" if key in file.metadata else "default"
    return f"{base}, {file.metadata.require(scaling, 'str')}" if scaling in file.metadata else base


def _size(file: GGUFFile) -> str:
    n_params = sum(tensor.n_elements for tensor in file.tensors.values())
    return f"{n_params / 1e6:.1f} M, {file.n_bytes / 2**20:.0f} MiB"
