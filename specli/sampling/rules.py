"""Context-free rules over characters and tokens: what GBNF and JSON schemas are turned into.

The rules are flat: an alternative is a sequence of repeated symbols, and a group is a rule of its own. So nothing here
recurses, however deep a grammar is nested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Range = tuple[int, int]

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_MAX_SOLVED = 64  # rules that call one another; more are left to the parser


@dataclass(frozen=True)
class Chars:
    """One character out of a set.

    Attributes:
        ranges: Code points, both ends included; sorted and disjoint.
    """

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Chars:
        """The set of all characters in some ranges, in any order. U+0000 and surrogates are in no text."""
        merged: list[Range] = []
        for low, high in sorted(_without_surrogates(ranges)):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    def negated(self) -> Chars:
        """All other characters."""
        gaps, start = [], 0
        for low, high in self.ranges:
            gaps.append((start, low - 1))
            start = high + 1
        return Chars.of([*gaps, (start, _LAST)])

    def without(self, other: Chars) -> Chars:
        """The characters that are not in the other set."""
        return Chars.of([*self.negated().ranges, *other.ranges]).negated()


def _without_surrogates(ranges: Iterable[Range]) -> Iterator[Range]:
    for low, high in ranges:
        for start, end in ((1, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, _LAST)):
            if max(low, start) <= min(high, end):
                yield max(low, start), min(high, end)


ANY = Chars.of([(0, _LAST)])


@dataclass(frozen=True)
class Ref:
    """The text of a rule."""

    name: str


@dataclass(frozen=True)
class Token:
    """One token of the vocabulary, whatever its text; negated: any other one."""

    token: int
    is_negated: bool


Symbol = Chars | Ref | Token


class Item(NamedTuple):
    """A symbol `low` to `high` times; `high` None: without end."""

    symbol: Symbol
    low: int = 1
    high: int | None = 1


Alternative = tuple[Item, ...]
Rules = dict[str, list[Alternative]]


def literal(text: str) -> Alternative:
    """The characters of a text, one after the other."""
    return tuple(Item(Chars.of([(ord(char), ord(char))])) for char in text)


def chars(text: str) -> Chars:
    """The set of the characters of a text."""
    return Chars.of((ord(char), ord(char)) for char in text)


def repeated(item: Item, low: int, high: int | None) -> Item | None:
    """An item repeated `low` to `high` times as one item; None where the counts would have gaps.

    Without it, nested repetitions such as `("a"+)+` make one text out of exponentially many parts.
    """
    if (item.low, item.high) == (1, 1):
        return Item(item.symbol, low, high)
    if item.high is not None and low != high and max(low, 1) * item.high + 1 < (max(low, 1) + 1) * item.low:
        return None  # between max(low, 1) and one more repetition
    if low == 0 and item.low > 1:
        return None  # between none and one
    none = item.high == 0 or high == 0
    total = 0 if none else None if item.high is None or high is None else item.high * high
    return Item(item.symbol, item.low * low, total)


class RuleBook:
    """Rules under construction.

    Attributes:
        rules: By name. Names made here contain a `#`, which no name of a GBNF rule does.
    """

    def __init__(self) -> None:
        self.rules: Rules = {}

    def reserve(self, base: str) -> str:
        """A name that is free."""
        name = f"{base}#{len(self.rules)}"
        self.rules[name] = []
        return name

    def add(self, base: str, alternatives: Iterable[Alternative]) -> Ref:
        """A rule under a new name."""
        name = self.reserve(base)
        self.rules[name] = list(alternatives)
        return Ref(name)

    def repeat(self, base: str, items: Alternative, low: int, high: int | None) -> Item:
        """Some items as a whole, `low` to `high` times."""
        merged = repeated(items[0], low, high) if len(items) == 1 else None
        return merged or Item(self.add(base, [items]), low, high)


def components(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected components of a graph, callees before their callers (Tarjan's algorithm)."""
    found: list[list[str]] = []
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    done: set[str] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = lowest[root] = len(index)
        path.append(root)
        while work:
            node, edges = work[-1]
            for target in edges:
                if target not in index:
                    index[target] = lowest[target] = len(index)
                    path.append(target)
                    work.append((target, iter(graph[target])))
                    break
                if target not in done:
                    lowest[node] = min(lowest[node], index[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == index[node]:
                    group = [path.pop()]
                    while group[-1] != node:
                        group.append(path.pop())
                    found.append(group)
                    done.update(group)
    return found


def calls(rules: Rules) -> dict[str, list[str]]:
    """Which rules each rule refers to."""
    return {
        name: [item.symbol.name for items in alternatives for item in items if isinstance(item.symbol, Ref)]
        for name, alternatives in rules.items()
    }


def reachable(rules: Rules, root: str) -> Rules:
    """The rules that the root needs, the root first."""
    graph, order, seen = calls(rules), [root], {root}
    for name in order:
        for target in graph[name]:
            if target not in seen:
                seen.add(target)
                order.append(target)
    return {name: rules[name] for name in order}


def nullable(rules: Rules) -> set[str]:
    """The rules that the empty text fits."""
    empty: set[str] = set()

    def is_empty(item: Item) -> bool:
        return item.low == 0 or (isinstance(item.symbol, Ref) and item.symbol.name in empty)

    for group in components(calls(rules)):
        before = -1
        while before < len(empty):
            before = len(empty)
            empty.update(name for name in group if any(all(map(is_empty, items)) for items in rules[name]))
    return empty


def left_recursion(rules: Rules) -> list[str] | None:
    """Rules each of which begins with the next, and the last with the first; None where there are no such rules."""
    empty = nullable(rules)
    firsts: dict[str, list[str]] = {name: [] for name in rules}
    for name, alternatives in rules.items():
        for items in alternatives:
            for item in items:
                if isinstance(item.symbol, Ref) and item.high != 0:
                    firsts[name].append(item.symbol.name)
                if item.low > 0 and not (isinstance(item.symbol, Ref) and item.symbol.name in empty):
                    break
    for group in components(firsts):
        start = group[0]
        if len(group) > 1 or start in firsts[start]:
            members, circle = set(group), {start: None}
            while True:  # every rule of the group leads on within it, so some rule comes again
                following = next(name for name in firsts[next(reversed(circle))] if name in members)
                if following in circle:
                    names = list(circle)
                    return names[names.index(following) :]
                circle[following] = None
    return None


def depth(rules: Rules) -> int:
    """How many rules may be open at once, each called by the one before; rules that call one another count once."""
    graph = calls(rules)
    deepest: dict[str, int] = {}
    for group in components(graph):
        below = max((deepest[name] for member in group for name in graph[member] if name in deepest), default=0)
        deepest.update(dict.fromkeys(group, below + len(group)))
    return max(deepest.values())


def is_regular(rules: Rules) -> bool:
    """No rule calls itself, and there are characters only."""
    graph = calls(rules)
    recursive = any(len(group) > 1 or group[0] in graph[group[0]] for group in components(graph))
    tokens = any(
        isinstance(item.symbol, Token) for alternatives in rules.values() for items in alternatives for item in items
    )
    return not recursive and not tokens


def loosen_tail_calls(rules: Rules) -> Rules:
    """The rules with repetitions in place of calls at the end of an alternative, where these are the only calls.

    `list ::= item ("," list)?` becomes `(item ",")* item`. A parser would keep one open rule per item otherwise. The
    equations between the rules of a circle are linear then, and are solved by elimination (Arden's rule).
    """
    book = RuleBook()
    book.rules = {name: list(alternatives) for name, alternatives in rules.items()}
    graph = calls(rules)
    for group in components(graph):
        if (len(group) > 1 or group[0] in graph[group[0]]) and len(group) <= _MAX_SOLVED:
            equations = _linear(rules, group)
            if equations is not None:
                _solve(book, equations)
    return book.rules


_CONSTANT = ""  # what an equation calls the alternatives without a call


def _linear(rules: Rules, group: Sequence[str]) -> dict[str, dict[str, list[Alternative]]] | None:
    """Per rule of the group: what stands before a call at the end, by called rule. None: there are other calls."""
    members = set(group)

    def called(item: Item) -> str:
        return item.symbol.name if isinstance(item.symbol, Ref) and item.symbol.name in members else _CONSTANT

    equations: dict[str, dict[str, list[Alternative]]] = {}
    for name in group:
        terms: dict[str, list[Alternative]] = {}
        for items in rules[name]:
            target = called(items[-1]) if items else _CONSTANT
            if any(map(called, items[:-1])) or (target and items[-1].high != 1):
                return None
            if target:
                terms.setdefault(target, []).append(items[:-1])
            if not target or items[-1].low == 0:
                terms.setdefault(_CONSTANT, []).append(items[:-1] if target else items)
        equations[name] = terms
    return equations


def _solve(book: RuleBook, equations: dict[str, dict[str, list[Alternative]]]) -> None:
    """Puts rules that call only later ones in place of the equations; nothing if a rule has no end."""

    def one(name: str, alternatives: list[Alternative]) -> Alternative:
        return alternatives[0] if len(alternatives) == 1 else (Item(book.add(name, alternatives)),)

    names = list(equations)
    for k, name in enumerate(names):
        terms = equations[name]
        again = terms.pop(name, None)
        if again:
            loop = (book.repeat(name, one(name, again), 0, None),)
            terms.update({target: [(*loop, *one(name, heads))] for target, heads in terms.items()})
        if not terms:
            return
        for other in names[k + 1 :]:
            heads = equations[other].pop(name, None)
            if heads:
                head = one(other, heads)
                for target, tails in terms.items():
                    equations[other].setdefault(target, []).append((*head, *one(name, tails)))
    for name, terms in equations.items():
        book.rules[name] = [
            (*head, Item(Ref(target))) if target else head for target, heads in terms.items() for head in heads
        ]
