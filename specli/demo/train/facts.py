"""Words, facts and templates from which `texts` builds its sentences; all written for this package."""

NAMES = """Ada Ben Cora Dan Ella Finn Grace Hugo Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tess Uma Vera Will Yara
Zoe Anna Bruno Clara David Emma Felix Hana Ivan Julia Karl Lena Max Nina Oscar Petra Ravi Sofia Tom""".split()

SURNAMES = """Adams Baker Carter Dixon Evans Fisher Garcia Hill Ito Jensen Keller Lopez Miller Novak Olsen Park Quinn
Rossi Smith Turner Unger Vance Weber Young Zhang Brown Clark Moore""".split()

CREATURES = "fox rabbit bear owl mouse cat dog hedgehog squirrel frog horse duck turtle lion wolf goat".split()

PLACES = ["the forest", "the village", "the old mill", "the river", "the market", "the garden", "the hills", "the lake"]

THINGS = """lamp book clock kite basket drum boat ladder bell mirror coat bottle map key chair table piano camera bike
pencil""".split()

JOBS = "teacher doctor baker pilot farmer nurse painter driver writer lawyer cook singer".split()

COLORS = "red blue green yellow white black brown golden silver purple orange gray".split()

FEELINGS = "happy sad tired curious brave lonely proud hungry".split()

NOUNS = [
    ("cat", "cats"), ("box", "boxes"), ("city", "cities"), ("child", "children"), ("mouse", "mice"), ("leaf", "leaves"),
    ("foot", "feet"), ("book", "books"), ("baby", "babies"), ("wolf", "wolves"), ("bus", "buses"), ("man", "men"),
    ("tooth", "teeth"), ("key", "keys"), ("potato", "potatoes"), ("knife", "knives"),
]  # fmt: skip

OPPOSITES = {
    "big": "small", "small": "big", "hot": "cold", "cold": "hot", "fast": "slow", "slow": "fast", "up": "down",
    "left": "right", "day": "night", "open": "closed", "happy": "sad", "light": "dark", "early": "late", "old": "young",
    "full": "empty", "true": "false", "first": "last", "loud": "quiet", "rich": "poor", "strong": "weak",
}  # fmt: skip

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
    "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Poland": "Warsaw",
    "Austria": "Vienna", "Hungary": "Budapest", "Greece": "Athens", "Ireland": "Dublin", "Japan": "Tokyo",
    "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo", "Kenya": "Nairobi", "Canada": "Ottawa",
    "Mexico": "Mexico City", "Brazil": "Brasilia", "Peru": "Lima", "Chile": "Santiago", "Cuba": "Havana",
    "Russia": "Moscow", "Turkey": "Ankara", "Iran": "Tehran", "Iceland": "Reykjavik", "Belgium": "Brussels",
}  # fmt: skip

DEFINITIONS = {
    "list": "A list is an ordered collection of values. You can add, remove and change its items, and it may hold "
    "values of different types. For example, [1, 2, 3] is a list of three numbers.",
    "tuple": "A tuple is an ordered collection of values that cannot be changed. For example, (1, 2) is a tuple of two "
    "numbers. Tuples can be used as keys of a dictionary.",
    "dictionary": 'A dictionary maps keys to values. Each key occurs once. For example, {"a": 1} maps the key "a" to '
    "the value 1. Looking up a key takes about the same time for small and large dictionaries.",
    "set": "A set is a collection of values without order and without duplicates. It is fast to test whether a value "
    "is in a set. For example, {1, 2, 3} is a set of three numbers.",
    "string": 'A string is a sequence of characters. It cannot be changed. For example, "hello" is a string of five '
    "characters. Two strings are joined with the plus sign.",
    "function": "A function is a named block of code that takes arguments and returns a value. It is defined with the "
    "keyword def and called by its name followed by parentheses.",
    "class": "A class describes a kind of object: its attributes and its methods. Calling the class creates a new "
    "object. The method __init__ sets up the attributes of the object.",
    "module": "A module is a file with Python code. Other files can import it and use its functions and classes. The "
    "name of the module is the name of the file without the suffix.",
    "generator": "A generator is a function that yields values one after the other. It keeps its state between two "
    "values, so it needs little memory even for a long sequence.",
    "loop": "A loop runs a block of code several times. A for loop runs once for each item of a sequence. A while loop "
    "runs as long as its condition is true.",
    "exception": "An exception is raised when an error occurs. It stops the function unless it is caught with the "
    "keyword except. The block finally runs in every case.",
    "decorator": "A decorator is a function that takes a function and returns a new one. It is written with an at sign "
    "above the definition. It can add logging, caching or checks.",
    "integer": "An integer is a whole number such as 3 or 42. Integers in Python can be as large as the memory allows.",
    "variable": "A variable is a name for a value. It is created when a value is assigned to it for the first time. "
    "The same name can later refer to another value.",
    "iterator": "An iterator is an object that returns one item at a time. The function next returns the next item. At "
    "the end it raises StopIteration.",
    "comprehension": "A comprehension builds a list, a set or a dictionary from a loop in one line. For example, "
    "[x * x for x in range(5)] is a list of five squares.",
}

