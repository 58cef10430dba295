"""Conversations: OpenAI's chat body to the model's prompt (llama.cpp `oaicompat_chat_params_parse`, b11434)."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specli.engine.load import Run
from specli.sampling.settings import Triggers
from specli.serve.errors import RequestError, unsupported
from specli.serve.fields import Params, flag, wrong_type
from specli.serve.tools import Tools, lark_of_call, lark_of_schema, read_tools, thought_tags, trigger_words
from specli.tokenizer import ChatTemplate
from specli.tokenizer.answer import AnswerForm
from specli.tokenizer.calls import HERMES

OPAQUE = (
    "parse_tool_calls", "parallel_tool_calls", "chat_parser", "chat_format", "generation_prompt", "grammar_type",
    "tools", "tool_choice", "reasoning_format",
)  # fmt: skip


MAX_TOOLS = 1 << 20  # characters of their grammar, which take seconds to compile
FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")


@dataclass(frozen=True)
class Chat:
    """A conversation, ready to be answered.

    Attributes:
        prompt: As the template writes it.
        form: How its answer is read.
        fields: The body's other fields, native ones in place of OpenAI's.
        visible: Texts of control tokens that have to be seen to read the answer.
        stop: A further stop string; "" for none.
        grammar: What holds the answer, in place of the body's; "" for none.
        triggers: What that waits for; None: it holds from the beginning.
    """

    prompt: str
    form: AnswerForm
    fields: Mapping[str, Any]
    visible: tuple[str, ...] = ()
    stop: str = ""
    grammar: str = ""
    triggers: Triggers | None = None

    def applied(self, params: Params) -> Params:
        """The body's settings with those of the conversation."""
        request = params.request
        sampling = request.sampling
        if self.grammar:
            sampling = replace(sampling, grammar=self.grammar, json_schema=None, triggers=self.triggers)
        visible = tuple(dict.fromkeys((*request.visible, *self.visible)))
        stop = (*request.stop, *filter(None, [self.stop]))
        return replace(
            params, request=replace(request, sampling=sampling, visible=visible, stop=stop), answer_form=self.form
        )


