"""Small Python programs put together from parts, so that a question names one of thousands of them."""

from __future__ import annotations

import random

Exchange = tuple[str, str]
"""A question and its answer."""

LISTS = ("values", "numbers", "items", "data", "prices", "scores", "sizes", "ages")
PICKS = (
    ("even", "{v} % 2 == 0"),
    ("odd", "{v} % 2 == 1"),
    ("positive", "{v} > 0"),
    ("negative", "{v} < 0"),
    ("large", "{v} > {k}"),
    ("small", "{v} < {k}"),
)
"""Adjective and condition; {k} is a number that the question says."""
CHANGES = (
    ("squares", "{v} * {v}"),
    ("doubles", "2 * {v}"),
    ("halves", "{v} / 2"),
    ("cubes", "{v} ** 3"),
    ("negatives", "-{v}"),
)
ENDS = (
    ("sum", "sum({})", "total"),
    ("maximum", "max({})", "largest"),
    ("minimum", "min({})", "smallest"),
    ("number", "len({})", "count"),
    ("list", "{}", "result"),
)
FIELDS = (
    "name", "age", "color", "price", "size", "weight", "title", "author", "year", "city", "speed", "length", "width",
    "height", "owner", "level", "score", "code",
)  # fmt: skip
THINGS = (
    "Rabbit", "Car", "Book", "Person", "House", "Robot", "Player", "Song", "Garden", "Ship", "Planet", "Recipe",
    "Student", "Account", "Box", "Camera", "Bridge", "Letter",
)  # fmt: skip


def indented(lines: list[str], depth: int = 1) -> str:
    """Lines of a block."""
    return "\n".join("    " * depth + line for line in lines)


def selection(rng: random.Random) -> Exchange:
    """Something of some of the values of a list, as a loop or as a comprehension."""
    parameter = rng.choice(LISTS)
    value = rng.choice((parameter.rstrip("s") if parameter.endswith("s") else "value", "value", "x"))
    value = value if value not in ("data", parameter) else "value"
    (adjective, condition), (change, expression) = rng.choice(PICKS), rng.choice(CHANGES)
    end, call, local = rng.choice(ENDS)
    k = rng.randint(2, 99)
    has_pick, has_change = rng.choice(((True, False), (False, True), (True, True)))
    test = condition.format(v=value, k=k)
    new = expression.format(v=value) if has_change else value
    who = f"the {change} of " if has_change else ""
    which = f"the {adjective} {parameter}" if has_pick else f"the {parameter}"
    bound = "" if "{k}" not in condition or not has_pick else f" ({'above' if adjective == 'large' else 'below'} {k})"
    what = f"the {end} of {who}{which}{bound}"
    name = "_".join(part for part in (local, adjective * has_pick, change * has_change) if part)
    if rng.random() < 0.5:
        inside = f"{new} for {value} in {parameter}" + (f" if {test}" if has_pick else "")
        inside = inside if end in ("sum", "maximum", "minimum") else f"[{inside}]"
        lines = [f"return {call.format(inside)}"]
    else:
        start, step = {
            "sum": ("0", f"{local} += {new}"),
            "number": ("0", f"{local} += 1"),
            "list": ("[]", f"{local}.append({new})"),
        }.get(end, ("[]", f"{local}.append({new})"))
        body = [f"if {test}:", f"    {step}"] if has_pick else [step]
        final = local if end in ("sum", "number", "list") else call.format(local)
        lines = [f"{local} = {start}", f"for {value} in {parameter}:", *("    " + line for line in body)]
        lines.append(f"return {final}")
    code = f'def {name}({parameter}):\n    """Return {what}."""\n{indented(lines)}'
    question = rng.choice(
        (
            f"Write a Python function {name} that returns {what}.",
            f"Write a function that returns {what}.",
            f"Define {name}({parameter}) in Python: it returns {what}.",
        )
    )
    return question, f"```python\n{code}\n```"


