"""llama.cpp's grammar notation GBNF (its grammars/README.md and src/llama-grammar.cpp, b11434) as rules."""

from __future__ import annotations

import string
from collections.abc import Callable

from specli.errors import UsageError
from specli.sampling.rules import ANY, Alternative, Chars, Item, Ref, RuleBook, Rules, Token, left_recursion, literal

ROOT = "root"
MAX_LENGTH = 1 << 20  # characters; upstream's longest example has two thousand
MAX_REPEATS = 2000  # as upstream: more is refused as a minimum and without end as a maximum
_MAX_GROUPS = 100  # of groups within groups
_NAME = frozenset(string.ascii_letters + string.digits + "-")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n"} | {char: char for char in '\\"[]-'}
_TOO_MANY = "the repetitions multiply to more than {} symbols"


def parse_gbnf(text: str, token_id: Callable[[str], int | None]) -> Rules:
    """The rules of a grammar; the text is that of the rule `root`.

    Args:
        text: The grammar.
        token_id: The token that a text such as `<think>` is as a whole; None: it is none.

    Raises:
        UsageError: The grammar is wrong; names line and column.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"grammar: {len(text)} characters, at most {MAX_LENGTH} are accepted")
    return _Parser(text, token_id).parse()


class _Parser:
    """Reads a grammar from left to right.

    Args:
        text: The grammar.
        token_id: The token that a text is as a whole.
    """

    def __init__(self, text: str, token_id: Callable[[str], int | None]) -> None:
        self._text = text
        self._token_id = token_id
        self._at = 0
        self._n_groups = 0  # open ones
        self._n_symbols = 0  # that upstream would have made by now: names, groups, repetitions
        self._used: dict[str, int] = {}  # rules and where their names stand first
        self._book = RuleBook()

    def parse(self) -> Rules:
        self._skip_space(newlines=True)
        while self._at < len(self._text):
            self._read_rule()
        rules = self._book.rules
        for name, at in self._used.items():
            if name not in rules:
                raise self._error(f"there is no rule '{name}'", at)
        if ROOT not in rules:
            raise UsageError(f"grammar: there is no rule '{ROOT}'")
        circle = left_recursion(rules)
        if circle:
            names = [name for name in circle if "#" not in name] or [circle[0].partition("#")[0]]
            raise UsageError(
                f"grammar: the rule '{names[0]}' begins with itself ({' → '.join([*names, names[0]])})",
                hint='left recursion has to be written as a repetition: item ("," item)*',
            )
        return rules

    def _error(self, message: str, at: int | None = None) -> UsageError:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        return UsageError(f"grammar: line {line}, column {at - self._text.rfind(chr(10), 0, at)}: {message}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str, what: str | None = None) -> None:
        if not self._text.startswith(expected, self._at):
            found = self._peek()
            raise self._error(f"expected {what or repr(expected)}, found {repr(found) if found else 'the end'}")
        self._at += len(expected)

    def _skip_space(self, *, newlines: bool) -> None:
        blanks = " \t\r\n" if newlines else " \t"
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                while self._peek() not in ("", "\r", "\n"):
                    self._at += 1
            elif self._text[self._at] in blanks:
                self._at += 1
            else:
                return

    def _read_name(self) -> str:
        start = self._at
        while self._peek() and self._peek() in _NAME:
            self._at += 1
        name = self._text[start : self._at]
        if not name:
            raise self._error(f"expected a rule's name (letters, digits and '-'), found {self._peek()!r}")
        if name not in self._used:
            self._used[name] = start
            self._n_symbols += 1
        return name

    def _read_rule(self) -> None:
        name = self._read_name()
        self._skip_space(newlines=False)
        self._take("::=")
        self._skip_space(newlines=True)
        self._book.rules[name] = self._read_alternatives(name, nested=False)
        if self._peek():
            if self._peek() not in "\r\n":
                raise self._error(f"expected the end of the line, found {self._peek()!r}")
            self._skip_space(newlines=True)

    def _read_alternatives(self, name: str, *, nested: bool) -> list[Alternative]:
        alternatives = [self._read_sequence(name, nested=nested)]
        while self._peek() == "|":
            self._at += 1
            self._skip_space(newlines=True)
            alternatives.append(self._read_sequence(name, nested=nested))
        return alternatives

    def _read_sequence(self, name: str, *, nested: bool) -> Alternative:
        items: list[Item] = []
        last: Alternative = ()  # what a repetition repeats
        size = 1  # upstream's measure of it
        while self._peek():
            char = self._peek()
            if char in "*+?{":
                low, high = self._read_counts(newlines=nested)
                if not last:
                    raise self._error(f"there is nothing before '{char}' to repeat")
                size *= high or low or 1
                if size > MAX_REPEATS:
                    raise self._error(_TOO_MANY.format(MAX_REPEATS))
                self._n_symbols += 1 if high is None else high - low
                last = () if high == 0 else (self._book.repeat(name, last, low, high),)
            else:
                items += last
                size = 1
                if char == '"':
                    last = literal(self._read_literal())
                elif char == "[":
                    last = self._read_set()
                elif char in "<!":
                    last = (Item(self._read_token()),)
                elif char in _NAME:
                    last = (Item(Ref(self._read_name())),)
                elif char == "(":
                    before = self._n_symbols
                    last = (self._read_group(name),)
                    size = self._n_symbols - before
                elif char == ".":
                    self._at += 1
                    last = (Item(ANY),)
                else:
                    last = ()
                    break
            self._skip_space(newlines=nested)
        return (*items, *last)

    def _read_group(self, name: str) -> Item:
        start = self._at
        self._take("(")
        self._n_groups += 1
        if self._n_groups > _MAX_GROUPS:
            raise self._error(f"more than {_MAX_GROUPS} groups within one another")
        self._n_symbols += 1
        self._skip_space(newlines=True)
        alternatives = self._read_alternatives(name, nested=True)
        self._take(")", f"')' to the '(' of line {self._text.count(chr(10), 0, start) + 1}")
        self._n_groups -= 1
        if len(alternatives) == 1 and len(alternatives[0]) == 1:
            return alternatives[0][0]
        return Item(self._book.add(name, alternatives))

    def _read_counts(self, *, newlines: bool) -> tuple[int, int | None]:
        char = self._peek()
        self._at += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        self._skip_space(newlines=newlines)
        start = self._at
        low = self._read_number()
        high: int | None = low
        self._skip_space(newlines=newlines)
        if self._peek() == ",":
            self._at += 1
            self._skip_space(newlines=newlines)
            high = self._read_number() if self._peek().isdecimal() else None
            self._skip_space(newlines=newlines)
        self._take("}", "',' or '}'")
        if low > MAX_REPEATS:
            raise self._error(f"{low} repetitions, at most {MAX_REPEATS} are accepted", start)
        if high is not None and high < low:
            raise self._error(f"at least {low} and at most {high} repetitions", start)
        return low, high if high is None or high <= MAX_REPEATS else None

    def _read_number(self) -> int:
        start = self._at
        while self._peek() and self._peek() in string.digits:
            self._at += 1
        if start == self._at:
            raise self._error(f"expected a number, found {self._peek()!r}")
        return int(self._text[start : self._at][:20])  # longer ones are too large anyway

    def _read_char(self, until: str) -> str:
        """One character of a literal or set, escapes resolved; "" before what ends it."""
        char = self._peek()
        if not char:
            raise self._error(f"expected {until!r}, found the end")
        if char == until:
            return ""
        self._at += 1
        if char != "\\":
            return char
        kind = self._peek()
        self._at += 1
        if kind in _HEX_DIGITS:
            digits = self._text[self._at : self._at + _HEX_DIGITS[kind]]
            if len(digits) < _HEX_DIGITS[kind] or not set(digits) <= set(string.hexdigits):
                raise self._error(f"expected {_HEX_DIGITS[kind]} hexadecimal digits after '\\{kind}'")
            self._at += len(digits)
            if int(digits, 16) > 0x10FFFF:
                raise self._error(f"'\\{kind}{digits}' is no character", self._at - len(digits) - 2)
            return chr(int(digits, 16))
        if not kind or kind not in _ESCAPES:
            raise self._error(f"unknown escape '\\{kind}'", self._at - 2)
        return _ESCAPES[kind]

    def _read_literal(self) -> str:
        self._take('"')
        text = ""
        while char := self._read_char('"'):
            text += char
        self._take('"')
        return text

    def _read_set(self) -> Alternative:
        """A set in brackets; as in llama.cpp, one without characters is the empty text, negated or not."""
        self._take("[")
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while low := self._read_char("]"):
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._read_char("]")
            ranges.append((ord(low), ord(high)))
        self._take("]")
        found = Chars.of(ranges)
        return (Item(found.negated() if negated else found),) if ranges else ()

    def _read_token(self) -> Token:
        negated = self._peek() == "!"
        self._at += negated
        start = self._at
        self._take("<")
        if self._peek() == "[":
            self._at += 1
            token = self._read_number()
            self._take("]>")
            return Token(token, negated)
        end = self._text.find(">", start)
        if end < 0:
            raise self._error("expected '>', found the end")
        name = self._text[start : end + 1]
        found = self._token_id(name)
        if found is None:
            raise self._error(f"'{name}' is not one token of the model", start)
        self._at = end + 1
        return Token(found, negated)
