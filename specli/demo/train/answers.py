"""What drafters learn from: the target's own greedy answers to prompts, and its features on them.

A drafter has to foresee what the target says, not what the corpus says: where a story may go on in four ways, the
target always takes the same one.
"""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from specli.demo.train.corpus import library_files, library_pieces, prompt
from specli.demo.train.measure import generate
from specli.demo.train.network import Qwen3
from specli.demo.train.texts import GENERATORS, draw

N_EXCHANGES, N_LIBRARY = 3600, 300
"""Prompts of the generated kinds, and beginnings of library text."""
N_HELD_OUT, N_SPARED = 8, 120
"""Prompts of each kind for the evaluation, and at most for DSpark's confidence head."""
LONGEST, PROMPT_TOKENS = 160, 48
"""Most tokens of an answer, and tokens of a library prompt."""
TAPS = (3, 7, 11)
"""Boundaries of the target that drafters look at."""


@dataclass
class Answer:
    """One prompt with the target's greedy answer."""

    kind: str
    prompt: str
    n_prompt: int
    tokens: list[int]


def is_held_out(text: str) -> bool:
    """Whether a prompt is kept for the evaluation: one in eight, by its checksum."""
    return zlib.crc32(text.encode()) % 8 == 0


def questions(seed: int, n: int) -> list[tuple[str, str]]:
    """Kind and prompt of up to `n` different exchanges for training."""
    rng = random.Random(seed)
    found: dict[str, str] = {}
    for _ in range(4 * n):
        kind, (question, _) = draw(rng)
        text = prompt(question)
        if not is_held_out(text):
            found.setdefault(text, kind)
    return [(kind, text) for text, kind in list(found.items())[:n]]


def library_starts(*, held_out: bool) -> list[str]:
    """Beginnings of the library's longer pieces."""
    starts = [piece[:400] for piece in library_pieces(library_files()) if len(piece) > 1000]
    return [start for start in starts if is_held_out(start) is held_out]


def prompts_of_each_kind(seed: int, n: int, *, held_out: bool) -> list[tuple[str, str]]:
    """Kind and prompt of `n` different prompts of each kind, fewer where there are not so many."""
    rng = random.Random(seed)
    chosen: list[tuple[str, str]] = []
    for kind, exchange in GENERATORS.items():
        drawn = (prompt(exchange(rng)[0]) for _ in range(5000))
        different = dict.fromkeys(text for text in drawn if is_held_out(text) is held_out)
        chosen += [(kind, text) for text in list(different)[:n]]
    return chosen + [("library", text) for text in rng.sample(library_starts(held_out=held_out), n)]


def held_out_prompts() -> list[tuple[str, str]]:
    """Kind and prompt of the evaluation, which no drafter has seen answered."""
    return prompts_of_each_kind(99, N_HELD_OUT, held_out=True)


def spared_prompts() -> list[tuple[str, str]]:
    """Kind and prompt for DSpark's confidence head: neither held out nor trained on."""
    known = {text for _, text in training_prompts()}
    drawn = prompts_of_each_kind(33, N_SPARED, held_out=False)
    return [(kind, text) for kind, text in drawn if text not in known]


def training_prompts() -> list[tuple[str, str]]:
    """Kind and prompt of everything the target answers for training."""
    starts = random.Random(32).sample(library_starts(held_out=False), N_LIBRARY)
    return questions(31, N_EXCHANGES) + [("library", text) for text in starts]


def answer_all(model: Path, tokenizer: Tokenizer, prompts: list[tuple[str, str]], n_at_once: int) -> list[Answer]:
    """The engine's greedy answers, in the order of the prompts, made by `n_at_once` processes of one thread."""
    encoded = [tokenizer.encode(text).ids for _, text in prompts]
    encoded = [
        ids[:PROMPT_TOKENS] if kind == "library" else ids for ids, (kind, _) in zip(encoded, prompts, strict=True)
    ]
    texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in encoded]
    share = -(-len(texts) // n_at_once)

    def part(start: int) -> list[list[int]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "prompts.jsonl"
            path.write_text("\n".join(json.dumps({"prompt": text}) for text in texts[start : start + share]))
            return [answer["tokens"] for answer in generate(path, LONGEST, "-m", str(model), "-t", "1")]

    with ThreadPoolExecutor(n_at_once) as pool:
        tokens = [row for rows in pool.map(part, range(0, len(texts), share)) for row in rows]
    again = [tokenizer.encode(text).ids for text in texts]
    return [
        Answer(kind, text, len(ids), ids + row) for (kind, text), ids, row in zip(prompts, again, tokens, strict=True)
    ]


def save(path: Path, answers: list[Answer]) -> None:
    """Writes answers to one file."""
    torch.save([vars(answer) for answer in answers], path)


def load(path: Path) -> list[Answer]:
    """Reads what `save` wrote."""
    return [Answer(**fields) for fields in torch.load(path, weights_only=True)]


@dataclass
class Batch:
    """Sequences of about one length, padded on the right.

    Attributes:
        tokens: `[B, S]` int64.
        is_answer: `[B, S]` bool, tokens the target wrote.
        features: `[B, S, len(TAPS) · E]` bfloat16, the tapped boundaries.
        hidden: `[B, S, E]` bfloat16, the target's hidden state after its final norm.
    """

    tokens: Tensor
    is_answer: Tensor
    features: Tensor
    hidden: Tensor


@torch.no_grad()
def with_features(target: Qwen3, answers: list[Answer]) -> Batch:
    """Runs the target over a batch."""
    width = max(len(answer.tokens) for answer in answers)
    tokens = torch.zeros(len(answers), width, dtype=torch.int64)
    is_answer = torch.zeros(len(answers), width, dtype=torch.bool)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer.tokens)] = torch.tensor(answer.tokens)
        is_answer[row, answer.n_prompt : len(answer.tokens)] = True
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, features = target(tokens, taps=TAPS)
    return Batch(tokens, is_answer, features.bfloat16(), hidden.bfloat16())


def batches(target: Qwen3, answers: list[Answer], size_tokens: int, seed: int) -> Iterator[Batch]:
    """Endless batches of about `size_tokens` tokens, in a new order each time through; features are made once."""
    rng = random.Random(seed)
    groups: list[list[Answer]] = [[]]
    for answer in sorted(answers, key=lambda a: len(a.tokens)):
        if (len(groups[-1]) + 1) * len(answer.tokens) > size_tokens:
            groups.append([])
        groups[-1].append(answer)
    made: dict[int, Batch] = {}
    order = list(range(len(groups)))
    while True:
        rng.shuffle(order)
        for index in order:
            if index not in made:
                made[index] = with_features(target, groups[index])
            yield made[index]
