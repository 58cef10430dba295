"""A directory with model files, a clean environment, and an engine made of words."""

import os
from pathlib import Path

import pytest

from tests.cli.scripted import ScriptedOpener


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with `t.gguf` and `d.gguf`, entered; no variable and no config file has a say."""
    for name in [name for name in os.environ if name.startswith(("LLAMA_ARG_", "SPECLI_")) or name == "HF_TOKEN"]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("t.gguf", "d.gguf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def opener(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedOpener:
    """The engine of the commands."""
    scripted = ScriptedOpener()
    monkeypatch.setattr("specli.cli.opener.open_run", scripted)
    return scripted