STORY = (
    (
        "Once upon a time there was a {creature} named {name}.",
        "{name} was a small {creature} who lived near {place}.",
        "A long time ago, a {creature} named {name} lived near {place}.",
        "There was once a {feeling} {creature} whose name was {name}.",
    ),
    (
        "Every morning {name} walked to {place} to look for something new.",
        "{name} liked to sit by the window and look at the sky.",
        "{name} had one good friend, a {other} named {friend}.",
        "All the others said that {name} was the most {feeling} {creature} of all.",
    ),
    (
        "One day {name} found an old {thing} on the way to {place}.",
        "One day the {thing} was gone, and {name} felt very {feeling}.",
        "One evening {name} heard a strange noise near {place}.",
        "One day {name} wanted to build a {thing} without any help.",
    ),
    (
        '"What is this?" said {name}. "I have never seen a {thing} like this before."',
        '"I will find out what this means," said {name} and went on.',
        "{name} looked behind every tree and under every stone, but there was nothing to see.",
        "{name} did not know what to do, so {name} asked {friend} the {other}.",
    ),
    (
        '"Do not worry," said {friend}. "We will go to {place} together."',
        '"Let me help you," said {friend} the {other}. "Two can do more than one."',
        "{friend} thought for a while and then smiled.",
        "Together they walked all day, until they came to {place}.",
    ),
    (
        "There they found the {thing}, and it was as good as new.",
        "There an old {other} showed them how to use the {thing}.",
        "It was not easy, but in the end they did it.",
        "The sun went down, and at last they saw a light near {place}.",
    ),
    (
        "From that day on, {name} and {friend} were the best of friends.",
        "{name} was so happy that everybody in {place} could hear it.",
        '"Thank you," said {name}. "I could not have done it without you."',
        "And if you go to {place}, you can still see the {thing} today.",
    ),
    (
        "The end.",
        "They went home and slept well.",
        "And that is the story of {name} the {creature}.",
    ),
)
"""Parts of a story in order; one sentence of each is taken."""

