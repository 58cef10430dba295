"""The conversation behind `specli chat`, and its slash commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specli.cli.console import ERROR, Console, error_lines
from specli.cli.options import spellings_of
from specli.cli.options.arguments import read_command_line, split_spelling
from specli.cli.options.request import CommandConfig
from specli.cli.options.settings import Settings, idle_options
from specli.cli.prepare import request_config, run_config
from specli.cli.show import show_start
from specli.errors import FormatError, SpecliError, UsageError
from specli.files import user_path
from specli.tokenizer.reasoning import TAGS
from specli.tokenizer.thoughts import split_thoughts

if TYPE_CHECKING:
    from specli.engine.config import RunConfig
    from specli.engine.load import Run
    from specli.engine.sequence import TokenEvent
    from specli.tokenizer.reasoning import Reasoning

    OpenRun = Callable[[RunConfig, Callable[[str], None]], AbstractContextManager[Run]]

MAX_GLOB = 100
READ_AT_START = ("prompt.text", "chat.simple_io", "output.show", "output.stats_json", "log.")
"""Beginnings of the fields that `/set` has no say in."""


class Conversation:
    """Messages, the engine that answers them, and the settings, which may change between answers.

    Args:
        settings: Those of the command line.
        console: Where messages go.
        stack: Closes the engine at the end.
        open_run: Makes an engine.

    Attributes:
        run: The engine.
        records: JSON objects of the answers so far.
        pending: Text of `/read` and `/glob` that goes before the next message.
    """

    def __init__(self, settings: Settings, console: Console, stack: ExitStack, open_run: OpenRun) -> None:
        self.settings = settings
        self.console = console
        self.records: list[dict[str, Any]] = []
        self.pending: list[str] = []
        self._open_run = open_run
        self._engine_stack = stack.enter_context(ExitStack())
        self._setup = run_config(settings, settings.config())
        self.run = self._engine_stack.enter_context(open_run(self._setup, console.trace))
        chat = settings.config().chat
        self.session = self.run.session(system=chat.system, variables=template_variables(settings.config()))
        if chat.transcript:
            append_text(chat.transcript, "")

    @property
    def config(self) -> CommandConfig:
        """The settings as a record tree."""
        return self.settings.config()

    def ask(self, message: str) -> Iterator[TokenEvent]:
        """The answer to a message, with the pending text before it."""
        content = "".join((*self.pending, message))
        self.pending.clear()
        self.write_transcript(f"User:\n{message}\n\n")
        return self.session.ask(content, request_config(self.config))

    def regenerate(self) -> Iterator[TokenEvent]:
        """A new answer instead of the last one; ValueError if there is none."""
        if len(self.session.messages) < 2:
            raise ValueError("No message to regenerate.")
        return self.session.regenerate(request_config(self.config))

    def close_answer(self, events: Iterator[TokenEvent]) -> None:
        """Ends an answer: it joins the history, its thoughts apart from its text, and the record."""
        getattr(events, "close", lambda: None)()
        result = self.run.result()
        self.records.append({**result.to_dict(), "settings": self.settings.effective(result.sampling)})
        message = self.session.messages[-1]
        chat = self.config.chat
        self.write_transcript(f"Assistant:\n{message['content']}\n")
        if chat.reasoning_format != "none" and not chat.skip_parsing:
            answer, thought = split_thoughts(message["content"], self.reasoning, is_thinking=self.starts_thinking())
            message["content"] = answer
            if thought and chat.reasoning_preserve:
                message["reasoning_content"] = thought

    @property
    def prompt_tokens(self) -> list[int]:
        """Tokens of the conversation as the template rendered it for the last answer."""
        return self.run.tokenizer.encode_chat(self.session.rendered)

    def starts_thinking(self) -> bool:
        """Whether the rendered prompt ends inside a thought."""
        return self.reasoning.is_open(self.session.rendered)

    @property
    def reasoning(self) -> Reasoning:
        """How the model writes thoughts; where the template says nothing, in the usual tags."""
        found = self.session.template.reasoning
        return found if found and found.start and found.end else TAGS

    def timing_line(self) -> str:
        """Speeds of the last answer, as upstream writes them."""
        timings = self.run.result().to_dict()["timings"]
        return (
            f"[ Prompt: {timings['prompt_per_second'] or 0:.1f} t/s | "
            f"Generation: {timings['predicted_per_second'] or 0:.1f} t/s ]"
        )

    def change(self, arguments: list[str], *, replaces: str | None = None) -> bool:
        """Applies options as if they had been on the command line.

        Other drafters are built on the target as it is loaded; for anything else about models a new engine is opened.

        Args:
            arguments: Options with their values.
            replaces: Field that starts anew.

        Returns:
            Whether models or drafters are others now.

        Raises:
            SpecliError: An option is wrong or comes too late, or the engine cannot be made; nothing changes then.
        """
        line = read_command_line("chat", arguments)
        if line.wants_help:
            raise UsageError("there is no option to set", hint="specli chat --help lists them")
        values = {path: setting for path, setting in self.settings.values.items() if path != replaces}
        settings = replace(self.settings, values=values, remarks={})
        for assignment in line.assignments:
            if (assignment.option.field or "").startswith(READ_AT_START):
                raise UsageError(f"{assignment.origin.name} cannot be set during a chat: it is read at the start")
            settings.apply(assignment)
        config = settings.config()
        setup = run_config(settings, config)
        is_other = setup != self._setup
        if replace(setup, speculation=self._setup.speculation, draft=self._setup.draft) != self._setup:
            self._reopen(setup)
        elif setup != self._setup:
            self.run.change_drafters(setup)
            self._setup = setup
        self.settings = settings
        self.session.variables = template_variables(config)
        if any(assignment.option.field == "chat.system" for assignment in line.assignments):
            self.session.system = config.chat.system
        for warning in idle_options(settings, [assignment.origin.name for assignment in line.assignments]):
            self.console.warn(warning)
        return is_other

    def _reopen(self, setup: RunConfig) -> None:
        """Replaces the engine; messages stay, and the next answer evaluates them again."""
        messages, system = self.session.messages, self.session.system
        self._engine_stack.close()
        try:
            self.run = self._engine_stack.enter_context(self._open_run(setup, self.console.trace))
        except SpecliError:
            self.run = self._engine_stack.enter_context(self._open_run(self._setup, self.console.trace))
            raise
        else:
            self._setup = setup
        finally:
            self.session = self.run.session(system=system, variables=self.session.variables)
            self.session.messages = messages

    def write_transcript(self, text: str) -> None:
        """Adds to the transcript, if there is one."""
        path = self.config.chat.transcript
        if path:
            append_text(path, text)


def append_text(path: Path, text: str) -> None:
    """Appends to a text file."""
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise FormatError(f"{path}: cannot be written: {error.strerror}") from None


def template_variables(config: CommandConfig) -> dict[str, Any]:
    """Variables for the template: those of `--chat-template-kwargs` and of the reasoning options."""
    variables = dict(config.chat.variables)
    if config.chat.reasoning_budget == 0:
        variables["enable_thinking"] = False
    elif config.chat.reasoning != "auto":
        variables["enable_thinking"] = config.chat.reasoning == "on"
    if config.chat.reasoning_effort != "default":
        variables["reasoning_effort"] = config.chat.reasoning_effort
    return variables


@dataclass(frozen=True)
class Answer:
    """What a command leads to: nothing more, an answer to show, or the end."""

    events: Iterator[TokenEvent] | None = None
    leaves: bool = False


@dataclass(frozen=True)
class Command:
    """One slash command.

    Attributes:
        action: Gets the conversation and the text after the name.
        argument: Name of its argument; a command with one is not recognised without a blank after its name.
        summary: For `/help`.
    """

    action: Callable[[Conversation, str], Answer]
    argument: str
    summary: str


def leave(conversation: Conversation, argument: str) -> Answer:
    """Ends the program."""
    return Answer(leaves=True)


def regenerate(conversation: Conversation, argument: str) -> Answer:
    """Answers the last message once more."""
    return Answer(conversation.regenerate())


def clear(conversation: Conversation, argument: str) -> Answer:
    """Forgets the messages."""
    conversation.session.clear()
    conversation.console.info("Chat history cleared.")
    return Answer()


def read(conversation: Conversation, argument: str) -> Answer:
    """Puts a file before the next message."""
    _read_file(conversation, user_path(argument))
    return Answer()


def read_glob(conversation: Conversation, argument: str) -> Answer:
    """Puts all matching files before the next message, at most 100."""
    pattern = os.path.expanduser(argument)  # noqa: PTH111 - a pattern is no path
    head = Path(pattern).anchor
    paths = Path(head or ".").glob(pattern.removeprefix(head))
    files = sorted(path for path in paths if path.is_file())
    if len(files) > MAX_GLOB:
        conversation.console.info(f"Maximum number of globbed files allowed ({MAX_GLOB}) reached.")
    for path in files[:MAX_GLOB]:
        _read_file(conversation, path)
    if not files:
        raise ValueError(f"no file matches '{argument}'")
    return Answer()


def _read_file(conversation: Conversation, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise ValueError(f"file does not exist or cannot be opened: '{path}'") from None
    conversation.pending.append(f"--- File: {path} ---\n{text}")
    conversation.write_transcript(f"User: Added text file: {path}\n")
    conversation.console.info(f"Loaded text from '{path}'")


def show_statistics(conversation: Conversation, argument: str) -> Answer:
    """Statistics of the last answer, and those of the drafters, which run on."""
    if not conversation.records:
        raise ValueError("no answer yet")
    lines = conversation.run.result().lines(details=True)
    totals = [line for line in lines if line.startswith("statistics ")]
    conversation.console.info("the last answer:")
    for line in lines:
        if line not in totals:
            conversation.console.info(line)
    if totals:
        conversation.console.info("all answers since the drafters were loaded:")
        for line in totals:
            conversation.console.info(line)
    return Answer()


def set_types(conversation: Conversation, argument: str) -> Answer:
    """Changes the drafters."""
    conversation.change(["--spec-type", argument.strip()], replaces="speculation.types")
    show_start(conversation.run, conversation.settings, conversation.console)
    return Answer()


def set_option(conversation: Conversation, argument: str) -> Answer:
    """Changes an option; its name may be written without dashes."""
    name, *rest = shlex.split(argument) or [""]
    if not name.startswith("-"):
        known = spellings_of("chat")
        name = next(
            (spelled for spelled in (f"--{name}", f"-{name}") if split_spelling(spelled)[0] in known), f"--{name}"
        )
    if conversation.change([name, *rest]):
        show_start(conversation.run, conversation.settings, conversation.console)
    return Answer()


def save(conversation: Conversation, argument: str) -> Answer:
    """Writes the conversation to a file."""
    conversation.session.save(user_path(argument))
    conversation.console.info(f"Saved to '{argument}'")
    return Answer()


def load(conversation: Conversation, argument: str) -> Answer:
    """Goes on with a saved conversation."""
    conversation.session.load(user_path(argument))
    conversation.console.info(f"Loaded '{argument}': {len(conversation.session.messages)} messages")
    return Answer()


def show_help(conversation: Conversation, argument: str) -> Answer:
    """Lists the commands."""
    for name, command in COMMANDS.items():
        conversation.console.info(f"  {f'{name} {command.argument}':<22} {command.summary}")
    return Answer()


COMMANDS = {
    "/help": Command(show_help, "", "this list"),
    "/exit": Command(leave, "", "leave (also Ctrl-D)"),
    "/regen": Command(regenerate, "", "answer the last message once more"),
    "/clear": Command(clear, "", "forget the conversation"),
    "/read": Command(read, "FILE", "put a text file before the next message"),
    "/glob": Command(read_glob, "PATTERN", "put all matching files before the next message"),
    "/stats": Command(show_statistics, "", "statistics of the last answer and of the drafters"),
    "/spec": Command(set_types, "TYPE[,TYPE]", "change the drafters; none for no drafting"),
    "/set": Command(set_option, "OPTION VALUE", "change an option, for example /set temp 0.2"),
    "/save": Command(save, "FILE", "save the conversation"),
    "/load": Command(load, "FILE", "go on with a saved conversation"),
}


def run_command(conversation: Conversation, message: str) -> Answer | None:
    """Runs a slash command; None if the message is none. What goes wrong is said and changes nothing.

    A line that looks like a command and is none goes to the model, as in llama.cpp; a note says so.
    """
    name, _, argument = message.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None or bool(command.argument) > bool(argument.strip()):
        if name[1:].isalpha():
            what = f"{name} needs {command.argument}" if command else f"{name} is no command"
            conversation.console.info(f"{what}, so the line goes to the model; /help lists the commands")
        return None
    try:
        return command.action(conversation, argument.strip())
    except (SpecliError, ValueError, OSError) as error:
        for line in error_lines(error):
            conversation.console.log(ERROR, line)
        return Answer()
