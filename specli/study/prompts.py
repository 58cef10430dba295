"""The prompt set of `specli stats`: 40 short prompts in 8 categories, written for this project.

Categories differ in how much an answer repeats its prompt or itself, which is what drafters live on: edits repeat
nearly everything, prose hardly anything.
"""

from __future__ import annotations

from specli.study.compare import StudyPrompt

_TEXTS = {
    "code-edit": (
        "Rename the variable `total` to `price_sum` in this function and change nothing else:\n\n"
        "def bill(items):\n    total = 0\n    for item in items:\n        total += item.price * item.count\n"
        "    return total\n",
        "Add type hints to this function. Answer with the whole function.\n\n"
        "def merge(left, right):\n    result = []\n    while left and right:\n"
        "        result.append(left.pop(0) if left[0] < right[0] else right.pop(0))\n"
        "    return result + left + right\n",
        "Turn this loop into a list comprehension and print the complete file again:\n\n"
        "names = ['ada', 'grace', 'edsger']\nlong_names = []\nfor name in names:\n    if len(name) > 3:\n"
        "        long_names.append(name.title())\nprint(long_names)\n",
        "Fix the off-by-one error. Return the corrected code only.\n\n"
        "int last_index(const int *a, int n, int x) {\n    for (int i = n; i >= 0; i--)\n        if (a[i] == x)\n"
        "            return i;\n    return -1;\n}\n",
        "Add a docstring to each method of this class and repeat the class:\n\n"
        "class Counter:\n    def __init__(self):\n        self.n = 0\n\n"
        "    def add(self, k=1):\n        self.n += k\n\n"
        "    def reset(self):\n        self.n = 0\n",
    ),
    "code": (
        "Write a Python function that tells whether a string is a palindrome, ignoring case and punctuation.",
        "Write a SQL query for the three customers with the highest sum of orders, tables customers and orders.",
        "Write a shell script that renames all .jpeg files in a folder to .jpg and says how many it renamed.",
        "Implement a queue with two stacks in JavaScript, with methods push, pop and size.",
        "Write a C function that counts the set bits of a 32-bit unsigned integer, and a main that tests it.",
    ),
    "prose": (
        "Write the first paragraph of a story about a lighthouse keeper who finds a letter in the sand.",
        "Describe a rainy market in the evening to someone who has never seen one.",
        "Write a short farewell speech for a colleague who moves to another city.",
        "Continue: The clock in the station had stopped at noon, and nobody seemed to mind, until",
        "Write a poem of eight lines about a bicycle that dreams of the sea.",
    ),
    "qa": (
        "Why is the sky blue and the sunset red? Answer in three sentences.",
        "What is the difference between a virus and a bacterium?",
        "How does a refrigerator keep food cold?",
        "Who wrote the first computer program, and for which machine?",
        "What should one check before buying a used bicycle?",
    ),
    "summarise": (
        "Summarise in one sentence: The river had carried sand into the harbour for years, so larger ships could no "
        "longer enter. The town voted for a new pier further out, paid for by a small fee on every container. Two "
        "years later the pier was finished, and the number of ships that call at the town has doubled since.",
        "List the three main points of this text: Bees find flowers by colour and scent. A bee that found a good place "
        "tells the others by a dance whose angle gives the direction and whose length gives the distance. In bad "
        "weather the dances become fewer, and the hive lives on what it has stored.",
        "Write a title and a one-sentence summary: The library will open on Sundays from March on. Volunteers look "
        "after the reading room, lending machines replace the desk, and the café offers breakfast. The trial ends in "
        "autumn; then the council decides by the number of visitors.",
        "Summarise the minutes as bullet points: Ana reported that the new pump arrived late and is being tested. Ben "
        "asked for two more days for the report. All agreed to move the inspection to the 14th. Cleo will tell the "
        "supplier and book the room.",
        "Say it shorter: Although the instructions had said that the device should not be switched off while the "
        "update is running, the technician, who had not read them because they were in another language, unplugged "
        "it, and the device has not started since that day.",
    ),
    "json": (
        "Give a JSON array of five planets with the keys name, diameter_km and moons. JSON only.",
        "Turn this into JSON with the keys date, amount and shop: On 3 May I paid 12.50 at Green Grocer, on 4 May 7.20 "
        "at Bread & Co, and on 6 May 31.00 at Tool Barn.",
        'Add a field "active": true to every object and print the array again: [{"id": 1, "name": "Ann"}, {"id": 2, '
        '"name": "Bo"}, {"id": 3, "name": "Cy"}, {"id": 4, "name": "Di"}]',
        "Write a JSON schema for a book with title, authors (a list of strings), year and an optional isbn.",
        "Write a configuration in JSON for a web server with two virtual hosts, each with a port, a root folder and "
        "TLS settings.",
    ),
    "maths": (
        "A train leaves at 9:40 and arrives at 13:05. How long does it travel? Show the steps.",
        "Solve 3x + 7 = 2(x - 4) and check the result.",
        "A jacket costs 80 euros. It is reduced by 25 %, then by another 10 %. What does it cost, and which single "
        "reduction is that?",
        "Write the multiplication table of 7 from 7 × 1 to 7 × 12, one line each.",
        "Prove that the sum of two odd numbers is even.",
    ),
    "multilingual": (
        "Übersetze ins Englische: Der Zug hat Verspätung, weil auf der Strecke ein Baum liegt.",
        "Écris une courte recette de crêpes avec une liste d'ingrédients.",
        "Explica en español qué es una biblioteca pública y por qué es útil.",
        "用中文写三句话，介绍一下春天。",
        "Переведи на английский и повтори по-русски: Завтра мы едем на озеро, если не будет дождя.",
    ),
}

PROMPTS = tuple(
    StudyPrompt(f"{category}-{number}", category, text)
    for category, texts in _TEXTS.items()
    for number, text in enumerate(texts, 1)
)


def spread_over_categories() -> tuple[StudyPrompt, ...]:
    """The set in an order in which every category gives one prompt in turn, so that any beginning of it is mixed."""
    columns = ([prompt for prompt in PROMPTS if prompt.category == category] for category in _TEXTS)
    return tuple(prompt for row in zip(*columns, strict=True) for prompt in row)
