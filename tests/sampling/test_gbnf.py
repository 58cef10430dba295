import functools
import itertools
import os
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from specli.errors import UsageError
from specli.sampling.gbnf import parse_gbnf
from specli.sampling.grammar import Grammar
from specli.sampling.settings import SamplingConfig
from tests.support.constrained import opened, whole_texts
from tests.support.vocabulary import ByteVocabulary

ALPHABET = "abc"
TEXTS = ["".join(t) for n in range(5) for t in itertools.product(ALPHABET, repeat=n)]


def accepted(grammar: str, texts: list[str]) -> list[str]:
    return whole_texts(texts, opened(grammar=grammar))


# Grammar, texts it allows, texts it does not; llama.cpp's matcher (src/llama-grammar.cpp, b11434) agrees on each.
CASES = [
    ("root ::= ([0-9]+)?", ["", "1", "907"], ["a", "1a"]),
    ('root ::= ("a"+)+', ["a", "aaaaa"], ["", "b"]),
    ("root ::= ([a-z]{2,3})*", ["", "ab", "abc", "abcd", "abcdefg"], ["a", "1"]),
    ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
    ('root ::= "a"{2,}', ["aa", "aaaaa"], ["", "a"]),
    ('root ::= "ab"{1,2}', ["ab", "abab"], ["", "abb", "ababab"]),
    ('root ::= "a" "b"? | "c"', ["a", "ab", "c"], ["", "b", "ac"]),
    ('root ::= ("a" | )  "b"', ["b", "ab"], ["a", "aab"]),
    ('root ::= "a" |\n  "b"', ["a", "b"], ["ab"]),
    ('root ::= ( # a comment\n "a"\n\n | "b" )+\n# the end', ["a", "ba"], ["", "#"]),
    ('\n# first\nroot ::= x-1 x-1\nx-1 ::= [^"\\n]', ["ab", "ß€"], ['a"', "a\n", "a"]),
    ('root ::= [\\]\\-\\\\"] "\\"\\t\\x41\\u00e9\\U0001F600"', [']"\tAé😀', '-"\tAé😀'], ['["\tAé😀', '"']),
    ("root ::= [a-]", ["a", "-"], ["b"]),
    ("root ::= [^a-c] .", ["xa", "😀\n"], ["ab", "x"]),
    ('root ::= [] "a" [^]', ["a"], ["", "b"]),
    ("root ::= [/] [.] [$]", ["/.$"], ["/a$"]),
    ('root ::= "(" root ")" | ""', ["", "()", "((()))"], ["(", "())"]),
    ('root ::= item ("," item)*\nitem ::= "[" root? "]"', ["[]", "[[],[]],[]"], ["[", "[[]"]),
    ('root ::= [a-z]* "abc"', ["abc", "xabc", "abcabc"], ["ab", "abcd"]),
    ('root ::= "a" root | "a"', ["a", "aaa"], ["", "b"]),
    (
        'root ::= "a" x | "b"\nx ::= "x" y | ""\ny ::= "y" x | "z" root',
        ["a", "b", "axy", "axyxy", "axza", "axyxzb"],
        ["ax"],
    ),
    ('root ::= "a"\nroot ::= "b"', ["b"], ["a"]),
    ("root ::= [z-a] | [b-b]", ["b"], ["a", "z"]),
    ('root ::= "a"{0} "b"', ["b"], ["ab"]),
    ('root ::= "a"{0,3000}', ["", "a" * 20], ["b"]),
]


@pytest.mark.parametrize(("grammar", "good", "bad"), CASES)
def test_texts_of_a_grammar(grammar: str, good: list[str], bad: list[str]) -> None:
    assert accepted(grammar, good + bad) == good


LONGEST = max(map(len, TEXTS))
Language = set[str]
"""Texts of the alphabet, up to the longest."""


def _joined(first: Language, second: Language) -> Language:
    return {a + b for a in first for b in second if len(a + b) <= LONGEST}


def _repeated(language: Language, low: int, high: int | None) -> Language:
    found: Language = set()
    power = {""}
    for n in range((low + LONGEST if high is None else high) + 1):
        found |= power if n >= low else set()
        power = _joined(power, language)
    return found


