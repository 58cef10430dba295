"""Rules in the notation of llguidance, a dialect of Lark.

llguidance cuts a text into lexemes, each as long as it can be, before it parses. So the pieces here are such that this
changes nothing: the whole text as one regular expression where the rules allow it, single characters otherwise.
"""

from __future__ import annotations

from collections.abc import Collection

from specli.errors import UsageError
from specli.sampling.rules import (
    Alternative,
    Chars,
    Item,
    Ref,
    Rules,
    Token,
    depth,
    is_regular,
    loosen_tail_calls,
    reachable,
)

MARK = "%llguidance"  # a grammar that starts so is Lark already (as in llama.cpp)
# As in llama.cpp every token goes that the text may go on with. Otherwise llguidance allows only the tokens that the
# tokenizer makes of the text to come where there is no choice: ` {` instead of `{` with SPM vocabularies, which put a
# blank before every text.
OPTIONS = {"no_forcing": True}
_MAX_DEPTH = 500  # llguidance recurses into rules, and three thousand end the process
_NOTHING = r"/[^\x{0}-\x{10FFFF}]/"


def to_lark(rules: Rules, root: str, forbidden: Collection[int]) -> str:
    """The grammar, without its first line.

    Args:
        rules: The rules.
        root: The one the whole text follows.
        forbidden: Tokens that are no part of a text: those that end it.

    Raises:
        UsageError: The rules are nested too deeply.
    """
    rules = reachable(loosen_tail_calls(reachable(rules, root)), root)
    if depth(rules) > _MAX_DEPTH:
        raise UsageError(f"rules within rules go {depth(rules)} deep, at most {_MAX_DEPTH} are accepted")
    # In capitals: a regular expression, which may refer to others.
    letter = "R" if is_regular(rules) else "r"
    names = {name: f"{letter}{i}" for i, name in enumerate(rules)}
    lines = [f"start: {names[root]}"]
    for name, alternatives in rules.items():
        bodies = (_sequence(items, names, forbidden) for items in alternatives)
        lines.append(f"{names[name]}: {' | '.join(bodies) or _NOTHING}")
    return "\n".join(lines)


def _sequence(items: Alternative, names: dict[str, str], forbidden: Collection[int]) -> str:
    return " ".join(_symbol(item, names, forbidden) + _counts(item) for item in items if item.high != 0) or '""'


def _symbol(item: Item, names: dict[str, str], forbidden: Collection[int]) -> str:
    match item.symbol:
        case Ref(name):
            return names[name]
        case Token(token, is_negated):
            if is_negated:
                return f"<[^{','.join(map(str, sorted({token, *forbidden})))}]>"
            return _NOTHING if token in forbidden else f"<[{token}]>"
        case Chars(ranges):
            inside = "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in ranges)
            return f"/[{inside}]/" if inside else _NOTHING


def _counts(item: Item) -> str:
    match item.low, item.high:
        case 1, 1:
            return ""
        case 0, None:
            return "*"
        case low, None:
            return f"{{{low},}}"
        case low, high:
            return f"{{{low},{high}}}"
