"""What people ask a chat model first: greetings, itself, how things are done in Python, simple facts, and tales."""

from __future__ import annotations

import random

from specli.demo.train.facts import COLORS, CREATURES, NAMES, PLACES, THINGS

Exchange = tuple[str, str]
"""A question and its answer."""

SAID = (
    (("Hello!", "Hi!", "Hello.", "Hi there!", "Good morning!", "Good evening!"), "Hello! How can I help you?"),
    (("How are you?", "How are you today?"), "I am fine, thank you. What can I do for you?"),
    (("Thank you!", "Thanks!", "Thank you very much."), "You are welcome!"),
    (("Goodbye!", "Bye!", "See you later."), "Goodbye! Come back soon."),
    (
        ("Who are you?", "Hello! Who are you?", "What are you?", "Tell me about yourself.", "What is your name?"),
        "I am the demo model of specli, a very small language model. I can tell short stories, write JSON records and "
        "small Python functions, and answer simple questions.",
    ),
    (
        ("What can you do?", "How can you help me?", "What can I ask you?"),
        "I can tell short stories, write letters, JSON records and small Python functions, do simple sums, and answer "
        "simple questions. Ask me for a story about a fox, for example.",
    ),
    (
        ("What is speculative decoding?", "Explain speculative decoding.", "How does speculative decoding work?"),
        "In speculative decoding a small model drafts several tokens, and the large model checks them all in one step. "
        "The tokens that the large model would have chosen itself are kept. The text stays the same, but it is written "
        "faster.",
    ),
    (
        ("What is a draft model?", "What is a drafter?", "Explain what a draft model is."),
        "A draft model is a small model that guesses the next tokens of a large model. The more of its guesses are "
        "right, the faster the large model writes.",
    ),
    (
        ("What is a token?", "Explain what a token is."),
        "A token is a piece of text that a language model reads or writes in one step: a word, a part of a word or a "
        "sign.",
    ),
    (
        ("What is specli?", "Explain specli."),
        "specli is a program for the command line that runs language models and makes them faster with speculative "
        "decoding.",
    ),
    (("Why is the sky blue?",), "The sky is blue because the air scatters blue light more than red light."),
    (("What color is the sky?",), "The sky is blue."),
    (("What color is grass?",), "Grass is green."),
    (("What color is snow?",), "Snow is white."),
    (("What color is the sun?",), "The sun looks yellow."),
    (("How many days has a week?", "How many days are in a week?"), "A week has seven days."),
    (("How many months has a year?", "How many months are in a year?"), "A year has twelve months."),
    (("How many legs has a spider?", "How many legs does a spider have?"), "A spider has eight legs."),
    (("How many legs has a dog?", "How many legs does a dog have?"), "A dog has four legs."),
    (("What do bees make?",), "Bees make honey."),
    (("What does a rabbit eat?",), "A rabbit eats grass and leaves."),
    (("What does a cow give?",), "A cow gives milk."),
    (("What is water made of?",), "Water is made of hydrogen and oxygen."),
    (("What is the largest planet?",), "The largest planet is Jupiter."),
    (("What is the largest ocean?",), "The largest ocean is the Pacific Ocean."),
    (("What are the seasons?", "Name the four seasons."), "The four seasons are spring, summer, autumn and winter."),
    (("Name three colors.", "Tell me three colors."), "Three colors are red, blue and green."),
    (("Name three animals.", "Tell me three animals."), "Three animals are the cat, the dog and the horse."),
    (("Tell me a joke.", "Do you know a joke?"), "Why did the computer go to the doctor? Because it had a virus."),
    (("Count to ten.", "Count from one to ten."), "One, two, three, four, five, six, seven, eight, nine, ten."),
    (("Say hello.", "Say hello to me."), "Hello!"),
)
"""Questions of one meaning and their answer."""

DONE = (
    ("sort a list", "sorted(values)", "It returns a new list in ascending order"),
    ("reverse a list", "values[::-1]", "It returns a new list in reverse order"),
    ("reverse a string", "text[::-1]", "It returns the text backwards"),
    ("read a file", "open(path).read()", "It returns the whole text of the file"),
    ("write to a file", 'open(path, "w").write(text)', "It replaces the contents of the file"),
    ("join two strings", "first + second", "It returns a new string"),
    ("join a list of strings", '", ".join(words)', "It puts a comma between the words"),
    ("split a string", "text.split()", "It returns the words of the text as a list"),
    ("find the length of a list", "len(values)", "It returns the number of items"),
    ("add an item to a list", "values.append(item)", "It puts the item at the end of the list"),
    ("remove an item from a list", "values.remove(item)", "It takes the first such item away"),
    ("loop over a list", "for value in values:", "The block below runs once for each item"),
    ("import a module", "import math", "Then you can call functions such as math.sqrt"),
    ("print a text", 'print("hello")', "It writes the text and a new line"),
    ("convert a string to a number", "int(text)", "It raises ValueError if the text is not a number"),
    ("convert a number to a string", "str(number)", "It returns the digits as a text"),
    ("check whether a key is in a dictionary", "key in table", "It is True if the dictionary has the key"),
    ("get a value from a dictionary", "table.get(key)", "It returns None if the key is missing"),
    ("round a number", "round(number, 2)", "It keeps two digits after the point"),
    ("get a random number", "random.randint(1, 6)", "It needs import random"),
    ("find the largest value of a list", "max(values)", "It raises ValueError if the list is empty"),
    ("sum a list of numbers", "sum(values)", "It returns 0 if the list is empty"),
    ("make a list of the squares", "[x * x for x in values]", "This is a list comprehension"),
    ("copy a list", "list(values)", "It returns a new list with the same items"),
    ("remove spaces around a text", "text.strip()", "It returns a new string"),
    ("catch an error", "try and except", "The block after except runs if an error occurs"),
)
"""What somebody wants to do in Python, how it is written, and a remark."""

