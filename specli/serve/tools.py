"""Tools of a chat request: what may be called, what has to be, and the grammar that sees to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specli.serve.errors import RequestError
from specli.serve.fields import flag
from specli.tokenizer.answer import AnswerForm
from specli.tokenizer.calls import KIMI_K3, CallForm, Style, Tags, may_be_text
from specli.tokenizer.reasoning import Reasoning

_HEAD = "%llguidance {}\n"
_HEADERS = ("<|channel|>commentary", "<|start|>assistant")  # of a call in the form of gpt-oss
_ANY_ARGUMENTS = {"type": "object", "properties": {}}
_LOOSE = {  # what stands before and behind the arguments
    Style.QUOTED: ("call:%s{", "}"),
    Style.PYTHON: ("[%s(", ")]"),
    Style.TAGS: (KIMI_K3.tags.call + '%s"', ""),
}
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}


@dataclass(frozen=True)
class Tools:
    """What a request says of tools.

    Attributes:
        descriptions: For the template.
        schemas: Name of a function that may be called → JSON schema of its arguments.
        must_call: The answer has to be a call.
        is_parallel: It may be several.
    """

    descriptions: list[dict[str, Any]] = field(default_factory=list)
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    must_call: bool = False
    is_parallel: bool = True

    @property
    def may_call(self) -> bool:
        """Calls are looked for in the answer."""
        return bool(self.schemas)


def read_tools(body: Mapping[str, Any]) -> Tools:
    """`tools`, `tool_choice` and `parallel_tool_calls`.

    Raises:
        RequestError: They are wrong.
    """
    given = body.get("tools")
    if given is not None and not isinstance(given, list):
        raise RequestError("Failed to parse tools: Expected 'tools' to be an array")
    descriptions = [_read_tool(tool) for tool in given or []]
    schemas = {tool["function"]["name"]: _arguments(tool["function"]) for tool in descriptions}
    choice = body.get("tool_choice")
    must_call = choice == "required"
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in schemas:
            raise RequestError(f"Invalid tool_choice: there is no tool {json.dumps(name, ensure_ascii=False)}")
        schemas, must_call = {name: schemas[name]}, True
    elif choice not in (None, "auto", "none", "required"):
        raise RequestError(f"Invalid tool_choice: {choice}")
    if must_call and not schemas:
        raise RequestError("Invalid tool_choice: a call is required, but there are no tools")
    if choice == "none":
        schemas = {}
    return Tools(descriptions, schemas, must_call, flag(body, "parallel_tool_calls", default=True))


def _read_tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or "type" not in tool:
        raise RequestError("Failed to parse tools: Missing tool type")
    if tool["type"] != "function":
        raise RequestError(f"Failed to parse tools: Unsupported tool type: {json.dumps(tool['type'])}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise RequestError("Failed to parse tools: Missing tool function")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError("Failed to parse tools: a function needs a 'name'")
    if not isinstance(function.get("description", ""), str):
        raise RequestError("Failed to parse tools: the 'description' of a function must be a string")
    if not isinstance(function.get("parameters") or {}, dict):
        raise RequestError("Failed to parse tools: the 'parameters' of a function must be an object")
    described = {
        "name": function["name"],
        "description": function.get("description", ""),
        "parameters": function.get("parameters") or {},
    }
    return {"type": "function", "function": described}


def _arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    return function["parameters"] or _ANY_ARGUMENTS


# -- grammars, in llguidance's notation ------------------------------------------------------------------------------


def lark_of_schema(schema: Any, form: AnswerForm) -> str:
    """The grammar of an answer that is a thought and then JSON."""
    return "".join([_HEAD, f"start: {_thought(form)} json\n", f"json: {_json(schema)}\n", _until(form)])


def trigger_words(calls: CallForm) -> tuple[str, ...]:
    """Texts with which calls begin in an answer that may do without; none if anything may be a call's beginning."""
    if calls.style is Style.CHANNELS:
        return tuple(f"{header} to=functions." for header in _HEADERS)
    return tuple(dict.fromkeys(filter(None, (*calls.around[:1], calls.start))))