def formula(rng: random.Random) -> Exchange:
    """A function of two or three numbers."""
    names = rng.sample(
        ("a", "b", "c", "x", "y", "n", "width", "height", "price", "count", "rate"), rng.choice((2, 2, 3))
    )
    sign, word = rng.choice((("+", "sum"), ("*", "product")))
    k = rng.randint(2, 50)
    said, code, name = rng.choice(
        (
            (f"the {word} of {' and '.join(names)}", f" {sign} ".join(names), word),
            (f"{names[0]} minus {names[1]}", f"{names[0]} - {names[1]}", "difference"),
            (f"{names[0]} divided by {names[1]}", f"{names[0]} / {names[1]}", "quotient"),
            (f"the larger of {names[0]} and {names[1]}", f"max({names[0]}, {names[1]})", "larger"),
            (f"{names[0]} times {k} plus {names[1]}", f"{names[0]} * {k} + {names[1]}", "scaled"),
            (f"True if {names[0]} is larger than {names[1]}", f"{names[0]} > {names[1]}", "is_larger"),
        )
    )
    used = [n for n in names if n in code.replace("(", " ").replace(")", " ").replace(",", " ").split()]
    head = f"{name}({', '.join(used)})"
    question = rng.choice(
        (f"Write a Python function {head} that returns {said}.", f"Write a function that returns {said}.")
    )
    return question, f'```python\ndef {head}:\n    """Return {said}."""\n    return {code}\n```'


def record_class(rng: random.Random) -> Exchange:
    """A class with some attributes and a method."""
    name = rng.choice(THINGS)
    fields = rng.sample(FIELDS, rng.randint(2, 4))
    listed = ", ".join(fields[:-1]) + " and " + fields[-1]
    shown = ", ".join(f"{{self.{field}}}" for field in fields)
    changed = rng.choice(fields)
    method = rng.choice(
        (
            ["def __str__(self):", f'    return f"{name}({shown})"'],
            [f"def set_{changed}(self, {changed}):", f"    self.{changed} = {changed}"],
            [f"def get_{changed}(self):", f"    return self.{changed}"],
            ["def __eq__(self, other):", f"    return self.{changed} == other.{changed}"],
        )
    )
    start = [f"def __init__(self, {', '.join(fields)}):", *(f"    self.{field} = {field}" for field in fields)]
    code = f'class {name}:\n    """A {name.lower()} with {listed}."""\n\n{indented(start)}\n\n{indented(method)}'
    question = rng.choice(
        (
            f"Write a Python class {name} with the attributes {listed}.",
            f"Define a class for a {name.lower()} with {listed}.",
        )
    )
    return question, f"```python\n{code}\n```"


def script(rng: random.Random) -> Exchange:
    """A loop, a condition or a call at top level."""
    n, k = rng.randint(3, 30), rng.randint(2, 9)
    word = rng.choice(("hello", "done", "ready", "stop", "next", "welcome"))
    items = rng.sample(("apple", "pear", "plum", "lemon", "cherry", "melon", "grape", "fig"), rng.randint(2, 4))
    quoted = ", ".join(f'"{item}"' for item in items)
    question, code = rng.choice(
        (
            (f"Print the numbers from 1 to {n} in Python.", f"for number in range(1, {n + 1}):\n    print(number)"),
            (f'Print "{word}" {k} times in Python.', f'for _ in range({k}):\n    print("{word}")'),
            (
                f"Print all multiples of {k} below {n * k} in Python.",
                f"for number in range({k}, {n * k}, {k}):\n    print(number)",
            ),
            (
                f"Make a Python list of {', '.join(items)} and print each item.",
                f"items = [{quoted}]\nfor item in items:\n    print(item)",
            ),
            (
                f"Make a Python dictionary that maps {items[0]} to {n} and {items[1]} to {k}.",
                f'prices = {{"{items[0]}": {n}, "{items[1]}": {k}}}\nprint(prices["{items[0]}"])',
            ),
            (
                f"Print whether x is larger than {n} in Python.",
                f'if x > {n}:\n    print("x is larger than {n}")\nelse:\n    print("x is not larger than {n}")',
            ),
        )
    )
    return question, f"```python\n{code}\n```"


def program(rng: random.Random) -> Exchange:
    """A function, a class or a script."""
    return rng.choices((selection, formula, record_class, script), weights=(4, 2, 3, 2))[0](rng)
