"""What drafters would have got on a given text: the text, not the target, decides which draft tokens stand.

As llama.cpp's `llama-lookup-stats` does for one drafter. A drafter without a network needs no model at all: it reads
the tokens. One with a network is shown the target's hidden states of the text, so the target runs along.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specli.drafters.base import DraftRequest, TargetBatch
from specli.drafters.chain import DrafterChain
from specli.drafters.stats import DrafterStats, add, ratio
from specli.engine.config import RunConfig
from specli.engine.load import Run
from specli.engine.loop import Engine, Part
from specli.errors import FormatError, IncompatibleError
from specli.files import read_text

SCHEMA = "specli.replay/1"
RECORD_SUFFIXES = (".json", ".jsonl")  # of files that hold records; any other is plain text
SLOT = 0  # of the one sequence that is replayed
BATCH = 64  # tokens of a prompt shown at once; every target has room for as many
Feed = Callable[[Sequence[int], int], None]
"""Shows the drafters the tokens that begin at a position; whatever was there is overwritten."""


@dataclass
class Replay:
    """The outcome for one choice of drafters.

    Attributes:
        name: Which.
        n_tokens: Tokens of the text that could have been drafted.
        n_rounds: Target forwards that speculative decoding would have needed for them.
        drafters: Counters, in priority order.
        rows: Rows of a verification → how many rounds had it.
    """

    name: str
    n_tokens: int
    n_rounds: int
    drafters: tuple[DrafterStats, ...]
    rows: dict[int, int]

    def add(self, other: Replay) -> None:
        """Adds what another text brought."""
        self.n_tokens += other.n_tokens
        self.n_rounds += other.n_rounds
        for rows, count in other.rows.items():
            self.rows[rows] = self.rows.get(rows, 0) + count
        if not self.drafters:
            self.drafters = tuple(DrafterStats(stats.name) for stats in other.drafters)
        for mine, theirs in zip(self.drafters, other.drafters, strict=True):
            add(mine, theirs)

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens per target forward; None for a text without tokens."""
        return ratio(self.n_tokens, self.n_rounds)

    @property
    def coverage(self) -> float | None:
        """Share of the tokens that drafts would have brought."""
        return ratio(sum(stats.acc_tokens for stats in self.drafters), self.n_tokens)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "n_tokens": self.n_tokens,
            "n_rounds": self.n_rounds,
            "tokens_per_round": self.tokens_per_round,
            "coverage": self.coverage,
            "drafters": [
                {**asdict(stats), "acceptance": stats.acceptance, "mean_acc_len": stats.mean_acc_len}
                for stats in self.drafters
            ],
        }


def tokens_only(chain: DrafterChain) -> Feed:
    """Feeds drafters that read no hidden states."""

    def feed(tokens: Sequence[int], position: int) -> None:
        ids = np.asarray(tokens, dtype=np.int32)
        chain.process([TargetBatch(SLOT, ids, np.arange(position, position + len(ids), dtype=np.int32))])

    return feed


def with_target(engine: Engine) -> Feed:
    """Feeds the engine's drafters what its target makes of the tokens."""

    def feed(tokens: Sequence[int], position: int) -> None:
        slot = engine.slots[SLOT]
        engine.truncate(slot, position)
        parts = [Part(slot, list(tokens), 0)]
        engine.extend(parts, engine.evaluate(parts).features)

    return feed


