"""Fixtures that find files outside the repository, or skip with the reason."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# The same examples in every run, and no deadline on a slow machine;
# `--hypothesis-profile=default` searches for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository with what is too large for it, or not free to be passed on."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("no ../shared beside the repository: tests/golden/README.md says what it holds")
    return path


@pytest.fixture(scope="session")
def programs() -> Path:
    """A folder of llama.cpp's programs."""
    folder = os.environ.get("SPECLI_LLAMA_CPP")
    if not folder:
        pytest.skip("SPECLI_LLAMA_CPP is not set to a folder with llama.cpp's programs")
    return Path(folder)


def _model(name: str) -> Path:
    folder = os.environ.get("SPECLI_MODELS")
    if not folder:
        pytest.skip("SPECLI_MODELS is not set: tests/fetch_models.sh DIR fetches the models")
    path = Path(folder) / name
    if not path.is_file():
        pytest.skip(f"{name} is not in SPECLI_MODELS={folder}")
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return _model("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M, Q4_K_M."""
    return _model("gemma-3-270m-q4_k_m.gguf")
