"""Whether several workers pay: `python tests/benchmarks/workers.py [MODEL.gguf …] [--prompts 24] [--repeats 3]`.

Reports only. Prompts are answered by 1 process with N threads and by N workers with 1 thread, in turn; without a model,
with the demo model. Tokens per second are those between the first and the last finished prompt, so that loading does
not count, and once more over the whole command, where it does; medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def measure(model: str, n_prompts: int, n_predict: int, options: list[str], folder: Path) -> tuple[float, float]:
    """Tokens per second between the first and the last prompt, and over the whole command."""
    prompts, out = folder / "p.jsonl", folder / "out.jsonl"
    prompts.write_text("".join(f"{json.dumps(f'Once upon a time {i} foxes')}\n" for i in range(n_prompts)))
    out.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "specli", "generate", "-m", model, "--prompts", str(prompts), "--stats-json", str(out),
        "--temp", "0", "-n", str(n_predict), "--ignore-eos", "-c", "512", "-lv", "1", "--no-perf",
    ]  # fmt: skip
    begun = time.monotonic()
    ends: list[float] = []
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as process:
        part = Path(f"{out}.part")
        while process.poll() is None:
            n = part.read_bytes().count(b"\n") if part.exists() else 0
            ends += [time.monotonic()] * (n - len(ends))
            time.sleep(0.01)
        if process.returncode:
            raise SystemExit(f"{' '.join(options)}: exit status {process.returncode}")
    n_tokens = (n_prompts - 1) * n_predict
    return n_tokens / max(1e-9, ends[-1] - ends[0]), n_prompts * n_predict / (time.monotonic() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["demo"])
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    n = str(given.workers)
    ways = {f"1 process × {n} threads": ["-t", n], f"{n} workers × 1 thread": ["-t", n, "--workers", n]}
    for model in given.models:
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(given.repeats):
                for way, options in ways.items():
                    found[way].append(measure(model, given.prompts, given.predict, options, Path(folder)))
        print(Path(model).name)
        for way, pairs in found.items():
            steady, whole = (median(values) for values in zip(*pairs, strict=True))
            print(f"  {way:24} {steady:8.0f} tokens/s, {whole:8.0f} with loading")


if __name__ == "__main__":
    main()
