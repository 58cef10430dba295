"""How a model writes tool calls, found out from its chat template, and a reader of them while they stream.

As llama.cpp (common/chat-diff-analyzer.cpp, common/chat.cpp, b11434): a conversation with a call is rendered, and what
stands around the call's name and arguments tells the form.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from specli.tokenizer.thoughts import held_back

_NAME, _KEY, _VALUE, _ANSWER = "Zt7Tool", "Zt7Key", "Zt7Value", "Zt7Answer"
_MARKER = r"<[^<>\n]*>|\[[A-Z_/]+\]"
_QUOTE = '<|"|>'
_WORDS = {"True": "true", "False": "false", "None": "null"}
_LITERALS = {word: name for name, word in _WORDS.items()}
_PAIR = re.compile(r"<arg_key>((?s:.*?))</arg_key>()\s*<arg_value>((?s:.*?))</arg_value>")
_CDATA = re.compile(r"\s*<!\[CDATA\[((?s:.*))\]\]>\s*")


class Style(Enum):
    """What stands between the markers of a call."""

    JSON = "json"  # {"name": …, "arguments": {…}}, or a list of these
    NAMED = "named"  # the name, a separator, and the arguments as JSON
    TAGS = "tags"  # <function=NAME><parameter=KEY>VALUE</parameter></function>, with the words of `Tags`
    PAIRS = "pairs"  # NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
    QUOTED = "quoted"  # call:NAME{KEY:<|"|>TEXT<|"|>,KEY:NUMBER}
    PYTHON = "python"  # [NAME(KEY=VALUE, …), …]
    CHANNELS = "channels"  # messages of gpt-oss that are addressed to a function


@dataclass(frozen=True)
class Tags:
    """What TAGS are written with.

    Attributes:
        call: Before a function's name.
        call_end: Ends a call.
        parameter: Before a parameter's name.
        parameter_end: Ends its value.
        head_end: Ends what begins with `call` or `parameter`.
        is_quoted: Names end with a quotation mark, and attributes may follow; otherwise values stand in lines of
            their own.
        has_type: An attribute tells whether a value is a text.
    """

    call: str = "<function="
    call_end: str = "</function>"
    parameter: str = "<parameter="
    parameter_end: str = "</parameter>"
    head_end: str = ">"
    is_quoted: bool = False
    has_type: bool = False

    def pattern(self) -> re.Pattern[str]:
        """A parameter: name, attributes and value."""
        name, line = ('([^"<>\\n]*)"([^<>]*)', "") if self.is_quoted else ("([^<>\\n]*)()", "\\n?")
        parameter, head_end, end = map(re.escape, (self.parameter, self.head_end, self.parameter_end))
        return re.compile(f"{parameter}{name}{head_end}{line}((?s:.*?)){line}{end}")


@dataclass(frozen=True)
class CallForm:
    """How a model writes tool calls.

    Attributes:
        style: What stands between the markers.
        start: What begins a call; "" if an answer that begins with `{` is one.
        end: What ends it; "" if nothing does.
        separator: NAMED: what stands between name and arguments.
        around: What begins and what ends all calls together, which means nothing more; without an end just the former.
        arguments: JSON: the member that has the arguments.
        is_list: JSON: the calls are members of one list.
        name: JSON: the member that has the function's name.
        number: JSON: a member before it that counts the calls; "" for none.
        has_id: NAMED: [CALL_ID] and an id stand between name and separator.
        is_numbered: NAMED: the name is written functions.NAME:NUMBER.
        tags: TAGS: the words.
        tokens: Further tokens that have to be seen to read a call.
    """

    style: Style
    start: str = "<tool_call>"
    end: str = "</tool_call>"
    separator: str = ""
    around: tuple[str, ...] = ()
    arguments: str = "arguments"
    is_list: bool = False
    name: str = "name"
    number: str = ""
    has_id: bool = False
    is_numbered: bool = False
    tags: Tags = Tags()
    tokens: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """The tokens it is made of, which have to be seen to read a call."""
        texts = [self.start, self.separator, self.end, *self.around, *self.tokens]
        if self.style is Style.PAIRS:
            texts.append("<arg_key></arg_key><arg_value></arg_value>")
        elif self.style is Style.QUOTED:
            texts.append(_QUOTE)
        elif self.style is Style.CHANNELS:
            texts.append("<|channel|><|message|><|constrain|><|start|><|end|><|call|>")
        found = [marker for text in texts for marker in re.findall(_MARKER, text)]
        return tuple(dict.fromkeys([*found, *self.tokens]))


HERMES = CallForm(Style.JSON)
"""The form of models whose template says nothing of calls."""


CHANNELS = CallForm(Style.CHANNELS, "", "")
KIMI_K2 = CallForm(
    Style.NAMED, "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>",
    around=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"), is_numbered=True,
)  # fmt: skip
KIMI_K3 = CallForm(
    Style.TAGS, '<|open|>call tool="', "<|close|>call<|sep|>",
    around=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"), tokens=("<|open|>", "<|close|>", "<|sep|>"),
    tags=Tags(
        '<|open|>call tool="', "<|close|>call<|sep|>", '<|open|>argument key="', "<|close|>argument<|sep|>", "<|sep|>",
        is_quoted=True, has_type=True,
    ),
)  # fmt: skip
COHERE = CallForm(
    Style.JSON, "<|START_ACTION|>", "<|END_ACTION|>", arguments="parameters", is_list=True, name="tool_name",
    number="tool_call_id",
)  # fmt: skip
GRANITE = CallForm(Style.JSON, "<|tool_call|>", "", is_list=True)
LFM2 = CallForm(Style.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>")

# What stands in a template → its form, where renderings do not tell: the first that fits counts.
_KNOWN = (
    (("<|channel|>", "functions."), CHANNELS),
    (("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), KIMI_K2),
    (("<|open|>", "<|close|>", "<|end_of_msg|>"), KIMI_K3),
    (("<|START_ACTION|>",), COHERE),
    (("<|tool_call|> followed by a JSON list",), GRANITE),
    (("<|tool_list_start|>",), LFM2),
    (("List of tools: [",), LFM2),
)


def call_probes() -> list[dict[str, Any]]:
    """Variables of the renderings that `find_calls` compares."""
    schema = {"type": "object", "properties": {_KEY: {"type": "string"}}, "required": [_KEY]}
    tool = {"type": "function", "function": {"name": _NAME, "description": "It.", "parameters": schema}}
    user = {"role": "user", "content": "Zt7User"}
    found = []
    for arguments in ({_KEY: _VALUE}, json.dumps({_KEY: _VALUE})):  # some templates print objects, some texts
        call = {"id": "call00001", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        found.append({"messages": [user, {"role": "assistant", "content": "", "tool_calls": [call]}], "tools": [tool]})
    return [*found, {"messages": [user, {"role": "assistant", "content": _ANSWER}], "tools": [tool]}]


def find_calls(source: str, texts: Sequence[str | None]) -> CallForm | None:
    """The form of calls by the renderings of `call_probes` (None for one that failed); None: there is none."""
    for words, known in _KNOWN:
        if all(word in source for word in words):
            return known
    *called, plain = texts
    for text in called:
        form = _form(text or "", plain or "")
        if form is not None:
            return form
    return None


class _Rendering(NamedTuple):
    """A rendered call and what stands around it.

    Attributes:
        before: The text up to the function's name.
        after: The text behind it.
        head: What stands before the text of an answer without a call.
        tail: What stands behind it.
    """

    before: str
    after: str
    head: str
    tail: str

    def marker(self, text: str) -> str:
        """The marker at the end of a text; "" without one, and for the header of any answer."""
        found = re.search(rf"({_MARKER})\s*$", text)
        return "" if found is None or self.head.rstrip().endswith(text.rstrip()[-32:]) else found[1]

    def begun(self) -> list[str]:
        """The markers that only an answer with a call begins with."""
        return re.findall(_MARKER, self.before[len(_common(self.before, self.head)) :])

    def ended(self, text: str) -> list[str]:
        """The markers in a text that do not end any answer."""
        return [end for end in re.findall(_MARKER, text) if not self.tail.startswith(end)]


def _form(text: str, plain: str) -> CallForm | None:
    """The form of the last call in a rendering."""
    at = text.rfind(_NAME)  # earlier ones describe the tool
    if at < 0 or _KEY not in text[at:]:
        return None
    head, _, tail = plain.partition(_ANSWER)
    rendering = _Rendering(text[:at], text[at + len(_NAME) :], head, tail.strip())
    for find in (_function_form, _attribute_form, _pairs_form, _quoted_form, _json_form, _named_form):
        form = find(rendering)
        if form is not None:
            return form
    return None


def _function_form(call: _Rendering) -> CallForm | None:
    """`<function=NAME>` and parameters, or JSON."""
    opening = Tags().call
    if not call.before.endswith(opening):
        return None
    if not re.match(r">\s*<parameter=", call.after):
        return CallForm(Style.NAMED, opening, "</function>", separator=">")
    start = call.marker(call.before.removesuffix(opening))
    return CallForm(Style.TAGS, start or opening, f"</{start[1:]}" if start else "</function>")


def _attribute_form(call: _Rendering) -> CallForm | None:
    """`<invoke name="NAME">`, also with other words, and parameters in the same way."""
    opening = re.search(r'<([^<>\s="]+) name="$', call.before)
    parameter = re.match(rf'">\s*<([^<>\s="]+) name="{_KEY}"([^<>]*)>', call.after)
    if opening is None or parameter is None:
        return None
    tags = Tags(
        opening[0], f"</{opening[1]}>", f'<{parameter[1]} name="', f"</{parameter[1]}>",
        is_quoted=True, has_type="string=" in parameter[2],
    )  # fmt: skip
    section = call.marker(call.before[: opening.start()])
    ends = call.ended(call.after.partition(tags.call_end)[2]) if section else []
    words = dict.fromkeys(re.findall(r"｜[^｜<>]*｜", opening[1] + parameter[1]))
    around = (section, *ends[:1]) if section else ()
    return CallForm(Style.TAGS, tags.call, tags.call_end, around=around, tags=tags, tokens=tuple(words))


def _pairs_form(call: _Rendering) -> CallForm | None:
    start = call.marker(call.before)
    if not start or not re.match(r"\s*<arg_key>", call.after):
        return None
    return CallForm(Style.PAIRS, start, f"</{start[1:]}")


def _quoted_form(call: _Rendering) -> CallForm | None:
    ended = re.search(rf"\}}({_MARKER})", call.after)
    if not call.before.endswith("call:") or not call.after.startswith("{") or not ended:
        return None
    start = call.marker(call.before.removesuffix("call:"))
    return CallForm(Style.QUOTED, start, ended[1]) if start else None


def _json_form(call: _Rendering) -> CallForm | None:
    opening = re.search(r"(\[\s*)?\{(?:[^{}]*,)?\s*\"name\"\s*:\s*\"$", call.before)
    field = re.match(r"\"\s*,\s*\"(arguments|parameters)\"\s*:", call.after)
    if opening is None or field is None:
        return None
    start = call.marker(call.before[: opening.start()])
    rest = call.after.partition(_VALUE)[2].lstrip(' \n"}]')
    closing = re.match(r"</[^<>]*>|\[/[A-Z_]+\]|<\|[^<>]*end[^<>]*\|>", rest)
    end = closing[0] if closing and start and not call.tail.startswith(closing[0]) else ""
    return CallForm(Style.JSON, start, end, arguments=field[1], is_list=bool(opening[1]))


def _named_form(call: _Rendering) -> CallForm | None:
    """The name, perhaps a marker, and the arguments as JSON, perhaps in a fence."""
    start = call.marker(call.before)
    opening = re.match(rf"((?:\[CALL_ID\]\w+)?(?:{_MARKER})*)\s*(```json\s*)?\{{", call.after)
    if opening is None or not start:
        return None
    has_id = opening[1].startswith("[CALL_ID]")
    separator = "[ARGS]" if has_id else opening[1]
    ends = call.ended(call.after.partition(_VALUE)[2].lstrip(' \n"}`'))
    starts = call.begun()[:-1]
    kind = re.search(rf"({_MARKER})[a-z]+{re.escape(start)}$", call.before)
    if kind and starts:  # what stands before the name is always the same
        start, starts = kind[0], starts[:-1]
    fence = ("\n```json\n", "\n```") if opening[2] else (separator, "")
    return CallForm(
        Style.NAMED, start, fence[1] + ends[0] if ends else "", fence[0], around=(*starts[:1], *ends[1:2]),
        has_id=has_id, tokens=("[CALL_ID]",) if has_id else (),
    )  # fmt: skip


def _common(a: str, b: str) -> str:
    return a[: next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))]


class Piece(NamedTuple):
    """A part of an answer.

    Attributes:
        text: Content, or arguments of a call, as JSON.
        call: Number of the call; -1 for content and thoughts.
        name: The function's, in the first piece of a call.
        is_thought: The text belongs to a thought.
    """

    text: str
    call: int = -1
    name: str = ""
    is_thought: bool = False


class _Value:
    """Finds the end of a JSON object or list, character by character.

    Args:
        depth: Objects and lists that are open already.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._is_text = self._is_escaped = False

    def ends_with(self, char: str) -> bool:
        """Takes a character; whether it is the last."""
        if self._is_escaped:
            self._is_escaped = False
        elif self._is_text:
            self._is_escaped, self._is_text = char == "\\", char != '"'
        elif char == '"':
            self._is_text = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


