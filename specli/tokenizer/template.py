"""Chat templates: from messages to the text a model was trained on (docs/tokenizers.md §8).

The template is rendered in a process of its own (`renderer.py`), started at the first use: a file whose template is
broken can still be used without it.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specli.errors import FormatError, UnsupportedError, UsageError, did_you_mean
from specli.gguf.file import GGUFFile
from specli.gguf.metadata import show
from specli.tokenizer import calls, reasoning
from specli.tokenizer.calls import CallForm
from specli.tokenizer.named_templates import NAMED_TEMPLATES
from specli.tokenizer.reasoning import Reasoning
from specli.tokenizer.tokenizer import Tokenizer

Message = dict[str, Any]

MAX_SOURCE = 1 << 20  # characters; published templates have up to 20 thousand
_KEY = "tokenizer.chat_template"
_TOOL_KEY = "tokenizer.chat_template.tool_use"
_BOOTSTRAP = "import sys; sys.path[:] = sys.argv[1:]; from specli.tokenizer.renderer import main; main()"
_STEPFUN = "You have access to the following functions in JSONSchema format"
_NEEDLE = "Ar9xKq"  # looked for in what a probe renders


class _Renderer:
    """The rendering process. Started when needed, and again after a template has brought it down.

    Args:
        origin: Where the template comes from, for messages.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._process: subprocess.Popen[str] | None = None

    def render(self, source: str, contexts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        """For each context `{"text": …}` or `{"error": …}`.

        Raises:
            FormatError: The template takes too long, or has crashed the process.
        """
        process = self._process or self._start()
        try:
            answer = _ask(process, json.dumps({"source": source, "contexts": contexts}))
        except BaseException:  # interrupted between question and answer: the next question needs a fresh process
            self._process = None
            process.kill()
            raise
        if answer:
            results: list[dict[str, str]] = json.loads(answer)
            return results
        self._process = None
        code = process.wait()
        trouble = "takes too long to render" if code == 1 else f"crashes the renderer, exit code {code}"
        raise FormatError(f"{self._origin}: {trouble}")

    def _start(self) -> subprocess.Popen[str]:
        package = Path(__file__).parents[2]
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(package), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process only
        )
        weakref.finalize(self, _stop, process)
        return process


