"""Records what llama.cpp b11434 drafts with the pairs of `tests.support.draft_cases`.

    python -m tests.golden.record_drafts BIN_DIRECTORY > tests/golden/drafts.json

BIN_DIRECTORY holds `llama-speculative-simple` of that build. All is float32 on one thread without flash attention; the
verbose log has the three best candidates of every step, with their probabilities among the ten best.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.draft_cases import BLOCK_CASES, CASES, N_MAX, PROMPT, DraftCase

N_PREDICT = 48
CANDIDATE = re.compile(rb"draft candidate +(\d+), pos +(\d+): +(\d+) \( +([\d.]+)\)")
ROUND = re.compile(rb"called impl \S+, hist size = (\d+), call_count = \d+, gen = \d+")


def record(program: Path, case: DraftCase) -> list[dict[str, Any]]:
    """Rounds: tokens in the target's cache, and per step the best candidates as [id, probability]."""
    with tempfile.TemporaryDirectory() as folder:
        target, draft = case.write(Path(folder))
        command = [
            str(program), "-m", str(target), *(["-md", str(draft)] if draft else []), "--spec-type", case.spec_type,
            "--spec-draft-n-max", str(N_MAX), "-n", str(N_PREDICT), "--temp", "0", "-c", "256", "-t", "1", "-td", "1",
            "-ctk", "f32", "-ctv", "f32", "-ctkd", "f32", "-ctvd", "f32", "-fa", "off", "-v", "-p", PROMPT,
        ]  # fmt: skip
        log = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
    rounds: list[dict[str, Any]] = []
    steps: list[list[list[float]]] = [[] for _ in range(N_MAX)]
    for line in log.split(b"\n"):
        if found := CANDIDATE.search(line):
            steps[int(found[2]) - case.first].append([int(found[3]), float(found[4])])
        if found := ROUND.search(line):
            rounds.append({"n_history": int(found[1]), "steps": steps})
            steps = [[] for _ in range(N_MAX)]
    return rounds[: case.n_rounds]


def main() -> None:
    program = Path(sys.argv[1]) / "llama-speculative-simple"
    recorded = {name: record(program, case) for name, case in CASES.items()}
    blocks = {name: record(program, case) for name, case in BLOCK_CASES.items()}
    result = {"engine": "llama.cpp b11434", "n_max": N_MAX, "rounds": recorded, "blocks": blocks}
    json.dump(result, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
