"""Tool calls read from answers, form by form, whatever the pieces; the texts are written by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specli.tokenizer import ChatTemplate
from specli.tokenizer.answer import AnswerForm, AnswerReader
from specli.tokenizer.calls import HERMES, CallForm, Style
from specli.tokenizer.reasoning import TAGS, Reasoning

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["C", "F"]}},
        "required": ["city"],
    },
    "now": {"type": "object", "properties": {}},
}
CODER = CallForm(Style.TAGS)
GLM = CallForm(Style.PAIRS)
LLAMA = CallForm(Style.JSON, "", "", arguments="parameters")
NEMO = CallForm(Style.JSON, "[TOOL_CALLS]", "", is_list=True)
MISTRAL = CallForm(Style.NAMED, "[TOOL_CALLS]", "", "[ARGS]")
DEEPSEEK = CallForm(
    Style.NAMED, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)  # fmt: skip
GEMMA = CallForm(Style.QUOTED, "<|tool_call>", "<tool_call|>")
HARMONY = CallForm(Style.CHANNELS, "", "")
CHANNELS = Reasoning("<|channel|>analysis<|message|>", "<|end|>", has_channels=True)
FORMS = [HERMES, CODER, GLM, LLAMA, NEMO, MISTRAL, DEEPSEEK, GEMMA]

Call = tuple[str, str]


def read(
    pieces: list[str], calls: CallForm | None, reasoning: Reasoning | None = None, *, is_thinking: bool = False
) -> tuple[str, str, list[Call]]:
    """Content, thoughts and calls."""
    reader = AnswerReader(AnswerForm(reasoning, is_thinking, calls, TOOLS))
    found = [part for piece in pieces for part in reader.push(piece)] + [*reader.flush()]
    content = thought = ""
    made: list[Call] = []
    for piece in found:
        if piece.name:
            assert piece.call == len(made)
            made.append((piece.name, ""))
        if piece.call >= 0:
            name, arguments = made[piece.call]
            made[piece.call] = (name, arguments + piece.text)
        elif piece.is_thought:
            thought += piece.text
        else:
            content += piece.text
    return content, thought, made


PARIS, OSLO = '{"city": "Paris"}', '{"city": "Oslo {]}", "days": 2}'
CASES = {
    "one": (
        HERMES, f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>', "", [("weather", PARIS)],
    ),
    "after text": (
        HERMES, f'I look.\n<tool_call>{{"name":"weather","arguments":{PARIS}}}</tool_call>', "I look.\n",
        [("weather", PARIS)],
    ),
    "two": (
        HERMES,
        f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "", [("weather", PARIS), ("now", "{}")],
    ),
    "arguments first": (
        HERMES, f'<tool_call>{{"arguments": {OSLO}, "name": "weather"}}</tool_call>', "", [("weather", OSLO)],
    ),
    "arguments as text": (
        HERMES, f'<tool_call>{{"name": "weather", "arguments": {json.dumps(PARIS)}}}</tool_call>', "",
        [("weather", PARIS)],
    ),
    "unknown function": (
        HERMES, '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', [],
    ),
    "no JSON": (HERMES, "The tag <tool_call> opens a call.", "The tag <tool_call> opens a call.", []),
    "cut off in the name": (HERMES, '<tool_call>{"name": "wea', '<tool_call>{"name": "wea', []),
    "cut off in the arguments": (
        HERMES, '<tool_call>{"name": "weather", "arguments": {"city": "Pa', "", [("weather", '{"city": "Pa')],
    ),
    "text behind": (
        HERMES, '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n\nDone.', "Done.", [("now", "{}")],
    ),
    "tags": (
        CODER,
        '<tool_call>\n<function=weather>\n<parameter=city>\nNew "York"\n</parameter>\n'
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "", [("weather", '{"city":"New \\"York\\"","days":3}')],
    ),
    "tags without parameters": (
        CODER, "<tool_call>\n<function=now>\n</function>\n</tool_call>", "", [("now", "{}")],
    ),
    "tags with lines": (
        CODER,
        "<tool_call><function=weather><parameter=city>\na\n</function>\nb\n</parameter></function></tool_call>",
        "", [("weather", '{"city":"a\\n</function>\\nb"}')],
    ),
    "tags of an unknown function": (
        CODER, "<tool_call><function=rm></function></tool_call>", "<tool_call><function=rm></function></tool_call>", [],
    ),
    "pairs": (
        GLM,
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>True</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
        "", [("weather", '{"city":"Rome","days":true}'), ("now", "{}")],
    ),
    "no marker": (LLAMA, f'{{"name": "weather", "parameters": {PARIS}}}', "", [("weather", PARIS)]),
    "no marker, two": (
        LLAMA, f'{{"name": "weather", "parameters": {PARIS}}}; {{"name": "now", "parameters": {{}}}}', "",
        [("weather", PARIS), ("now", "{}")],
    ),
    "no marker, text": (LLAMA, 'Use {"name": "now"}.', 'Use {"name": "now"}.', []),
    "no marker, other JSON": (LLAMA, '{"answer": 42}', '{"answer": 42}', []),
    "list": (
        NEMO, f'[TOOL_CALLS][{{"name": "weather", "arguments": {PARIS}, "id": "abcdefghi"}}, '
        '{"name": "now", "arguments": {}, "id": "abcdefghj"}]',
        "", [("weather", PARIS), ("now", "{}")],
    ),
    "name and JSON": (
        MISTRAL, f"[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]now[ARGS]{{}}", "", [("weather", OSLO), ("now", "{}")],
    ),
    "name, number and JSON": (MISTRAL, "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", "", [("now", "{}")]),
    "quoted": (
        GEMMA,
        '<|tool_call>call:weather{city:<|"|>a: "b" {}<tool_call|><|"|>,days:2,x:{y:[true,None,<|"|><|"|>]}}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        "",
        [("weather", '{"city": "a: \\"b\\" {}<tool_call|>", "days": 2, "x": {"y": [true, null, ""]}}'), ("now", "{}")],
    ),
    "around": (
        DEEPSEEK,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{PARIS}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "", [("weather", PARIS), ("now", "{}")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_answers(case: str) -> None:
    form, text, content, calls = CASES[case]
    assert read([text], form) == (content, "", calls)
    assert read(list(text), form) == (content, "", calls)


def test_thought_then_call() -> None:
    text = f'<think>\nhm, weather\n</think>\n\n<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>'
    for pieces in ([text], list(text)):
        assert read(pieces, HERMES, TAGS) == ("", "hm, weather", [("weather", PARIS)])
    inside = "</tool_call> <tool_call> is for later</think>yes"
    assert read([inside], HERMES, TAGS, is_thinking=True) == ("yes", "</tool_call> <tool_call> is for later", [])
    assert read(["<think>\n\n</think>\n\nyes"], None, TAGS) == ("yes", "", [])
    assert read(["<think>a</think>b"], None) == ("<think>a</think>b", "", [])


def test_channels_of_gpt_oss() -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        f"<|constrain|>json<|message|>{PARIS}<|call|>"
    )
    other = text.replace(
        "assistant<|channel|>commentary to=functions.weather", "assistant to=functions.weather<|channel|>commentary"
    )
    for pieces in ([text], list(text), [other]):
        assert read(pieces, HARMONY, CHANNELS) == ("", "hm", [("weather", PARIS)])


@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_cutting_changes_nothing(case: str, cuts: list[int], has_thought: bool) -> None:
    form, text, *_ = CASES[case]
    text = f"<think>a</think>\n{text}" if has_thought else text
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert read(pieces, form, TAGS) == read([text], form, TAGS)


@given(
    st.sampled_from(FORMS),
    st.lists(
        st.sampled_from([
            "<tool_call>", "</tool_call>", '{"name": "now", ', '"arguments": {', "}", "]", "[", ",", '"', "\\", "\n",
            "x", "now", "<function=now>", "</function>", "<parameter=a>", "</parameter>", "<arg_key>", "</arg_key>",
            "<arg_value>", '<|"|>', "<|tool_call>call:now{", "<tool_call|>",
            "</arg_value>", "[TOOL_CALLS]", "[ARGS]", "<think>", "</think>", "<", " ",
        ]),
        max_size=14,
    ),
)  # fmt: skip
def test_cutting_rubbish_changes_nothing(form: CallForm, parts: list[str]) -> None:
    text = "".join(parts)
    assert read(list(text), form, TAGS) == read(parts, form, TAGS) == read([text], form, TAGS)


TEMPLATES = {
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}": HERMES,
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    "<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n"
    "</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}": CODER,
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>"
    "{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}{% endfor %}": GLM,
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{% if m.tool_calls %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}": LLAMA,
    "{% for m in messages %}[INST]{{ m.content }}[/INST]{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% endfor %}]</s>{% endif %}{% endfor %}": NEMO,
    "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<|tool_call>call:"
    '{{ c.function.name }}{ {%- for k, v in c.function.arguments.items() %}{{ k }}:<|"|>{{ v }}<|"|>{% endfor -%} }'
    "<tool_call|>{% endfor %}<turn|>{% endfor %}": GEMMA,
    "{% for m in messages %}[INST]{{ m.content }}[/INST]{% for c in m.tool_calls or [] %}[TOOL_CALLS]"
    "{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% endfor %}": MISTRAL,
}


@pytest.mark.parametrize("source", TEMPLATES, ids=["hermes", "coder", "glm", "llama", "nemo", "gemma", "mistral"])
def test_form_is_found_in_the_template(source: str) -> None:
    found = ChatTemplate(source, origin="t").calls
    assert found is not None
    assert (found.style, found.start, found.arguments, found.is_list) == (
        TEMPLATES[source].style, TEMPLATES[source].start, TEMPLATES[source].arguments, TEMPLATES[source].is_list,
    )  # fmt: skip


def test_template_without_calls_has_no_form() -> None:
    assert ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", origin="t").calls is None
