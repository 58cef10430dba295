"""Conversations: OpenAI's chat body to the model's prompt (llama.cpp `oaicompat_chat_params_parse`, b11434)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from specli.engine.load import Run
from specli.serve.errors import RequestError, unsupported
from specli.serve.fields import flag
from specli.tokenizer import ChatTemplate

OPAQUE = (
    "parse_tool_calls", "parallel_tool_calls", "chat_parser", "chat_format", "generation_prompt", "grammar_type",
)  # fmt: skip


class ChatPrompts:
    """Renders conversations; the template's process answers one at a time.

    Args:
        run: The model.
        variables: Template variables of the command line.
        prefills: A last message of the assistant is continued.
    """

    def __init__(self, run: Run, variables: Mapping[str, Any], *, prefills: bool) -> None:
        self.template: ChatTemplate = run.session().template
        self._variables = variables
        self._prefills = prefills
        self._lock = threading.Lock()

    def render(self, body: Mapping[str, Any]) -> str:
        """The prompt as text.

        Raises:
            RequestError: The messages are wrong, or something is asked for that is not done here.
            SpecliError: The template refuses them.
        """
        if body.get("tools"):
            raise unsupported("'tools'")
        if body.get("tool_choice") not in (None, "auto", "none"):
            raise unsupported("'tool_choice'")
        if body.get("reasoning_format") not in (None, "none", "auto"):
            raise unsupported(f"reasoning_format {body['reasoning_format']!r}")
        messages = read_messages(body)
        variables = dict(self._variables) | read_variables(body)
        adds_prompt = flag(body, "add_generation_prompt", default=True)
        asked = body.get("continue_final_message")
        if asked not in (None, True, False):
            raise unsupported("'continue_final_message' as a name")
        continues = bool(asked)
        ends_with_answer = bool(messages) and messages[-1].get("role") == "assistant"
        if not continues and self._prefills and ends_with_answer:
            if len(messages) >= 2 and messages[-2].get("role") == "assistant":
                raise RequestError("Cannot have 2 or more assistant messages at the end of the list.")
            continues, adds_prompt = True, False
        if continues and adds_prompt:
            raise RequestError("Cannot set both add_generation_prompt and continue_final_message to true.")
        continues = continues and ends_with_answer
        if continues and messages[-1].get("tool_calls"):
            raise RequestError("Cannot continue an assistant message that contains tool calls.")
        beginning = _text(messages.pop()) if continues else ""
        with self._lock:
            rendered = self.template.render(
                messages, add_generation_prompt=adds_prompt or continues, variables=variables
            )
        return rendered + beginning


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
