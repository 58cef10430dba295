"""llama.cpp's own server tests against `specli serve` (SPECLI_LLAMA_CPP_SOURCE, its source tree; see peer/)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_vocab import VOCABS

pytest.importorskip("requests", reason="llama.cpp's tests need requests")
pytest.importorskip("filelock", reason="llama.cpp's tests need filelock")
pytest.importorskip("openai", reason="llama.cpp's tests need openai")

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).parent / "peer" / "expected.txt"
BYTES = slice(3, 259)  # tokens that are a byte each
RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (unit/.*?)(?: - .*)?$", re.MULTILINE)

pytestmark = pytest.mark.slow


def expected() -> list[str]:
    """Ids of the tests that must pass."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def stand_in(path: Path, seed: int) -> Path:
    """A model whose greedy text is words, not bytes, so that every token has a text of its own."""
    rng = np.random.default_rng(seed)
    head = rng.standard_normal((VOCABS["spm"]().size, 64)).astype(np.float32)
    head[:3] = head[BYTES] = head[-2:] = 0
    return tiny_gguf(path, vocab="spm", context=4096, seed=seed, tensors={"output.weight": head})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tests, with templates where they look for them."""
    source = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not source:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    copy = tmp_path / "llama.cpp" / "tools" / "server" / "tests"
    shutil.copytree(Path(source) / "tools" / "server" / "tests", copy)
    (tmp_path / "llama.cpp" / "models").symlink_to(Path(source).resolve() / "models")
    return copy


@pytest.mark.timeout(1800)
def test_tests_of_llama_cpp(tree: Path, tmp_path: Path) -> None:
    models, stubs, program = tmp_path / "models", tmp_path / "stubs", tmp_path / "llama-server"
    models.mkdir()
    stubs.mkdir()
    target, draft = stand_in(models / "target.gguf", 0), stand_in(models / "draft.gguf", 1)
    (stubs / "wget.py").write_text(
        "import pathlib, shutil\n"
        "def download(url, out):\n"
        "    pathlib.Path(out).parent.mkdir(exist_ok=True)\n"
        f"    shutil.copy({str(draft)!r}, out)\n"
    )
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.serve.peer.program {target} "$@"\n'
    )
    program.chmod(0o755)
    passing = expected()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")},
        "PYTHONPATH": str(stubs),
        "LLAMA_SERVER_BIN_PATH": str(program),
        "LLAMA_CACHE": str(tmp_path / "cache"),
        "PORT": str(20000 + os.getpid() % 20000),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "--tb=short", "-m", "not slow"]
    done = subprocess.run(
        [*command, *passing], cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=1700
    )
    (tmp_path / "output.txt").write_text(done.stdout)
    results = {name: result for result, name in RESULT.findall(done.stdout) if result != "SKIPPED"}
    wrong = [name for name in passing if results.get(name) != "PASSED"]
    assert not wrong, f"{tmp_path / 'output.txt'} tells why"