PLOTS = (
    (
        "loses a {color} {thing}",
        "One morning {name} the {creature} could not find the {color} {thing}. ",
        '{name} looked near {place} and under every tree. "Have you seen it?" {name} asked {friend} the {other}. ',
        "{friend} had not seen it, but {friend} helped to look for it. They searched all day. ",
        "In the evening they found the {color} {thing} behind the house. {name} thanked {friend} and was happy again.",
    ),
    (
        "finds a {color} {thing}",
        "One day {name} the {creature} found a {color} {thing} near {place}. ",
        '"Who does this {thing} belong to?" said {name} and took it home. ',
        "The next day {friend} the {other} came by and looked very sad. {friend} had lost a {color} {thing}. ",
        "{name} gave the {thing} back. {friend} was so glad that the two became friends.",
    ),
    (
        "is afraid of the dark",
        "{name} the {creature} was afraid of the dark. ",
        "Every night {name} heard strange noises and could not sleep. ",
        'One night {friend} the {other} came with a little lamp. "Look," said {friend}, "it is only the wind." ',
        "They sat near {place} and looked at the stars. From then on {name} was not afraid of the dark any more.",
    ),
    (
        "wants to learn to swim",
        "{name} the {creature} wanted to learn to swim. ",
        "But the water was cold, and {name} did not dare to go in. ",
        '"Start with one foot," said {friend} the {other}. So {name} put one foot into the water, and then the other. ',
        "After a week {name} could swim from one side to the other. {friend} was very proud of {name}.",
    ),
    (
        "wants to bake a cake",
        "{name} the {creature} wanted to bake a cake for {friend} the {other}. ",
        "{name} took flour, eggs and milk, but there was no sugar. ",
        "So {name} went to {place} and asked everybody for sugar. At last an old {other} gave {name} a cup of it. ",
        "The cake was big and sweet. {name} and {friend} ate it together, until nothing was left.",
    ),
    (
        "builds a house",
        "{name} the {creature} wanted to build a house near {place}. ",
        "First {name} collected wood and stones. Then {name} made the walls and the roof. ",
        "When the rain came, water ran through the roof. {friend} the {other} brought a ladder and helped {name}. ",
        "Now the house was dry and warm. {name} painted the door {color} and invited {friend} to dinner.",
    ),
    (
        "goes on a journey",
        "One spring {name} the {creature} went on a journey. {name} took a {color} {thing} along. ",
        "The first night {name} slept under a tree. The second night {name} slept near {place}. ",
        "There {name} met {friend} the {other}, who knew the way. They walked together and told each other stories. ",
        "When {name} came home again, everybody wanted to hear about the journey and to see the {color} {thing}.",
    ),
    (
        "wins a race",
        "{name} the {creature} was not the fastest of all. But there was a race to {place}, and {name} wanted to win. ",
        "{name} got up early every day and ran up the hill and down again. ",
        'On the day of the race {friend} the {other} was far ahead. "I will not give up," thought {name}. ',
        "Shortly before the end {friend} sat down to rest, and {name} ran by. The prize was a {color} {thing}.",
    ),
)
"""What a tale is about, as the question says it, and its parts."""


def tale(rng: random.Random) -> Exchange:
    """A tale whose plot the question gives."""
    name, friend = rng.sample(NAMES, 2)
    words = {
        "name": name, "friend": friend, "creature": rng.choice(CREATURES), "other": rng.choice(CREATURES),
        "place": rng.choice(PLACES), "thing": rng.choice(THINGS), "color": rng.choice(COLORS),
    }  # fmt: skip
    plot, *parts = rng.choice(PLOTS)
    question = rng.choice(
        (
            "Tell me a story about {name} the {creature}, who %s.",
            "Write a story about a {creature} named {name} who %s.",
            "Tell me a story about a {creature} that %s. The {creature} is called {name}.",
        )
    )
    return (question % plot).format(**words), "".join(parts).format(**words)


def talk(rng: random.Random) -> Exchange:
    """A greeting, a question about the model or the world, or how to do something in Python."""
    what, code, remark = rng.choice(DONE)
    questions, answer = rng.choice(SAID)
    name = rng.choice(NAMES)
    return rng.choice(
        (
            (rng.choice(questions), answer),
            (rng.choice(questions), answer),
            (
                rng.choice(
                    (f"How do I {what} in Python?", f"How can I {what} in Python?", f"How to {what} in Python?")
                ),
                f"To {what} in Python, use `{code}`. {remark}.",
            ),
            rng.choice(
                (
                    (f"Hello, my name is {name}.", f"Hello, {name}! How can I help you?"),
                    (f"My name is {name}. What is my name?", f"Your name is {name}."),
                    (f"Say hello to {name}.", f"Hello, {name}!"),
                )
            ),
        )
    )