FUNCTIONS = [
    ("returns the sum of a list of {p}", ("total", "add_all", "sum_list"), "Return the sum of all values.",
     "def {f}({p}):\n    {d}\n    result = 0\n    for value in {p}:\n        result += value\n    return result"),
    ("returns the largest of some {p}", ("largest", "find_max", "maximum"), "Return the largest value.",
     "def {f}({p}):\n    {d}\n    best = {p}[0]\n    for value in {p}:\n        if value > best:\n"
     "            best = value\n    return best"),
    ("returns the smallest of some {p}", ("smallest", "find_min", "minimum"), "Return the smallest value.",
     "def {f}({p}):\n    {d}\n    best = {p}[0]\n    for value in {p}:\n        if value < best:\n"
     "            best = value\n    return best"),
    ("counts the even {p}", ("count_even", "even_count"), "Return how many values are even.",
     "def {f}({p}):\n    {d}\n    count = 0\n    for value in {p}:\n        if value % 2 == 0:\n"
     "            count += 1\n    return count"),
    ("reverses a string", ("reverse", "reverse_string"), "Return the text backwards.",
     "def {f}(text):\n    {d}\n    return text[::-1]"),
    ("counts the words of a text", ("count_words", "word_count"), "Return the number of words.",
     "def {f}(text):\n    {d}\n    return len(text.split())"),
    ("checks whether a word is a palindrome", ("is_palindrome",), "Return True if the word reads the same backwards.",
     "def {f}(word):\n    {d}\n    word = word.lower()\n    return word == word[::-1]"),
    ("computes the factorial of n", ("factorial",), "Return the factorial of n.",
     "def {f}(n):\n    {d}\n    result = 1\n    for k in range(2, n + 1):\n        result *= k\n    return result"),
    ("returns the n-th Fibonacci number", ("fibonacci", "fib"), "Return the n-th Fibonacci number.",
     "def {f}(n):\n    {d}\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
    ("checks whether a number is prime", ("is_prime",), "Return True if n is a prime number.",
     "def {f}(n):\n    {d}\n    if n < 2:\n        return False\n    for k in range(2, int(n ** 0.5) + 1):\n"
     "        if n % k == 0:\n            return False\n    return True"),
    ("returns the mean of some {p}", ("mean", "average"), "Return the arithmetic mean.",
     "def {f}({p}):\n    {d}\n    if not {p}:\n        return 0.0\n    return sum({p}) / len({p})"),
    ("removes duplicates from a list of {p}", ("unique", "remove_duplicates"), "Return the values without duplicates.",
     "def {f}({p}):\n    {d}\n    seen = set()\n    result = []\n    for value in {p}:\n"
     "        if value not in seen:\n            seen.add(value)\n            result.append(value)\n    return result"),
    ("reads a file and returns its lines", ("read_lines",), "Return the lines of a file.",
     "def {f}(path):\n    {d}\n    with open(path, encoding=\"utf-8\") as file:\n"
     "        return [line.rstrip() for line in file]"),
    ("counts how often each word occurs", ("count_each", "word_frequency"), "Return a dictionary of word counts.",
     "def {f}(text):\n    {d}\n    counts = {{}}\n    for word in text.split():\n"
     "        counts[word] = counts.get(word, 0) + 1\n    return counts"),
    ("returns the squares of some {p}", ("squares", "square_all"), "Return the square of each value.",
     "def {f}({p}):\n    {d}\n    return [value * value for value in {p}]"),
    ("returns the greatest common divisor of two numbers", ("gcd",), "Return the greatest common divisor.",
     "def {f}(a, b):\n    {d}\n    while b:\n        a, b = b, a % b\n    return a"),
    ("converts Celsius to Fahrenheit", ("to_fahrenheit",), "Return the temperature in Fahrenheit.",
     "def {f}(celsius):\n    {d}\n    return celsius * 9 / 5 + 32"),
    ("sorts some {p} by bubble sort", ("bubble_sort",), "Return the values in ascending order.",
     "def {f}({p}):\n    {d}\n    result = list({p})\n    for end in range(len(result) - 1, 0, -1):\n"
     "        for k in range(end):\n            if result[k] > result[k + 1]:\n"
     "                result[k], result[k + 1] = result[k + 1], result[k]\n    return result"),
    ("searches a sorted list of {p}", ("binary_search",), "Return the position of the value, or -1.",
     "def {f}({p}, wanted):\n    {d}\n    low, high = 0, len({p}) - 1\n    while low <= high:\n"
     "        middle = (low + high) // 2\n        if {p}[middle] == wanted:\n            return middle\n"
     "        if {p}[middle] < wanted:\n            low = middle + 1\n        else:\n            high = middle - 1\n"
     "    return -1"),
    ("counts the vowels of a text", ("count_vowels",), "Return the number of vowels.",
     "def {f}(text):\n    {d}\n    return sum(1 for letter in text.lower() if letter in \"aeiou\")"),
]  # fmt: skip
"""Purpose, possible names, docstring and code of each function; {p} is the parameter's name."""