def _ask(process: subprocess.Popen[str], request: str) -> str:
    """Sends one line to the process and gives its answer, which is empty if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline()


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@dataclass(frozen=True)
class _Abilities:
    """What a template does with messages, found by rendering probes.

    Attributes:
        string_content: Prints content that is a string.
        typed_content: Prints content that is a list of typed parts.
        system_role: Prints system messages.
        object_arguments: Prints tool-call arguments that are an object.
        thinking_parts: Prints the thoughts of an answer that stand in a part of its content.
    """

    string_content: bool
    typed_content: bool
    system_role: bool
    object_arguments: bool
    thinking_parts: bool


def _probes() -> list[list[Message]]:
    """One conversation per field of `_Abilities`, with the needle in what the field is about."""
    call = {"id": "call00001", "type": "function", "function": {"name": "tool1", "arguments": {"arg": _NEEDLE}}}
    return [
        [{"role": "user", "content": _NEEDLE}],
        [{"role": "user", "content": [{"type": "text", "text": _NEEDLE}]}],
        [{"role": "system", "content": _NEEDLE}, {"role": "user", "content": "User message"}],
        [
            {"role": "user", "content": "User message"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
            {"role": "assistant", "content": "Answer"},
            {"role": "user", "content": "User message"},
        ],
        [
            {"role": "user", "content": "User message"},
            {"role": "assistant", "content": _thinking_parts(_NEEDLE, "Answer")},
            {"role": "user", "content": "User message"},
        ],
    ]


def _thinking_parts(thought: str, answer: str) -> list[Message]:
    """An answer with its thoughts in the form of Mistral."""
    return [{"type": "thinking", "thinking": thought}, {"type": "text", "text": answer}]


class ChatTemplate:
    """A chat template and the variables that go with it.

    Args:
        source: Jinja source.
        origin: Where it comes from, for messages.
        bos_token: Text of the BOS token, or "".
        eos_token: Text of the EOS token, or "".
        tool_source: Jinja source used when there are tools; None: the same.
    """

    def __init__(
        self, source: str, *, origin: str, bos_token: str = "", eos_token: str = "", tool_source: str | None = None
    ) -> None:
        self.source = source
        self.origin = origin
        self._tool_source = tool_source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._renderer = _Renderer(origin)
        self._abilities: dict[str, _Abilities] = {}
        self._reasonings: dict[str, Reasoning | None] = {}
        self._calls: CallForm | None = None
        self._has_calls: bool | None = None  # not looked for yet

    @classmethod
    def from_gguf(cls, file: GGUFFile, tokenizer: Tokenizer, override: str | None = None) -> ChatTemplate:
        """The template of a model file; ChatML if it has none.

        Args:
            file: The target's file.
            tokenizer: Its tokenizer.
            override: Jinja source or the name of a built-in template, from the command line.

        Raises:
            FormatError: The stored template is not a text.
            UnsupportedError: `override` is neither Jinja source nor a known name.
        """
        tools = None
        if override:
            source, origin = override, "chat template"
            if source not in NAMED_TEMPLATES and "{" not in source:
                names = f"built-in templates: {', '.join(NAMED_TEMPLATES)}"
                raise UnsupportedError(
                    f"the supplied chat template is not supported: {show(source)}",
                    hint=did_you_mean(source, NAMED_TEMPLATES, names),
                )
        else:
            tools = file.metadata.get(_TOOL_KEY, "str", None)
            source = file.metadata.get(_KEY, "str", "") or tools or "chatml"
            origin = f"{file.path}: chat template"
        return cls(
            NAMED_TEMPLATES.get(source, source),
            origin=origin,
            bos_token=_token_text(tokenizer, tokenizer.bos_id),
            eos_token=_token_text(tokenizer, tokenizer.eos_id),
            tool_source=tools,
        )

    def lines(self) -> list[str]:
        """What the template is: origin, built-in name if it has one, size and SHA-256; then its source."""
        name = next((name for name, source in NAMED_TEMPLATES.items() if source == self.source), None)
        digest = hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest()
        what = f"{self.origin}: {f'built-in {name}, ' if name else ''}{len(self.source)} characters, sha256 {digest}"
        return [what, *self.source.splitlines()]

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as text.

        Args:
            messages: `{"role": …, "content": …}` in order; not changed.
            add_generation_prompt: End with the markers that open the assistant's answer.
            tools: Tool descriptions, if there are any.
            variables: Further template variables (`--chat-template-kwargs`); they win over those set here.

        Raises:
            FormatError: The template is broken, refuses the conversation, or takes too much time or space.
        """
        source = self._tool_source if tools and self._tool_source else self.source
        if len(source) > MAX_SOURCE:
            raise FormatError(f"{self.origin} has {len(source)} characters, at most {MAX_SOURCE} are accepted")
        defaults = {"enable_thinking": self._find_reasoning(source) is not None}
        context = self._context(add_generation_prompt, tools, defaults | dict(variables or {}))
        context["messages"] = _fit_messages(messages, source, self._probe(source))
        (result,) = self._renderer.render(source, [context])
        if "error" in result:
            raise FormatError(f"{self.origin}: {result['error']}")
        return result["text"]

    def _context(
        self,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> dict[str, Any]:
        """All variables but the messages. Templates ask `is defined`, so what is off must be absent."""
        now = datetime.datetime.now()
        context: dict[str, Any] = {
            **self._tokens,
            "enable_thinking": True,
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
        }
        if tools:
            context["tools"] = tools
        context |= variables
        if add_generation_prompt:
            context["add_generation_prompt"] = True
        preserve = context.get("preserve_reasoning")
        if isinstance(preserve, bool):
            drop = not preserve
            context |= {"preserve_thinking": preserve, "clear_thinking": drop}
            context |= {"truncate_history_thinking": drop, "drop_thinking": drop}
        if isinstance(context.get("reasoning_effort"), str):
            context["reasoning_strength"] = context["reasoning_effort"]
        return context

    @property
    def reasoning(self) -> Reasoning | None:
        """How thoughts are written in answers; None: the template knows none.

        Raises:
            FormatError: The template takes too much time.
        """
        return self._find_reasoning(self.source)

    @property
    def calls(self) -> CallForm | None:
        """How tool calls are written in answers; None: the template knows none.

        Raises:
            FormatError: The template takes too much time.
        """
        if self._has_calls is None:
            source = self._tool_source or self.source
            base = self._context(False, None, {})
            results = self._renderer.render(source, [base | probe for probe in calls.call_probes()])
            self._calls = calls.find_calls(source, [result.get("text") for result in results])
            self._has_calls = self._calls is not None
        return self._calls

    def _find_reasoning(self, source: str) -> Reasoning | None:
        if source not in self._reasonings:
            is_known, form = reasoning.known_reasoning(source)
            if not is_known:
                base = self._context(False, None, {})
                results = self._renderer.render(source, [base | probe for probe in reasoning.probes()])
                form = reasoning.compared_reasoning(source, [result.get("text") for result in results])
            self._reasonings[source] = form
        return self._reasonings[source]

    def _probe(self, source: str) -> _Abilities:
        if source not in self._abilities:
            base = self._context(True, None, {})
            results = self._renderer.render(source, [base | {"messages": messages} for messages in _probes()])
            # A list or an object printed as Python or JSON would has the needle in quotes: not what a reader wants
            # of content, but what a tool call is made of.
            texts = [result.get("text", "") for result in results]
            quoted, quoted_thought = (any(quote + _NEEDLE + quote in texts[i] for quote in "'\"") for i in (1, 4))
            self._abilities[source] = _Abilities(
                string_content=_NEEDLE in texts[0],
                typed_content=_NEEDLE in texts[1] and not quoted,
                system_role=_NEEDLE in texts[2],
                object_arguments=_NEEDLE in texts[3],
                thinking_parts=_NEEDLE in texts[4] and not quoted_thought,
            )
        return self._abilities[source]


def _token_text(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.piece(token, special=True).decode(errors="replace")


def _fit_messages(messages: Sequence[Message], source: str, abilities: _Abilities) -> list[Message]:
    """A copy of the messages in the form the template understands (docs/tokenizers.md §8.4)."""
    fitted = [copy.deepcopy(message) for message in messages]
    knows_channels = "<|channel|>" in source
    if _STEPFUN in source:  # white space left over drives the model round in circles
        fitted = [_trimmed(message) for message in fitted]
    for message in fitted:
        content = message.get("content")
        if isinstance(content, list) and not abilities.typed_content:
            message["content"] = _joined(content)
        elif isinstance(content, str) and abilities.typed_content and not abilities.string_content:
            message["content"] = [{"type": "text", "text": content}]
        elif content is None:
            message["content"] = ""
        if message.get("role") == "developer" and not knows_channels:
            message["role"] = "system"
        if knows_channels and message.get("reasoning_content"):
            message["thinking"] = message["reasoning_content"]
        if abilities.thinking_parts and message.get("reasoning_content") and isinstance(message.get("content"), str):
            message["content"] = _thinking_parts(message.pop("reasoning_content"), message["content"])
        if abilities.object_arguments:
            _parse_arguments(message)
    if fitted and fitted[0].get("role") == "system" and not abilities.system_role:
        system = fitted.pop(0)
        if fitted:
            fitted[0]["content"] = _prepended(system.get("content"), fitted[0].get("content"))
    return fitted


def _trimmed(message: Message) -> Message:
    """A message without white space at the ends of its texts."""
    texts = {key: message[key].strip() for key in ("content", "reasoning_content") if isinstance(message.get(key), str)}
    if isinstance(message.get("content"), list):
        parts = message["content"]
        texts["content"] = [
            part | {"text": part["text"].strip()} if isinstance(part.get("text"), str) else part for part in parts
        ]
    return message | texts


def _joined(parts: Sequence[Mapping[str, Any]]) -> str:
    """The text parts of a content, one per line."""
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _prepended(system: str | list[Any] | None, content: str | list[Any] | None) -> str | list[Any]:
    if isinstance(content, list):
        return [*(system if isinstance(system, list) else [{"type": "text", "text": system or ""}]), *content]
    return f"{_joined(system) if isinstance(system, list) else system or ''}\n{content or ''}"


def _parse_arguments(message: Message) -> None:
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = json.loads(function["arguments"])
            except json.JSONDecodeError as error:
                raise UsageError(f"tool call arguments are not JSON: {error}") from None
