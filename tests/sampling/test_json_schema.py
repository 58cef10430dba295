import json
import random
from contextlib import suppress
from typing import Any

import pytest

from specli.errors import UsageError
from specli.sampling.json_schema import parse_json_schema
from tests.support.constrained import opened, whole_texts

NAMED = {"a": {"type": "integer"}, "b": {"type": "boolean"}}
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}}}}

# Schema, texts it allows, texts it does not; llama.cpp's converter and matcher (b11434) agree on each.
CASES: list[tuple[Any, list[str], list[str]]] = [
    # Properties: only the named ones, in their order, required ones first.
    (
        {"type": "object", "properties": NAMED},
        ["{}", '{"a":1}', '{"b":true}', '{"a":1,"b":true}'],
        ['{"b":true,"a":1}', '{"c":1}', '{"a":1,"c":1}', '{"a":true}', "{,}"],
    ),
    (
        {"properties": NAMED, "required": ["b"]},
        ['{"b":true}', '{"b":true,"a":1}'],
        ["{}", '{"a":1}', '{"a":1,"b":true}', '{"b":true,"c":1}'],
    ),
    (
        {"properties": NAMED, "required": ["a", "b"], "additionalProperties": False},
        ['{"a":1,"b":true}'],
        ['{"a":1}', '{"a":1,"b":true,"c":1}'],
    ),
    (
        {"properties": NAMED, "additionalProperties": True},
        ["{}", '{"c":[{}]}', '{"a":1,"c":1,"d":2}', '{"cat":null}'],
        ['{"c":1,"a":1}', '{"a":true}'],
    ),
    ({"properties": NAMED, "additionalProperties": {"type": "null"}}, ['{"c":null}'], ['{"c":1}', '{"a":null}']),
    ({"type": "object"}, ["{}", '{"x":{"y":[1,2.5,"",null]}}'], ["[]", '{"x"}']),
    ({"type": "object", "additionalProperties": False}, ["{}", "{ }"], ['{"x":1}', "{  }"]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ["{}", '{"x":1,"y":2}'], ['{"x":null}']),
    # White space: none, a blank, or one or two line ends with an indentation.
    (
        {"properties": {"a": {"const": 1}}, "required": ["a"]},
        ['{"a":1}', '{ "a" : 1 }', '{\n  "a":\n\n\t1\n}', '{\n' + " " * 20 + '"a":1}'],
        ['{  "a":1}', '{\n\n\n"a":1}', '{\n' + " " * 21 + '"a":1}', '{\t"a":1}', ' {"a":1}', '{"a":1} '],
    ),
    ({"type": "array", "items": {"const": 1}}, ["[]", "[1]", "[1,1]", "[ 1, 1\n]"], ["[1 ,1]", "[1,]", "[,1]"]),
    # Arrays.
    ({"items": {"const": 1}, "minItems": 2, "maxItems": 3}, ["[1,1]", "[1,1,1]"], ["[]", "[1]", "[1,1,1,1]"]),
    ({"items": {"const": 1}, "maxItems": 0}, ["[]"], ["[1]"]),
    ({"items": {"const": 1}, "minItems": 2}, ["[1,1]", "[1,1,1,1]"], ["[1]"]),
    ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}, ["[1,2]"], ["[]", "[1]", "[1,2,1]"]),
    ({"type": "array", "items": [{"const": 1}]}, ["[1]"], ["[]", "[2]"]),
    ({"type": "array"}, ["[]", '[1,"a",[{}]]'], ["{}", "[1 1]"]),
    # Alternatives and references.
    ({"anyOf": [{"const": 1}, {"type": "null"}]}, ["1", "null"], ["2", "1null"]),
    ({"oneOf": [{"const": "a"}, {"const": "ab"}]}, ['"a"', '"ab"'], ['"b"']),
    ({"type": ["integer", "null"], "minimum": 3}, ["3", "null"], ["2", "-1"]),
    (TREE, ["{}", '{"t":{}}', '{"t":{"t":{}}}'], ['{"t":1}', '{"x":{}}']),
    (
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"enum": [1, 2]}}},
        ['{"a":1,"b":2}'],
        ['{"a":3}'],
    ),
    (
        {"allOf": [{"properties": {"a": {"const": 1}}}, {"anyOf": [{"properties": {"b": {"const": 2}}}]}]},
        ['{"a":1}', '{"a":1,"b":2}'],
        ["{}", '{"b":2}'],
    ),
    ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}, ["2", "3"], ["1", "4"]),
    ({}, ["1", "[]", '{"a":null}', '"x"', "true"], ["", "x"]),
    # Constants: compact JSON.
    (
        {"enum": [None, True, 1.5, "é\n\"", {"a": [1, {}]}]},
        ["null", "true", "1.5", '"é\\n\\""', '{"a":[1,{}]}'],
        ["1", '{"a": [1,{}]}', '"\\u00e9\\n\\""'],
    ),
    # Strings.
    ({"type": "string"}, ['""', '"aé"', '"\\n\\u00e9\\\\"'], ["a", '"\n"', '"\\a"', '"\\u00e"', '"""']),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ['"a"', '"\\n\\u00e9"'], ['""', '"abc"']),
    ({"maxLength": 1}, ['""', '"a"'], ['"ab"']),
    ({"minLength": 2}, ['"ab"', '"abcdef"'], ['"a"']),
    ({"type": "string", "pattern": "^(ab|c){1,2}x?$"}, ['"ab"', '"cabx"'], ['"x"', '"ccc"', "ab"]),
    ({"type": "string", "pattern": "^[^a-y]\\.\\[z+$"}, ['"z.[zz"'], ['"a.[z"', '"zz[z"']),
    ({"format": "date"}, ['"2024-12-31"'], ['"2024-13-01"', '"2024-12-32"', '"24-12-31"']),
    ({"format": "time"}, ['"23:59:59Z"', '"00:00:00.123+01:30"'], ['"24:00:00Z"', '"00:00:00"']),
    ({"format": "date-time"}, ['"2024-01-02T03:04:05Z"'], ['"2024-01-02"', '"2024-01-02 03:04:05Z"']),
    ({"format": "uuid"}, ['"01234567-89ab-cdef-ABCD-0123456789ab"'], ['"01234567"']),
    ({"type": "string", "format": "email"}, ['"no address"'], ["1"]),
    # Numbers: up to 16 digits before and after the point.
    ({"type": "integer"}, ["0", "-0", "-12", "9" * 16], ["01", "1.0", "9" * 17, "+1", "-"]),
    ({"type": "number"}, ["0", "-1.50", "1e5", "1.5E-10", "0." + "1" * 16], [".5", "1.", "1e05", "0." + "1" * 17]),
    ({"type": "boolean"}, ["true", "false"], ["True", "1"]),
    ({"type": "null"}, ["null"], ["nul", "nulll"]),
    ({"type": "integer", "minimum": -2, "maximum": 3}, ["-2", "-0", "0", "3"], ["-3", "4", "-", "03"]),
    ({"type": "integer", "exclusiveMinimum": -2, "exclusiveMaximum": 3.5}, ["-1", "3"], ["-2", "4"]),
    ({"type": "integer", "minimum": 1.5}, ["2", "10", "9" * 16], ["1", "0", "-2", "02", "9" * 17]),
    ({"type": "integer", "maximum": 120}, ["120", "99", "0", "-5"], ["121", "1000", "012"]),
    ({"type": "integer", "minimum": -15, "maximum": -3}, ["-15", "-3", "-10"], ["-2", "-16", "3", "0"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_texts_of_a_schema(schema: Any, good: list[str], bad: list[str]) -> None:
    assert whole_texts(good + bad, opened(json_schema=json.dumps(schema))) == good


# Where llama.cpp allows more than the schema does, or texts that are no JSON.
STRICTER: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "integer", "minimum": 100}, ["100", "1000"], ["10", "19", "99"]),
    ({"type": "integer", "maximum": -5}, ["-5", "-10"], ["-4", "-05", "5"]),
    ({"type": "string", "pattern": "^.[^x]$"}, ['"ab"', '"\\"\\\\"'], ['"a""', '"a\\"', '"a\n"']),
    ({"type": "string", "pattern": "^\\d{2}-\\w\\s?$"}, ['"12-a"', '"12-_ "'], ['"1-a"', '"12-é"']),
    ({"type": "string", "pattern": "b"}, ['"b"', '"abc"', '"\\n\\\\b"'], ['""', '"ac"']),
    ({"type": "string", "pattern": "^a|b$"}, ['"a"', '"ax"', '"xb"'], ['"x"', '"ba"']),
    ({"type": "string", "pattern": "^a+?(?:b|(?<n>c))[\\]\\-d-f]$"}, ['"aab-"', '"ac]"', '"abe"'], ['"b-"', '"abg"']),
    (
        {"properties": {"and": {}, "q\"": {}}, "additionalProperties": {"const": 1}},
        ['{"andy":1}', '{"x":1}', '{"":1}', '{"q\\\\":1}'],
        ['{"x\n":1}', '{"\\":1}', '{"and":1,"and":1}', '{"q\\"":1,"q\\"":1}'],
    ),
    ({"allOf": [{"type": "string", "minLength": 2}]}, ['"ab"'], ['"a"', "{}"]),
    ({"allOf": [{"properties": NAMED}, {"properties": {"a": {"const": 7}}}]}, ['{"a":7,"b":true}'], ['{"a":1}']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), STRICTER)