class ChatPrompts:
    """Renders conversations; the template's process answers one at a time.

    Args:
        run: The model.
        variables: Template variables of the command line.
        prefills: A last message of the assistant is continued.
        reasoning_format: `none` leaves thoughts in the content.
        is_parsed: Thoughts and tool calls are told apart from the content at all.
    """

    def __init__(
        self,
        run: Run,
        variables: Mapping[str, Any],
        *,
        prefills: bool,
        reasoning_format: str = "deepseek",
        is_parsed: bool = True,
    ) -> None:
        self.template: ChatTemplate = run.session().template
        self._variables = variables
        self._reasoning_format = reasoning_format
        self._is_parsed = is_parsed
        self._prefills = prefills
        self._lock = threading.Lock()

    def render(self, body: Mapping[str, Any]) -> str:
        """The prompt as text.

        Raises:
            RequestError: The messages are wrong, or something is asked for that is not done here.
            SpecliError: The template refuses them.
        """
        return self._render(body, read_tools(body))[0]

    def read(self, body: Mapping[str, Any]) -> Chat:
        """The prompt, and how its answer is to be read.

        Raises:
            RequestError: As `render`, or what is asked for cannot be had together.
            SpecliError: The template refuses the messages.
        """
        tools = read_tools(body)
        fields = completion_fields(body)
        prompt, continued = self._render(body, tools)
        kind = body.get("reasoning_format")
        if kind is not None and not isinstance(kind, str):
            raise wrong_type("reasoning_format", "string", kind)
        kind = self._reasoning_format if kind is None else kind
        if kind not in FORMATS:
            raise RequestError(f"Unknown reasoning format: {kind}")
        with self._lock:
            reasoning = self.template.reasoning
            known = self.template.calls if tools.may_call else None
        calls = (known or HERMES) if tools.may_call else None
        markers = (*(reasoning.markers if reasoning else ()), *(calls.markers if calls else ()))
        if not self._is_parsed:
            return Chat(prompt, AnswerForm(), fields)
        told = reasoning if kind != "none" else None
        is_thinking = reasoning is not None and (
            continued == "reasoning_content" if continued else reasoning.is_open(prompt)
        )
        form = AnswerForm(told, told is not None and is_thinking, calls, tools.schemas if calls else {})
        schema = fields.get("json_schema")
        grammar, triggers = "", None
        if calls and (fields.get("grammar") or (schema is not None and tools.must_call)):
            raise RequestError("Cannot use custom grammar constraints with tools.")
        if calls and schema is not None:
            form = AnswerForm(form.reasoning, form.is_thinking)  # the answer is an object, not a call
        elif calls and tools.must_call:
            grammar = lark_of_call(calls, tools, form)
        elif known and (words := trigger_words(known)):
            grammar = lark_of_call(known, tools)
            triggers = Triggers(words, thought=thought_tags(reasoning), is_thinking=is_thinking)
        if len(grammar) > MAX_TOOLS:
            raise RequestError(
                f"the grammar of the tools has {len(grammar)} characters, at most {MAX_TOOLS} are compiled"
            )
        if calls and flag(body, "stream") and flag(body, "logprobs"):
            raise RequestError("logprobs is not supported with tools + stream")
        if form.is_thinking and schema is not None:
            grammar = lark_of_schema(schema, form)
        only_one = calls is not None and not tools.is_parallel
        return Chat(prompt, form, fields, markers, calls.end if calls and only_one else "", grammar, triggers)

    def _render(self, body: Mapping[str, Any], tools: Tools) -> tuple[str, str]:
        """The prompt, and what it ends with: "content" or "reasoning_content" of an answer to continue, or ""."""
        messages = read_messages(body)
        variables = dict(self._variables) | read_variables(body)
        adds_prompt = flag(body, "add_generation_prompt", default=True)
        asked = read_continuation(body)
        ends_with_answer = bool(messages) and messages[-1].get("role") == "assistant"
        if not asked and self._prefills and ends_with_answer:
            if len(messages) >= 2 and messages[-2].get("role") == "assistant":
                raise RequestError("Cannot have 2 or more assistant messages at the end of the list.")
            asked, adds_prompt = "auto", False
        if asked and adds_prompt:
            raise RequestError("Cannot set both add_generation_prompt and continue_final_message to true.")
        if not asked or not ends_with_answer:
            return self._rendered(messages, tools, variables, adds_prompt=adds_prompt), ""
        answer = messages.pop()
        if answer.get("tool_calls"):
            raise RequestError("Cannot continue an assistant message that contains tool calls.")
        thought = answer.get("reasoning_content") or ""
        if not isinstance(thought, str):
            raise RequestError("Expected 'reasoning_content' to be a string")
        if asked == "auto":
            asked = "reasoning_content" if thought and not _text(answer) else "content"
        return self._continued(
            messages, tools, variables, thought, _text(answer) if asked == "content" else None
        ), asked

    def _continued(
        self,
        messages: list[dict[str, Any]],
        tools: Tools,
        variables: Mapping[str, Any],
        thought: str,
        answer: str | None,
    ) -> str:
        """A conversation with the beginning of an answer, or of a thought if that is None.

        As in llama.cpp the thought is there in any case where the template knows thoughts, be it an empty one.
        """
        with self._lock:
            reasoning = self.template.reasoning
        prompt = self._rendered(messages, tools, variables, adds_prompt=True)
        if reasoning is None or not reasoning.start:
            return prompt + (answer or "")
        before = self._rendered(messages, tools, variables, adds_prompt=False)
        header = prompt.removeprefix(before).partition(reasoning.start)[0]
        return before + header + reasoning.begun(thought, answer)

    def _rendered(
        self, messages: list[dict[str, Any]], tools: Tools, variables: Mapping[str, Any], *, adds_prompt: bool
    ) -> str:
        with self._lock:
            return self.template.render(
                messages, add_generation_prompt=adds_prompt, tools=tools.descriptions or None, variables=variables
            )


def read_continuation(body: Mapping[str, Any]) -> str:
    """What of the last message is to be continued: "content", "reasoning_content", "auto", or "" for nothing.

    Raises:
        RequestError: Something else is asked for.
    """
    asked = body.get("continue_final_message")
    if asked is None or isinstance(asked, bool):
        return "auto" if asked else ""
    if asked not in ("content", "reasoning_content"):
        reason = "must be true, false, 'content' or 'reasoning_content'"
        raise RequestError(f"Field 'continue_final_message': {reason}")
    return str(asked)


