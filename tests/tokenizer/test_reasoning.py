"""Which templates know thoughts, and how these are written."""

import os
from pathlib import Path

import pytest

from specli.tokenizer import ChatTemplate
from specli.tokenizer.reasoning import Reasoning

USER = {"role": "user", "content": "U"}
TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SPLIT = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n"
    "{% endif %}{{ m.content }}\n{% endfor %}"
)
SWITCH = (
    "{% if add_generation_prompt %}assistant: {% if not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}"
)
OPENED = "{% if add_generation_prompt %}assistant: {% if enable_thinking %}<reason>\n{% endif %}{% endif %}"
TOLD = (
    "system: {{ 'think' if enable_thinking else 'be quick' }}\n{{ messages[0].content }}"
    "assistant with a long prompt so that its end is found again: {% if not enable_thinking %}<t></t>{% endif %}"
)


def made(source: str) -> ChatTemplate:
    return ChatTemplate(source, origin="template", bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (TURNS, None),
        ("{% broken", None),
        (SPLIT, Reasoning("<think>", "</think>")),
        (TURNS + SWITCH, Reasoning("<think>", "</think>")),
        (TURNS + OPENED, Reasoning("<reason>", "</reason>")),
        (TOLD, Reasoning("<t>", "</t>")),
        ("{{ enable_thinking }}", None),
    ],
)
def test_thoughts_are_found_by_rendering(source: str, form: Reasoning | None) -> None:
    assert made(source).reasoning == form


def test_the_variable_is_on_only_where_the_template_knows_thoughts() -> None:
    ending = "{% if false %}{{ enable_thinking }}{% endif %}{{ 'on' if enable_thinking else 'off' }}"
    assert made(TURNS).reasoning is None
    assert made(SPLIT + ending).render([USER], add_generation_prompt=True).endswith("on")
    assert made(ending).render([USER], add_generation_prompt=True) == "off"
    forced = made(ending).render([USER], add_generation_prompt=True, variables={"enable_thinking": True})
    assert forced == "on"


def test_prompts_that_end_inside_a_thought() -> None:
    form = Reasoning("<think>", "</think>")
    assert form.is_open("user: x\nassistant: <think>\n")
    assert form.is_open("<think>a</think><think>")
    assert not form.is_open("assistant: <think>\n\n</think>\n")
    assert not form.is_open("user: what is <think>?\n<assistant>")
    assert not form.is_open("assistant:")


# What llama.cpp b11434 finds in the templates it ships (common_chat_templates_apply: start and end of thoughts).
THINK = ("<think>", "</think>")
SHIPPED = {
    "Apertus-8B-Instruct": None,
    "Bielik-11B-v3.0-Instruct": THINK,
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "Cohere2MoE": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "GLM-4.6": THINK,
    "GigaChat3-10B-A1.8B": None,
    "HuggingFaceTB-SmolLM3-3B": THINK,
    "Kimi-K2-Thinking": THINK,
    "Kimi-K3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    "LFM2-8B-A1B": THINK,
    "LFM2.5-Instruct": THINK,
    "MiMo-VL": None,
    "MiniMax-M2": THINK,
    "MiniMax-M3": ("<mm:think>", "</mm:think>"),
    "Mistral-Small-3.2-24B-Instruct-2506": None,
    "NVIDIA-Nemotron-Nano-v2": THINK,
    "Qwen-QwQ-32B": THINK,
    "Qwen-Qwen2.5-7B-Instruct": None,
    "Qwen-Qwen3-0.6B": THINK,
    "Qwen3-Coder": None,
    "Qwen3.5-4B": THINK,
    "StepFun3.5-Flash": THINK,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": THINK,
    "deepseek-ai-DeepSeek-V3.2": THINK,
    "fireworks-ai-llama-3-firefunction-v2": None,
    "google-gemma-2-2b-it": None,
    "google-gemma-4-31B-it": ("<|channel>thought", "<channel|>"),
    "ibm-granite-granite-3.3-2B-Instruct": THINK,
    "ibm-granite-granite-4.0": None,
    "inclusionai-ling-3.0-flash": THINK,
    "llama-cpp-deepseek-r1": THINK,
    "meetkai-functionary-medium-v3.2": None,
    "meta-llama-Llama-3.1-8B-Instruct": None,
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "openai-gpt-oss-120b": ("<|channel|>analysis<|message|>", "<|end|>"),
    "openbmb-MiniCPM5-1B": THINK,
    "poolside-Laguna-XS.2": THINK,
    "tencent-Hy3": ("<think:opensource>", "</think:opensource>"),
    "unsloth-Apriel-1.5": None,
    "unsloth-mistral-Devstral-Small-2507": ("[THINK]", "[/THINK]"),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_templates_that_llama_cpp_ships(name: str) -> None:
    source = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not source:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    template = made((Path(source) / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8"))
    found = template.reasoning
    assert (found and (found.start, found.end)) == SHIPPED[name]
    conversation = [USER, {"role": "assistant", "content": "Zt7", "reasoning_content": "R"}, USER]
    assert "Zt7" in template.render(conversation, add_generation_prompt=True)