def test_texts_that_llama_cpp_gets_wrong(schema: Any, good: list[str], bad: list[str]) -> None:
    assert whole_texts(good + bad, opened(json_schema=json.dumps(schema))) == good


@pytest.mark.parametrize("seed", range(20))
def test_integers_within_bounds(seed: int) -> None:
    r = random.Random(seed)
    bounds = sorted(r.randint(-150, 250) for _ in range(2))
    schema = {"type": "integer"}
    low, high = (bound if r.random() < 0.8 else None for bound in bounds)
    schema |= {"minimum": low} if low is not None else {}
    schema |= {"maximum": high} if high is not None else {}
    texts = [str(n) for n in range(-320, 320)]
    wanted = [text for text in texts if (low is None or int(text) >= low) and (high is None or int(text) <= high)]
    assert whole_texts(texts, opened(json_schema=json.dumps(schema))) == wanted


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"a": NaN}', "not JSON: NaN is no JSON"),
        ("[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        ('{"const": "\\ud800"}', "not JSON: "),
        ("[1]", "#: a schema is an object, found a list"),
        ('{"type": []}', "#: type is an empty list"),
        ('{"properties": {"a": true}}', "#/properties/a: a schema is an object, found true or false"),
        ('{"properties": 1}', "#: properties is an object, found a number"),
        ('{"additionalProperties": "x"}', "#: additionalProperties is true, false or a schema, found text"),
        ('{"enum": []}', "#: enum is a list with at least one entry"),
        ('{"$ref": "http://x"}', "#: $ref 'http://x': only references within the schema are supported (#/…)"),
        ('{"$ref": "#/$defs/x"}', "#: $ref '#/$defs/x': there is no '$defs'"),
        ('{"$ref": "#/a", "a": {"$ref": "#/a"}}', "references that lead to one another without a value between them"),
        ('{"items": {}, "minItems": 3, "maxItems": 2}', "#: minItems 3 and maxItems 2"),
        ('{"minLength": -1}', "#: minLength is a whole number of at least 0"),
        ('{"minLength": 2001}', "#: minLength 2001, at most 2000 is accepted"),
        ('{"type": "integer", "minimum": 3, "maximum": 2}', "#: no integer is at least 3 and at most 2"),
        ('{"type": "integer", "minimum": 1e30}', "#: minimum 1e+30 is beyond 64 bits"),
        ('{"pattern": "^(?=a)b$"}', "#: pattern '^(?=a)b$': '(?=' has no equivalent"),
        ('{"pattern": "a(^b)"}', "#: pattern 'a(^b)': '^' other than at the ends has no equivalent"),
        ('{"pattern": "(a"}', "#: pattern '(a': unbalanced '('"),
        ('{"pattern": "a)"}', "#: pattern 'a)': unbalanced ')'"),
        ('{"pattern": "[a"}', "#: pattern '[a': ends too early"),
        ('{"pattern": "*a"}', "#: pattern '*a': there is nothing before '*' to repeat"),
        ('{"pattern": "\\\\1"}', "#: pattern '\\\\1': '\\1' has no equivalent"),
        ('{"allOf": [{"type": "null"}, {}]}', "#/allOf/0: within allOf only properties, enum and references to them"),
        (json.dumps({"properties": {f"p{i}": {} for i in range(3000)}}), "rules within rules go "),
        ('{"items": ' * 150 + "{}" + "}" * 150, "#" + "/items" * 100 + ": more than 100 schemas within one another"),
    ],
)
def test_what_is_wrong_with_a_schema(schema: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        opened(json_schema=schema)
    assert str(caught.value).startswith(f"JSON schema: {message}")
    assert "\n" not in str(caught.value)


def test_no_schema_ends_the_converter_with_another_error() -> None:
    r = random.Random(3)
    words = ["type", "items", "properties", "required", "anyOf", "allOf", "enum", "$ref", "pattern", "minLength",
             "maximum", "format", "additionalProperties", "#/type", "object", "string", "integer", "^a+$"]  # fmt: skip

    def value(depth: int) -> Any:
        match r.randrange(7 if depth < 4 else 4):
            case 0:
                return r.choice([None, True, -1, 2, 1.5, 10**20])
            case 1 | 2 | 3:
                return r.choice(words)
            case 4:
                return [value(depth + 1) for _ in range(r.randrange(3))]
            case _:
                return {r.choice(words): value(depth + 1) for _ in range(r.randrange(4))}

    for _ in range(3000):
        with suppress(UsageError):
            parse_json_schema(json.dumps({r.choice(words): value(0) for _ in range(3)}))
