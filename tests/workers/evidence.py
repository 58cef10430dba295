"""The long checks of workers: `python -m tests.workers.evidence [same] [killed] [--prompts 200] [--runs 50] [--ray]`.

`same` compares 1, 2 and 4 workers, and with `--ray` two Ray actors, with one process: for each drafter of the demo
model all records (tokens, texts, log-probabilities, acceptance counts) have to be equal. `killed` kills workers and the
run itself at random moments, goes on with `--resume` until it is done, and compares the same; every run with another
seed. A line per comparison, exit status 1 if one fails. Short versions: `test_side_by_side.py` and `test_cluster.py`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.workers import test_side_by_side as short

DRAFTERS = {
    **{name: ("-md", "demo", "--spec-type", name) for name in short.NETWORKS},
    **{name: ("--spec-type", name) for name in short.TABLES.split(",")},
    "draft-mtp": ("-m", "demo-mtp", "--spec-type", "draft-mtp"),
}


def same(folder: Path, places: list[str]) -> bool:
    """Compares all places with one process, drafter by drafter."""
    is_same = True
    for name, options in DRAFTERS.items():
        expected = short.compared(folder / name, *options, "--temp", "0")
        assert len(expected[0]) == short.N_PROMPTS
        for number, place in enumerate(places):
            begun = time.monotonic()
            found = short.compared(folder / f"{name} {number}", *options, "--temp", "0", "--workers", place)
            is_same &= found == expected
            verdict = "equal" if found == expected else "DIFFERENT"
            print(f"{name:14} --workers {place:8} {len(expected[0])} prompts: {verdict}"
                  f" ({time.monotonic() - begun:.1f} s)", flush=True)  # fmt: skip
    return is_same


def killed(folder: Path, n_runs: int) -> bool:
    """Kills at random, and says after each run whether every line is there once and equal."""
    is_same = True
    for seed in range(n_runs):
        (folder / str(seed)).mkdir()
        try:
            n_workers, n_runs_killed = short.killed_at_random(folder / str(seed), 1000 + seed)
            verdict = f"every line once and equal; killed {n_workers} workers, the run {n_runs_killed} times"
        except AssertionError as error:
            is_same, verdict = False, f"FAILED: {str(error)[-300:]}"
        print(f"killed, run {seed + 1} of {n_runs}: {verdict}", flush=True)
    return is_same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=("same", "killed"), default=("same", "killed"))
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--ray", action="store_true", help="two Ray actors, too")
    given = parser.parse_args()
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        if "same" in given.what:
            short.N_PROMPTS = given.prompts
            is_good &= same(Path(folder), ["1", "2", "4", *(["ray,2"] if given.ray else [])])
        if "killed" in given.what:
            short.N_PROMPTS = short.LONG
            is_good &= killed(Path(folder), given.runs)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
