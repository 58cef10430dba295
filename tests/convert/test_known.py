"""Every config key that one layout or another reads has an effect in a layout, or the layout names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from specli.convert import ConvertConfig, convert, known
from specli.errors import SpecliError
from tests.support.checkpoints import CASES, SLIDING
from tests.support.hf_files import write_json

EXAMPLES = {
    "EAGLE": "eagle-safeai",
    "Medusa": "medusa",
    "EAGLE-3": "eagle3-angelslim",
    "DFlash": "dflash-zlab",
    "DSpark": "dspark-deepspec",
    "DSpark, Gemma 4 body": "dspark-gemma4",
    "Gemma 4 assistant": "gemma4-assistant",
    "Llama": "mixtral",
    "Qwen2": "qwen2",
    "Qwen3": "qwen3",
    "Qwen3-MoE": "qwen3-moe",
    "Gemma 3": "gemma3",
    "Gemma 4": "gemma4-moe",
    "gpt-oss": "gpt-oss",
    "GLM-4.5": "glm4-moe",
    "DeepSeek": "deepseek-v3",
    "GLM-4.7-Flash": "glm4-moe-lite",
    "Qwen3.5": "qwen35",
    "Qwen3-Next": "qwen3-next",
    "Qwen3.5-MoE": "qwen35-moe",
    "SmolLM3": "smollm3",
    "Llama 4": "llama4",
    "Mistral 3": "mistral3",
    "Phi-3": "phi3-long",
    "OLMo 2": "olmo3",
    "Granite": "granite",
    "Granite-MoE": "granitemoe-shared",
    "GLM-4": "glm4",
    "Qwen2-MoE": "qwen2moe",
    "EXAONE 4": "exaone4-32b",
    "Cohere 2": "cohere2",
    "ERNIE 4.5": "ernie4_5",
    "ERNIE 4.5-MoE": "ernie4_5-moe",
    "Hunyuan": "hunyuan-dense",
    "StarCoder 2": "starcoder2",
    "Gemma 2": "gemma2",
}
VALUES: dict[str, Any] = {
    "partial_rotary_factor": 0.125, "layer_types": [SLIDING], "eagle_config": {"use_aux_hidden_state": False},
    "dflash_config": {"mask_token_id": 7}, "per_layer_config": {"0": {"head_dim": 8}}, "markov_head_type": "rnn",
    "final_logit_softcapping": 29.0, "norm_topk_prob": False, "has_embed_tokens": False, "rope_is_neox_style": False,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 6], "target_layer_ids": [0, 1, 2], "speculators_model_type": "peagle",
    "aux_hidden_state_layer_ids": [1, 2, 6], "transformer_layer_config": {"head_dim": 8},
    "routed_scaling_factor": 0.75, "output_multiplier": 0.75, "input_embedding_scale": 0.75, "swiglu_limit": 6.5,
    "query_pre_attn_scalar": 77, "attn_logit_softcapping": 20.0, "rope_local_base_freq": 5000.0,
    "attention_multiplier": 0.3, "residual_multiplier": 0.3, "embedding_multiplier": 3.0, "logits_scaling": 3.0,
    "scoring_func": "softmax", "mlp_layer_types": ["dense", "dense", "sparse"],
    "logit_scale": 0.3, "clip_qkv": 8.0, "no_rope_layers": [1, 0], "moe_layer_end_index": 2,
    "rotary_pct": 0.5, "attn_scale": 0.2,
}  # fmt: skip
FLAGS = {
    "confidence_head_with_markov",
    "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_sliding_window", "sample_from_anchor",
    "sliding_window_non_causal", "attention_k_eq_v", "enable_moe_block", "use_double_wide_mlp", "qk_layernorm",
    "attn_temperature_tuning", "alibi", "parallel_attn",
}  # fmt: skip
NEEDS_MORE = {  # keys that matter with another one only, or change values and not what is reported
    "DFlash": {"has_embed_tokens", "layer_types", "mask_token_id", "rope_is_neox_style", "target_layer_ids"},
    "DSpark": {"layer_types", "rope_is_neox_style"},
    "EAGLE-3": {"layer_types", "norm_output"},
    "Gemma 4": {"sliding_window_pattern", "vocab_size_per_layer_input"},
    "Gemma 4 assistant": {"attention_k_eq_v", "sliding_window_pattern", "vocab_size_per_layer_input"},
    "DeepSeek": {"num_nextn_predict_layers"},
    "GLM-4.7-Flash": {"mlp_layer_types"},
    "Qwen2-MoE": {"norm_topk_prob"},
    "Qwen3.5": {"partial_rotary_factor"},
    "Qwen3.5-MoE": {"partial_rotary_factor"},
}
WINDOWED = {"layer_types": [SLIDING, SLIDING], "sliding_window": 6, "use_sliding_window": True}
CONTEXT: dict[str, dict[str, Any]] = {  # what must hold for a key to matter at all
    **dict.fromkeys(("sliding_window", "use_sliding_window", "sliding_window_non_causal"), WINDOWED),
    "truncated_vocab_size": {"draft_vocab_size": None},
    "num_experts": {"num_local_experts": None},
    "num_global_key_value_heads": {"attention_k_eq_v": True},
    "top_k_experts": {"num_experts_per_tok": None},
    "moe_intermediate_size": {"expert_intermediate_size": None},
    "sliding_window_pattern": {"layer_types": None},
    "rope_local_base_freq": {"rope_parameters": None},
    "full_attention_interval": {"layer_types": None},
}


def value_of(key: str, old: Any) -> Any:
    """Another value of the right kind."""
    if key in VALUES:
        return VALUES[key]
    if key in FLAGS:
        return not old
    return old + 1 if isinstance(old, int) and old else 3


def changed(directory: Path, original: dict[str, Any], items: dict[str, Any]) -> None:
    """Writes the config with the items where its text model's settings stand; None takes a key away."""
    config = json.loads(json.dumps(original))
    place = config.get("text_config", config)
    for key, value in items.items():
        place.pop(key, None) if value is None else place.__setitem__(key, value)
    write_json(directory / "config.json", config)