def replay_texts(run: Run, config: RunConfig, texts: Sequence[ReplayText], name: str) -> Replay:
    """Replays texts one after the other, with fresh tables for each; the target is loaded only if a network drafts.

    Where the target runs along, a text longer than the context is cut into pieces, each of them a text of its own.

    Raises:
        SpecliError: Drafters do not fit the target, or a token is none of it.
    """
    plan = run.loader.check(config)
    drafters = run.binding.build([config], keeps_files=True)[0] if plan.networks else None
    merged = Replay(name, 0, 0, (), {})
    for text in texts:
        tokens = list(text.tokens) or run.encode(text.text)
        bad = next((token for token in tokens if not 0 <= token < run.tokenizer.n_vocab), None)
        if bad is not None:
            raise IncompatibleError(f"{text.name}: token {bad} is outside the vocabulary of {run.tokenizer.n_vocab}")
        size = len(tokens) if drafters is None else run.engine.n_ctx - drafters.chain.max_draft - 1
        for start in range(0, len(tokens), size):
            piece = tokens[start : start + size]
            n_prompt = text.n_prompt if start == 0 else 1
            if drafters is None:
                chain = DrafterChain(plan.tables())
                feed = tokens_only(chain)
            else:
                drafters.renew()
                run.binding.use(drafters)
                chain, feed = drafters.chain, with_target(run.engine)
            merged.add(replay(chain, piece, n_prompt=n_prompt, feed=feed))
    return merged


def replay(
    chain: DrafterChain, tokens: Sequence[int], *, n_prompt: int, feed: Feed, name: str = "", batch: int = BATCH
) -> Replay:
    """Walks through `tokens`, the first `n_prompt` of them as the prompt; at least one.

    Each round drafts behind the newest token, compares with the text, and goes on behind the first token that differs:
    exactly what greedy decoding would do if the target wrote this text.
    """
    n_prompt = max(1, n_prompt)
    for at in range(0, n_prompt, batch):
        feed(tokens[at : min(at + batch, n_prompt)], at)
    chain.begin(SLOT, tokens[:n_prompt])
    rows: dict[int, int] = {}
    history = list(tokens[:n_prompt])
    end, n_rounds = n_prompt, 0  # the token at `end` is sampled, not yet evaluated
    while end < len(tokens) - 1:
        most = len(tokens) - end - 2
        drafted: list[int] = []
        if most > 0:
            [(draft, _)] = chain.draft([DraftRequest(SLOT, history, tokens[end], most)])
            drafted = draft.tokens
        n_accepted = next((i for i, token in enumerate(drafted) if token != tokens[end + 1 + i]), len(drafted))
        feed(tokens[end : end + 1 + n_accepted], end)
        if drafted:
            chain.accept(SLOT, n_accepted)
        rows[len(drafted) + 1] = rows.get(len(drafted) + 1, 0) + 1
        history += tokens[end : end + 1 + n_accepted]
        end += 1 + n_accepted
        n_rounds += 1
    return Replay(name, max(0, len(tokens) - n_prompt - 1), n_rounds, chain.stats, rows)


@dataclass(frozen=True)
class ReplayText:
    """A text to replay.

    Attributes:
        name: Where it is from.
        text: As text, or nothing if it is given as tokens.
        tokens: As tokens, prompt first, or nothing.
        n_prompt: Tokens of the prompt.
    """

    name: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    n_prompt: int = 1


def read_replay(path: Path) -> list[ReplayText]:
    """The texts of a file: JSON Lines of `specli generate --json` (their tokens count), else one plain text.

    Raises:
        FormatError: The file cannot be read, or a record lacks its tokens.
    """
    content = read_text(path)
    if path.suffix not in RECORD_SUFFIXES:
        if not content.strip():
            raise FormatError(f"{path}: no text in it")
        return [ReplayText(str(path), text=content)]
    texts = []
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            texts.append(_read_record(f"{path}: line {number}", line))
    if not texts:
        raise FormatError(f"{path}: no records in it")
    return texts


def _read_record(where: str, line: str) -> ReplayText:
    try:
        record = json.loads(line)
        prompt, generated = record["prompt"]["ids"], record["tokens"]
        tokens = tuple(int(token) for token in (*prompt, *generated))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FormatError(f"{where}: not a record of specli generate --json (schema specli.run/1)") from None
    if not prompt:
        raise FormatError(f"{where}: the prompt has no tokens")
    return ReplayText(where, tokens=tokens, n_prompt=len(prompt))
