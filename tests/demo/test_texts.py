"""The generated text says what is true, and the same seed says it again."""

import json
import random
import re
from typing import Any

import pytest

from specli.demo.train.corpus import conversation
from specli.demo.train.texts import FIRST_KINDS, GENERATORS, draw


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_seed_gives_the_same_text(kind: str) -> None:
    first, second = (GENERATORS[kind](random.Random(3)) for _ in range(2))
    assert first == second


def test_every_record_is_json_with_the_words_of_its_question() -> None:
    rng = random.Random(1)
    for _ in range(200):
        question, answer = GENERATORS["json"](rng)
        value = json.loads(answer)
        city = value.get("city") if isinstance(value, dict) else value[0]["city"]
        assert city is None or city in question


def test_every_sum_is_right() -> None:
    rng = random.Random(2)
    for _ in range(300):
        _, answer = GENERATORS["arithmetic"](rng)
        for a, sign, b, result in re.findall(r"(\d+) ([+x-]) (\d+) = (\d+)", answer):
            x, y = int(a), int(b)
            assert {"+": x + y, "-": x - y, "x": x * y}[sign] == int(result)


@pytest.mark.parametrize("kind", ["code", "program"])
def test_every_function_is_python(kind: str) -> None:
    rng = random.Random(4)
    for _ in range(300):
        _, answer = GENERATORS[kind](rng)
        compile(answer.removeprefix("```python\n").removesuffix("```"), "answer", "exec")


def test_a_selection_computes_what_its_question_says() -> None:
    rng = random.Random(7)
    found = 0
    for _ in range(6000):
        question, answer = GENERATORS["program"](rng)
        asked = re.search(r"returns the sum of the squares of the odd (\w+)\.", question)
        if asked:
            space: dict[str, Any] = {}
            exec(answer.removeprefix("```python\n").removesuffix("```"), space)
            (function,) = (value for name, value in space.items() if not name.startswith("__"))
            assert function([1, 2, 3]) == 10
            found += 1
    assert found


def test_what_is_asked_about_a_text_is_in_it() -> None:
    rng = random.Random(8)
    for _ in range(200):
        text, answer = GENERATORS["reading"](rng)
        assert answer.removesuffix(".").split()[-1] in re.findall(r"\w+", text)


def test_a_phase_draws_its_kinds_alone() -> None:
    rng = random.Random(9)
    assert {draw(rng, FIRST_KINDS)[0] for _ in range(100)} == set(FIRST_KINDS)


def test_a_conversation_has_the_form_of_the_template() -> None:
    _, exchange = draw(random.Random(5))
    text = conversation(exchange)
    assert text.startswith("<|im_start|>user\n" + exchange[0] + "<|im_end|>\n<|im_start|>assistant\n")
    assert text.endswith(exchange[1] + "<|im_end|>\n")