def read_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages, checked.

    Raises:
        RequestError: They are wrong.
    """
    if body.get("messages") is None:
        raise RequestError("'messages' is required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise RequestError("Expected 'messages' to be an array")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestError("Every message must be an object with a 'role'")
        if "content" not in message:
            if message["role"] != "assistant":
                raise RequestError("All non-assistant messages must contain 'content'")
            if "tool_calls" not in message:
                raise RequestError("Assistant message must contain either 'content' or 'tool_calls'!")
        if message.get("tool_calls") is not None:
            check_calls(message["tool_calls"])
        if "content" not in message:
            continue
        content = message["content"]
        if content is None or isinstance(content, str):
            continue
        if not isinstance(content, list):
            raise RequestError("Expected 'content' to be a string or an array")
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind != "text":
                raise unsupported(f"content of type {kind!r}")
            if not isinstance(part.get("text"), str):
                raise RequestError("A content part of type 'text' must have a 'text' that is a string")
    return [dict(message) for message in messages]


def check_calls(calls: Any) -> None:
    """Checks the calls of an earlier answer.

    Raises:
        RequestError: They are wrong.
    """
    if not isinstance(calls, list):
        raise RequestError("Failed to parse messages: 'tool_calls' must be an array")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or call.get("type") != "function":
            kind = json.dumps(call.get("type")) if isinstance(call, dict) else "null"
            raise RequestError(f"Failed to parse messages: Unsupported tool call type: {kind}")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError("Failed to parse messages: a tool call needs a 'function' with a 'name'")
        if not isinstance(function.get("arguments"), str | dict):
            raise RequestError("Failed to parse messages: the 'arguments' of a tool call must be a string or an object")


def read_variables(body: Mapping[str, Any]) -> dict[str, Any]:
    """Template variables of the request.

    Raises:
        RequestError: They are not an object, or `enable_thinking` is no boolean.
    """
    given = body.get("chat_template_kwargs")
    if given is not None and not isinstance(given, dict):
        raise RequestError("'chat_template_kwargs' must be an object")
    variables = dict(given or {})
    if isinstance(variables.get("enable_thinking"), str):
        raise RequestError('invalid type for "enable_thinking" (expected boolean, got string)')
    effort = body.get("reasoning_effort")
    if effort == "none":
        variables.pop("reasoning_effort", None)
        variables["enable_thinking"] = False
    elif effort:
        variables["reasoning_effort"] = effort
    return variables


def completion_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with OpenAI's spellings of grammar and log-probabilities turned into the native ones.

    Raises:
        RequestError: They contradict each other.
    """
    fields = {name: value for name, value in body.items() if name not in OPAQUE}
    schema = fields.get("json_schema")
    if schema is not None and fields.get("grammar"):
        raise RequestError("Cannot use both json_schema and grammar")
    form = fields.pop("response_format", None)
    if form is not None:
        if not isinstance(form, dict):
            raise RequestError("'response_format' must be an object")
        kind = form.get("type")
        if kind == "json_object":
            schema = form["schema"] if form.get("schema") is not None else schema if schema is not None else {}
        elif kind == "json_schema":
            wrapper = form.get("json_schema")
            wrapper = wrapper if isinstance(wrapper, dict) else {}
            schema = wrapper.get("schema") if wrapper.get("schema") is not None else {}
        elif kind not in (None, "", "text"):
            raise RequestError(f'response_format type must be one of "text" or "json_object", but got: {kind}')
        if schema is not None and fields.get("grammar"):
            raise RequestError("Cannot use both json_schema and grammar")
    if schema is not None:
        fields["json_schema"] = schema
    top = fields.pop("top_logprobs", None)
    if flag(fields, "logprobs"):
        fields["n_probs"] = 20 if top is None else top
    elif top is not None:
        raise RequestError("top_logprobs requires logprobs to be set to true")
    fields.pop("logprobs", None)
    return fields


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content or ""
