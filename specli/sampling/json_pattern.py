r"""The `pattern` of a JSON schema, a regular expression of JavaScript, as rules for the JSON text of what it matches.

llama.cpp (common/json-schema-to-grammar.cpp, b11434) applies patterns to the JSON text itself and lets any string pass
where it has no equivalent. Here a pattern is about the value, `"` and `\` are escaped in the text, and what has no
equivalent is refused.
"""

from __future__ import annotations

import json
import string

from specli.sampling.gbnf import MAX_REPEATS
from specli.sampling.rules import ANY, Alternative, Chars, Item, RuleBook, chars, literal

_MAX_GROUPS = 100  # of groups within groups
_ESCAPED = {"\\b": "\b", "\\f": "\f", "\\n": "\n", "\\r": "\r", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = chars("\n\r\u2028\u2029")
_CLASSES = {
    "d": chars(string.digits),
    "w": chars(string.ascii_letters + string.digits + "_"),
    "s": Chars.of([*chars(_BLANKS).ranges, (0x2000, 0x200A)]),
}


class PatternError(ValueError):
    """The pattern is wrong or has no equivalent."""


def pattern_rule(pattern: str, book: RuleBook, plain: Chars) -> Alternative:
    """What stands between the quotation marks of a string that fits.

    Args:
        pattern: The expression. As in JavaScript it may match anywhere, so most have a `^` and a `$`.
        book: Takes the rules.
        plain: The characters that stand for themselves in a JSON string.

    Raises:
        PatternError: The pattern is wrong or has no equivalent.
    """
    return _Parser(pattern, book, plain).parse()


class _Parser:
    """Reads a pattern from left to right.

    Args:
        pattern: The expression.
        book: Takes the rules.
        plain: The characters that stand for themselves.
    """

    def __init__(self, pattern: str, book: RuleBook, plain: Chars) -> None:
        self._text = pattern
        self._book = book
        self._plain = plain
        self._at = 0
        self._n_groups = 0

    def parse(self) -> Alternative:
        alternatives = self._read_alternatives()
        if self._at < len(self._text):
            raise PatternError("unbalanced ')'")
        return (Item(self._book.add("pattern", alternatives)),)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("ends too early")
        self._at += 1
        return char

    def _read_alternatives(self) -> list[Alternative]:
        alternatives = [self._read_sequence()]
        while self._peek() == "|":
            self._at += 1
            alternatives.append(self._read_sequence())
        return alternatives

    def _read_sequence(self) -> Alternative:
        """One alternative. Outside groups anything may stand before and after it where there is no anchor."""
        anywhere = () if self._n_groups else (Item(self._set(ANY).symbol, 0, None),)
        items: list[Item] = []
        if anywhere and self._peek() == "^":
            self._at += 1
        else:
            items += anywhere
        while (char := self._peek()) not in ("", "|", ")"):
            if char == "$" and anywhere and self._text[self._at + 1 : self._at + 2] in ("", "|"):
                self._at += 1
                return tuple(items)
            items.append(self._read_repeated(self._read_atom()))
        return (*items, *anywhere)

    def _read_atom(self) -> Item:
        char = self._next()
        match char:
            case "(":
                return self._read_group()
            case "[":
                return self._set(self._read_class())
            case ".":
                return self._set(_LINE_ENDS.negated())
            case "^" | "$":
                raise PatternError(f"'{char}' other than at the ends has no equivalent")
            case "*" | "+" | "?" | "{":
                raise PatternError(f"there is nothing before '{char}' to repeat")
            case "\\":
                found = self._read_escape(in_class=False)
                return self._set(found) if isinstance(found, Chars) else self._literal(found)
            case "]" | "}":
                raise PatternError(f"unbalanced '{char}'")
        return self._literal(char)

    def _read_repeated(self, item: Item) -> Item:
        char = self._peek()
        if not char or char not in "*+?{":
            return item
        self._at += 1
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._read_counts()
        if self._peek() == "?":  # takes as little as it can: the same texts
            self._at += 1
        if self._peek() and self._peek() in "*+?{":
            raise PatternError(f"there is nothing before '{self._peek()}' to repeat")
        return self._book.repeat("pattern", (item,), low, high)

    def _read_counts(self) -> tuple[int, int | None]:
        inside, closed, _ = self._text[self._at :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not low.isdecimal() or not (high.isdecimal() or not high):
            raise PatternError(f"'{{{inside[:20]}' is no repetition")
        self._at += len(inside) + 1
        at_least = int(low[:9])
        at_most = int(high[:9]) if high else None if comma else at_least
        if at_least > MAX_REPEATS:
            raise PatternError(f"{low} repetitions, at most {MAX_REPEATS} are accepted")
        if at_most is not None and at_most < at_least:
            raise PatternError(f"at least {low} and at most {high} repetitions")
        return at_least, at_most if at_most is None or at_most <= MAX_REPEATS else None

    def _read_group(self) -> Item:
        if self._peek() == "?":
            if self._text.startswith("?:", self._at):
                self._at += 2
            elif self._text.startswith("?<", self._at) and self._text[self._at + 2 : self._at + 3] not in ("=", "!"):
                self._at = self._text.find(">", self._at) + 1 or len(self._text)
            else:
                raise PatternError(f"'({self._text[self._at : self._at + 2]}' has no equivalent")
        self._n_groups += 1
        if self._n_groups > _MAX_GROUPS:
            raise PatternError(f"more than {_MAX_GROUPS} groups within one another")
        alternatives = self._read_alternatives()
        if self._peek() != ")":
            raise PatternError("unbalanced '('")
        self._at += 1
        self._n_groups -= 1
        return Item(self._book.add("pattern", alternatives))

    def _read_escape(self, *, in_class: bool) -> Chars | str:
        char = self._next()
        if char in "xu":
            length = 2 if char == "x" else 4
            digits = self._text[self._at : self._at + length]
            if len(digits) < length or not set(digits) <= set(string.hexdigits):
                raise PatternError(f"expected {length} hexadecimal digits after '\\{char}'")
            self._at += length
            return chr(int(digits, 16))
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found.negated() if char.isupper() else found
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "b" and in_class:
            return "\b"
        if char.isalnum():
            raise PatternError(f"'\\{char}' has no equivalent")
        return char

    def _read_class(self) -> Chars:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (char := self._next()) != "]":
            low = self._read_escape(in_class=True) if char == "\\" else char
            if isinstance(low, Chars):
                ranges += low.ranges
                continue
            high: Chars | str = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                char = self._next()
                high = self._read_escape(in_class=True) if char == "\\" else char
            if isinstance(high, Chars):
                ranges += [(ord(low), ord(low)), (ord("-"), ord("-")), *high.ranges]
            elif high < low:
                raise PatternError(f"the range '{low}-{high}' is upside down")
            else:
                ranges.append((ord(low), ord(high)))
        found = Chars.of(ranges)
        return found.negated() if negated else found

    def _set(self, found: Chars) -> Item:
        """One character of a set, as JSON writes it."""
        outside = found.negated()
        escapes = "".join(text[1] for text, char in _ESCAPED.items() if chars(char).without(outside).ranges)
        if not escapes:
            return Item(self._plain.without(outside))
        return Item(
            self._book.add("pattern", [(Item(self._plain.without(outside)),), (*literal("\\"), Item(chars(escapes)))])
        )

    def _literal(self, char: str) -> Item:
        items = literal(json.dumps(char, ensure_ascii=False)[1:-1])
        return items[0] if len(items) == 1 else Item(self._book.add("pattern", [items]))
