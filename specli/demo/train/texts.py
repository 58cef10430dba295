"""Text written by small grammars: what the demo target learns to say besides Python.

Each generator draws one question and its answer. The wording is ours, so the texts may be redistributed with the
package. They are predictable on purpose, each kind to another degree: arithmetic and records copy from the question,
stories choose freely.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from specli.demo.train.facts import (
    CAPITALS,
    CREATURES,
    DEFINITIONS,
    FEELINGS,
    FUNCTIONS,
    JOBS,
    NAMES,
    NOUNS,
    OPPOSITES,
    PLACES,
    STORY,
    SURNAMES,
    THINGS,
)

Exchange = tuple[str, str]
"""A question and its answer."""


def invented_name(rng: random.Random) -> str:
    """A name nobody has, such as "Tavilo": it can only be copied, never guessed."""
    syllables = (rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3)))
    return "".join(syllables).capitalize()


def names(rng: random.Random, n: int) -> list[str]:
    """Different first names, every other one invented."""
    return [invented_name(rng) if rng.random() < 0.5 else name for name in rng.sample(NAMES, n)]


def repetition(rng: random.Random) -> Exchange:
    """Some words to say again, as they are or spelt in capitals."""
    words = [rng.choice((invented_name(rng).lower(), rng.choice(THINGS + CREATURES))) for _ in range(rng.randint(3, 9))]
    text = " ".join(words)
    return rng.choice(
        ((f"Repeat the words: {text}.", f"{text}."), (f"Write the words as a list: {text}.", "- " + "\n- ".join(words)))
    )


def arithmetic(rng: random.Random) -> Exchange:
    """A sum, a product, a count or a multiplication table."""
    a, b, n = rng.randint(2, 20), rng.randint(2, 20), rng.randint(2, 9)
    step = rng.choice((1, 1, 2, 3, 5, 10))
    numbers = [a + step * k for k in range(rng.randint(5, 12))]
    by = "" if step == 1 else f" in steps of {step}"
    rows = "\n".join(f"{k} x {n} = {k * n}" for k in range(1, 11))
    total = a + b
    return rng.choice(
        (
            (f"What is {a} + {b}?", f"{a} + {b} = {total}."),
            (f"What is {total} - {a}?", f"{total} - {a} = {b}."),
            (f"What is {n} times {b % 10 + 1}?", f"{n} x {b % 10 + 1} = {n * (b % 10 + 1)}."),
            (f"Count from {numbers[0]} to {numbers[-1]}{by}.", ", ".join(map(str, numbers)) + "."),
            (f"Write the multiplication table of {n}.", rows),
            (f"Which is larger, {a} or {total}?", f"{total} is larger than {a}, because {total} - {a} = {b}."),
        )
    )


def record(rng: random.Random) -> Exchange:
    """A JSON object that holds what the question says."""
    (name,), surname, place = names(rng, 1), rng.choice(SURNAMES), rng.choice(sorted(CAPITALS.values()))
    age, price, count = rng.randint(18, 80), rng.randint(1, 99), rng.randint(1, 200)
    thing, job = rng.choice(THINGS), rng.choice(JOBS)
    flag = rng.choice((True, False))
    question, value = rng.choice(
        (
            (
                f"Write a JSON record for {name} {surname}, {age} years old, from {place}.",
                {"first_name": name, "last_name": surname, "age": age, "city": place},
            ),
            (
                f"Write a JSON record for {name} {surname}, a {job} from {place}.",
                {"name": f"{name} {surname}", "job": job, "city": place, "active": flag},
            ),
            (
                f"Write a JSON record for a {thing} that costs {price} dollars, {count} in stock.",
                {"item": thing, "price": price, "currency": "USD", "stock": count, "available": True},
            ),
            (
                f"Write a JSON list of three people from {place}.",
                [
                    {"id": k + 1, "name": who, "city": place, "age": rng.randint(18, 80)}
                    for k, who in enumerate(names(rng, 3))
                ],
            ),
            (
                f"Write a JSON configuration for a server in {place} on port {8000 + count}.",
                {
                    "server": {"host": "localhost", "port": 8000 + count, "location": place},
                    "logging": {"level": rng.choice(("info", "debug", "warning")), "file": "server.log"},
                    "debug": flag,
                },
            ),
        )
    )
    return question, json.dumps(value, indent=2)


def story(rng: random.Random) -> Exchange:
    """A short story: a hero finds, loses or wants something, and a friend helps."""
    name, friend = names(rng, 2)
    words = {
        "name": name,
        "friend": friend,
        "creature": rng.choice(CREATURES),
        "other": rng.choice(CREATURES),
        "place": rng.choice(PLACES),
        "thing": rng.choice(THINGS),
        "feeling": rng.choice(FEELINGS),
    }
    text = " ".join(rng.choice(part) for part in STORY).format(**words)
    question = rng.choice(
        (
            "Tell me a story about a {creature} named {name}.",
            "Write a short story about {name} the {creature}.",
            "Write a story about a {creature} and a {thing}. The {creature} is called {name}.",
        )
    )
    return question.format(**words), text


def fact(rng: random.Random) -> Exchange:
    """A question with one right answer."""
    country = rng.choice(sorted(CAPITALS))
    word = rng.choice(sorted(OPPOSITES))
    term = rng.choice(sorted(DEFINITIONS))
    one, many = rng.choice(NOUNS)
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    day = rng.randrange(7)
    article = "an" if term[0] in "aeiou" else "a"
    spelt = rng.choice(names(rng, 1) + THINGS)
    return rng.choice(
        (
            (
                f"What is the capital of {country}?",
                f"The capital of {country} is {CAPITALS[country]}.",
            ),
            (
                f"Which country has the capital {CAPITALS[country]}?",
                f"{CAPITALS[country]} is the capital of {country}.",
            ),
            (f"What is the opposite of {word}?", f"The opposite of {word} is {OPPOSITES[word]}."),
            (f"What is {article} {term} in Python?", DEFINITIONS[term]),
            (f"Explain what {article} {term} is.", DEFINITIONS[term]),
            (f"What is the plural of {one}?", f"The plural of {one} is {many}. One {one}, two {many}."),
            (f"Which day comes after {days[day]}?", f"The day after {days[day]} is {days[(day + 1) % 7]}."),
            (
                f"Spell the word {spelt}.",
                f"The word {spelt} is spelt " + "-".join(spelt.upper().replace(" ", "")) + ".",
            ),
        )
    )


def function(rng: random.Random) -> Exchange:
    """A small Python function with its docstring."""
    purpose, names, doc, body = rng.choice(FUNCTIONS)
    name = rng.choice(names)
    parameter = rng.choice(("values", "items", "numbers", "data")) if "{p}" in body else ""
    code = body.format(f=name, p=parameter, d=f'"""{doc}"""')
    question = rng.choice(("Write a Python function that {}.", "Write a function in Python that {}."))
    return question.format(purpose.format(p=parameter)), f"```python\n{code}\n```"


GENERATORS: dict[str, Callable[[random.Random], Exchange]] = {
    "arithmetic": arithmetic,
    "json": record,
    "story": story,
    "question": fact,
    "code": function,
    "repeat": repetition,
}
"""Kind of text to its generator; the kinds of the held-out prompts as well."""

WEIGHTS = {"arithmetic": 3, "json": 4, "story": 5, "question": 3, "code": 2, "repeat": 4}
"""How often each kind is drawn."""


def draw(rng: random.Random) -> tuple[str, Exchange]:
    """A kind and one exchange of it."""
    (kind,) = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
    return kind, GENERATORS[kind](rng)