def outcome(request: ConvertConfig) -> object:
    """What comes of a conversion: the error, or all that is written and said."""
    try:
        report = convert(request)
    except SpecliError as error:
        return str(error)
    return report.tensors, report.metadata, report.unused, report.notes, report.warnings


@pytest.mark.parametrize("layout", sorted(known.READ))
def test_every_key_has_an_effect_or_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    case = CASES[EXAMPLES[layout]]
    source, target = tmp_path / "source", None
    case.write(source)
    if case.target is not None:
        target = tmp_path / "target"
        CASES[case.target].write(target)
    request = ConvertConfig(source, outfile=tmp_path / "x.gguf", target=target, dry_run=True)
    original = json.loads((source / "config.json").read_text())
    flat = {**original, **original.get("text_config", {})}
    assert convert(request).layout == layout.replace(", Gemma 4 body", ", Gemma 4 body")

    without_effect = set()
    for key in sorted(known.READ[layout] - known.BODY):
        context = CONTEXT.get(key, {})
        if context is WINDOWED and layout not in ("DFlash", "DSpark", "EAGLE-3"):
            context = {}
        elif context is WINDOWED:
            context = {**context, "layer_types": [SLIDING] * flat["num_hidden_layers"]}
        changed(source, original, context)
        before = outcome(request)
        changed(source, original, {**context, key: value_of(key, {**flat, **context}.get(key))})
        if outcome(request) == before:
            without_effect.add(key)
    assert without_effect == NEEDS_MORE.get(layout, set())

    monkeypatch.setattr(known, "listed", ", ".join)
    others = {key: value_of(key, flat.get(key)) for key in known.SWITCHES - known.READ[layout]}
    if case.target is not None:
        others = {key: value for key, value in others.items() if key not in known.OF_THE_TARGET}
    for key in ("speculators_model_type", "dflash_config", "backbone_hidden_size"):  # these decide which layout it is
        others.pop(key, None)
    if flat.get("layer_types"):  # which say it
        others = {key: value for key, value in others.items() if "sliding_window" not in key and "swa" not in key}
    elif "layer_types" not in known.READ[layout]:
        changed(source, original, {"layer_types": others.pop("layer_types")})
        assert any(text.endswith("have no effect: layer_types") for text in convert(request).warnings)
    changed(source, original, others)
    named = next(text for text in convert(request).warnings if text.startswith("config keys"))
    assert set(named.rpartition(": ")[2].split(", ")) == others.keys()


