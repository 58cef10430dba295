"""JSON schemas as rules for the text of the values they allow, as llama.cpp converts them (b11434).

Its documented choices (grammars/README.md): an object has no properties but the named ones unless
`additionalProperties` says so, named ones come in the order of the schema, and white space between the parts is
nothing, a blank, or one or two line ends with an indentation. Where its conversion gives texts that are no JSON or
break the schema (integers below a minimum, keys with raw quotation marks), these rules do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from specli.errors import UsageError
from specli.sampling.gbnf import MAX_REPEATS, ROOT
from specli.sampling.json_pattern import PatternError, pattern_rule
from specli.sampling.rules import Alternative, Chars, Item, Ref, RuleBook, Rules, chars, left_recursion, literal

MAX_LENGTH = 1 << 20  # characters of a schema
_MAX_DEPTH = 100  # of schemas within schemas
_MAX_DIGITS = 16  # of a number's integral part, and of its decimal places

DIGIT = Chars.of([(ord("0"), ord("9"))])
_FIRST_DIGIT = Chars.of([(ord("1"), ord("9"))])
_HEX = chars("0123456789abcdefABCDEF")
_SIMPLE_ESCAPES = '"\\bfnrt'
_PLAIN = Chars.of([(0, 0x1F), (0x7F, 0x7F), (ord('"'), ord('"')), (ord("\\"), ord("\\"))]).negated()
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_UUID_GROUPS = (8, 4, 4, 4, 12)


def parse_json_schema(text: str) -> Rules:
    """The rules of a schema; the text of a value is that of the rule `root`.

    Raises:
        UsageError: The schema is wrong or asks for what is not supported; names the place in it.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"JSON schema: {len(text)} characters, at most {MAX_LENGTH} are accepted")
    try:
        schema = json.loads(text, parse_constant=_refuse_constant)
        _dump(schema).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise UsageError(f"JSON schema: not JSON: {error or 'nested too deeply'}") from None
    return _Converter(schema).convert()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _sequence(*parts: Alternative | Item | Ref | Chars | str) -> Alternative:
    items: list[Item] = []
    for part in parts:
        match part:
            case str():
                items += literal(part)
            case Ref() | Chars():
                items.append(Item(part))
            case Item():
                items.append(part)
            case _:
                items += part
    return tuple(items)


