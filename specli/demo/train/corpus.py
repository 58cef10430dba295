"""The training text: Python's standard library, its language reference, and exchanges written by `texts`.

The library and its documentation are under the Python Software Foundation licence, see specli/demo/data/LICENSE.md.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from specli.demo.train.texts import Exchange, draw

END = "<|endoftext|>"
TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
MASK = "<|mask|>"
SPECIALS = (END, TURN, END_OF_TURN, MASK)

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Chat template of the demo target: ChatML without a system message of its own."""

PIECE_CHARACTERS = 1600
"""About one training sequence of library text."""

_SKIPPED = {
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "encodings",
    "turtledemo",
    "distutils",
    "__pycache__",
}


def prompt(question: str) -> str:
    """A question as the chat template writes it."""
    return f"{TURN}user\n{question}{END_OF_TURN}\n{TURN}assistant\n"


def conversation(exchange: Exchange) -> str:
    """A question with its answer, as the chat template writes them."""
    question, answer = exchange
    return f"{prompt(question)}{answer}{END_OF_TURN}\n"


def library_files(root: Path | None = None) -> list[Path]:
    """Modules of the running interpreter's standard library, without tests and tables, by name."""
    root = root or Path(os.__file__).parent
    files = (path for path in root.rglob("*.py") if not _SKIPPED.intersection(path.relative_to(root).parts))
    return sorted(path for path in files if 500 < path.stat().st_size < 150_000)


def library_pieces(files: list[Path]) -> Iterator[str]:
    """Runs of whole lines, about PIECE_CHARACTERS each."""
    for path in files:
        lines: list[str] = []
        size = 0
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True):
            lines.append(line)
            size += len(line)
            if size >= PIECE_CHARACTERS and not line.strip():
                yield "".join(lines)
                lines, size = [], 0
        yield "".join(lines) + END


def reference_pieces() -> Iterator[str]:
    """Python's language reference, one topic each."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield topics[name] + END


def documents(seed: int, n_generated: int, share_of_library: float, kinds: Sequence[str]) -> list[str]:
    """The shuffled training text.

    Args:
        seed: Everything drawn depends on it.
        n_generated: Number of generated exchanges; one in four without the chat form.
        share_of_library: Part of the library's pieces to use.
        kinds: Kinds of exchanges.
    """
    rng = random.Random(seed)
    pieces = [*library_pieces(library_files()), *reference_pieces()]
    rng.shuffle(pieces)
    texts = pieces[: int(len(pieces) * share_of_library)]
    for _ in range(n_generated):
        _, exchange = draw(rng, kinds)
        texts.append(conversation(exchange) if rng.random() < 0.8 else exchange[1] + END)
    rng.shuffle(texts)
    return texts
