"""Acceptance and speed of the shipped files in the engine, on the held-out prompts; the numbers of `MODELS`.

python -m specli.demo.train.measure [--tokens N] [--every K] [SPEC_TYPE…]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from specli.demo import DATA, MODELS, DemoModel, resolve

Answers = list[dict[str, Any]]
"""Objects of schema specli.run/1, one per prompt."""


def generate(prompts: Path, n_tokens: int, *options: str) -> Answers:
    """Greedy answers of `specli generate`, with drafts as long as configured."""
    command = [sys.executable, "-m", "specli", "generate", "--prompts", str(prompts), "-n", str(n_tokens), *options]
    fixed = ["--temp", "0", "--no-spec-adaptive", "--json"]
    done = subprocess.run([*command, *fixed], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def mean_lengths(answers: Answers, kinds: list[str]) -> dict[str, float]:
    """Tokens per verification, of all prompts and of each kind; the first token comes with the prompt, without one."""
    tokens: dict[str, int] = defaultdict(int)
    rounds: dict[str, int] = defaultdict(int)
    for answer, kind in zip(answers, kinds, strict=True):
        timings = answer["timings"]
        for name in ("all", kind):
            tokens[name] += timings["predicted_n"] - 1
            rounds[name] += timings["predicted_n"] - 1 - timings["draft_n_accepted"]
    return {name: tokens[name] / max(n, 1) for name, n in rounds.items()}


def tokens_per_second(answers: Answers) -> float:
    """Generated tokens over the time they took, prompts excluded."""
    timings = [answer["timings"] for answer in answers]
    n_tokens, time_ms = (sum(t[name] for t in timings) for name in ("predicted_n", "predicted_ms"))
    return 1000 * float(n_tokens) / float(time_ms)


def measure(model: DemoModel, prompts: Path, kinds: list[str], n_tokens: int) -> str:
    """One line about a drafter."""
    assert model.spec_type is not None
    target = ("-m", str(resolve(model.name)))
    draft = () if model.is_target else ("-md", str(model.path))
    plain = generate(prompts, n_tokens, *target)
    settings = ("--spec-type", model.spec_type, "--spec-draft-n-max", str(model.n_max))
    drafted = generate(prompts, n_tokens, *target, *draft, *settings)
    same = [answer["tokens"] for answer in plain] == [answer["tokens"] for answer in drafted]
    lengths = mean_lengths(drafted, kinds)
    speeds = tokens_per_second(plain), tokens_per_second(drafted)
    text = ", ".join(f"{name} {length:.2f}" for name, length in sorted(lengths.items()))
    equal = "same text" if same else "DIFFERENT TEXT"
    return (
        f"{model.spec_type} n-max {model.n_max}: {text}; {speeds[0]:.0f} → {speeds[1]:.0f} tokens/s, "
        f"{speeds[1] / speeds[0]:.2f} ×; {equal}"
    )


def main() -> None:
    """Measures the named drafters, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", metavar="SPEC_TYPE")
    parser.add_argument("--tokens", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--every", type=int, default=1, help="use only every K-th prompt")
    arguments = parser.parse_args()
    lines = (DATA / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[:: arguments.every]
    kinds = [json.loads(line)["id"] for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text("\n".join(lines), encoding="utf-8")
        for model in MODELS:
            if model.spec_type and (not arguments.types or model.spec_type in arguments.types):
                print(measure(model, prompts, kinds, arguments.tokens), flush=True)


if __name__ == "__main__":
    main()