class _Converter:
    """Makes the rules of one schema.

    Args:
        schema: The whole schema, which references point into.
    """

    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._book = RuleBook()
        self._known: dict[str, Ref] = {}  # rules that do not depend on the schema
        self._references: dict[str, Ref] = {}
        self._depth = 0

    def convert(self) -> Rules:
        rules = self._book.rules
        rules[ROOT] = []
        rules[ROOT] = [_sequence(self._value(self._schema, "#"))]
        if left_recursion(rules):
            raise UsageError("JSON schema: references that lead to one another without a value between them")
        return rules

    def _fail(self, path: str, message: str) -> NoReturn:
        raise UsageError(f"JSON schema: {path}: {message}")

    # Rules that every schema shares.

    def _shared(self, name: str) -> Ref:
        if name not in self._known:
            self._known[name] = Ref(self._book.reserve(name))
            self._book.rules[self._known[name].name] = getattr(self, f"_make_{name.replace('-', '_')}")()
        return self._known[name]

    def _make_space(self) -> list[Alternative]:
        return [(), _sequence(" "), _sequence(Item(chars("\n"), 1, 2), Item(chars(" \t"), 0, 20))]

    def _make_char(self) -> list[Alternative]:
        return [_sequence(_PLAIN), _sequence("\\", chars(_SIMPLE_ESCAPES)), _sequence("\\u", Item(_HEX, 4, 4))]

    def _make_string(self) -> list[Alternative]:
        return [_sequence('"', Item(self._shared("char"), 0, None), '"')]

    def _make_whole(self) -> list[Alternative]:
        return [_sequence("0"), _sequence(_FIRST_DIGIT, Item(DIGIT, 0, _MAX_DIGITS - 1))]

    def _make_integer(self) -> list[Alternative]:
        return [_sequence(Item(chars("-"), 0, 1), self._shared("whole"))]

    def _make_number(self) -> list[Alternative]:
        fraction = self._book.add("fraction", [_sequence(".", Item(DIGIT, 1, _MAX_DIGITS))])
        exponent = self._book.add("exponent", [_sequence(chars("eE"), Item(chars("+-"), 0, 1), self._shared("whole"))])
        return [_sequence(self._shared("integer"), Item(fraction, 0, 1), Item(exponent, 0, 1))]

    def _make_boolean(self) -> list[Alternative]:
        return [_sequence("true"), _sequence("false")]

    def _make_null(self) -> list[Alternative]:
        return [_sequence("null")]

    def _make_any(self) -> list[Alternative]:
        return [_sequence(self._shared(name)) for name in ("object", "array", "string", "number", "boolean", "null")]

    def _make_object(self) -> list[Alternative]:
        space = self._shared("space")
        pair = _sequence(self._shared("string"), ":", space, self._shared("any"))
        return [_sequence("{", space, self._list(pair, 0, None), space, "}")]

    def _make_array(self) -> list[Alternative]:
        space = self._shared("space")
        return [_sequence("[", space, self._list(_sequence(self._shared("any")), 0, None), space, "]")]

    def _make_date(self) -> list[Alternative]:
        day = self._book.add(
            "day", [_sequence("0", _FIRST_DIGIT), _sequence(chars("12"), DIGIT), _sequence("3", chars("01"))]
        )
        month = self._book.add("month", [_sequence("0", _FIRST_DIGIT), _sequence("1", chars("012"))])
        return [_sequence(Item(DIGIT, 4, 4), "-", month, "-", day)]

    def _make_time(self) -> list[Alternative]:
        hour = self._book.add("hour", [_sequence(chars("01"), DIGIT), _sequence("2", chars("0123"))])
        sixty = _sequence(chars("012345"), DIGIT)
        zone = self._book.add("zone", [_sequence("Z"), _sequence(chars("+-"), hour, ":", sixty)])
        thousandth = self._book.add("thousandth", [_sequence(".", Item(DIGIT, 3, 3))])
        return [_sequence(hour, ":", sixty, ":", sixty, Item(thousandth, 0, 1), zone)]

    def _make_date_time(self) -> list[Alternative]:
        return [_sequence(self._shared("date"), "T", self._shared("time"))]

    def _make_uuid(self) -> list[Alternative]:
        groups = [part for n in _UUID_GROUPS for part in ("-", Item(_HEX, n, n))]
        return [_sequence(*groups[1:])]

    # Schemas.

    def _value(self, schema: object, path: str) -> Ref:
        """The rule of the values of a schema."""
        if not isinstance(schema, dict):
            self._fail(path, f"a schema is an object, found {_kind(schema)}")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(path, f"more than {_MAX_DEPTH} schemas within one another")
        rule = self._choose(schema, path)
        self._depth -= 1
        return rule

    def _choose(self, schema: dict[str, Any], path: str) -> Ref:
        """The keyword that decides, in upstream's order (common/json-schema.cpp)."""
        if "$ref" in schema:
            return self._reference(schema["$ref"], path)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                parts = self._parts(schema, key, path)
                return self._union(path, (self._value(part, f"{path}/{key}/{i}") for i, part in parts))
        kind = schema.get("type")
        if isinstance(kind, list):
            if not kind:
                self._fail(path, "type is an empty list")
            return self._union(
                path, (self._value(schema | {"type": one}, f"{path}/type/{i}") for i, one in enumerate(kind))
            )
        if "const" in schema:
            return self._book.add("const", [literal(_dump(schema["const"]))])
        if "enum" in schema:
            return self._book.add("enum", [literal(_dump(value)) for _, value in self._parts(schema, "enum", path)])
        if kind is not None and kind not in _TYPES:
            found = repr(kind) if isinstance(kind, str) else _kind(kind)
            self._fail(path, f"unknown type {found}, known are {', '.join(_TYPES)}")
        return self._typed(schema, kind, path)

    def _typed(self, schema: dict[str, Any], kind: str | None, path: str) -> Ref:
        has_properties = "properties" in schema or schema.get("additionalProperties", True) is not True
        if "allOf" in schema and (kind == "string" or (kind in (None, "object") and not has_properties)):
            return self._all_of(self._parts(schema, "allOf", path), path)
        if kind is None:
            if has_properties:
                kind = "object"
            elif "items" in schema or "prefixItems" in schema:
                kind = "array"
            elif {"pattern", "minLength", "maxLength"} & schema.keys() or _format(schema.get("format")):
                kind = "string"
            else:
                kind = "any"
        match kind:
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return self._string(schema, path)
            case "integer":
                return self._integer(schema, path)
            case _:
                return self._shared(kind)

    def _parts(self, schema: dict[str, Any], key: str, path: str) -> list[tuple[int, Any]]:
        parts = schema[key]
        if not isinstance(parts, list) or not parts:
            self._fail(path, f"{key} is a list with at least one entry")
        return list(enumerate(parts))

    def _union(self, path: str, rules: Iterable[Ref]) -> Ref:
        return self._book.add("union", [_sequence(rule) for rule in rules])

    def _target(self, reference: object, path: str) -> tuple[str, Any]:
        """What a reference means, and its place."""
        if not isinstance(reference, str):
            self._fail(path, f"$ref is text, found {_kind(reference)}")
        if not reference.startswith("#/"):
            self._fail(path, f"$ref {reference!r}: only references within the schema are supported (#/…)")
        target: Any = self._schema
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key[:9]) < len(target):
                target = target[int(key[:9])]
            else:
                self._fail(path, f"$ref {reference!r}: there is no {key!r}")
        return reference, target

    def _followed(self, schema: Any, path: str) -> tuple[str, dict[str, Any]]:
        """A schema behind references, and its place."""
        seen: set[str] = set()
        while isinstance(schema, dict) and "$ref" in schema:
            path, schema = self._target(schema["$ref"], path)
            if path in seen:
                self._fail(path, "a reference that leads to itself")
            seen.add(path)
        if not isinstance(schema, dict):
            self._fail(path, f"a schema is an object, found {_kind(schema)}")
        return path, schema

    def _reference(self, reference: object, path: str) -> Ref:
        place, target = self._target(reference, path)
        if place not in self._references:
            name = self._book.reserve("ref")
            self._references[place] = Ref(name)
            depth, self._depth = self._depth, 0
            self._book.rules[name] = [_sequence(self._value(target, place))]
            self._depth = depth
        return self._references[place]

    def _all_of(self, parts: Sequence[tuple[int, Any]], path: str) -> Ref:
        """As upstream: the properties of all parts in one object, those of alternatives optional; or a common enum."""
        properties: dict[str, Ref] = {}
        required: set[str] = set()
        values: dict[str, int] = {}

        def collect(part: Any, place: str, *, is_required: bool) -> None:
            place, part = self._followed(part, place)
            if "enum" in part:
                for _, value in self._parts(part, "enum", place):
                    values[_dump(value)] = values.get(_dump(value), 0) + 1
            elif isinstance(part.get("properties"), dict):
                for name, schema in part["properties"].items():
                    properties[name] = self._value(schema, f"{place}/properties/{name}")
                    required.update([name] if is_required else [])
            else:
                self._fail(place, "within allOf only properties, enum and references to them are supported")

        _, first = self._followed(parts[0][1], f"{path}/allOf/0")
        if len(parts) == 1 and not {"properties", "anyOf"} & first.keys():
            return self._value(parts[0][1], f"{path}/allOf/0")
        for i, part in parts:
            place = f"{path}/allOf/{i}"
            if isinstance(part, dict) and "anyOf" in part:
                for j, alternative in self._parts(part, "anyOf", place):
                    collect(alternative, f"{place}/anyOf/{j}", is_required=False)
            else:
                collect(part, place, is_required=True)
        common = [value for value, count in values.items() if count == len(parts)]
        if common:
            return self._book.add("enum", map(literal, common))
        if values:
            self._fail(path, "the enums within allOf have no value in common")
        return self._properties(properties, required, None)

    def _object(self, schema: dict[str, Any], path: str) -> Ref:
        named = schema.get("properties", {})
        if not isinstance(named, dict):
            self._fail(path, f"properties is an object, found {_kind(named)}")
        other = schema.get("additionalProperties", "properties" not in schema)
        if not isinstance(other, bool | dict):
            self._fail(path, f"additionalProperties is true, false or a schema, found {_kind(other)}")
        if not named and other is True:
            return self._shared("object")
        names = schema.get("required")
        required = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        properties = {name: self._value(part, f"{path}/properties/{name}") for name, part in named.items()}
        if isinstance(other, dict):
            return self._properties(properties, required, self._value(other, f"{path}/additionalProperties"))
        return self._properties(properties, required, self._shared("any") if other else None)

    def _properties(self, properties: Mapping[str, Ref], required: set[str], other: Ref | None) -> Ref:
        """An object: first the required properties, then the optional ones, then others."""
        space = self._shared("space")
        pairs = {
            name: self._book.add("pair", [_sequence(_dump(name), space, ":", space, rule)])
            for name, rule in properties.items()
        }
        first: list[Alternative] = []
        for name, pair in pairs.items():
            if name in required:
                first.append(_sequence(",", space, pair) if first else _sequence(pair))
        rest: list[Item] = [Item(pair) for name, pair in pairs.items() if name not in required]
        if other:
            key = self._other_key(list(properties))
            pair = self._book.add("pair", [_sequence(key, ":", space, other)])
            rest.append(self._list(_sequence(pair), 1, None))
        if not first and not rest:
            return self._book.add("object", [_sequence("{", space, "}")])
        return self._book.add("object", [_sequence("{", space, *first, *self._optional(rest, bool(first)), space, "}")])

    def _optional(self, parts: Sequence[Item], has_first: bool) -> Alternative:
        """Each part or not, with commas between those there are.

        A part and all after it are a rule (`with` a comma before it), so that the rules stay few.
        """
        space = self._shared("space")
        following: Alternative = ()
        alone: list[Alternative] = []  # the texts that begin with a part
        for part in reversed(parts):
            alone.append(_sequence(part, following))
            comma = self._book.add("comma", [_sequence(",", space, part)])
            following = _sequence(self._book.add("rest", [_sequence(Item(comma, 0, 1), following)]))
        if has_first or not parts:
            return following
        return _sequence(Item(self._book.add("some", alone), 0, 1))

    def _other_key(self, names: Sequence[str]) -> Alternative:
        """A key that is none of the names, nor the beginning of one, as in llama.cpp."""
        tree: dict[str, Any] = {}
        for name in names:
            node = tree
            for unit in _units(name):
                node = node.setdefault(unit, {})
        if not names:
            return _sequence(self._shared("string"))
        low = 1 if "" in names else 0
        return _sequence('"', Item(self._book.add("key", self._other_units(tree)), low, 1), '"')

    def _other_units(self, tree: dict[str, Any]) -> list[Alternative]:
        """Texts that leave the tree; iterative, as names may be long."""
        char = self._shared("char")
        rules: dict[int, str] = {}
        found: list[Alternative] = []
        work = [(tree, found)]
        while work:
            node, alternatives = work.pop()
            for unit, child in node.items():
                if child:
                    rules[id(child)] = self._book.reserve("key")
                    alternatives.append(_sequence(unit, Ref(rules[id(child)])))
                    work.append((child, self._book.rules[rules[id(child)]]))
                else:
                    alternatives.append(_sequence(unit, Item(char, 1, None)))
            more = Item(char, 0, None)
            plain = _PLAIN.without(chars("".join(unit for unit in node if len(unit) == 1)))
            escapes = "".join(code for code in _SIMPLE_ESCAPES if "\\" + code not in node)
            alternatives.append(_sequence(plain, more))
            if escapes:
                alternatives.append(_sequence("\\", chars(escapes), more))
            alternatives.append(_sequence("\\u", Item(_HEX, 4, 4), more))
        return found

    def _list(self, item: Alternative, low: int, high: int | None) -> Item:
        """Items with commas between them."""
        first = self._book.add("item", [item])
        more = self._book.add("more", [_sequence(",", self._shared("space"), first)])
        rest = Item(more, max(low - 1, 0), None if high is None else max(high - 1, 0))
        return Item(self._book.add("list", [_sequence(first, rest)]), min(low, 1), 0 if high == 0 else 1)

    def _array(self, schema: dict[str, Any], path: str) -> Ref:
        space = self._shared("space")
        key = "items" if "items" in schema else "prefixItems"
        items = schema.get(key, {})
        if isinstance(items, list):
            parts = [_sequence(self._value(part, f"{path}/{key}/{i}")) for i, part in enumerate(items)]
            inside = [piece for part in parts for piece in ((",", space), part)][1:]
            flat = (part for piece in inside for part in piece)
            return self._book.add("array", [_sequence("[", space, *flat, space, "]")])
        low, high = self._counts(schema, "Items", path)
        if not items and (low, high) == (0, None):
            return self._shared("array")
        item = _sequence(self._value(items, f"{path}/{key}"))
        return self._book.add("array", [_sequence("[", space, self._list(item, low, high), space, "]")])

    def _string(self, schema: dict[str, Any], path: str) -> Ref:
        if "pattern" in schema:
            if not isinstance(schema["pattern"], str):
                self._fail(path, f"pattern is text, found {_kind(schema['pattern'])}")
            try:
                return self._book.add(
                    "string", [_sequence('"', pattern_rule(schema["pattern"], self._book, _PLAIN), '"')]
                )
            except PatternError as error:
                self._fail(path, f"pattern {schema['pattern']!r}: {error}")
        form = schema.get("format")
        if form is not None and not isinstance(form, str):
            self._fail(path, f"format is text, found {_kind(form)}")
        if _format(form):
            return self._book.add("string", [_sequence('"', self._shared(_format(form)), '"')])
        low, high = self._counts(schema, "Length", path)
        if (low, high) == (0, None):
            return self._shared("string")
        return self._book.add("string", [_sequence('"', Item(self._shared("char"), low, high), '"')])

    def _counts(self, schema: dict[str, Any], what: str, path: str) -> tuple[int, int | None]:
        """`minItems` and `maxItems`, or `minLength` and `maxLength`; as in llama.cpp, a large maximum is none."""
        for key in (f"min{what}", f"max{what}"):
            count = schema.get(key, 0)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                self._fail(path, f"{key} is a whole number of at least 0")
        low, high = schema.get(f"min{what}", 0), schema.get(f"max{what}")
        if low > MAX_REPEATS:
            self._fail(path, f"min{what} {low}, at most {MAX_REPEATS} is accepted")
        if high is not None and high < low:
            self._fail(path, f"min{what} {low} and max{what} {high}")
        return low, None if high is None or high > MAX_REPEATS else high

    def _integer(self, schema: dict[str, Any], path: str) -> Ref:
        low, high = self._bound(schema, "inimum", 1, path), self._bound(schema, "aximum", -1, path)
        if low is None and high is None:
            return self._shared("integer")
        if low is not None and high is not None and low > high:
            self._fail(path, f"no integer is at least {low} and at most {high}")
        return self._book.add("integer", _integers(low, high))

    def _bound(self, schema: dict[str, Any], word: str, step: int, path: str) -> int | None:
        """The least or the largest integer within a bound."""
        inclusive, exclusive = ("m" + word, "exclusiveM" + word)
        key = inclusive if inclusive in schema else exclusive
        if key not in schema:
            return None
        bound = schema[key]
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            self._fail(path, f"{key} is a number, found {_kind(bound)}")
        if abs(bound) >= 1 << 63:
            self._fail(path, f"{key} {bound:g} is beyond 64 bits")
        nearest = math.ceil(bound) if step > 0 else math.floor(bound)
        return nearest + step if key == exclusive and nearest == bound else nearest


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _format(form: object) -> str:
    """The rule of a string format; "" for those that allow any string, as in llama.cpp."""
    if form in ("date", "time", "date-time"):
        return str(form)
    return "uuid" if form in ("uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5") else ""


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _units(name: str) -> list[str]:
    """The characters of a key as they stand in JSON, escapes whole."""
    return [_dump(char)[1:-1] for char in name]


