"""`specli chat`: a conversation on stdout, statistics on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from specli.cli import opener
from specli.cli.console import ERROR, Console, error_lines
from specli.cli.conversation.lines import open_reader, read_message
from specli.cli.conversation.repl import COMMANDS, Conversation, run_command
from specli.cli.conversation.view import AnswerView
from specli.cli.interrupt import InterruptFlag
from specli.cli.invocation import Invocation
from specli.cli.prepare import prompt_text
from specli.cli.record import dump, write_lines
from specli.cli.show import show_instead, show_start, show_tokens
from specli.errors import SpecliError
from specli.files import check_writable

if TYPE_CHECKING:
    from specli.engine.sequence import TokenEvent

MAX_ECHO = 500
"""Characters of a `-p` prompt that are echoed, as upstream."""


def run(invocation: Invocation) -> None:
    """Runs the command.

    Raises:
        typer.Exit: With 130, when Ctrl-C cut short the only answer of `--single-turn`.
    """
    if show_instead(invocation):
        return
    if invocation.config.output.stats_json:
        check_writable(invocation.config.output.stats_json)
    with invocation.console() as console, ExitStack() as stack:
        conversation = Conversation(invocation.settings, console, stack, opener.open_run)
        show_start(conversation.run, invocation.settings, console)
        with InterruptFlag() as interrupt:
            is_interrupted = _converse(conversation, console, interrupt)
        if invocation.config.output.stats_json:
            write_lines(invocation.config.output.stats_json, map(dump, conversation.records))
    if (is_interrupted or interrupt.is_set) and invocation.config.chat.single_turn:
        raise typer.Exit(130)


def _converse(conversation: Conversation, console: Console, interrupt: InterruptFlag) -> bool:
    """Answers messages until the user leaves; whether the last answer was cut short."""
    config = conversation.config
    is_interrupted = False
    for message in _messages(conversation, console, interrupt):
        if message.startswith("/") and (answer := run_command(conversation, message)) is not None:
            if answer.leaves:
                break
            if answer.events is None:
                continue
            events = answer.events
        else:
            events = conversation.ask(message)
        try:
            is_interrupted = _stream(conversation, events, console, interrupt)
        except SpecliError as error:
            if conversation.config.chat.single_turn:
                raise
            for line in error_lines(error):
                console.log(ERROR, line)
        if conversation.config.chat.single_turn:
            break
    if console.out.isatty() and not config.chat.single_turn:
        console.info("Exiting...")
    return is_interrupted


def _messages(conversation: Conversation, console: Console, interrupt: InterruptFlag) -> Iterator[str]:
    """What the user says: the prompt of `-p` first, then lines; empty ones do not count.

    A Ctrl-C since the last line that cut no answer short counts as one at the prompt.
    """
    first = prompt_text(conversation.config)
    if first is not None:
        if console.out.isatty():
            console.write(f"> {first if len(first) <= MAX_ECHO else first[:MAX_ECHO] + '…'}\n")
        yield first
    read_line = open_reader(COMMANDS, is_simple=conversation.config.chat.simple_io)
    was_interrupted = not console.out.isatty()
    while True:
        try:
            with interrupt.raising():
                message = read_message(read_line, is_multiline=conversation.config.chat.multiline)
        except EOFError:
            return
        except KeyboardInterrupt:  # perhaps meant for an answer that has just ended
            if was_interrupted:
                return
            was_interrupted = True
            console.info("Ctrl-C once more leaves")
            continue
        was_interrupted = not console.out.isatty()
        if message.strip():
            yield message


def _stream(
    conversation: Conversation, events: Iterator[TokenEvent], console: Console, interrupt: InterruptFlag
) -> bool:
    """Shows one answer as it comes; True if Ctrl-C cut it short. A second Ctrl-C leaves the program."""
    view = AnswerView(conversation.config.chat, console)
    is_cut = False
    for number, event in enumerate(events):
        if number == 0:
            if conversation.config.prompt.verbose:
                show_tokens(conversation.run.tokenizer, conversation.prompt_tokens, console)
            view.begin(conversation.reasoning, is_thinking=conversation.starts_thinking())
        view.show(event)
        is_cut = interrupt.is_set and event.ends_round and event.stop is None
        if is_cut:
            break
    conversation.close_answer(events)
    view.finish()
    if conversation.config.output.timings:
        console.info(conversation.timing_line())
    if is_cut:
        interrupt.is_set = False
    return is_cut