Steps = Generator[Piece | None, None, bool]
"""Pieces, and None where more text is needed; the value says whether the next part may be read."""


class CallReader:
    """Reads content and tool calls from an answer that comes in pieces. What is no call of a tool stays content.

    What all pieces say, joined, does not depend on how the text was cut.

    Args:
        form: How calls are written; not CHANNELS, which `ThoughtSplitter` tells apart.
        tools: Name of a function → JSON schema of its arguments.
    """

    def __init__(self, form: CallForm, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._form = form
        self._tools = tools
        self._text = ""  # still to be read
        self._is_over = False
        self._n_calls = 0
        self._skips_space = False  # behind a call or a marker
        self._steps = self._read()

    def push(self, text: str) -> Iterator[Piece]:
        """Takes a text and gives what is certain by now."""
        self._text += text
        for piece in self._steps:
            if piece is None:
                return
            yield piece

    def flush(self) -> Iterator[Piece]:
        """Gives what was held back; a call that was cut off before its arguments is content."""
        self._is_over = True
        yield from self.push("")

    def _read(self) -> Steps:
        styles = {
            Style.JSON: self._json,
            Style.NAMED: self._named,
            Style.TAGS: self._tags,
            Style.PAIRS: self._pairs,
            Style.QUOTED: self._quoted,
            Style.PYTHON: self._python,
        }
        content = self._content if self._form.start else self._bare
        while (yield from content()):
            is_call = yield from styles[self._form.style]()
            if is_call:
                self._skips_space = True
            else:
                yield Piece(self._form.start)
                if not self._form.start:
                    break
        yield from self._give(len(self._text))
        while not self._is_over:
            yield None
            yield from self._give(len(self._text))
        return False

    def _begin(self, name: str, text: str = "") -> Piece:
        self._n_calls += 1
        return Piece(text, self._n_calls - 1, name)

    def _give(self, length: int) -> Iterator[Piece]:
        """Content; white space that follows a call or a marker is none."""
        text, self._text = self._text[:length], self._text[length:]
        if self._skips_space:
            text = text.lstrip()
            self._skips_space = not text
        if text:
            yield Piece(text)

    # -- content: True where a call begins -------------------------------------------------------------------------

    def _content(self) -> Steps:
        form = self._form
        while True:
            marks = [form.start, *form.around, *([form.end] if form.end and self._n_calls else [])]
            at, mark = min(((at, mark) for mark in marks if (at := self._text.find(mark)) >= 0), default=(-1, ""))
            if at >= 0:
                yield from self._give(at)
                self._text = self._text[len(mark) :]
                if mark == form.start:
                    return True
                self._skips_space = True
                continue
            yield from self._give(len(self._text) - (0 if self._is_over else held_back(self._text, marks)))
            if self._is_over:
                return False
            yield None

    def _bare(self) -> Steps:
        """Without a marker a call begins the answer, or follows another one."""
        while True:
            text = self._text.lstrip(" \n\t;" if self._n_calls else None)
            if text or self._is_over:
                break
            yield None
        if not text.startswith("{"):
            return False
        if self._n_calls:
            self._text = text
        return True

    # -- calls: False where there is none, with the text as it was -------------------------------------------------

    def _json(self) -> Steps:
        before = self._n_calls
        if not self._form.is_list:
            return (yield from self._objects())
        while not (text := self._text.lstrip()):
            if self._is_over:
                return False
            yield None
        if not text.startswith("["):
            return (yield from self._object())
        lead, self._text = self._text[: len(self._text) - len(text)], text[1:]
        while (yield from self._object()):
            while not (text := self._text.lstrip()):
                if self._is_over:
                    return True
                yield None
            self._text = text
            if not text.startswith(","):
                break
            self._text = text[1:]
        if self._n_calls == before:
            self._text = f"{lead}[{self._text}"
            return False
        self._text = self._text.removeprefix("]")
        return True

    def _objects(self) -> Steps:
        """An object; with markers around it others may follow, as MiniMax M1 writes them."""
        if not (yield from self._object()):
            return False
        while self._form.end:
            while not (text := self._text.lstrip()):
                if self._is_over:
                    return True
                yield None
            if not text.startswith("{") or not (yield from self._object()):
                break
        return True

    def _object(self) -> Steps:
        """An object with name and arguments; the arguments are passed on as they come, if the name is known by then."""
        number = rf'(?:"{self._form.number}"\s*:\s*"[^"\\]*"\s*,\s*)?' if self._form.number else ""
        name_form = rf'"{self._form.name}"\s*:\s*"([^"\\]*)"'
        head_form = rf'\s*\{{\s*{number}{name_form}\s*,\s*"{self._form.arguments}"\s*:\s*(?=\{{)'
        value, at = _Value(), 0
        while True:
            head = re.match(head_form, self._text)
            if head and head[1] in self._tools:
                self._text = self._text[head.end() :]
                yield self._begin(head[1])
                yield from self._arguments(_Value(), is_told=True)
                yield from self._arguments(_Value(1), is_told=False)
                return True
            lead = len(self._text) - len(self._text.lstrip())
            if self._text[lead : lead + 1] not in ("", "{"):
                return False
            while at < len(self._text):
                at += 1
                if value.ends_with(self._text[at - 1]):
                    name, arguments = _read_call(self._text[lead:at], self._form)
                    if name not in self._tools:
                        return False
                    self._text = self._text[at:]
                    yield self._begin(name, arguments)
                    return True
            if self._is_over:
                return False
            yield None

    def _arguments(self, value: _Value, *, is_told: bool) -> Steps:
        """The text up to the end of a value."""
        while True:
            end = next((i + 1 for i, char in enumerate(self._text) if value.ends_with(char)), None)
            given = self._text[:end]
            self._text = self._text[len(given) :]
            if given and is_told:
                yield Piece(given, self._n_calls - 1)
            if end is not None or self._is_over:
                return True
            yield None

    def _named(self) -> Steps:
        while (brace := self._text.find("{")) < 0:
            if self._is_over:
                return False
            yield None
        head = self._text[:brace].strip()
        name = head.partition(self._form.separator)[0] if self._form.separator else head
        name = re.split(rf"{_MARKER}|\s", name)[0]
        if self._form.is_numbered:
            name = re.sub(r"^functions\.|:\d+$", "", name)
        if name not in self._tools:
            return False
        self._text = self._text[brace:]
        yield self._begin(name)
        return (yield from self._arguments(_Value(), is_told=True))

    def _tags(self) -> Steps:
        tags = self._form.tags
        opening = "" if self._form.start == tags.call else tags.call
        while True:
            text = self._text.lstrip()
            head, found, rest = text.removeprefix(opening).partition(tags.head_end)
            if found and text.startswith(opening):
                break
            if self._is_over or not opening.startswith(text[: len(opening)]):
                return False
            yield None
        name = head.partition('"')[0] if tags.is_quoted else head
        if name not in self._tools:
            return False
        self._text = rest
        return (yield from self._members(name, tags.parameter, tags.pattern(), tags.call_end))

    def _pairs(self) -> Steps:
        while not (found := re.match(r"\s*([^\s<]+)\s*(?=<)", self._text)):
            if self._is_over or not re.match(r"\s*[^\s<]*\s*$", self._text):
                return False
            yield None
        if found[1] not in self._tools:
            return False
        self._text = self._text[found.end() :]
        return (yield from self._members(found[1], "<arg_key>", _PAIR, self._form.end))

    def _quoted(self) -> Steps:
        """Gemma's notation, which is made into JSON once it is whole."""
        while "{" not in self._text:
            if self._is_over:
                return False
            yield None
        head, _, rest = self._text.partition("{")
        name = head.strip().removeprefix("call:")
        if name not in self._tools or not head.strip().startswith("call:"):
            return False
        self._text = "{" + rest
        yield self._begin(name)
        while True:
            parts = self._text.split(_QUOTE)
            for number in range(0, len(parts), 2):  # the others are texts
                inside, found, after = parts[number].partition(self._form.end)
                if found:
                    self._text = _QUOTE.join([after, *parts[number + 1 :]])
                    yield Piece(_json_of_quoted([*parts[:number], inside]), self._n_calls - 1)
                    return True
            if self._is_over:
                self._text = ""
                return True
            yield None

    def _python(self) -> Steps:
        """Calls of Python, which are made into JSON once their list is whole."""
        while (at := self._text.find(self._form.end)) < 0:
            if self._is_over:
                return False
            yield None
        calls = _read_python(self._text[:at])
        if not calls or any(name not in self._tools for name, _ in calls):
            return False
        self._text = self._text[at + len(self._form.end) :]
        for name, arguments in calls:
            yield self._begin(name, arguments)
        return True

    def _members(self, name: str, start: str, form: re.Pattern[str], end: str) -> Steps:
        """Parameters one by one, made into a JSON object."""
        yield self._begin(name, "{")
        properties = self._tools[name].get("properties")
        schemas = properties if isinstance(properties, Mapping) else {}
        n_members = 0
        while True:
            at, to = self._text.find(start), self._text.find(end)
            found = form.match(self._text, at) if at >= 0 and not 0 <= to < at else None
            if found:
                key = found[1].strip()
                comma = "," if n_members else ""
                n_members += 1
                self._text = self._text[found.end() :]
                member = f"{json.dumps(key, ensure_ascii=False)}:{_json_value(found[3], schemas.get(key), found[2])}"
                yield Piece(comma + member, self._n_calls - 1)
            elif to >= 0 and not 0 <= at < to:
                self._text = self._text[to + len(end) :]
                yield Piece("}", self._n_calls - 1)
                return True
            elif self._is_over:
                self._text = ""
                return True
            else:
                yield None


def _read_call(text: str, form: CallForm) -> tuple[str, str]:
    """Name and arguments of a call that is one object, whatever the order; an empty name: it is none."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return "", ""
    call = call.get("function") if isinstance(call.get("function"), dict) else call
    name, arguments = call.get(form.name), call.get(form.arguments, call.get("arguments", call.get("parameters")))
    if not isinstance(name, str) or not isinstance(arguments, dict | str | None):
        return "", ""
    if isinstance(arguments, str):
        return name, arguments
    return name, json.dumps(arguments or {}, ensure_ascii=False)


def _read_python(text: str) -> list[tuple[str, str]]:
    """Names and arguments of a list of calls, whose values are Python's or JSON's literals; empty: it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes
            listed = ast.parse(text.strip(), mode="eval").body
        calls = listed.elts if isinstance(listed, ast.List) else [listed]
        return [_read_python_call(call) for call in calls]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


def _read_python_call(call: ast.expr) -> tuple[str, str]:
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("no call with named arguments")
    for node in ast.walk(call):
        if isinstance(node, ast.Name) and node.id in _LITERALS:
            node.id = _LITERALS[node.id]
    arguments = {}
    for keyword in call.keywords:
        value = ast.parse(ast.unparse(keyword.value), mode="eval")  # True is no name, but a constant
        arguments[keyword.arg or ""] = ast.literal_eval(value)
    return ast.unparse(call.func), json.dumps(arguments, ensure_ascii=False)


def _json_of_quoted(parts: Sequence[str]) -> str:
    """JSON from what stands outside and inside of quotes by turns; what cannot be made into it stays as it is."""
    made = ""
    for number, part in enumerate(parts):
        if number % 2:
            made += json.dumps(part, ensure_ascii=False)
        else:
            keyed = re.sub(r"([A-Za-z_][\w.-]*)\s*:", r'"\1":', part)
            made += re.sub(r"\b(True|False|None)\b", lambda word: _WORDS[word[0]], keyed)
    try:
        return json.dumps(json.loads(made), ensure_ascii=False)
    except (ValueError, RecursionError):
        return _QUOTE.join(parts)


def _json_value(text: str, schema: object, attributes: str) -> str:
    """A parameter's text as JSON: a text where the schema allows one, otherwise what it says in JSON or Python.

    Args:
        text: What stands between the tags.
        schema: The parameter's.
        attributes: Those of the tag, which may tell that the value is a text or is none.
    """
    is_text = 'string="true"' in attributes or (may_be_text(schema) and 'string="false"' not in attributes)
    wrapped = _CDATA.fullmatch(text)
    text = wrapped[1] if wrapped else text
    if not is_text:
        stripped = text.strip()
        word = _WORDS.get(stripped, stripped)
        try:
            json.loads(word)
        except (ValueError, RecursionError):
            pass
        else:
            return word
    return json.dumps(text, ensure_ascii=False)


def may_be_text(schema: object) -> bool:
    """Whether a parameter's schema allows a text, which TAGS and PAIRS write without quotes."""
    if not isinstance(schema, Mapping):
        return True
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind == "string"
    if isinstance(kind, list):
        return "string" in kind
    if isinstance(schema.get("enum"), list):
        return any(isinstance(each, str) for each in schema["enum"])
    alternatives = schema.get("anyOf", schema.get("oneOf"))
    return any(map(may_be_text, alternatives)) if isinstance(alternatives, list) else True