@pytest.mark.parametrize(
    ("layout", "changes", "named"),
    [
        ("eagle3-angelslim", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("eagle3-angelslim", {"rope_scaling": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}},
         "rope_parameters.partial_rotary_factor"),
        ("dflash-zlab", {"norm_before_fc": True}, "norm_before_fc"),
        ("dflash-zlab", {"new_switch": False}, "new_switch"),
        ("llama", {"sliding_window": 4096}, "sliding_window"),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True}, "sliding_window, use_sliding_window"),
        ("qwen3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)  # fmt: skip
def test_lost_key_is_named(tmp_path: Path, layout: str, changes: dict[str, Any], named: str) -> None:
    case = CASES[layout]
    case.write(tmp_path / "source")
    if case.target is not None:
        CASES[case.target].write(tmp_path / "target")
    changed(tmp_path / "source", json.loads((tmp_path / "source" / "config.json").read_text()), changes)
    target = None if case.target is None else tmp_path / "target"
    report = convert(ConvertConfig(tmp_path / "source", target=target, dry_run=True))
    assert report.warnings == (f"config keys that are not understood and have no effect: {named}",)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ("qwen2", {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28}),
        ("mistral", {"sliding_window": None}),
        ("llama", {"partial_rotary_factor": 1.0, "attention_bias": False, "is_llama_config": True}),
        ("qwen3", {"layer_types": ["full_attention"] * 8, "sliding_window": 4096}),
        ("gemma3", {"query_pre_attn_scalar": 16}),
        ("glm4-moe", {"n_group": 1, "topk_group": 1}),
    ],
)
def test_usual_configs_are_quiet(tmp_path: Path, layout: str, changes: dict[str, Any]) -> None:
    CASES[layout].write(tmp_path / "source")
    changed(tmp_path / "source", json.loads((tmp_path / "source" / "config.json").read_text()), changes)
    assert convert(ConvertConfig(tmp_path / "source", dry_run=True)).warnings == ()


@pytest.mark.parametrize(
    ("layout", "changes", "pattern"),
    [
        ("gemma3", {}, None),
        ("gemma3", {"layer_types": [*[SLIDING] * 5, "full_attention", SLIDING]}, None),
        ("gemma3", {"sliding_window_pattern": 2}, [True, False, True, False, True, False, True]),
        ("gemma3", {"layer_types": [*[SLIDING] * 6, "full_attention"]}, [*[True] * 6, False]),
        ("gpt-oss", {"layer_types": [SLIDING, "full_attention"]}, None),
        ("gpt-oss", {"layer_types": ["full_attention", SLIDING]}, [False, True]),
    ],
)
def test_layers_with_windows(tmp_path: Path, layout: str, changes: dict[str, Any], pattern: list[bool] | None) -> None:
    """Every sixth layer of Gemma 3 and every second of gpt-oss sees everything, unless the config says otherwise."""
    CASES[layout].write(tmp_path / "source")
    config = json.loads((tmp_path / "source" / "config.json").read_text())
    changed(tmp_path / "source", config, changes)
    report = convert(ConvertConfig(tmp_path / "source", outfile=tmp_path / "x.gguf"))
    assert report.metadata.get(f"{layout}.attention.sliding_window_pattern") == pattern
