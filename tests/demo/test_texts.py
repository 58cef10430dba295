"""The generated text says what is true, and the same seed says it again."""

import json
import random
import re

import pytest

from specli.demo.train.corpus import conversation
from specli.demo.train.texts import GENERATORS, draw


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


def test_every_function_is_python() -> None:
    rng = random.Random(4)
    for _ in range(200):
        _, answer = GENERATORS["code"](rng)
        compile(answer.removeprefix("```python\n").removesuffix("```"), "answer", "exec")


def test_a_conversation_has_the_form_of_the_template() -> None:
    _, exchange = draw(random.Random(5))
    text = conversation(exchange)
    assert text.startswith("<|im_start|>user\n" + exchange[0] + "<|im_end|>\n<|im_start|>assistant\n")
    assert text.endswith(exchange[1] + "<|im_end|>\n")
