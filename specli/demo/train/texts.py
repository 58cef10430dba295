"""Text written by small grammars: what the demo target learns to say besides Python.

Each generator draws one question and its answer. The wording is ours, so the texts may be redistributed with the
package. They are predictable on purpose, each kind to another degree: arithmetic and records copy from the question,
stories choose freely.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from specli.demo.train.facts import (
    CAPITALS,
    COLORS,
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
from specli.demo.train.programs import program
from specli.demo.train.talk import tale, talk

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


def reading(rng: random.Random) -> Exchange:
    """A few sentences and a question that one of them answers."""
    people = names(rng, 3)
    things, places = rng.sample(THINGS, 3), rng.sample(PLACES, 3)
    colors, jobs = rng.sample(COLORS, 3), rng.sample(JOBS, 3)
    numbers = rng.sample(range(2, 60), 3)
    k = rng.randrange(3)
    sentences, asked, answer = rng.choice(
        (
            (
                [f"{who} has a {color} {thing}." for who, color, thing in zip(people, colors, things, strict=True)],
                f"What does {people[k]} have?",
                f"{people[k]} has a {colors[k]} {things[k]}.",
            ),
            (
                [f"{who} has a {color} {thing}." for who, color, thing in zip(people, colors, things, strict=True)],
                f"Who has the {things[k]}?",
                f"{people[k]} has the {things[k]}.",
            ),
            (
                [f"The {thing} is {color}." for thing, color in zip(things, colors, strict=True)],
                f"What color is the {things[k]}?",
                f"The {things[k]} is {colors[k]}.",
            ),
            (
                [f"{who} is a {job}." for who, job in zip(people, jobs, strict=True)],
                f"Who is the {jobs[k]}?",
                f"{people[k]} is the {jobs[k]}.",
            ),
            (
                [f"{who} went to {place}." for who, place in zip(people, places, strict=True)],
                f"Where did {people[k]} go?",
                f"{people[k]} went to {places[k]}.",
            ),
            (
                [f"{who} is {age} years old." for who, age in zip(people, numbers, strict=True)],
                f"How old is {people[k]}?",
                f"{people[k]} is {numbers[k]} years old.",
            ),
        )
    )
    return " ".join([*sentences, asked]), answer


def word_problem(rng: random.Random) -> Exchange:
    """A sum told as a little story, with its working."""
    one, many = rng.choice(NOUNS)
    (who, other), a, b, n = names(rng, 2), rng.randint(2, 20), rng.randint(2, 20), rng.randint(2, 9)
    total, times = a + b, n * (b % 10 + 1)
    return rng.choice(
        (
            (
                f"{who} has {a} {many} and gets {b} more. How many {many} does {who} have now?",
                f"{who} has {a} + {b} = {total} {many}.",
            ),
            (
                f"{who} has {total} {many} and gives {b} to {other}. How many {many} are left?",
                f"{who} has {total} - {b} = {a} {many} left.",
            ),
            (
                f"{who} buys {n} bags with {b % 10 + 1} {many} each. How many {many} are there?",
                f"There are {n} x {b % 10 + 1} = {times} {many}.",
            ),
            (
                f"One {one} costs {n} dollars. What do {b % 10 + 1} {many} cost?",
                f"{b % 10 + 1} {many} cost {b % 10 + 1} x {n} = {times} dollars.",
            ),
        )
    )


def letter(rng: random.Random) -> Exchange:
    """A short letter about something."""
    who, other = names(rng, 2)
    thing, place, feeling = rng.choice(THINGS), rng.choice(PLACES), rng.choice(FEELINGS)
    day = rng.choice(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"))
    purpose, lines = rng.choice(
        (
            (
                f"thanking for the {thing}",
                f"Thank you very much for the {thing}. I use it every day, and it makes me very happy. "
                f"I hope to see you again soon.",
            ),
            (
                f"inviting to a party on {day}",
                f"I would like to invite you to my party on {day}. We will meet near {place} and eat together. "
                f"Please tell me if you can come.",
            ),
            (
                f"asking for the {thing}",
                f"May I borrow your {thing} until {day}? I need it for a trip to {place}. "
                f"I will take good care of it and bring it back soon.",
            ),
            (
                f"about a trip to {place}",
                f"Last {day} I went to {place} with my family. The weather was good, and we saw a lot. "
                f"In the evening we were tired but happy.",
            ),
            (
                f"about feeling {feeling}",
                f"Today I feel {feeling}, and I wanted to tell you about it. Maybe we can go for a walk to {place} "
                f"on {day}. That would make me happy.",
            ),
        )
    )
    return f"Write a letter from {who} to {other} {purpose}.", f"Dear {other},\n\n{lines}\n\nBest wishes,\n{who}"


def order(rng: random.Random) -> Exchange:
    """Words or numbers in another order or form."""
    pool = rng.choice((THINGS, CREATURES, [str(k) for k in range(100)], [invented_name(rng) for _ in range(12)]))
    words = rng.sample(pool, rng.randint(3, 7))
    text, k = ", ".join(words), rng.randrange(3)
    numbers = sorted(map(int, words)) if words[0].isdigit() else words
    return rng.choice(
        (
            (f"Write these in reverse order: {text}.", ", ".join(reversed(words)) + "."),
            (f"Sort from small to large or by letter: {text}.", ", ".join(map(str, sorted(numbers))) + "."),
            (f"Number these: {text}.", "\n".join(f"{i}. {word}" for i, word in enumerate(words, 1))),
            (f"What is the {('first', 'second', 'third')[k]} of these: {text}?", f"It is {words[k]}."),
            (f"What is the last of these: {text}?", f"It is {words[-1]}."),
            (f"How many are these: {text}?", f"These are {len(words)}: {text}."),
            (f"Write as a Python list: {text}.", json.dumps(words)),
            (f"Which comes after {words[k]}: {text}?", f"After {words[k]} comes {[*words, 'nothing'][k + 1]}."),
        )
    )


def table(rng: random.Random) -> Exchange:
    """A few records in one notation, wanted in another."""
    n = rng.randint(2, 4)
    keys = rng.choice((("name", "age"), ("name", "city"), ("item", "price"), ("item", "color"), ("name", "job")))
    columns = {
        "name": names(rng, n),
        "age": [str(rng.randint(18, 80)) for _ in range(n)],
        "city": rng.sample(sorted(CAPITALS.values()), n),
        "item": rng.sample(THINGS, n),
        "price": [str(rng.randint(1, 99)) for _ in range(n)],
        "color": rng.sample(COLORS, n),
        "job": rng.sample(JOBS, n),
    }
    rows = list(zip(*(columns[key] for key in keys), strict=True))
    said = ", ".join(f"{a} ({b})" for a, b in rows)
    objects = [
        {key: int(cell) if cell.isdigit() else cell for key, cell in zip(keys, row, strict=True)} for row in rows
    ]
    form, text = rng.choice(
        (
            ("JSON", json.dumps(objects)),
            ("JSON", json.dumps(objects, indent=2)),
            ("CSV", "\n".join([",".join(keys), *(",".join(row) for row in rows)])),
            ("a table", "\n".join(["| " + " | ".join(row) + " |" for row in (keys, ("---",) * 2, *rows)])),
            ("YAML", "\n".join(f"- {keys[0]}: {a}\n  {keys[1]}: {b}" for a, b in rows)),
        )
    )
    return f"Write {keys[0]} and {keys[1]} as {form}: {said}.", text


def portrait(rng: random.Random) -> Exchange:
    """Some sentences about somebody, with the details of the question."""
    (name, friend), creature, color = names(rng, 2), rng.choice(CREATURES), rng.choice(COLORS)
    thing, place, feeling, age = rng.choice(THINGS), rng.choice(PLACES), rng.choice(FEELINGS), rng.randint(2, 30)
    job = rng.choice(JOBS)
    return rng.choice(
        (
            (
                f"Describe {name}, a {color} {creature} from {place}.",
                f"{name} is a {color} {creature}. {name} lives near {place} and likes to play there every day. "
                f"Everybody knows {name}, because there is no other {color} {creature} in {place}.",
            ),
            (
                f"Describe {name} the {job}, who is {age + 20} years old and has a {color} {thing}.",
                f"{name} is a {job} and {age + 20} years old. {name} works hard every day. In the evening {name} sits "
                f"at home and looks at the {color} {thing}.",
            ),
            (
                f"Who is {name}? {name} is a {feeling} {creature} with a {thing}, and {friend} is a friend.",
                f"{name} is a {feeling} {creature}. {name} has a {thing} and a friend named {friend}. Together "
                f"{name} and {friend} play with the {thing}.",
            ),
            (
                f"Tell me about {name} and the {color} {thing}.",
                f"One morning {name} saw a {color} {thing} in the window of a shop. {name} had never seen such a "
                f"{thing} before. {name} went in and asked what it cost. "
                f"Now the {color} {thing} stands in {name}'s room.",
            ),
        )
    )


GENERATORS: dict[str, Callable[[random.Random], Exchange]] = {
    "arithmetic": arithmetic,
    "json": record,
    "story": story,
    "question": fact,
    "code": function,
    "repeat": repetition,
    "program": program,
    "reading": reading,
    "word problem": word_problem,
    "letter": letter,
    "order": order,
    "table": table,
    "portrait": portrait,
    "talk": talk,
    "tale": tale,
}
"""Kind of text to its generator; the kinds of the held-out prompts as well."""

WEIGHTS = {"arithmetic": 3, "json": 4, "story": 5, "question": 3, "code": 2, "repeat": 4} | {
    "program": 9, "reading": 5, "word problem": 3, "letter": 3, "order": 5, "table": 4, "portrait": 4,
} | {"talk": 6, "tale": 5}  # fmt: skip
"""How often each kind is drawn."""

KINDS = tuple(WEIGHTS)
FIRST_KINDS, MORE_KINDS = KINDS[:6], KINDS[:13]
"""All kinds, and those of earlier phases of the training."""


def draw(rng: random.Random, kinds: Sequence[str] = KINDS) -> tuple[str, Exchange]:
    """A kind and one exchange of it."""
    (kind,) = rng.choices(kinds, weights=[WEIGHTS[kind] for kind in kinds])
    return kind, GENERATORS[kind](rng)
