"""Where the thoughts stand in what a model writes, found out from its chat template.

As llama.cpp does (common/chat.cpp, common/chat-diff-analyzer.cpp, b11434): templates with a form of their own are known
by what stands in them, for all others two renderings are compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_THOUGHT, _ANSWER = "Zt7Thought", "Zt7Answer"
_ANCHOR = 64  # characters
_MARKER = r"<[^<>]*>|\[[^\[\]]*\]"


@dataclass(frozen=True)
class Reasoning:
    """How a model writes its thoughts.

    Attributes:
        start: What begins a thought; "" for an unknown form.
        end: What ends it.
        has_channels: The form of gpt-oss, in which every message names its channel.
        answer: What begins and what ends the answer behind the thought, and perhaps the message; empty: nothing does.
        opening: `start` as a prompt has it, with white space; "": the same.
        closing: What a prompt has between a thought and the answer; "": `end`.
    """

    start: str = ""
    end: str = ""
    has_channels: bool = False
    answer: tuple[str, ...] = ()
    opening: str = field(default="", compare=False)
    closing: str = field(default="", compare=False)

    @property
    def markers(self) -> tuple[str, ...]:
        """The tokens it is made of, which have to be seen to split an answer."""
        extra = ("<|start|>", "<|constrain|>") if self.has_channels else ()
        return tuple(dict.fromkeys((*re.findall(_MARKER, self.start + self.end), *extra)))

    def begun(self, thought: str, answer: str | None) -> str:
        """A thought that goes on, or a whole one and the beginning of the answer, as a prompt has them."""
        text = (self.opening or self.start) + thought
        return text if answer is None else text + (self.closing or self.end) + answer

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside a thought."""
        _, found, after = prompt.rpartition(self.start) if self.start else ("", "", "")
        return bool(found) and not self.has_channels and len(after) < _ANCHOR and not re.search(_MARKER, after)


TAGS = Reasoning("<think>", "</think>")
_HARMONY = Reasoning(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    has_channels=True,
    closing="<|end|><|start|>assistant<|channel|>final<|message|>",
)


_GRANITE = Reasoning("<think>", "</think>", answer=("<response>", "</response>"))
_KIMI_K3 = Reasoning(
    "<|open|>think<|sep|>",
    "<|close|>think<|sep|>",
    answer=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    closing="<|close|>think<|sep|><|open|>response<|sep|>",
)


@dataclass(frozen=True)
class _Known:
    """A template with a form of its own.

    Attributes:
        texts: What stands in it.
        form: How thoughts are written; None: it has none.
        without: What does not stand in it.
    """

    texts: tuple[str, ...]
    form: Reasoning | None
    without: str = "\0"


# In upstream's order: the first that fits counts.
_KNOWN = (
    _Known(("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"), Reasoning("[THINK]", "[/THINK]"), without="[CALL_ID]"),
    _Known(("<|channel|>",), _HARMONY),
    _Known(("<atem:function_calls>", "<|eom|>"), Reasoning()),
    _Known((">>>all", ">>>${recipient}"), None),
    _Known(("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), TAGS),
    _Known(("<|open|>", "<|close|>", "<|end_of_msg|>"), _KIMI_K3),
    _Known(("<role>ASSISTANT</role>", "<arg_key>"), TAGS),
    _Known(("<|START_TEXT|>", "<|START_ACTION|>"), Reasoning("<|START_THINKING|>", "<|END_THINKING|>")),
    _Known(("<|tool_list_start|>", "<|tool_list_end|>"), TAGS),
    _Known(("List of tools: [",), TAGS),
    _Known(("<|role_sep|>", "<|message_sep|>"), None, without="<|function_call|>"),
    _Known(("]<]minimax[>[", "<tool_call>", "<invoke name="), Reasoning("<mm:think>", "</mm:think>")),
    _Known(("dsml_token", "DSML", "_calls"), TAGS),
    _Known(("'<|tool_call>call:'",), Reasoning("<|channel>thought", "<channel|>", opening="<|channel>thought\n")),
    _Known(("Write your thoughts between <think></think> and write your response between",), _GRANITE),
    _Known(("<SPECIAL_12>", "</think>"), Reasoning("<think>", "</think>", opening="<think>\n")),
    _Known(("Tool usage guidelines:", '<function name="', '<param name="'), TAGS),
)


def known_reasoning(source: str) -> tuple[bool, Reasoning | None]:
    """Whether a template has a form of its own, and how thoughts are written in it."""
    for known in _KNOWN:
        if all(text in source for text in known.texts) and known.without not in source:
            return True, known.form
    return False, None


def probes() -> list[dict[str, Any]]:
    """Variables of the renderings that `compared_reasoning` compares."""
    user = {"role": "user", "content": "Zt7User"}
    answer = {"role": "assistant", "content": _ANSWER}
    return [
        {"messages": [user, answer], "enable_thinking": True},
        {"messages": [user, answer | {"reasoning_content": _THOUGHT}], "enable_thinking": True},
        {"messages": [user], "add_generation_prompt": True, "enable_thinking": False},
        {"messages": [user], "add_generation_prompt": True, "enable_thinking": True},
    ]


def compared_reasoning(source: str, texts: Sequence[str | None]) -> Reasoning | None:
    """How thoughts are written, by the renderings of `probes` (None for one that failed); None: there are none."""
    plain, thoughtful, off, on = texts
    start = end = head = tail = ""
    if plain is not None and thoughtful is not None and _THOUGHT in thoughtful:
        before, _, after = thoughtful.partition(_THOUGHT)
        opening = re.search(rf"({_MARKER})\s*$", before)
        closing = re.match(rf"\s*((?:{_MARKER})?)", after)
        end = closing[1] if closing else ""
        start = opening[1] if opening and end else ""
        if opening and closing and end:
            head, tail = opening[0], closing[0] + re.match(r"\s*", after[closing.end() :])[0]  # type: ignore[index]
    if off is not None and on is not None:
        start, end = _by_switch(off, on, start, end)
    if not start and not end and "content.split('</think>')" in source and "<SPECIAL_12>" not in source:
        return TAGS
    if not start and "</think>" in end:
        start = "<think>"
    start, end = start.strip(), end.strip()
    if not end and start.startswith("<"):
        end = "</" + start[1:]
    if not start and not end:
        return None
    return Reasoning(
        start, end, opening=head if head.strip() == start else "", closing=tail if tail.strip() == end else ""
    )


def _by_switch(off: str, on: str, start: str, end: str) -> tuple[str, str]:
    """What `enable_thinking` changes at the end of the prompt: an opened thought, or an empty one."""
    shared = next((i for i, (a, b) in enumerate(zip(off, on, strict=False)) if a != b), min(len(off), len(on)))
    only_off, only_on = off[shared:].strip(), on[shared:].strip()
    if only_on and not only_off:
        return start or only_on, end
    if only_off and not only_on:
        markers = re.findall(_MARKER, off)
        if not end and markers and markers[-1] == only_off:
            return (markers[-2] if len(markers) > 1 else start), only_off
        if not end and len(markers) > 1 and only_off.startswith(markers[-2]) and only_off.endswith(markers[-1]):
            return markers[-2], markers[-1]
    for base, extended in ((on, off), (off, on)):  # the system message may change, too
        anchor = base[-_ANCHOR:]
        extra = extended.rpartition(anchor)[2].strip() if anchor and anchor in extended else ""
        if re.fullmatch(rf"({_MARKER})\s*({_MARKER})", extra):
            opening, closing = re.findall(_MARKER, extra)
            return start or opening, end or closing
    return start, end
