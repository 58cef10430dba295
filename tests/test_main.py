"""The entry point."""

import pytest

import specli.cli
from specli.__main__ import main


def interrupt() -> int:
    raise KeyboardInterrupt


def test_interrupt_while_modules_are_read_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specli.cli, "main", interrupt)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