def _random_rule(r: random.Random, depth: int = 0) -> tuple[str, Language]:
    """A GBNF expression and its texts, built up together."""

    def atom() -> tuple[str, Language]:
        match r.randrange(5 if depth < 2 else 3):
            case 0:
                text = "".join(r.choice(ALPHABET) for _ in range(r.randint(1, 2)))
                return f'"{text}"', {text}
            case 1:
                return "[^a]", {"b", "c"}
            case 2:
                return "[a-b]", {"a", "b"}
            case _:
                gbnf, language = _random_rule(r, depth + 1)
                return f"({gbnf})", language

    def item() -> tuple[str, Language]:
        gbnf, language = atom()
        for _ in range(r.choice([0, 1, 1, 2])):
            counts = r.choice(list(COUNTS))
            gbnf, language = gbnf + counts, _repeated(language, *COUNTS[counts])
        return gbnf, language

    alternatives, union = [], set()
    for _ in range(r.randint(1, 2)):
        items = [item() for _ in range(r.randint(1, 3))]
        alternatives.append(" ".join(gbnf for gbnf, _ in items))
        union |= functools.reduce(_joined, (language for _, language in items))
    return " | ".join(alternatives), union


COUNTS = {
    "*": (0, None),
    "+": (1, None),
    "?": (0, 1),
    "{2}": (2, 2),
    "{1,2}": (1, 2),
    "{0,2}": (0, 2),
    "{2,3}": (2, 3),
    "{2,}": (2, None),
}


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("is_recursive", [False, True])
def test_random_grammars_allow_what_brute_force_finds(seed: int, *, is_recursive: bool) -> None:
    """The second time with a rule that needs a parser, so that no regular expression can be made of the whole."""
    gbnf, language = _random_rule(random.Random(seed))
    grammar = f"root ::= {gbnf}"
    if is_recursive:
        grammar = f'root ::= x | "(" root ")"\nx ::= {gbnf}'
    assert accepted(grammar, TEXTS) == [text for text in TEXTS if text in language]


def _palindromes(text: str) -> bool:
    return text == text[::-1]


def test_recursive_grammars_allow_what_brute_force_finds() -> None:
    grammar = 'root ::= "a" root "a" | "b" root "b" | "c" root "c" | [abc]?'
    assert accepted(grammar, TEXTS) == list(filter(_palindromes, TEXTS))
    as_many = 'root ::= x root x | "c"\nx ::= [ab]'
    assert accepted(as_many, TEXTS) == [t for t in TEXTS if len(t) % 2 and t.count("c") == 1 and t[len(t) // 2] == "c"]


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('root ::= ("a"+)+', "a" * 5000),
        ('root ::= "a" root | "a"', "a" * 5000),
        ('root ::= line ("\\n" root)?\nline ::= [a-z]* ","?', "ab,\n" * 1500),
        ('root ::= x | "(" root ")"\nx ::= "a" x | "b"', "(" + "a" * 5000 + "b)"),
        ('root ::= "a"{0,1500} x\nx ::= "(" x ")" | ""', "a" * 1500 + "()"),
    ],
)
def test_long_texts_stay_within_the_bounds_of_the_parser(grammar: str, text: str) -> None:
    state = opened(grammar=grammar)
    for byte in text.encode():
        state.accept(byte)
    assert state.allows(256)


class _WithTokens(ByteVocabulary):
    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [257] if text == "<control>" else list(text.encode())


def allowed(state: Grammar) -> set[int]:
    return set(np.flatnonzero(state.allowed()).tolist())


