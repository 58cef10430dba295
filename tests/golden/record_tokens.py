"""Records the token ids that llama.cpp b11434 gives for the cases of `tests.support.token_cases`.

    python -m tests.golden.record_tokens BIN_DIRECTORY > tests/golden/tokens.json

BIN_DIRECTORY holds `llama-tokenize` of that build.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_vocab import VOCABS
from tests.support.token_cases import NAMES, TEXTS, vocabulary
from tests.support.vocab_files import Pairs


def record(program: Path, pairs: Pairs) -> list[list[int]]:
    """Ids of every text, with BOS where the vocabulary adds it and special tokens recognised."""
    with tempfile.TemporaryDirectory() as folder:
        others = dict.fromkeys(VOCABS["bpe"]().metadata)  # so that llama.cpp's defaults apply
        words, text = tiny_gguf(Path(folder) / "words.gguf", metadata={**others, **pairs}), Path(folder) / "text"
        found = []
        for one in TEXTS:
            text.write_bytes(one.encode())
            command = [program, "-m", words, "-f", text, "--ids", "--log-disable"]
            found.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    return found


def main() -> None:
    program = Path(sys.argv[1]) / "llama-tokenize"
    ids = {name: record(program, vocabulary(name)) for name in NAMES}
    json.dump({"engine": "llama.cpp b11434", "ids": ids}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