def thought_tags(reasoning: Reasoning | None) -> tuple[str, str] | None:
    """What begins and ends the thought of an answer; None: nothing does, or the channels tell."""
    return (
        None if reasoning is None or not reasoning.end or reasoning.has_channels else (reasoning.start, reasoning.end)
    )


def lark_of_call(calls: CallForm, tools: Tools, form: AnswerForm | None = None) -> str:
    """The grammar of calls of tools.

    Args:
        calls: How they are written.
        tools: What may be called.
        form: The answer that has to be a call, after a thought if it likes; None: only the calls are constrained.
    """
    opening = "" if form else _HEADERS[1]  # which the prompt ends with, where a call begins the answer
    form = form or AnswerForm()
    rules = [_HEAD]
    functions = []
    for number, (name, schema) in enumerate(tools.schemas.items()):
        functions.append(f"call{number}")
        rules.append(f"call{number}: {_call(calls, name, schema, rules, number, opening)}\n")
    one = " | ".join(functions)
    if calls.style is Style.JSON and calls.is_list:
        more = ' (ws? "," ws? one)*' if tools.is_parallel else ""
        call = f'{_text(calls.start + "[")} ws? one{more} ws? "]"{_optional_text(calls.end)}'
    elif calls.around:
        first, *last = map(_text, calls.around)
        wrapped = _wrapped(calls)
        more = f" (ws? {wrapped})*" if tools.is_parallel else ""
        first = first if opening == "" else f"({first} ws?)?"  # the word that triggers may be that of the call
        call = f"{first} ws? {wrapped}{more} {'ws? ' if last else ''}{' '.join(last)}"
    else:
        wrapped = _wrapped(calls)
        joint = "" if calls.style in (Style.NAMED, Style.QUOTED, Style.PYTHON) else '"\\n"'
        more = f" ({joint} {wrapped})*" if tools.is_parallel and calls.start else ""
        call = f"{wrapped}{more}"
    rules.append("ws: /[ \\n]+/\n")
    rules.append(f"one: {one}\n")
    thought = _thought(form)
    rules.append(f"start: {thought} {call}\n")
    return "".join([*rules, _until(form)])


def _wrapped(calls: CallForm) -> str:
    """A call with its markers."""
    space = '"\\n"' if _is_tagged(calls) else ""
    start = "" if calls.start == calls.tags.call and calls.style is Style.TAGS else _text(calls.start)
    is_whole = _is_loose(calls) or (calls.style is Style.TAGS and calls.end == calls.tags.call_end)
    return f"{start} {space} one {space} {'' if is_whole else _text(calls.end)}"


def _is_loose(calls: CallForm) -> bool:
    """Only the name is held, and the arguments end with the call."""
    return calls.style in (Style.QUOTED, Style.PYTHON) or calls == KIMI_K3


def _is_tagged(calls: CallForm) -> bool:
    return (
        calls.style in (Style.JSON, Style.TAGS)
        and not calls.is_list
        and calls.start.startswith("<")
        and calls.start != calls.tags.call
    )


