"""Thoughts and tool calls in the answers of the server, with OpenAI's own client and against llama.cpp's server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.demo import MODELS
from specli.engine.config import SamplingConfig
from specli.sampling.lazy import LazyGrammar
from specli.sampling.settings import Triggers
from specli.serve.chat import ChatPrompts
from specli.serve.errors import RequestError
from specli.serve.fields import MAX_GRAMMAR
from specli.serve.tools import lark_of_call, lark_of_schema, read_tools, trigger_words
from specli.tokenizer import ChatTemplate
from specli.tokenizer.answer import AnswerForm, AnswerReader
from specli.tokenizer.calls import COHERE, GRANITE, HERMES, KIMI_K2, KIMI_K3, LFM2, CallForm, Style
from specli.tokenizer.reasoning import TAGS, Reasoning
from tests.serve.support import Served, run_config, serving
from tests.support.call_forms import DSML, MINICPM, MINIMAX
from tests.support.upstream_server import upstream_completions

TARGET = next(model.path for model in MODELS if model.is_target)
CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello, who are you?"}]}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Paris", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
    "</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if opens %}<think>\n{% endif %}{% endif %}"
)
CALLING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}"
)
THOUGHT = 'root ::= "<think>\\nhm, so\\n</think>\\n\\nYes."'


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(run_config(TARGET, types=("ngram-simple",))) as server:
        yield server


def joined(events: list[Any]) -> dict[str, Any]:
    """The message that the events of a stream make, as OpenAI's client puts it together."""
    message: dict[str, Any] = {}
    for event in events:
        for choice in event["choices"] if event != "[DONE]" else []:
            for key, value in choice["delta"].items():
                if key != "tool_calls":
                    message[key] = (message.get(key) or "") + (value or "")
                for part in value if key == "tool_calls" else []:
                    calls = message.setdefault("tool_calls", [])
                    if part["index"] == len(calls):
                        calls.append(
                            {"id": part["id"], "type": part["type"], "function": {"name": "", "arguments": ""}}
                        )
                    for name, text in part["function"].items():
                        calls[part["index"]]["function"][name] += text
            message["finish_reason"] = choice["finish_reason"]
    return message


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_required_call_is_made_and_streamed(served: Served, choice: Any) -> None:
    body = {**HELLO, "tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 60}
    (answer,) = served.post(CHAT, body).json["choices"]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"] == ""
    (call,) = answer["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["city"] in ("Paris", "Oslo")
    assert 1 <= arguments["days"] <= 9
    reply = served.post(CHAT, {**body, "stream": True})
    message = joined(reply.events)
    assert message["finish_reason"] == "tool_calls"
    assert [each["function"] for each in message["tool_calls"]] == [call["function"]]
    assert len(message["tool_calls"][0]["id"]) == len(call["id"]) == 9


def test_calls_go_back_through_the_template(served: Served) -> None:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        *HELLO["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"},
    ]
    prompt = served.post("/apply-template", {"messages": messages, "tools": [WEATHER]}).json["prompt"]
    run = served.run[0]
    assert prompt == run.session().template.render(messages, add_generation_prompt=True, tools=[WEATHER])
    assert "rain" in prompt
    assert served.post(CHAT, {"messages": messages, "tools": [WEATHER], "max_tokens": 4}).status == 200


def test_thoughts_stand_apart_unless_they_are_asked_to_stay() -> None:
    """A grammar writes the answer, so that it is known."""
    body = {**HELLO, "grammar": THOUGHT, "max_tokens": 60}
    whole = "<think>\nhm, so\n</think>\n\nYes."
    with serving(replace(run_config(TARGET, types=("ngram-simple",)), chat_template=THINKING)) as served:

        def ask(**more: Any) -> Any:
            return served.post(CHAT, {**body, **more}).json["choices"][0]["message"]

        assert ask() == ask(reasoning_format="deepseek-legacy") == ask(reasoning_format="auto")
        assert ask() == {"role": "assistant", "content": "Yes.", "reasoning_content": "hm, so"}
        assert ask(reasoning_format="none") == {"role": "assistant", "content": whole}
        streamed = joined(served.post(CHAT, {**body, "stream": True}).events)
        assert (streamed["content"], streamed["reasoning_content"]) == ("Yes.", "hm, so")
        shown = served.post("/apply-template", {**HELLO, "chat_template_kwargs": {"enable_thinking": False}}).json
        assert shown["prompt"].endswith("<think>\n\n</think>\n\n")
        inside = {"chat_template_kwargs": {"opens": True}}
        continued = ask(**inside, grammar='root ::= "so</think>Yes."')
        assert continued == {"role": "assistant", "content": "Yes.", "reasoning_content": "so"}


def is_allowed(served: Served, lark: str, text: str, triggers: Triggers | None = None) -> bool:
    """Whether a grammar lets a text through to its end."""
    run = served.run[0]
    tokenizer, config = run.tokenizer, SamplingConfig(grammar=lark, triggers=triggers)
    grammar = LazyGrammar.from_config(config, tokenizer, run.engine.target.config.n_vocab)
    assert grammar is not None
    for token in [*tokenizer.encode(text, add_special=False, parse_special=False), min(tokenizer.eog_ids)]:
        if not grammar.allows(token):
            return False
        grammar.accept(token)
    return True


def test_grammar_of_a_schema_follows_a_thought(served: Served) -> None:
    inside = lark_of_schema({"enum": [7]}, AnswerForm(TAGS, is_thinking=True))
    assert is_allowed(served, inside, "so < it\nis</think>\n\n7")
    assert not is_allowed(served, inside, "7")
    assert not is_allowed(served, inside, "so</think>8")


CHANNELS = Reasoning("<|channel|>analysis<|message|>", "<|end|>", has_channels=True)
CALLS = {
    "hermes": (HERMES, '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'),
    "coder": (
        CallForm(Style.TAGS),
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>",
    ),
    "glm": (
        CallForm(Style.PAIRS),
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>",
    ),
    "llama": (
        CallForm(Style.JSON, "", "", arguments="parameters"),
        '{"name": "weather", "parameters": {"city": "Oslo", "days": 2}}',
    ),
    "nemo": (
        CallForm(Style.JSON, "[TOOL_CALLS]", "", is_list=True),
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}]',
    ),
    "mistral": (
        CallForm(Style.NAMED, "[TOOL_CALLS]", "", "[ARGS]"), '[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "days": 2}',
    ),
    "mistral small": (
        CallForm(Style.NAMED, "[TOOL_CALLS]", "", "[ARGS]", has_id=True),
        '[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Oslo", "days": 2}',
    ),
    "gemma": (
        CallForm(Style.QUOTED, "<|tool_call>", "<tool_call|>"),
        '<|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>',
    ),
    "kimi-k2": (
        KIMI_K2,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        '{"city": "Oslo", "days": 2}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "kimi-k3": (
        KIMI_K3,
        '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" type="string"'
        '<|sep|>Oslo<|close|>argument<|sep|><|open|>argument key="days" type="integer"<|sep|>2<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    "cohere": (
        COHERE,
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Oslo", '
        '"days": 2}}\n]<|END_ACTION|>',
    ),
    "granite": (GRANITE, '<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}]'),
    "lfm2": (LFM2, "<|tool_call_start|>[weather(city='Oslo', days=2)]<|tool_call_end|>"),
    "deepseek-v3.2": (
        DSML,
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Oslo'
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
    ),
    "minimax-m2": (
        MINIMAX,
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
    "minicpm5": (
        MINICPM, '<function name="weather"><param name="city">Oslo</param><param name="days">2</param></function>',
    ),
    "gpt-oss": (
        CallForm(Style.CHANNELS, "", ""),
        '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo", "days": 2}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_grammar_of_a_call_lets_the_form_through_and_nothing_else(served: Served, name: str) -> None:
    form, text = CALLS[name]
    lark = lark_of_call(form, read_tools({"tools": [WEATHER, NOW], "tool_choice": "required"}), AnswerForm(calls=form))
    assert is_allowed(served, lark, text)
    assert not is_allowed(served, lark, "Hello")
    reasoning = CHANNELS if form.style is Style.CHANNELS else None
    schemas = read_tools({"tools": [WEATHER]}).schemas
    reader = AnswerReader(AnswerForm(reasoning, calls=form, tools=schemas))
    pieces = [*reader.push(text), *reader.flush()]
    assert {piece.name for piece in pieces} <= {"weather", ""}
    assert json.loads("".join(piece.text for piece in pieces if piece.call == 0)) == {"city": "Oslo", "days": 2}
    is_loose = form.style in (Style.QUOTED, Style.PYTHON) or form == KIMI_K3  # only the name is held
    assert is_loose or not is_allowed(served, lark, text.replace("Oslo", "Rome"))
    if form.start and not form.is_list and not form.around:
        more = text.replace("2", "3") if form.style in (Style.NAMED, Style.QUOTED, Style.PYTHON) else "\n" + text
        assert is_allowed(served, lark, text + more)
        alone = read_tools({"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False})
        assert not is_allowed(served, lark_of_call(form, alone, AnswerForm(calls=form)), text + more)
    free = lark_of_call(form, read_tools({"tools": [WEATHER, NOW]}))
    words = trigger_words(form)
    assert bool(words) == bool(form.start or form.style is Style.CHANNELS)
    if words:
        assert is_allowed(served, free, f"Well: {text}", Triggers(words))
        assert is_allowed(served, free, "Well, weather.", Triggers(words))
        assert not is_allowed(served, free, f"Well: {text}".replace("weather", "rain"), Triggers(words))
    thinks = lark_of_call(
        form, read_tools({"tools": [WEATHER], "tool_choice": "required"}), AnswerForm(TAGS, calls=form)
    )
    assert is_allowed(served, thinks, f"<think>\nhm\n</think>\n\n{text}")
    assert is_allowed(served, thinks, text)


def test_calls_are_held_from_their_marker_on_where_they_are_free(served: Served) -> None:
    """`tool_choice: auto`."""
    prompts = ChatPrompts(served.run[0], {}, prefills=True)
    assert not prompts.read({**HELLO, "tools": [WEATHER]}).grammar  # the template says nothing of calls
    prompts.template = ChatTemplate(CALLING, origin="test")
    chat = prompts.read({**HELLO, "tools": [WEATHER, NOW]})
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for text, fits in (
        ("No call.", True),
        (f"I look. {call}", True),
        (f"I look. {call}\n{call}", True),
        (f"{call} and more", False),
        (call.replace("now", "then"), False),
        ("<tool_call> opens it", False),
    ):
        assert is_allowed(served, chat.grammar, text, chat.triggers) == fits
    assert not prompts.read({**HELLO, "tools": [WEATHER], "tool_choice": "none"}).grammar
    required = prompts.read({**HELLO, "tools": [WEATHER], "tool_choice": "required"})
    assert required.triggers is None
    assert required.grammar
    as_json = prompts.read({**HELLO, "tools": [WEATHER], "response_format": {"type": "json_object"}})
    assert not as_json.grammar


def test_lazy_grammar_holds_from_its_trigger_and_drafts_change_nothing(served: Served) -> None:
    prompt = "Hello, hello, hello, the cat sat on the mat, the cat sat on"
    body: dict[str, Any] = {"prompt": prompt, "n_predict": 32, "temperature": 0}
    free = served.post("/completion", body).json["content"]
    word = max(free[:30].split(), key=len)[1:]  # which the model writes anyway, beginning within a token
    held = {**body, "grammar": f'root ::= {json.dumps(word)} " no, no, no, no, no, no!"', "grammar_lazy": True}
    held["grammar_triggers"] = [{"type": 1, "value": word}]
    answers = [served.post("/completion", held).json]
    with serving(run_config(TARGET)) as plain:
        answers.append(plain.post("/completion", held).json)
    assert answers[0]["content"] == answers[1]["content"] == f"{free[: free.find(word)]}{word} no, no, no, no, no, no!"
    assert answers[0]["timings"]["draft_n"] > 0
    assert answers[0]["generation_settings"]["grammar_lazy"] is True
    unheld = served.post("/completion", {**held, "grammar_triggers": [{"type": 1, "value": "%% never %%"}],
                                         "grammar": 'root ::= "%% never %%"'}).json  # fmt: skip
    assert unheld["content"] == free


@pytest.mark.parametrize(
    ("triggers", "text"),
    [
        ([], "no triggers set for lazy grammar"),
        (["a"], "every trigger needs a 'type'"),
        ([{"type": 1}], "every trigger needs a 'type'"),
        ([{"type": 4, "value": "a"}], "every trigger needs a 'type'"),
        ([{"type": 0, "value": "a"}], "needs the id of its 'token'"),
        ([{"type": 0, "value": "a", "token": 10**9}], "needs the id of its 'token'"),
        ([{"type": 1, "value": "<|im_end|>"}], "should be marked as preserved token: <|im_end|>"),
        ([{"type": 1, "value": "no such beginning"}], "does not begin with its trigger 'no such beginning'"),
        ({"type": 1}, "type must be array"),
    ],
)
def test_wrong_triggers_are_refused(served: Served, triggers: Any, text: str) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "a"', "grammar_lazy": True, "grammar_triggers": triggers}
    reply = served.post("/completion", body)
    assert reply.status == 400, reply.body
    assert text in reply.json["error"]["message"]
    pattern = served.post("/completion", {**body, "grammar_triggers": [{"type": 2, "value": "(a+)+$"}]})
    assert pattern.status == 501


def test_many_tools_are_more_than_a_clients_grammar_may_be(served: Served) -> None:
    """128 tools, with a grammar far longer than what a client may send as its own."""
    arguments = {f"argument_{number}": {"type": "string"} for number in range(12)}
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{number}", "parameters": {"type": "object", "properties": arguments}},
        }
        for number in range(128)
    ]
    chat = ChatPrompts(served.run[0], {}, prefills=True).read({**HELLO, "tools": tools, "tool_choice": "required"})
    assert len(chat.grammar) > MAX_GRAMMAR
    last = '<tool_call>\n{"name": "tool_127", "arguments": {"argument_11": "x"}}\n</tool_call>'
    assert is_allowed(served, chat.grammar, last)
    assert not is_allowed(served, chat.grammar, last.replace("tool_127", "tool_128"))
    (tools[0]["function"])["parameters"]["properties"] = {f"argument_{n}": {"type": "string"} for n in range(50_000)}  # type: ignore[index]
    with pytest.raises(RequestError, match="the grammar of the tools has"):
        ChatPrompts(served.run[0], {}, prefills=True).read({**HELLO, "tools": tools, "tool_choice": "required"})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tools": {}}, "Expected 'tools' to be an array"),
        ({"tools": [{"type": "web"}]}, "Unsupported tool type"),
        ({"tools": [{"type": "function"}]}, "Missing tool function"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "needs a 'name'"),
        ({"tools": [NOW], "tool_choice": "always"}, "Invalid tool_choice: always"),
        ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "x"}}}, 'there is no tool "x"'),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [NOW], "grammar": 'root ::= "a"'}, "Cannot use custom grammar constraints with tools."),
        ({"tools": [NOW], "stream": True, "logprobs": True}, "logprobs is not supported with tools + stream"),
        ({"reasoning_format": "xml"}, "Unknown reasoning format: xml"),
        ({"parallel_tool_calls": 1}, "type must be boolean"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "x"}]}]}, "Unsupported tool call type"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]}, "needs a 'function'"),
    ],
)
def test_wrong_tools_are_refused(served: Served, change: dict[str, Any], text: str) -> None:
    reply = served.post(CHAT, {**HELLO, **change})
    assert reply.status == 400, reply.body
    assert text in reply.json["error"]["message"]