def test_token_references() -> None:
    def state(grammar: str) -> Grammar:
        made = Grammar.from_config(SamplingConfig(grammar=grammar), _WithTokens(words=(b"ab",)), 259)
        assert made is not None
        return made

    assert allowed(state("root ::= <[97]>")) == {97}
    assert allowed(state("root ::= <control>")) == {257}
    thinking = state("root ::= !<control>* <control> [x]")
    assert allowed(thinking) == set(range(259)) - {256}
    thinking.accept(258)
    thinking.accept(257)
    assert allowed(thinking) == {ord("x")}
    assert allowed(state('root ::= "ab"')) == {97, 258}
    assert allowed(state('root ::= "<control>"')) == {ord("<"), 257}  # llama.cpp: a control token is its text
    with pytest.raises(UsageError, match=r"^grammar: line 1, column 10: '<nothing>' is not one token of the model$"):
        state("root ::= <nothing>")


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('root ::= "a', "line 1, column 12: expected '\"', found the end"),
        ('other ::= "a"', "there is no rule 'root'"),
        ("root ::= missing", "line 1, column 10: there is no rule 'missing'"),
        ('root ::= "a"\nb = "c"', "line 2, column 3: expected '::=', found '='"),
        ('root ::= ("a"', "line 1, column 14: expected ')' to the '(' of line 1, found the end"),
        ('root ::= "a")', "line 1, column 13: expected the end of the line, found ')'"),
        ("root ::= [a", "line 1, column 12: expected ']', found the end"),
        ("root ::= +", "line 1, column 11: there is nothing before '+' to repeat"),
        ('root ::= "a"{x}', "line 1, column 14: expected a number, found 'x'"),
        ('root ::= "a"{3,2}', "line 1, column 14: at least 3 and at most 2 repetitions"),
        ('root ::= "a"{2001}', "line 1, column 14: 2001 repetitions, at most 2000 are accepted"),
        ('root ::= ("a"{0,50} "b"){0,50}', "line 1, column 31: the repetitions multiply to more than 2000 symbols"),
        ('root ::= "\\q"', "line 1, column 11: unknown escape '\\q'"),
        ('root ::= "\\x1g"', "line 1, column 13: expected 2 hexadecimal digits after '\\x'"),
        ('root ::= "\\U00110000"', "line 1, column 11: '\\U00110000' is no character"),
        ("my_rule ::= [a]", "line 1, column 3: expected '::=', found '_'"),
        ("root ::= root [a] | [b]", "the rule 'root' begins with itself (root → root)"),
        ("root ::= [x] a\na ::= [x]? b\nb ::= (a | [c]) [d]", "the rule 'a' begins with itself (a → b → a)"),
        ("root ::= " + "(" * 200 + "[a]" + ")" * 200, "line 1, column 111: more than 100 groups within one another"),
        ("root ::= r0\n" + "".join(f"r{i} ::= [a] r{i + 1}?\n" for i in range(5000)) + "r5000 ::= [a]",
         "rules within rules go 5002 deep, at most 500 are accepted"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_grammar(grammar: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened(grammar=grammar)
    assert str(caught.value) == f"grammar: {message}"


# One text of each of llama.cpp's example grammars, and one that is not.
EXAMPLES = {
    "arithmetic.gbnf": ("1+(2*x)=3\n", "1+=\n"),
    "c.gbnf": ("int main(){return 0;}", "int main({}"),
    "chess.gbnf": ("1. e4 e5\n2. Nf3 Nc6\n", "1. e4\n"),
    "english.gbnf": ("Hello, world! 42", "Grüße"),
    "japanese.gbnf": ("ひらがな", "latin"),
    "json.gbnf": ('{"a": [1, -2.5e3, "\\u00e9", null]}', '{"a": [1,]}'),
    "json_arr.gbnf": ('[\n{"a":1}]', '{"a":1}'),
    "list.gbnf": ("- one\n- two\n", "one\n"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_llama_cpp(name: str) -> None:
    source = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not source:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    grammar = (Path(source) / "grammars" / name).read_text(encoding="utf-8")
    good, bad = EXAMPLES[name]
    assert accepted(grammar, [good, bad]) == [good]


def test_no_text_ends_the_reader_with_another_error() -> None:
    r = random.Random(5)
    start = 'root ::= ("a" | [b-c] x)* # text\nx ::= "\\x41" | .{1,3} <[5]>'
    for _ in range(3000):
        text = list(start)
        for _ in range(r.randint(1, 4)):
            text[r.randrange(len(text))] = r.choice('()[]{}<>!"\\|*+?:=#,.-\n \0x1aé')
        with suppress(UsageError):
            parse_gbnf("".join(text), lambda _: None)
