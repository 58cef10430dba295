"""Built-in templates against what `llama_chat_apply_template` of llama.cpp b11434 made of the same conversation."""

import pytest

from specli.tokenizer.named_templates import NAMED_TEMPLATES
from specli.tokenizer.renderer import render

CONVERSATION = [
    {"role": "system", "content": " S1 "},
    {"role": "user", "content": " U1 "},
    {"role": "assistant", "content": " A1 "},
    {"role": "user", "content": " U2 "},
]

RECORDED = {
    "chatml": (
        "<|im_start|>system\n S1 <|im_end|>\n<|im_start|>user\n U1 <|im_end|>\n<|im_start|>assistant\n A1 <|i"
        "m_end|>\n<|im_start|>user\n U2 <|im_end|>\n<|im_start|>assistant\n"
    ),
    "bailing": (
        "<role>SYSTEM</role> S1 <role>HUMAN</role> U1 <role>ASSISTANT</role> A1 <role>HUMAN</role> U2 <role>A"
        "SSISTANT</role>"
    ),
    "bailing-think": (
        "<role>SYSTEM</role> S1 <role>HUMAN</role> U1 <role>ASSISTANT</role> A1 <role>HUMAN</role> U2 <role>A"
        "SSISTANT</role><think>"
    ),
    "chatglm3": "[gMASK]sop<|system|>\n  S1 <|user|>\n  U1 <|assistant|>\n  A1 <|user|>\n  U2 <|assistant|>",
    "chatglm4": "[gMASK]<sop><|system|>\n S1 <|user|>\n U1 <|assistant|>\n A1 <|user|>\n U2 <|assistant|>\n",
    "command-r": (
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S1<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U"
        "1<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A1<|END_OF_TURN_TOKEN|><|START_OF_TURN"
        "_TOKEN|><|USER_TOKEN|>U2<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    ),
    "deepseek": " S1 ### Instruction:\n U1 \n### Response:\n A1 \n<|EOT|>\n### Instruction:\n U2 \n### Response:\n",
    "deepseek2": " S1 \n\nUser:  U1 \n\nAssistant:  A1 <｜end▁of▁sentence｜>User:  U2 \n\nAssistant:",
    "deepseek3": " S1 \n\n<｜User｜> U1 <｜Assistant｜> A1 <｜end▁of▁sentence｜><｜User｜> U2 <｜Assistant｜>",
    "exaone-moe": (
        "<|system|>\nS1<|endofturn|>\n<|user|>\nU1<|endofturn|>\n<|assistant|>\nA1<|endofturn|>\n<|user|>\nU2"
        "<|endofturn|>\n<|assistant|>\n"
    ),
    "exaone3": "[|system|]S1[|endofturn|]\n[|user|]U1\n[|assistant|]A1[|endofturn|]\n[|user|]U2\n[|assistant|]",
    "exaone4": "[|system|]S1[|endofturn|]\n[|user|]U1\n[|assistant|]A1[|endofturn|]\n[|user|]U2\n[|assistant|]",
    "falcon3": "<|system|>\n S1 \n<|user|>\n U1 \n<|assistant|>\n A1 \n<|user|>\n U2 \n<|assistant|>\n",
    "gemma": (
        "<start_of_turn>user\nS1\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n<start_of_turn>us"
        "er\nU2<end_of_turn>\n<start_of_turn>model\n"
    ),
    "glmedge": "<|system|>\n S1 <|user|>\n U1 <|assistant|>\n A1 <|user|>\n U2 <|assistant|>",
    "gpt-oss": (
        "<|start|>system<|message|> S1 <|end|><|start|>user<|message|> U1 <|end|><|start|>assistant<|message|"
        "> A1 <|return|><|start|>user<|message|> U2 <|end|><|start|>assistant"
    ),
    "granite": (
        "<|start_of_role|>system<|end_of_role|> S1 <|end_of_text|>\n<|start_of_role|>user<|end_of_role|> U1 <"
        "|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> A1 <|end_of_text|>\n<|start_of_role|>user<"
        "|end_of_role|> U2 <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    ),
    "granite-4.0": (
        "<|start_of_role|>system<|end_of_role|> S1 <|end_of_text|>\n<|start_of_role|>user<|end_of_role|> U1 <"
        "|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> A1 <|end_of_text|>\n<|start_of_role|>user<"
        "|end_of_role|> U2 <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    ),
    "granite-4.1": (
        "<|start_of_role|>system<|end_of_role|> S1 <|end_of_text|>\n<|start_of_role|>user<|end_of_role|> U1 <"
        "|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> A1 <|end_of_text|>\n<|start_of_role|>user<"
        "|end_of_role|> U2 <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    ),
    "grok-2": (
        "System: S1<|separator|>\n\nHuman: U1<|separator|>\n\nAssistant:  A1 <|separator|>\n\nHuman: U2<|sepa"
        "rator|>\n\nAssistant:"
    ),
    "hunyuan-moe": (
        "<|startoftext|> S1 <|extra_4|><|startoftext|> U1 <|extra_0|> A1 <|eos|><|startoftext|> U2 <|extra_0|>"
    ),
    "hunyuan-dense": (
        " S1 <｜hy_place▁holder▁no▁3｜><｜hy_User｜> U1 <｜hy_Assistant｜><｜hy_Assistant｜> A1 <｜hy_place▁holder▁no▁"
        "2｜><｜hy_User｜> U2 <｜hy_Assistant｜>"
    ),
    "kimi-k2": (
        "<|im_system|>system<|im_middle|> S1 <|im_end|><|im_user|>user<|im_middle|> U1 <|im_end|><|im_assista"
        "nt|>assistant<|im_middle|> A1 <|im_end|><|im_user|>user<|im_middle|> U2 <|im_end|><|im_assistant|>as"
        "sistant<|im_middle|>"
    ),
    "llama2": "[INST]  S1 \n U1  [/INST] A1 </s>[INST]  U2  [/INST]",
    "llama2-sys": "[INST] <<SYS>>\n S1 \n<</SYS>>\n\n U1  [/INST] A1 </s>[INST]  U2  [/INST]",
    "llama2-sys-bos": "[INST] <<SYS>>\n S1 \n<</SYS>>\n\n U1  [/INST] A1 </s><s>[INST]  U2  [/INST]",
    "llama2-sys-strip": "[INST] <<SYS>>\nS1\n<</SYS>>\n\nU1 [/INST]A1</s>[INST] U2 [/INST]",
    "llama3": (
        "<|start_header_id|>system<|end_header_id|>\n\nS1<|eot_id|><|start_header_id|>user<|end_header_id|>\n"
        "\nU1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|><|start_header_id|>user<|"
        "end_header_id|>\n\nU2<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "llama4": (
        "<|header_start|>system<|header_end|>\n\nS1<|eot|><|header_start|>user<|header_end|>\n\nU1<|eot|><|he"
        "ader_start|>assistant<|header_end|>\n\nA1<|eot|><|header_start|>user<|header_end|>\n\nU2<|eot|><|hea"
        "der_start|>assistant<|header_end|>\n\n"
    ),
    "megrez": (
        "<|role_start|>system<|role_end|> S1 <|turn_end|><|role_start|>user<|role_end|> U1 <|turn_end|><|role"
        "_start|>assistant<|role_end|> A1 <|turn_end|><|role_start|>user<|role_end|> U2 <|turn_end|><|role_st"
        "art|>assistant<|role_end|>"
    ),
    "minicpm": "S1<用户>U1<AI>A1<用户>U2<AI>",
    "mistral-v1": " [INST]  S1 \n\n U1  [/INST]  A1 </s> [INST]  U2  [/INST]",
    "mistral-v3": "[INST]  S1 \n\n U1 [/INST] A1</s>[INST]  U2 [/INST]",
    "mistral-v3-tekken": "[INST] S1 \n\n U1 [/INST] A1 </s>[INST] U2 [/INST]",
    "mistral-v7": "[SYSTEM_PROMPT]  S1 [/SYSTEM_PROMPT][INST]  U1 [/INST]  A1 </s>[INST]  U2 [/INST]",
    "mistral-v7-tekken": "[SYSTEM_PROMPT] S1 [/SYSTEM_PROMPT][INST] U1 [/INST] A1 </s>[INST] U2 [/INST]",
    "openchat": (
        " S1 <|end_of_turn|>GPT4 Correct User:  U1 <|end_of_turn|>GPT4 Correct Assistant:  A1 <|end_of_turn|>"
        "GPT4 Correct User:  U2 <|end_of_turn|>GPT4 Correct Assistant:"
    ),
    "phi3": (
        "<|system|>\n S1 <|end|>\n<|user|>\n U1 <|end|>\n<|assistant|>\n A1 <|end|>\n<|user|>\n U2 <|end|>\n<"
        "|assistant|>\n"
    ),
    "phi4": (
        "<|im_start|>system<|im_sep|> S1 <|im_end|><|im_start|>user<|im_sep|> U1 <|im_end|><|im_start|>assist"
        "ant<|im_sep|> A1 <|im_end|><|im_start|>user<|im_sep|> U2 <|im_end|><|im_start|>assistant<|im_sep|>"
    ),
    "seed_oss": (
        "<seed:bos>system\n S1 <seed:eos><seed:bos>user\n U1 <seed:eos><seed:bos>assistant\nA1<seed:eos><seed"
        ":bos>user\n U2 <seed:eos><seed:bos>assistant\n"
    ),
    "solar-open": (
        "<|begin|>system<|content|> S1 <|end|><|begin|>user<|content|> U1 <|end|><|begin|>assistant<|content|"
        "> A1 <|end|><|begin|>user<|content|> U2 <|end|><|begin|>assistant"
    ),
    "vicuna": " S1 \n\nUSER:  U1 \nASSISTANT:  A1 </s>\nUSER:  U2 \nASSISTANT:",
    "vicuna-orca": "SYSTEM:  S1 \nUSER:  U1 \nASSISTANT:  A1 </s>\nUSER:  U2 \nASSISTANT:",
    "zephyr": (
        "<|system|>\n S1 <|endoftext|>\n<|user|>\n U1 <|endoftext|>\n<|assistant|>\n A1 <|endoftext|>\n<|user"
        "|>\n U2 <|endoftext|>\n<|assistant|>\n"
    ),
    "bailing2": (
        "<role>SYSTEM</role> S1 <|role_end|><role>HUMAN</role> U1 <|role_end|><role>ASSISTANT</role> A1 <|rol"
        "e_end|><role>HUMAN</role> U2 <|role_end|><role>ASSISTANT</role>"
    ),
    "deepseek-ocr": " S1  U1  A1  U2 ",
    "gigachat": (
        "<s> S1 <|message_sep|>user<|role_sep|> U1 <|message_sep|>available functions<|role_sep|>[]<|message_"
        "sep|>assistant<|role_sep|> A1 <|message_sep|>user<|role_sep|> U2 <|message_sep|>available functions<"
        "|role_sep|>[]<|message_sep|>assistant<|role_sep|>"
    ),
    "hunyuan-vl": (
        "<｜hy_begin▁of▁sentence｜> S1 <｜hy_place▁holder▁no▁3｜> U1 <｜hy_User｜> A1 <｜hy_Assistant｜> U2 <｜hy_User"
        "｜>"
    ),
    "monarch": "system\n S1 </s>\n<s>user\n U1 </s>\n<s>assistant\n A1 </s>\n<s>user\n U2 </s>\n<s>assistant\n",
    "orion": "Human:  S1 \n\n U1 \n\nAssistant: </s> A1 </s>Human:  U2 \n\nAssistant: </s>",
    "pangu-embedded": (
        "[unused9]系统： S1 [unused10][unused9]用户： U1 [unused10][unused9]助手： A1 [unused10]"
        "[unused9]用户： U2 [unused10][unused9]助手："
    ),
    "rwkv-world": "System: S1\n\nUser: U1\n\nAssistant: A1\n\nUser: U2\n\nAssistant:",
    "smolvlm": (
        "<|im_start|> S1 \n\nUser:  U1 <end_of_utterance>\nAssistant:  A1 <end_of_utterance>\nUser:  U2 <end_"
        "of_utterance>\nAssistant:"
    ),
    "yandex": " Пользователь:  U1 \n\n Ассистент:  A1 \n\n Пользователь:  U2 \n\n Ассистент:[SEP]",
}


@pytest.mark.parametrize("name", NAMED_TEMPLATES)
def test_named_templates(name: str) -> None:
    result = render(NAMED_TEMPLATES[name], {"messages": CONVERSATION, "add_generation_prompt": True})
    assert result == {"text": RECORDED[name]}


@pytest.mark.parametrize("name", NAMED_TEMPLATES)
def test_named_templates_leave_the_answer_out_when_none_is_wanted(name: str) -> None:
    longer = render(NAMED_TEMPLATES[name], {"messages": CONVERSATION, "add_generation_prompt": True})["text"]
    assert longer.startswith(render(NAMED_TEMPLATES[name], {"messages": CONVERSATION})["text"])
