"""Renders chat templates in a process of its own: requests on stdin, answers on stdout.

Templates come from model files, so they are foreign code. Jinja's sandbox keeps them from the interpreter, but not from
building a list that contains itself twice, forty times over: one print of it, a single call into C, takes all memory
and cannot be interrupted. Hence the process, which the operating system bounds. One line of JSON per request:

    {"source": template, "contexts": [variables, …]}  →  [{"text": …} or {"error": …}, …]

The dialect is llama.cpp's (docs/tokenizers.md §8.2): Jinja with trimmed blocks, loop controls, a `generation` tag
without effect, and no globals but those set here.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from jinja2 import Template, TemplateSyntaxError, Undefined, nodes
from jinja2.exceptions import TemplateError, TemplateRuntimeError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SECONDS = 5
MAX_MEMORY = 512 << 20  # bytes of address space
MAX_TEXT = 4 << 20  # characters of one rendered conversation
MAX_MESSAGE = 200  # characters of an error

# Checks that refuse conversations the engine has to allow; llama.cpp cuts them out of the templates of gpt-oss (a
# message that quotes channel markers) and Mistral (an assistant message without content or tool calls).
_TOLERATED = (
    "You have passed a message containing <|channel|> tags in the content field",
    "Assistant message must have a string or a list of chunks in content or a list of tool calls",
)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model wrote, for training; rendering ignores the tag."""

    tags = {"generation"}  # noqa: RUF012 - declared as an instance attribute by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Missing(Undefined):
    """A variable that is not there; as in llama.cpp it adds nothing to a text."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else self._fail_with_undefined_error()

    __radd__ = __add__


def _raise_exception(message: object) -> str:
    if str(message).startswith(_TOLERATED):
        return ""
    raise TemplateError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Iterable[str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, Undefined):
        raise TemplateRuntimeError("tojson of an undefined value")
    item, key = separators or (", " if indent is None else ",", ": ")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=(item, key), sort_keys=sort_keys)


def _default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    """Jinja's filter, which also replaces none."""
    missing = value is None or isinstance(value, Undefined) or (boolean and not value)
    return default_value if missing else value


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, undefined=_Missing, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters |= {"tojson": _tojson, "default": _default, "d": _default}
    environment.globals = {name: environment.globals[name] for name in ("dict", "namespace", "range")}
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


@lru_cache(maxsize=4)
def _compile(source: str) -> Template:
    return _environment().from_string(source.replace("\r\n", "\n"))


def _message(error: Exception) -> str:
    """One printable line."""
    match error:
        case TemplateSyntaxError():
            text = f"line {error.lineno}: {error.message}"
        case TemplateError():
            text = error.message or type(error).__name__
        case MemoryError():
            text = f"needs more than {MAX_MEMORY >> 20} MiB"
        case RecursionError():
            text = "is nested too deeply"
        case _:
            text = f"{type(error).__name__}: {error}"
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * MAX_MESSAGE]).split()).rstrip(".")
    return line if len(line) <= MAX_MESSAGE else line[:MAX_MESSAGE] + "…"


def render(source: str, context: dict[str, Any]) -> dict[str, str]:
    """The rendered text of one conversation, or the error that the template raised."""
    try:
        length = 0
        chunks = []
        for chunk in _compile(source).generate(context):
            length += len(chunk)
            if length > MAX_TEXT:
                return {"error": f"renders more than {MAX_TEXT} characters"}
            chunks.append(chunk)
        return {"text": "".join(chunks)}
    except Exception as error:  # whatever a template makes Python raise is the template's fault
        return {"error": _message(error)}


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows: time is still bounded
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answers requests until there are no more. One that takes too long ends the process with exit code 1."""
    with Path(os.devnull).open("w") as nowhere:
        for line in requests:
            request = json.loads(line)
            faulthandler.dump_traceback_later(MAX_SECONDS, exit=True, file=nowhere)
            results = [render(request["source"], context) for context in request["contexts"]]
            faulthandler.cancel_dump_traceback_later()
            answers.write(json.dumps(results) + "\n")
            answers.flush()


def main() -> None:
    """The process: stdin to stdout, with bounded memory. Exit code 3: memory gave out between renders."""
    _limit_memory()
    try:
        serve(sys.stdin, sys.stdout)
    except MemoryError:
        os._exit(3)
