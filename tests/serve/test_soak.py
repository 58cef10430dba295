"""A short run of the soak, whose figures `python -m tests.benchmarks.soak` gives for a longer one."""

import pytest

from tests.benchmarks.soak import DEFAULT, soak

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")


@pytest.mark.slow
def test_no_text_is_wrong_and_no_slot_lost() -> None:
    found = soak(15, 6, list(DEFAULT))
    assert (found["wrong"], found["failed"], found["busy_slots"]) == (0, 0, 0)
    assert found["right"] > 0
    assert found["left"] > 0