CONTINUED = {
    "Qwen-Qwen3-0.6B": (
        "assistant\n<think>\n\n</think>\n\nSo",
        "assistant\n<think>\nhm",
        "<think>\nhm\n</think>\n\nSo",
    ),
    "Qwen3.5-4B": ("assistant\n<think>\n\n</think>\n\nSo", "assistant\n<think>\nhm", "<think>\nhm\n</think>\n\nSo"),
    "HuggingFaceTB-SmolLM3-3B": ("assistant\n<think></think>So", "assistant\n<think>hm", "<think>hm</think>So"),
    "deepseek-ai-DeepSeek-V3.1": (
        "Hi<｜Assistant｜><think></think>So",
        "<think>hm",
        "Hi<｜Assistant｜><think>hm</think>So",
    ),
    "GLM-4.6": ("Hi<|assistant|><think></think>\nSo", "Hi<|assistant|><think>hm", "<think>hm</think>\nSo"),
    "openai-gpt-oss-120b": (
        "assistant<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>So",
        "<|end|><|start|>assistant<|channel|>analysis<|message|>hm",
        "analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>So",
    ),
    "NVIDIA-Nemotron-Nano-v2": ("Assistant\n<think>\n</think>So", "Assistant\n<think>\nhm", "<think>\nhm</think>So"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("assistant\nSo", "<|im_start|>assistant\n", "assistant\nSo"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK][/THINK]So", "[/INST][THINK]hm", "[/INST][THINK]hm[/THINK]So"),
}
"""Template → ends of prompts that continue an answer, a thought, and an answer with a thought: llama-server's
`/apply-template` with `--jinja --chat-template-file models/templates/NAME.jinja`, b11434."""


def test_answers_and_thoughts_are_continued_as_by_llama_cpp(served: Served) -> None:
    tree = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not tree:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    prompts = ChatPrompts(served.run[0], {}, prefills=True)
    user = {"role": "user", "content": "Hi"}
    for name, ends in CONTINUED.items():
        source = (Path(tree) / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        prompts.template = ChatTemplate(source, origin=name)
        answer = {"role": "assistant", "content": "So"}
        thought = {"role": "assistant", "content": "", "reasoning_content": "hm"}
        for message, end in zip((answer, thought, {**thought, **answer}), ends, strict=True):
            assert prompts.render({"messages": [user, message]}).endswith(end), name
        named = {"add_generation_prompt": False, "continue_final_message": "reasoning_content"}
        assert prompts.render({"messages": [user, {**thought, **answer}], **named}).endswith(ends[1]), name


def test_continued_thoughts_and_answers_are_read_as_such() -> None:
    user = HELLO["messages"][0]
    thought = {"role": "assistant", "content": "", "reasoning_content": "a long beginning of a thought, " * 4}
    with serving(replace(run_config(TARGET), chat_template=THINKING)) as served:

        def ask(message: dict[str, Any], text: str, **more: Any) -> Any:
            body = {"messages": [user, message], "grammar": f"root ::= {json.dumps(text)}", "max_tokens": 60, **more}
            return served.post(CHAT, body).json["choices"][0]["message"]

        named = {"add_generation_prompt": False, "continue_final_message": "content"}
        assert ask(thought, "so</think>Yes.") == {"role": "assistant", "content": "Yes.", "reasoning_content": "so"}
        assert ask(thought, "Yes.", **named) == {"role": "assistant", "content": "Yes."}
        assert ask({"role": "assistant", "content": "Well, "}, "yes.") == {"role": "assistant", "content": "yes."}
        wrong = served.post(CHAT, {**HELLO, "continue_final_message": "all", "add_generation_prompt": False})
        assert (wrong.status, "'content' or 'reasoning_content'" in wrong.json["error"]["message"]) == (400, True)


@pytest.mark.real
def test_answers_are_those_of_llama_cpp(programs: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Grammars write the answers, so that both servers read the same texts."""
    texts = [
        "<think>hm</think>Yes.",
        "Yes <think>a</think> b",
        "<think>a</think>b<think>c</think>d",
        "\n<think>a</think>b",
    ]
    asked: dict[str, Any] = {**HELLO, "temperature": 0, "max_tokens": 40}
    bodies = [{**asked, "grammar": f"root ::= {json.dumps(text)}"} for text in texts]
    bodies += [{**bodies[0], "reasoning_format": "none"}, {**asked, "max_tokens": 4, "tools": [WEATHER]}]
    (tmp_path / "template").write_text(THINKING, encoding="utf-8")
    options = ["-m", str(smollm2_path), "-c", "512", "--poll", "0", "--chat-template-file", str(tmp_path / "template")]
    theirs = upstream_completions(
        programs / "llama-server", options, bodies, tmp_path / "log", route="v1/chat/completions"
    )
    with serving(replace(run_config(smollm2_path), chat_template=THINKING)) as served:
        for body, other in zip(bodies, theirs, strict=True):
            one = served.post(CHAT, body).json
            assert one["choices"] == other["choices"]
            assert one.keys() == other.keys()


@pytest.mark.real
def test_lazy_grammars_are_those_of_llama_cpp(programs: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """The words stand in what the model says of Paris; the last never comes."""
    asked: dict[str, Any] = {"prompt": "The capital of France is", "temperature": 0, "n_predict": 12}
    with serving(run_config(smollm2_path)) as served:
        free = served.post("/completion", asked).json["content"]
        words = [" Paris", "aris", "ris.", "%% never"]
        assert all(word in free for word in words[:3])
        bodies = [
            {**asked, "grammar": f'root ::= {json.dumps(word)} (" no" | "!!")+', "grammar_lazy": True,
             "grammar_triggers": [{"type": 1, "value": word}], "preserved_tokens": words}
            for word in words
        ]  # fmt: skip
        ours = [served.post("/completion", body).json["content"] for body in bodies]
    options = ["-m", str(smollm2_path), "-c", "512", "--poll", "0"]
    theirs = upstream_completions(programs / "llama-server", options, bodies, tmp_path / "log", route="completion")
    assert ours == [answer["content"] for answer in theirs]
    assert ours[3] == free
    assert len({*ours}) > 1


def test_openai_client_calls_tools(served: Served) -> None:
    openai = pytest.importorskip("openai", reason="needs OpenAI's client")
    base = f"http://127.0.0.1:{served.port}/v1"
    asked: Any = {
        "model": "any", "messages": HELLO["messages"], "tools": [WEATHER], "tool_choice": "required",
        "parallel_tool_calls": False, "max_tokens": 60,
    }  # fmt: skip
    with openai.OpenAI(base_url=base, api_key="none") as client:
        call = client.chat.completions.create(**asked).choices[0].message.tool_calls[0]
        with client.chat.completions.stream(**asked) as events:
            final = events.get_final_completion().choices[0]
        assert final.finish_reason == "tool_calls"
        assert final.message.tool_calls[0].function.arguments == call.function.arguments
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
        form: Any = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
        answer = client.chat.completions.create(
            model="any", messages=asked["messages"], response_format=form, max_tokens=40
        )
        assert json.loads(answer.choices[0].message.content)["n"] in (1, 2)

    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=base, api_key="none") as client:
            answers = await asyncio.gather(*(client.chat.completions.create(**asked) for _ in range(2)))
            return [answer.choices[0].message.tool_calls[0].function.arguments for answer in answers]

    assert asyncio.run(ask()) == [call.function.arguments] * 2
