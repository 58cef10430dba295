"""Checks the one line a broken file is refused with."""

from pathlib import Path

import pytest

from specli.errors import FormatError, SpecliError
from specli.gguf.file import GGUFFile


def refusal(path: Path, content: bytes, kind: type[SpecliError] = FormatError) -> str:
    """The error for this content, without the path and colon it must begin with."""
    path.write_bytes(content)
    with pytest.raises(kind) as caught:
        GGUFFile.open(path)
    begin, rest = str(caught.value)[: len(f"{path}: ")], str(caught.value)[len(f"{path}: ") :]
    assert begin == f"{path}: "
    assert "\n" not in rest
    return rest
