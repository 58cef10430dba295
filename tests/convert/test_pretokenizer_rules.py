"""Newly trained vocabularies, whose hash nobody knows, are recognised by the rules they split with."""

import copy
from typing import Any

import pytest

from specli.convert.pretokenizers import SPLITS, recognise_rules

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
QWEN2 = {"type": "Split", "pattern": {"Regex": next(iter(SPLITS))}, "behavior": "Isolated", "invert": False}
DIGITS = {"type": "Digits", "individual_digits": True}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (sequence(QWEN2, BYTES), "qwen2"),
        (sequence(DIGITS, BYTES | {"use_regex": True}), "smollm"),
        (BYTES | {"use_regex": True}, "gpt-2"),
        (BYTES, None),
        (sequence(QWEN2, BYTES | {"use_regex": True}), None),
        (sequence(QWEN2, BYTES | {"add_prefix_space": True}), None),
        (sequence(QWEN2 | {"behavior": "Removed"}, BYTES), None),
        (sequence(QWEN2 | {"pattern": {"Regex": r"\w+"}}, BYTES), None),
        (sequence(DIGITS, QWEN2, BYTES), None),
        (sequence(BYTES, QWEN2), None),
        ({}, None),
    ],
)
def test_rules_are_named_only_when_all_of_them_are_known(rules: dict[str, Any], name: str | None) -> None:
    assert recognise_rules(copy.deepcopy(rules)) == name
