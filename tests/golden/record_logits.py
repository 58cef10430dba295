"""Records the likeliest tokens that llama.cpp b11434 sees with the targets of `tests.support.logit_cases`.

    python -m tests.golden.record_logits BIN_DIRECTORY > tests/golden/logits.json

BIN_DIRECTORY holds `llama-server` of that build. All is float32 on one thread without flash attention.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.logit_cases import CASES, LENGTHS, N_BEST, PROMPT
from tests.support.upstream_server import upstream_completions


def record(program: Path, name: str) -> dict[int, list[list[float]]]:
    """Length of the prompt → the best next tokens as [id, log-probability].

    The server tells none for a token whose bytes are no whole character; those lengths are left out.
    """
    options = ("-c", "256", "-ctk", "f32", "-ctv", "f32", "-fa", "off")
    common: dict[str, Any] = {"n_predict": 1, "temperature": 0, "n_probs": N_BEST, "cache_prompt": False}
    bodies = [common | {"prompt": PROMPT[:length]} for length in LENGTHS]
    with tempfile.TemporaryDirectory() as folder:
        path = CASES[name](Path(folder) / "target.gguf")
        results = upstream_completions(program, ("-m", str(path), *options), bodies, Path(folder) / "log")
    return {
        length: [[entry["id"], round(entry["logprob"], 6)] for entry in step["top_logprobs"]]
        for length, result in zip(LENGTHS, results, strict=True)
        for step in result.get("completion_probabilities", ())
    }


def main() -> None:
    program = Path(sys.argv[1]) / "llama-server"
    best = {name: record(program, name) for name in CASES}
    json.dump({"engine": "llama.cpp b11434", "best": best}, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
