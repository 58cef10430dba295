"""Chat templates with a name (`--chat-template NAME`), written for the formats of docs/tokenizers.md §9.

llama.cpp formats these in C++ (`src/llama-chat.cpp`); here each is a Jinja template like those in model files. None
writes BOS. What they render was compared with `llama_chat_apply_template` of b11434.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(frozen=True)
class _Turns:
    """A format in which every message stands between two markers.

    Attributes:
        turns: Role → (before, after); `*` is any other role. `{role}` stands for the role's name.
        generation: What begins the answer.
        start: What begins the conversation.
        trim: Roles whose content loses white space at both ends.
    """

    turns: dict[str, tuple[str, str]]
    generation: str
    start: str = ""
    trim: tuple[str, ...] = field(default=())

    def source(self) -> str:
        """The format as a Jinja template."""
        branches = [(role, marks) for role, marks in self.turns.items() if role != "*"]
        parts = [_text(self.start), "{% for message in messages %}"]
        for i, (role, marks) in enumerate(branches):
            parts.append(f'{{% {"elif" if i else "if"} message.role == "{role}" %}}{self._turn(role, marks)}')
        if "*" in self.turns:
            any_role = self._turn("*", self.turns["*"])
            parts.append(f"{{% else %}}{any_role}" if branches else any_role)
        parts.append("{% endif %}" if branches else "")
        parts += ["{% endfor %}{% if add_generation_prompt %}", _text(self.generation), "{% endif %}"]
        return "".join(parts)

    def _turn(self, role: str, marks: tuple[str, str]) -> str:
        content = "{{ message.content | trim }}" if role in self.trim else "{{ message.content }}"
        return _text(marks[0]) + content + _text(marks[1])


def _text(text: str) -> str:
    """Jinja that prints a text. A string literal, because line ends after a block would be trimmed."""
    parts = [json.dumps(part, ensure_ascii=False) for part in text.split("{role}")]
    return "{{ " + " ~ message.role ~ ".join(parts) + " }}" if text else ""


def _roles(before: str, after: str, generation: str, *, start: str = "", trim: bool = False) -> str:
    """A format that treats all roles alike."""
    return _Turns({"*": (before, after)}, generation, start, ("*",) if trim else ()).source()


def _three(
    system: tuple[str, str],
    user: tuple[str, str],
    assistant: tuple[str, str],
    generation: str = "",
    *,
    start: str = "",
    trim: tuple[str, ...] = (),
) -> str:
    """A format with markers of its own for each of the three roles."""
    return _Turns({"system": system, "user": user, "assistant": assistant}, generation, start, trim).source()


_ALL = ("system", "user", "assistant")


def _instruct(
    opening: str, later: str, system: tuple[str, str], user_end: str, answer: tuple[str, str], mode: str
) -> str:
    """The `[INST]` family: system and user share a turn.

    Args:
        opening: Opens the first turn.
        later: Opens the others.
        system: Around the system text.
        user_end: Closes the turn.
        answer: Around the assistant's text.
        mode: `all` trims every text, `answers` the assistant's, anything else none.
    """
    trim, trim_answer = ("| trim" if mode == "all" else ""), ("| trim" if mode in ("all", "answers") else "")
    return (
        "{% set state = namespace(open=false, first=true) %}{% for message in messages %}"
        '{% if message.role != "assistant" and not state.open %}'
        f"{{% if state.first %}}{_text(opening)}{{% else %}}{_text(later)}{{% endif %}}"
        "{% set state.open = true %}{% set state.first = false %}{% endif %}"
        f'{{% if message.role == "system" %}}{_text(system[0])}{{{{ message.content {trim} }}}}{_text(system[1])}'
        f'{{% elif message.role == "user" %}}{{{{ message.content {trim} }}}}{_text(user_end)}'
        f"{{% else %}}{_text(answer[0])}{{{{ message.content {trim_answer} }}}}{_text(answer[1])}"
        "{% set state.open = false %}{% endif %}{% endfor %}"
    )


_GEMMA = (
    '{% set state = namespace(system="") %}{% for message in messages %}'
    '{% if message.role == "system" %}{% set state.system = state.system ~ (message.content | trim) ~ "\\n\\n" %}'
    '{% else %}{{ "<start_of_turn>" ~ ("model" if message.role == "assistant" else message.role) ~ "\\n" }}'
    '{% if message.role != "assistant" %}{{ state.system }}{% set state.system = "" %}{% endif %}'
    '{{ message.content | trim }}{{ "<end_of_turn>\\n" }}{% endif %}{% endfor %}'
    '{% if add_generation_prompt %}{{ "<start_of_turn>model\\n" }}{% endif %}'
)

_MONARCH = (
    '{% for message in messages %}{{ "" if loop.first else "<s>" }}{{ message.role ~ "\n" ~ message.content }}'
    '{{ "</s>\n" }}{% endfor %}{% if add_generation_prompt %}{{ "<s>assistant\n" }}{% endif %}'
)
_ORION = (
    '{% set state = namespace(system="") %}{% for message in messages %}'
    '{% if message.role == "system" %}{% set state.system = state.system ~ message.content %}'
    '{% elif message.role == "user" %}{{ "Human: " ~ (state.system ~ "\n\n" if state.system else "") }}'
    '{% set state.system = "" %}{{ message.content ~ "\n\nAssistant: </s>" }}'
    '{% else %}{{ message.content ~ "</s>" }}{% endif %}{% endfor %}'
)


def _default_system(text: str, template: str) -> str:
    """A format that begins with a system turn of its own where the conversation has none."""
    return f'{{% if messages[0].role != "system" %}}{_text(text)}{{% endif %}}{template}'


CHATML = _roles("<|im_start|>{role}\n", "<|im_end|>\n", "<|im_start|>assistant\n")
_GRANITE = _roles(
    "<|start_of_role|>{role}<|end_of_role|>", "<|end_of_text|>\n", "<|start_of_role|>assistant<|end_of_role|>"
)
_COMMAND_R = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>"
_COMMAND_R_END = "<|END_OF_TURN_TOKEN|>"
_EXAONE = _three(
    ("[|system|]", "[|endofturn|]\n"),
    ("[|user|]", "\n"),
    ("[|assistant|]", "[|endofturn|]\n"),
    "[|assistant|]",
    trim=_ALL,
)
_LLAMA2_SYSTEM = ("<<SYS>>\n", "\n<</SYS>>\n\n")

NAMED_TEMPLATES: dict[str, str] = {
    "chatml": CHATML,
    "bailing": _three(
        ("<role>SYSTEM</role>", ""),
        ("<role>HUMAN</role>", ""),
        ("<role>ASSISTANT</role>", ""),
        "<role>ASSISTANT</role>",
    ),
    "bailing-think": _three(
        ("<role>SYSTEM</role>", ""),
        ("<role>HUMAN</role>", ""),
        ("<role>ASSISTANT</role>", ""),
        "<role>ASSISTANT</role><think>",
    ),
    "bailing2": _default_system(
        "<role>SYSTEM</role>detailed thinking off<|role_end|>",
        _Turns(
            {
                role: (f"<role>{name}</role>", "<|role_end|>")
                for role, name in (
                    ("system", "SYSTEM"),
                    ("user", "HUMAN"),
                    ("assistant", "ASSISTANT"),
                    ("tool", "TOOL"),
                )
            },
            "<role>ASSISTANT</role>",
        ).source(),
    ),
    "chatglm3": _roles("<|{role}|>\n ", "", "<|assistant|>", start="[gMASK]sop"),
    "chatglm4": _roles("<|{role}|>\n", "", "<|assistant|>\n", start="[gMASK]<sop>"),
    "command-r": _three(
        (_COMMAND_R.format("SYSTEM"), _COMMAND_R_END),
        (_COMMAND_R.format("USER"), _COMMAND_R_END),
        (_COMMAND_R.format("CHATBOT"), _COMMAND_R_END),
        _COMMAND_R.format("CHATBOT"),
        trim=_ALL,
    ),
    "deepseek": _three(("", ""), ("### Instruction:\n", "\n"), ("### Response:\n", "\n<|EOT|>\n"), "### Response:\n"),
    "deepseek-ocr": _roles("", "", ""),
    "deepseek2": _three(("", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", "<｜end▁of▁sentence｜>"), "Assistant:"),
    "deepseek3": _three(
        ("", "\n\n"), ("<｜User｜>", ""), ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), "<｜Assistant｜>"
    ),
    "exaone-moe": _roles("<|{role}|>\n", "<|endofturn|>\n", "<|assistant|>\n", trim=True),
    "exaone3": _EXAONE,
    "exaone4": _EXAONE,
    "falcon3": _roles("<|{role}|>\n", "\n", "<|assistant|>\n"),
    "gemma": _GEMMA,
    "gigachat": _three(
        ("", "<|message_sep|>"),
        ("user<|role_sep|>", "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>"),
        ("assistant<|role_sep|>", "<|message_sep|>"),
        "assistant<|role_sep|>",
        start="<s>",
    ),
    "glmedge": _roles("<|{role}|>\n", "", "<|assistant|>"),
    "gpt-oss": _Turns(
        {
            "assistant": ("<|start|>{role}<|message|>", "<|return|>"),
            "*": ("<|start|>{role}<|message|>", "<|end|>"),
        },
        "<|start|>assistant",
    ).source(),
    "granite": _GRANITE,
    "granite-4.0": _GRANITE,
    "granite-4.1": _GRANITE,
    "grok-2": _three(
        ("System: ", "<|separator|>\n\n"),
        ("Human: ", "<|separator|>\n\n"),
        ("Assistant: ", "<|separator|>\n\n"),
        "Assistant:",
        trim=("system", "user"),
    ),
    "hunyuan-moe": _three(("<|startoftext|>", "<|extra_4|>"), ("<|startoftext|>", "<|extra_0|>"), ("", "<|eos|>"), ""),
    "hunyuan-dense": _three(
        ("", "<｜hy_place▁holder▁no▁3｜>"),
        ("<｜hy_User｜>", "<｜hy_Assistant｜>"),
        ("<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>"),
    ),
    "hunyuan-vl": _three(
        ("", "<｜hy_place▁holder▁no▁3｜>"),
        ("", "<｜hy_User｜>"),
        ("", "<｜hy_Assistant｜>"),
        start="<｜hy_begin▁of▁sentence｜>",
    ),
    "kimi-k2": _three(
        ("<|im_system|>system<|im_middle|>", "<|im_end|>"),
        ("<|im_user|>user<|im_middle|>", "<|im_end|>"),
        ("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    "llama2": _instruct("[INST] ", "[INST] ", ("", "\n"), " [/INST]", ("", "</s>"), ""),
    "llama2-sys": _instruct("[INST] ", "[INST] ", _LLAMA2_SYSTEM, " [/INST]", ("", "</s>"), ""),
    "llama2-sys-bos": _instruct("[INST] ", "<s>[INST] ", _LLAMA2_SYSTEM, " [/INST]", ("", "</s>"), ""),
    "llama2-sys-strip": _instruct("[INST] ", "[INST] ", _LLAMA2_SYSTEM, " [/INST]", ("", "</s>"), "all"),
    "llama3": _roles(
        "<|start_header_id|>{role}<|end_header_id|>\n\n",
        "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        trim=True,
    ),
    "llama4": _roles(
        "<|header_start|>{role}<|header_end|>\n\n",
        "<|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
        trim=True,
    ),
    "megrez": _roles("<|role_start|>{role}<|role_end|>", "<|turn_end|>", "<|role_start|>assistant<|role_end|>"),
    "minicpm": _three(("", ""), ("<用户>", "<AI>"), ("", ""), trim=_ALL),
    "mistral-v1": _instruct(" [INST] ", " [INST] ", ("", "\n\n"), " [/INST]", (" ", "</s>"), ""),
    "mistral-v3": _instruct("[INST] ", "[INST] ", ("", "\n\n"), "[/INST]", (" ", "</s>"), "answers"),
    "mistral-v3-tekken": _instruct("[INST]", "[INST]", ("", "\n\n"), "[/INST]", ("", "</s>"), ""),
    "mistral-v7": _three(("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"), ("[INST] ", "[/INST]"), (" ", "</s>")),
    "mistral-v7-tekken": _three(("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), ("[INST]", "[/INST]"), ("", "</s>")),
    "monarch": _MONARCH,
    "openchat": _three(
        ("", "<|end_of_turn|>"),
        ("GPT4 Correct User: ", "<|end_of_turn|>"),
        ("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
        "GPT4 Correct Assistant:",
    ),
    "orion": _ORION,
    "pangu-embedded": _default_system(
        "[unused9]系统：[unused10]",
        _Turns(
            {
                role: (f"[unused9]{name}：", "[unused10]")
                for role, name in (("system", "系统"), ("user", "用户"), ("assistant", "助手"), ("tool", "工具"))
            },
            "[unused9]助手：",
        ).source(),
    ),
    "phi3": _roles("<|{role}|>\n", "<|end|>\n", "<|assistant|>\n"),
    "phi4": _roles("<|im_start|>{role}<|im_sep|>", "<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    "rwkv-world": _three(("System: ", "\n\n"), ("User: ", "\n\nAssistant:"), (" ", "\n\n"), trim=_ALL),
    "seed_oss": _Turns(
        {
            "assistant": ("<seed:bos>{role}\n", "<seed:eos>"),
            "*": ("<seed:bos>{role}\n", "<seed:eos>"),
        },
        "<seed:bos>assistant\n",
        trim=("assistant",),
    ).source(),
    "smolvlm": _Turns(
        {
            "system": ("", "\n\n"),
            "user": ("User: ", "<end_of_utterance>\n"),
            "*": ("Assistant: ", "<end_of_utterance>\n"),
        },
        "Assistant:",
        "<|im_start|>",
    ).source(),
    "solar-open": _roles("<|begin|>{role}<|content|>", "<|end|>", "<|begin|>assistant"),
    "vicuna": _three(("", "\n\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), "ASSISTANT:"),
    "vicuna-orca": _three(("SYSTEM: ", "\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), "ASSISTANT:"),
    "yandex": _Turns(
        {"user": (" Пользователь: ", "\n\n"), "assistant": (" Ассистент: ", "\n\n")}, " Ассистент:[SEP]"
    ).source(),
    "zephyr": _roles("<|{role}|>\n", "<|endoftext|>\n", "<|assistant|>\n"),
}
