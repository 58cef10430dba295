"""Tool calls read from answers, form by form, whatever the pieces; the texts are written by hand."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specli.tokenizer import ChatTemplate
from specli.tokenizer.answer import AnswerForm, AnswerReader
from specli.tokenizer.calls import COHERE, GRANITE, HERMES, KIMI_K2, KIMI_K3, LFM2, CallForm, Style
from specli.tokenizer.reasoning import TAGS, Reasoning
from specli.tokenizer.thoughts import split_thoughts
from tests.support.call_forms import DSML, MINICPM, MINIMAX

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
MINIMAX_M1 = CallForm(Style.JSON, "<tool_calls>", "</tool_calls>")
R1_QWEN = CallForm(
    Style.NAMED, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>", "\n```json\n",
    around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)  # fmt: skip
HARMONY = CallForm(Style.CHANNELS, "", "")
CHANNELS = Reasoning("<|channel|>analysis<|message|>", "<|end|>", has_channels=True)
FORMS = [HERMES, CODER, GLM, LLAMA, NEMO, MISTRAL, DEEPSEEK, GEMMA, KIMI_K2, COHERE, LFM2, DSML, MINICPM]

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
    "numbered": (
        KIMI_K2,
        f"So.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{OSLO}"
        "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        "So.", [("weather", OSLO), ("now", "{}")],
    ),
    "numbered, not so": (
        KIMI_K2, "<|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>", "", [("now", "{}")],
    ),
    "Kimi K3": (
        KIMI_K3,
        '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" type="string"'
        '<|sep|>Rome\n"<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>2'
        '<|close|>argument<|sep|>'
        '<|close|>call<|sep|><|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        "", [("weather", '{"city":"Rome\\n\\"","days":2}'), ("now", "{}")],
    ),
    "tool_name": (
        COHERE,
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": ' + PARIS + "},\n"
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        "", [("weather", PARIS), ("now", "{}")],
    ),
    "tool_name last": (
        COHERE, '<|START_ACTION|>[{"parameters": {}, "tool_name": "now"}]<|END_ACTION|>', "", [("now", "{}")],
    ),
    "Granite 3.3": (GRANITE, '<|tool_call|>[{"name": "weather", "arguments": ' + OSLO + "}]", "", [("weather", OSLO)]),
    "Python": (
        LFM2, "I look.<|tool_call_start|>[weather(city='O\\'Hara \"[1]\"', days=-2, x={'a': [True, null]}), "
        "now()]<|tool_call_end|>",
        "I look.", [("weather", '{"city": "O\'Hara \\"[1]\\"", "days": -2, "x": {"a": [true, null]}}'), ("now", "{}")],
    ),
    "Python, no call": (
        LFM2, "<|tool_call_start|>[1 + now]<|tool_call_end|>", "<|tool_call_start|>[1 + now]<|tool_call_end|>", [],
    ),
    "Python, no literal": (
        LFM2, "<|tool_call_start|>[now(a=b)]<|tool_call_end|>", "<|tool_call_start|>[now(a=b)]<|tool_call_end|>", [],
    ),
    "Python, cut off": (LFM2, "<|tool_call_start|>[now(", "<|tool_call_start|>[now(", []),
    "attributes": (
        DSML,
        'So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" '
        'string="true">12</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="x" string="false">[1, "a"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        "So.\n\n", [("weather", '{"city":"12","x":[1, "a"]}'), ("now", "{}")],
    ),
    "MiniMax M2": (
        MINIMAX,
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">a\nb</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
        "", [("weather", '{"city":"a\\nb","days":3}')],
    ),
    "MiniCPM5": (
        MINICPM,
        '<function name="weather"><param name="city"><![CDATA[a < b]]></param><param name="days">3</param></function>',
        "", [("weather", '{"city":"a < b","days":3}')],
    ),
    "MiniMax M1": (
        MINIMAX_M1,
        f'<tool_calls>\n{{"name": "weather", "arguments": {PARIS}}}\n{{"name": "now", "arguments": {{}}}}\n'
        "</tool_calls>",
        "", [("weather", PARIS), ("now", "{}")],
    ),
    "fences": (
        R1_QWEN,
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{PARIS}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
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


GRANITE_THOUGHTS = Reasoning("<think>", "</think>", answer=("<response>", "</response>"))
KIMI_THOUGHTS = Reasoning(
    "<|open|>think<|sep|>", "<|close|>think<|sep|>",
    answer=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("reasoning", "text", "content", "calls"),
    [
        (GRANITE_THOUGHTS, "<think>hm</think>\n<response>Yes <b>.</response>", "Yes <b>.", []),
        (GRANITE_THOUGHTS, "<think>hm</think> Yes </response>", "Yes </response>", []),
        (GRANITE_THOUGHTS, "<think>hm</think><response>cut of</respo", "cut of</respo", []),
        (GRANITE_THOUGHTS, "<think>hm</think><resp", "<resp", []),
        (KIMI_THOUGHTS, f"{KIMI_THOUGHTS.start}hm{KIMI_THOUGHTS.end}<|open|>response<|sep|>Yes<|close|>response<|sep|>"
         '<|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
         "<|close|>message<|sep|>", "Yes", [("now", "{}")]),
    ],
)  # fmt: skip
def test_what_stands_around_an_answer_is_no_part_of_it(
    reasoning: Reasoning, text: str, content: str, calls: list[Call]
) -> None:
    form = KIMI_K3 if reasoning is KIMI_THOUGHTS else HERMES
    assert read([text], form, reasoning) == read(list(text), form, reasoning) == (content, "hm", calls)
    if not calls:
        assert split_thoughts(text, reasoning) == (content, "hm")


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


FORM_OF = {
    "Apriel-1.6-15b-Thinker-fixed": "json [<tool_calls>", "Bielik-11B-v3.0-Instruct": "json <tool_call>",
    "ByteDance-Seed-OSS": "tags <seed:tool_call>", "Cohere2MoE": "json [<|START_ACTION|>",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "json [<|START_ACTION|>", "GLM-4.6": "pairs <tool_call>",
    "GLM-4.7-Flash": "pairs <tool_call>", "GigaChat3.1-10B-A1.8B": "json <|function_call|>",
    "Kimi-K2-Instruct": "named <|tool_call_begin|>", "Kimi-K2-Thinking": "named <|tool_call_begin|>",
    "Kimi-K3": 'tags <|open|>call tool="', "LFM2-8B-A1B": "python <|tool_call_start|>",
    "LFM2.5-8B-A1B": "python <|tool_call_start|>", "LFM2.5-Instruct": "python <|tool_call_start|>",
    "MiMo-VL": "json <tool_call>", "MiniMax-M1": "json <tool_calls>", "MiniMax-M2": 'tags <invoke name="',
    "Mistral-Small-3.2-24B-Instruct-2506": "named [TOOL_CALLS]",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "tags <tool_call>", "NVIDIA-Nemotron-Nano-v2": "json [<TOOLCALL>",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "json <tool_call>",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "json <tool_call>", "Qwen-QwQ-32B": "json <tool_call>",
    "Qwen-Qwen2.5-7B-Instruct": "json <tool_call>", "Qwen-Qwen3-0.6B": "json <tool_call>",
    "Qwen3-Coder": "tags <tool_call>", "Qwen3.5-4B": "tags <tool_call>", "Reka-Edge": "json <tool_call>",
    "Spark2.5": "pairs <tool_call>", "StepFun3.5-Flash": "tags <tool_call>",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "named <｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    "deepseek-ai-DeepSeek-V3.1": "named <｜tool▁call▁begin｜>",
    "deepseek-ai-DeepSeek-V3.2": 'tags <｜DSML｜invoke name="',
    "deepseek-ai-DeepSeek-V4": 'tags <｜DSML｜invoke name="',
    "deepseek-ai-DeepSeek-V4-Flash-0731": 'tags <｜DSML｜invoke name="',
    "fireworks-ai-llama-3-firefunction-v2": "json [", "google-gemma-4-31B-it": "quoted <|tool_call>",
    "google-gemma-4-31B-it-interleaved": "quoted <|tool_call>",
    "ibm-granite-granite-3.3-2B-Instruct": "json [<|tool_call|>",
    "ibm-granite-granite-4.0": "json <tool_call>", "ibm-granite-granite-4.1": "json <tool_call>",
    "inclusionai-ling-3.0-flash": "pairs <tool_call>", "llm-jp-llm-jp-4.1-8b-thinking": "channels ",
    "meetkai-functionary-medium-v3.1": "named <function=", "meta-llama-Llama-3.1-8B-Instruct": "json ",
    "meta-llama-Llama-3.2-3B-Instruct": "json ", "meta-llama-Llama-3.3-70B-Instruct": "json ",
    "mistralai-Ministral-3-14B-Reasoning-2512": "named [TOOL_CALLS]",
    "mistralai-Mistral-Nemo-Instruct-2407": "json [[TOOL_CALLS]", "moonshotai-Kimi-K2": "named <|tool_call_begin|>",
    "openai-gpt-oss-120b": "channels ", "openbmb-MiniCPM5-1B": 'tags <function name="',
    "poolside-Laguna-S-2.1": "pairs <tool_call>", "poolside-Laguna-XS-2.1": "pairs <tool_call>",
    "poolside-Laguna-XS.2": "pairs <tool_call>", "unsloth-Apriel-1.5": "json [<tool_calls>",
    "unsloth-mistral-Devstral-Small-2507": "named [TOOL_CALLS]", "upstage-Solar-Open-100B": "named <|tool_call:name|>",
}  # fmt: skip
"""A template that comes with llama.cpp → the style of calls and what begins one, read off its text; `[`: a list."""


def test_forms_of_the_templates_of_llama_cpp() -> None:
    tree = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not tree:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    for name, form in FORM_OF.items():
        source = (Path(tree) / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        found = ChatTemplate(source, origin=name).calls
        assert found is not None, name
        assert f"{found.style.value} {'[' if found.is_list else ''}{found.start}" == form, name