def _call(
    calls: CallForm, name: str, schema: Mapping[str, Any], rules: list[str], number: int, opening: str = ""
) -> str:
    """What stands between the markers of a call, for gpt-oss its header, too; further rules are added."""
    if calls.style is Style.JSON:
        head = json.dumps({calls.name: name}, ensure_ascii=False)[1:-1] + f', "{calls.arguments}": '
        begun = f'{_text(f"{{{json.dumps(calls.number)}: ")} /"[0-9]+"/ {_text(", " + head)}'
        return f'{begun if calls.number else _text("{" + head)} {_json(schema)} "}}"'
    if calls.style is Style.NAMED:
        if calls.is_numbered:
            return f"{_text(f'functions.{name}:')} /[0-9]+/ {_text(calls.separator)} {_json(schema)}"
        if calls.has_id:
            return f"{_text(f'{name}[CALL_ID]')} /[a-zA-Z0-9]{{9}}/ {_text(calls.separator)} {_json(schema)}"
        return f"{_text(name + calls.separator)} {_json(schema)}"
    if _is_loose(calls):
        head, end = _LOOSE[calls.style]
        rules.append(f"args_{number}[lazy]: {_up_to(end + calls.end)}\n")
        return f"{_text(head % name)} args_{number}"
    if calls.style is Style.CHANNELS:
        heads = (f"{_HEADERS[0]} to=functions.{name}", f"{opening} to=functions.{name}<|channel|>commentary")
        kind = " | ".join(map(_text, (" <|constrain|>json", "<|constrain|>json", " json")))
        return f"({' | '.join(map(_text, heads))}) ({kind})? {_text('<|message|>')} {_json(schema)}"
    properties = schema.get("properties")
    listed = schema.get("required")
    required = listed if isinstance(listed, list) else []
    members = []
    for place, (key, of_key) in enumerate((properties if isinstance(properties, dict) else {}).items()):
        if calls.style is Style.TAGS:
            before, end = _parameter(calls.tags, key, is_text=may_be_text(of_key))
        else:
            before, end = f"<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>"
        if (
            isinstance(of_key, dict) and isinstance(of_key.get("enum"), list) and of_key["enum"]
        ):  # texts stand without quotes
            values = (each if isinstance(each, str) else json.dumps(each) for each in of_key["enum"])
            value = f"({' | '.join(_text(each + end) for each in values)})"
        elif may_be_text(of_key):
            value = f"arg_{number}_{place}"
            rules.append(f"{value}[lazy]: {_up_to(end)}\n")
        else:
            shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
            value = f"{_json({**of_key, **shared})} {_text(end)}"
        member = f"{_text(before)} {value} {'ws?' if calls.tags.is_quoted else _text(chr(10))}"
        members.append(member if key in required else f"({member})?")
    if calls.style is Style.PAIRS:
        return " ".join([_text(name + "\n"), *members])
    tags = calls.tags
    head = f'{tags.call}{name}"{tags.head_end}' if tags.is_quoted else f"{tags.call}{name}{tags.head_end}\n"
    return " ".join([_text(head), *(["ws?"] if tags.is_quoted else []), *members, _text(tags.call_end)])


def _parameter(tags: Tags, key: str, *, is_text: bool) -> tuple[str, str]:
    """What stands before and behind a value."""
    if not tags.is_quoted:
        return f"{tags.parameter}{key}{tags.head_end}\n", f"\n{tags.parameter_end}"
    attribute = f' string="{json.dumps(is_text)}"' if tags.has_type else ""
    return f'{tags.parameter}{key}"{attribute}{tags.head_end}', tags.parameter_end


def _thought(form: AnswerForm) -> str:
    """A thought before the answer: needed if it has begun, else as the model likes."""
    tags = thought_tags(form.reasoning)
    if tags is None:
        return ""
    rest = "thought /[ \\t\\n]{0,2}/"
    return rest if form.is_thinking else f"({_text(tags[0])} {rest})?"


def _until(form: AnswerForm) -> str:
    return f"thought[lazy]: {_up_to(form.reasoning.end)}\n" if _thought(form) and form.reasoning else ""


def _up_to(end: str) -> str:
    """Any text up to the first place where another one ends."""
    escaped = {"/": "\\/", "\n": "\\n"} | {char: f"\\{char}" for char in ".*+?()[]{}|^$\\"}
    return f"/(?s:.*){''.join(escaped.get(char, char) for char in end)}/"


def _json(schema: Any) -> str:
    whole = schema if isinstance(schema, dict) and schema else {"type": "object"} if schema == {} else schema
    return f"%json {json.dumps({**whole, 'x-guidance': _COMPACT} if isinstance(whole, dict) else whole)}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _optional_text(text: str) -> str:
    return f" {_text(text)}" if text else ""
