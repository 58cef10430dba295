"""llama.cpp's programs load and run what is written; they are looked for in SPECLI_LLAMA_CPP (a folder of binaries)."""

import subprocess
from pathlib import Path

import pytest

from specli.convert import ConvertConfig, convert
from tests.support.checkpoints import CASES

pytestmark = pytest.mark.slow
SPEC_TYPES = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "dspark": "draft-dspark", "gemma4": "draft-mtp"}


def made(tmp_path: Path, name: str) -> Path:
    case = CASES[name]
    case.write(tmp_path / name)
    target = None
    if case.target is not None:
        target = tmp_path / case.target
        CASES[case.target].write(target)
    request = ConvertConfig(tmp_path / name, outfile=tmp_path / f"{name}.gguf", target=target, mtp=case.mtp)
    return convert(request).paths[0]


def run(program: Path, *arguments: str) -> None:
    common = ("-p", "the thin", "-n", "4", "--temp", "0", "-t", "1", "-c", "64")
    done = subprocess.run([program, *arguments, *common], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]


WITHOUT = {"gemma4-assistant", "phi3", "phi3-long"}  # no target; named Phi-3, llama.cpp wants the real model's tokens
TARGETS = [n for n, case in CASES.items() if case.target is None and case.mtp != "only" and n not in WITHOUT]


@pytest.mark.parametrize("name", TARGETS)
def test_target_runs(programs: Path, tmp_path: Path, name: str) -> None:
    run(programs / "llama-completion", "-m", str(made(tmp_path, name)), "-no-cnv")


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.target is not None and n != "eagle3-31"])
def test_drafter_drafts(programs: Path, tmp_path: Path, name: str) -> None:
    target, draft = made(tmp_path, CASES[name].target or ""), made(tmp_path, name)
    kind = SPEC_TYPES[name.split("-")[0].removesuffix("2")]
    arguments = ("-m", str(target), "-md", str(draft), "--spec-type", kind, "--spec-draft-n-max", "3")
    run(programs / "llama-speculative-simple", *arguments)


@pytest.mark.parametrize("family", ["glm4-moe", "glm4-moe-lite", "qwen35"])
def test_mtp_only_file_drafts(programs: Path, tmp_path: Path, family: str) -> None:
    target, draft = made(tmp_path, f"{family}-trunk"), made(tmp_path, f"{family}-mtp")
    run(programs / "llama-speculative-simple", "-m", str(target), "-md", str(draft), "--spec-type", "draft-mtp")