def _integers(low: int | None, high: int | None) -> list[Alternative]:
    """The integers from `low` to `high`, and "-0" with numbers on both sides of it, as in llama.cpp."""
    found: list[Alternative] = []
    if low is None or low < 0:
        nearest, farthest = max(1, -high) if high is not None else 1, None if low is None else -low
        if low is not None and (high is None or high >= 0):
            nearest = 0
        found += [_sequence("-", digits) for digits in _naturals(nearest, farthest)]
    if high is None or high >= 0:
        found += _naturals(max(0, low or 0), high)
    return found


def _naturals(low: int, high: int | None) -> list[Alternative]:
    """The numbers from `low` to `high`; without a high end those of up to 16 digits, or of as many as `low` has."""
    if high is None:
        high = 10 ** max(_MAX_DIGITS, len(str(low))) - 1
    found: list[Alternative] = []
    for n_digits in range(len(str(low)), len(str(high)) + 1):
        least, most = max(low, 10 ** (n_digits - 1) if n_digits > 1 else 0), min(high, 10**n_digits - 1)
        found += _between(str(least), str(most))
    return found


def _between(low: str, high: str) -> list[Alternative]:
    """The numbers from `low` to `high`, which have equally many digits."""
    if not low:
        return [()]
    n = len(low) - 1
    first, last = ord(low[0]), ord(high[0])
    if first == last:
        return [_sequence(low[0], rest) for rest in _between(low[1:], high[1:])]
    found: list[Alternative] = []
    if low[1:] != "0" * n:
        found += [_sequence(low[0], rest) for rest in _between(low[1:], "9" * n)]
        first += 1
    highest: list[Alternative] = []
    if high[1:] != "9" * n:
        highest = [_sequence(high[0], rest) for rest in _between("0" * n, high[1:])]
        last -= 1
    if first <= last:
        found.append(_sequence(Chars.of([(first, last)]), *([Item(DIGIT, n, n)] if n else [])))
    return found + highest
