"""Tiny Hugging Face checkpoints in exactly the published layouts (docs/checkpoints.md), without transformers.

Random but reproducible: every tensor is seeded by its name. Norms are near one and all different, so that a mixed-up
norm changes bytes. `CASES` lists every layout once; the tests and the recorder of golden/convert_layouts.json walk it.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.hf_files import (
    Stored,
    V,
    random_tensors,
    random_values,
    stored,
    write_bpe_tokenizer,
    write_checkpoint,
    write_fallback_tokenizer,
    write_json,
    write_safetensors,
    write_sentencepiece_tokenizer,
)
from tests.support.published import PUBLISHED, write_published

E, H, G, D, F, N = 64, 4, 2, 16, 96, 8  # width, heads, kv heads, head width, inner width, layers
Q, K = H * D, G * D
DRAFT_V = 48
TAPS = (2, 4, 5)

Shapes = dict[str, tuple[int, ...]]


# --- targets --------------------------------------------------------------------------------------------------------

_BASE = {
    "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "head_dim": D, "hidden_act": "silu",
    "hidden_size": E, "intermediate_size": F, "max_position_embeddings": 512, "num_attention_heads": H,
    "num_hidden_layers": N, "num_key_value_heads": G, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "vocab_size": V,
}  # fmt: skip


def _attention(
    prefix: str, *, width: int = E, q: int = Q, k: int = K, norms: bool = False, bias: bool = False
) -> Shapes:
    shapes: Shapes = {
        f"{prefix}q_proj.weight": (q, width), f"{prefix}k_proj.weight": (k, width),
        f"{prefix}v_proj.weight": (k, width), f"{prefix}o_proj.weight": (E, Q),
    }  # fmt: skip
    if norms:
        shapes |= {f"{prefix}q_norm.weight": (D,), f"{prefix}k_norm.weight": (D,)}
    if bias:
        shapes |= {f"{prefix}q_proj.bias": (q,), f"{prefix}k_proj.bias": (k,), f"{prefix}v_proj.bias": (k,)}
    return shapes


def _mlp(prefix: str, inner: int = F) -> Shapes:
    return {
        f"{prefix}gate_proj.weight": (inner, E), f"{prefix}up_proj.weight": (inner, E),
        f"{prefix}down_proj.weight": (E, inner),
    }  # fmt: skip


def _top(*, head: bool = True) -> Shapes:
    shapes: Shapes = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,)}
    return {**shapes, "lm_head.weight": (V, E)} if head else shapes


def _norms(prefix: str) -> Shapes:
    return {f"{prefix}input_layernorm.weight": (E,), f"{prefix}post_attention_layernorm.weight": (E,)}


def _layers(block: Callable[[str], Shapes], n: int = N) -> Shapes:
    return {name: shape for i in range(n) for name, shape in block(f"model.layers.{i}.").items()}


def llama(directory: Path) -> None:
    config = {**_BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 500000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 64}}  # fmt: skip
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.") | _mlp(p + "mlp."))
    write_checkpoint(directory, config, random_tensors(shapes))
    write_sentencepiece_tokenizer(directory)
    write_json(
        directory / "generation_config.json",
        {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05, "do_sample": True},
    )


def mistral(directory: Path) -> None:
    config = {**_BASE, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "rope_theta": 1e6,
              "head_dim": None}  # fmt: skip
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.") | _mlp(p + "mlp."))
    write_checkpoint(directory, config, random_tensors(shapes, "F16"))
    write_fallback_tokenizer(directory)


def mixtral(directory: Path) -> None:
    config = {**_BASE, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
              "num_experts_per_tok": 2, "rope_theta": 1e6}  # fmt: skip
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.") | {
        p + "block_sparse_moe.gate.weight": (4, E),
        **{f"{p}block_sparse_moe.experts.{e}.{w}.weight": (E, F) if w == "w2" else (F, E)
           for e in range(4) for w in ("w1", "w2", "w3")},
    }, 2)  # fmt: skip
    write_checkpoint(directory, {**config, "num_hidden_layers": 2}, random_tensors(shapes))
    write_sentencepiece_tokenizer(directory)


def qwen2(directory: Path) -> None:
    config = {**_BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_theta": 1e6,
              "tie_word_embeddings": True}  # fmt: skip
    del config["head_dim"]
    shapes = _top(head=False) | _layers(
        lambda p: _norms(p) | _attention(p + "self_attn.", bias=True) | _mlp(p + "mlp.")
    )
    write_checkpoint(directory, config, random_tensors(shapes))
    write_sentencepiece_tokenizer(directory)


def qwen3(directory: Path) -> None:
    config = {**_BASE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1e6}
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.", norms=True) | _mlp(p + "mlp."))
    write_checkpoint(directory, config, random_tensors(shapes))
    write_sentencepiece_tokenizer(directory)


def qwen3_tied(directory: Path) -> None:
    qwen3(directory)
    config = json.loads((directory / "config.json").read_text())
    shapes = _top(head=False) | _layers(
        lambda p: _norms(p) | _attention(p + "self_attn.", norms=True) | _mlp(p + "mlp.")
    )
    write_checkpoint(directory, {**config, "tie_word_embeddings": True}, random_tensors(shapes))


def _experts(prefix: str, n: int, inner: int) -> Shapes:
    return {name: shape for e in range(n) for name, shape in _mlp(f"{prefix}experts.{e}.", inner).items()}


def qwen3_moe(directory: Path) -> None:
    config = {**_BASE, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "rope_theta": 1e6,
              "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
              "num_hidden_layers": 3}  # fmt: skip
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.", norms=True) | {
        p + "mlp.gate.weight": (4, E), **_experts(p + "mlp.", 4, 32)}, 3)  # fmt: skip
    write_checkpoint(directory, config, random_tensors(shapes))
    write_bpe_tokenizer(directory)


def _gemma_block(p: str, q: int = Q, k: int = K, d: int = D, f: int = F) -> Shapes:
    return {
        **{f"{p}{name}.weight": (E,) for name in ("input_layernorm", "post_attention_layernorm",
                                                  "pre_feedforward_layernorm", "post_feedforward_layernorm")},
        f"{p}self_attn.q_proj.weight": (q, E), f"{p}self_attn.k_proj.weight": (k, E),
        f"{p}self_attn.v_proj.weight": (k, E), f"{p}self_attn.o_proj.weight": (E, q),
        f"{p}self_attn.q_norm.weight": (d,), f"{p}self_attn.k_norm.weight": (d,), **_mlp(p + "mlp.", f),
    }  # fmt: skip


def gemma3(directory: Path) -> None:
    """Multimodal wrapper: text part under `language_model.`, vision tensors beside it."""
    text = {"model_type": "gemma3_text", "hidden_size": E, "intermediate_size": F, "num_hidden_layers": 7,
            "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D, "sliding_window": 16, "vocab_size": V,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0}  # fmt: skip
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text,
              "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32},
              "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}  # fmt: skip
    shapes = _top(head=False) | _layers(_gemma_block, 7)
    tensors = {f"language_model.{name}": tensor for name, tensor in random_tensors(shapes).items()}
    tensors |= random_tensors({"vision_tower.vision_model.post_layernorm.weight": (32,),
                               "multi_modal_projector.mm_soft_emb_norm.weight": (32,)})  # fmt: skip
    write_checkpoint(directory, config, tensors)
    write_sentencepiece_tokenizer(directory)


_GEMMA4_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
GEMMA4_VISIBLE = ("<|channel>", "<channel|>", "<image>")


def _gemma4_text(types: list[str], **changes: Any) -> dict[str, Any]:
    return {"model_type": "gemma4_text", "hidden_size": E, "intermediate_size": F, "num_hidden_layers": len(types),
            "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D, "global_head_dim": 32,
            "sliding_window": 16, "vocab_size": V, "layer_types": types, "rope_parameters": _GEMMA4_ROPE,
            "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "moe_intermediate_size": None,
            "num_experts": None, "top_k_experts": None, "enable_moe_block": False, "attention_k_eq_v": False,
            "use_double_wide_mlp": False, "final_logit_softcapping": 30.0, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "vocab_size_per_layer_input": V, **changes}  # fmt: skip


SLIDING, FULL = "sliding_attention", "full_attention"


def gemma4(directory: Path) -> None:
    """E2B-like: per-layer inputs, shared key/value layers, double-wide feed-forward."""
    types = [SLIDING, SLIDING, FULL, SLIDING, FULL]
    config = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "torch_dtype": "bfloat16",
              "bos_token_id": 1, "eos_token_id": [2], "text_config": _gemma4_text(
                  types, hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True)}  # fmt: skip
    shapes: Shapes = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,),
                      "model.embed_tokens_per_layer.weight": (V, 5 * 8),
                      "model.per_layer_model_projection.weight": (5 * 8, E),
                      "model.per_layer_projection_norm.weight": (8,)}  # fmt: skip
    for i, kind in enumerate(types):
        p, d = f"model.layers.{i}.", 32 if kind == FULL else D
        block = _gemma_block(p, H * d, G * d, d, 2 * F if i >= 3 else F)
        block |= {p + "layer_scalar": (1,), p + "per_layer_input_gate.weight": (8, E),
                  p + "per_layer_projection.weight": (E, 8), p + "post_per_layer_input_norm.weight": (E,)}  # fmt: skip
        if i >= 3:
            block = {n: s for n, s in block.items() if not any(x in n for x in ("k_proj", "v_proj", "k_norm"))}
        shapes |= block
    tensors = {n.replace("model.", "model.language_model.", 1): t for n, t in random_tensors(shapes).items()}
    tensors |= random_tensors({"model.vision_tower.patch_embedder.input_proj.weight": (4, 4),
                               "model.embed_vision.embedding_projection.weight": (E, 4)})  # fmt: skip
    write_checkpoint(directory, config, tensors)
    write_fallback_tokenizer(directory, GEMMA4_VISIBLE)


def gemma4_moe(directory: Path) -> None:
    """26B-A4B-like: experts beside a dense part, keys used as values in full layers, few global heads."""
    types = [SLIDING, SLIDING, FULL]
    config = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "torch_dtype": "bfloat16",
              "bos_token_id": 1, "eos_token_id": [2], "text_config": _gemma4_text(
                  types, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32,
                  attention_k_eq_v=True, num_global_key_value_heads=1)}  # fmt: skip
    shapes: Shapes = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,)}
    for i, kind in enumerate(types):
        p, d, g = f"model.layers.{i}.", 32 if kind == FULL else D, 1 if kind == FULL else G
        block = _gemma_block(p, H * d, g * d, d)
        block |= {p + "layer_scalar": (1,), p + "router.proj.weight": (4, E), p + "router.scale": (E,),
                  p + "router.per_expert_scale": (4,), p + "experts.gate_up_proj": (4, 64, E),
                  p + "experts.down_proj": (4, E, 32)}  # fmt: skip
        block |= {f"{p}{n}.weight": (E,) for n in ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1",
                                                   "post_feedforward_layernorm_2")}  # fmt: skip
        if kind == FULL:
            del block[p + "self_attn.v_proj.weight"]
        shapes |= block
    tensors = {n.replace("model.", "model.language_model.", 1): t for n, t in random_tensors(shapes).items()}
    write_checkpoint(directory, config, tensors)
    write_fallback_tokenizer(directory, GEMMA4_VISIBLE)


def _gpt_oss_config() -> dict[str, Any]:
    return {**_BASE, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
            "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
            "rope_theta": 150000.0, "attention_bias": True, "swiglu_limit": 7.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "truncate": False, "original_max_position_embeddings": 4096}}  # fmt: skip


def _gpt_oss_block(p: str) -> Shapes:
    return {**_norms(p), **_attention(p + "self_attn.", bias=True), p + "self_attn.o_proj.bias": (E,),
            p + "self_attn.sinks": (H,), p + "mlp.router.weight": (4, E), p + "mlp.router.bias": (4,),
            p + "mlp.experts.gate_up_proj_bias": (4, 64), p + "mlp.experts.down_proj_bias": (4, E)}  # fmt: skip


def gpt_oss(directory: Path) -> None:
    config = {**_gpt_oss_config(), "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}
    tensors = random_tensors(_top() | _layers(_gpt_oss_block, 2))
    for i in range(2):
        for part, rows, columns in (("gate_up_proj", 64, E), ("down_proj", E, 32)):
            name = f"model.layers.{i}.mlp.experts.{part}"
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            blocks = rng.integers(0, 256, (4, rows, columns // 32, 16))
            scales = rng.integers(118, 125, (4, rows, columns // 32))
            tensors |= {f"{name}_blocks": stored(blocks, "U8"), f"{name}_scales": stored(scales, "U8")}
    write_checkpoint(directory, config, tensors)
    write_bpe_tokenizer(directory)


def gpt_oss_bf16(directory: Path) -> None:
    shapes = _top() | _layers(lambda p: _gpt_oss_block(p) | {
        p + "mlp.experts.gate_up_proj": (4, E, 64), p + "mlp.experts.down_proj": (4, 32, E)}, 2)  # fmt: skip
    write_checkpoint(directory, _gpt_oss_config(), random_tensors(shapes))
    write_bpe_tokenizer(directory)


GLM_ADDED = ("[gMASK]", "<|user|>", "<|endoftext|>", "<|observation|>")


def glm4_moe(directory: Path) -> None:
    config = {**_BASE, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 3,
              "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
              "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "n_group": 1,
              "topk_group": 1, "partial_rotary_factor": 0.5, "use_qk_norm": True, "attention_bias": True,
              "rope_theta": 1e6, "num_nextn_predict_layers": 1, "eos_token_id": [2, 3]}  # fmt: skip

    def block(p: str) -> Shapes:
        shapes = _norms(p) | _attention(p + "self_attn.", norms=True, bias=True)
        if p == "model.layers.0.":
            return shapes | _mlp(p + "mlp.")
        return shapes | {p + "mlp.gate.weight": (4, E), p + "mlp.gate.e_score_correction_bias": (4,),
                         **_mlp(p + "mlp.shared_experts.", 32), **_experts(p + "mlp.", 4, 32)}  # fmt: skip

    p = "model.layers.3."
    shapes = _top() | _layers(block, 4) | {
        p + "embed_tokens.weight": (V, E), p + "enorm.weight": (E,), p + "hnorm.weight": (E,),
        p + "eh_proj.weight": (E, 2 * E), p + "shared_head.head.weight": (V, E), p + "shared_head.norm.weight": (E,),
    }  # fmt: skip
    write_checkpoint(directory, config, random_tensors(shapes))
    write_bpe_tokenizer(directory, GLM_ADDED)


def _latent(**changes: Any) -> dict[str, Any]:
    base = {key: value for key, value in _BASE.items() if key != "head_dim"}
    return {**base, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 4, "n_shared_experts": 2,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5, "n_group": 2,
            "topk_group": 1, "norm_topk_prob": True, "kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16, "v_head_dim": 24, "num_key_value_heads": H, "rope_theta": 1e4,
            **changes}  # fmt: skip


def _latent_block(p: str, *, is_dense: bool, lora: int | None = 48, bias: bool = True) -> Shapes:
    a, m = p + "self_attn.", p + "mlp."
    shapes = _norms(p) | {a + "kv_a_proj_with_mqa.weight": (48, E), a + "kv_a_layernorm.weight": (32,),
                          a + "kv_b_proj.weight": (H * 56, 32), a + "o_proj.weight": (E, H * 24)}  # fmt: skip
    if lora:
        shapes |= {a + "q_a_proj.weight": (lora, E), a + "q_a_layernorm.weight": (lora,),
                   a + "q_b_proj.weight": (H * 48, lora)}  # fmt: skip
    else:
        shapes |= {a + "q_proj.weight": (H * 48, E)}
    if is_dense:
        return shapes | _mlp(m)
    biases = {m + "gate.e_score_correction_bias": (4,)} if bias else {}
    return shapes | {m + "gate.weight": (4, E), **biases, **_mlp(m + "shared_experts.", 64), **_experts(m, 4, 32)}


def _latent_mtp(p: str) -> Shapes:
    return _latent_block(p, is_dense=False) | {
        p + "embed_tokens.weight": (V, E), p + "enorm.weight": (E,), p + "hnorm.weight": (E,),
        p + "eh_proj.weight": (E, 2 * E), p + "shared_head.head.weight": (V, E), p + "shared_head.norm.weight": (E,),
    }  # fmt: skip


YARN40 = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 128, "beta_fast": 32, "beta_slow": 1}


def deepseek_v2_lite(directory: Path) -> None:
    """No vector before the queries, no groups, no selection bias; softmax, weights not normalised."""
    config = _latent(architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", q_lora_rank=None,
                     norm_topk_prob=False, n_group=1, scoring_func="softmax", topk_method="greedy",
                     rope_scaling={**YARN40, "mscale": 0.707, "mscale_all_dim": 0.707}, num_hidden_layers=27,
                     routed_scaling_factor=1.0)  # fmt: skip
    shapes = _top()
    for i in range(27):
        shapes |= _latent_block(f"model.layers.{i}.", is_dense=i == 0, lora=None, bias=False)
    write_checkpoint(directory, config, random_tensors(shapes))
    write_bpe_tokenizer(directory)


def deepseek_v3(directory: Path) -> None:
    config = _latent(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", scoring_func="sigmoid",
                     topk_method="noaux_tc", num_nextn_predict_layers=1,
                     rope_scaling={**YARN40, "mscale": 1.0, "mscale_all_dim": 1.0})  # fmt: skip
    shapes = _top()
    for i in range(3):
        shapes |= _latent_block(f"model.layers.{i}.", is_dense=i == 0)
    write_checkpoint(directory, config, random_tensors(shapes | _latent_mtp("model.layers.3.")))
    write_bpe_tokenizer(directory)


def glm4_moe_lite(directory: Path) -> None:
    config = _latent(architectures=["Glm4MoeLiteForCausalLM"], model_type="glm4_moe_lite", topk_method="noaux_tc",
                     num_nextn_predict_layers=1, rope_scaling=None, rope_theta=1000000, scoring_func="sigmoid",
                     partial_rotary_factor=1.0)  # fmt: skip
    shapes = _top()
    for i in range(3):
        shapes |= _latent_block(f"model.layers.{i}.", is_dense=i == 0)
    write_checkpoint(directory, config, random_tensors(shapes | _latent_mtp("model.layers.3.")))
    write_bpe_tokenizer(directory, GLM_ADDED)


def _qwen35_text(**changes: Any) -> dict[str, Any]:
    return {**_BASE, "model_type": "qwen3_5_text", "num_hidden_layers": 4, "full_attention_interval": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "attn_output_gate": True, "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                                "mrope_section": [1, 1, 0], "mrope_interleaved": True}, **changes}  # fmt: skip


def _qwen35_block(p: str, feed_forward: Callable[[str], Shapes]) -> Shapes:
    shapes = _norms(p) | feed_forward(p + "mlp.")
    if p.endswith(("layers.3.", "mtp.layers.0.")):
        return shapes | _attention(p + "self_attn.", q=2 * Q, norms=True)
    a = p + "linear_attn."
    return shapes | {a + "in_proj_qkv.weight": (64, E), a + "in_proj_z.weight": (32, E), a + "in_proj_a.weight": (4, E),
                     a + "in_proj_b.weight": (4, E), a + "conv1d.weight": (64, 1, 4), a + "dt_bias": (4,),
                     a + "A_log": (4,), a + "norm.weight": (8,), a + "out_proj.weight": (E, 32)}  # fmt: skip


def _qwen35_shapes(feed_forward: Callable[[str], Shapes]) -> Shapes:
    shapes: Shapes = {"model.language_model.embed_tokens.weight": (V, E), "model.language_model.norm.weight": (E,),
                      "lm_head.weight": (V, E), "model.visual.patch_embed.proj.weight": (4, 4)}  # fmt: skip
    for i in range(4):
        shapes |= _qwen35_block(f"model.language_model.layers.{i}.", feed_forward)
    shapes |= {"mtp.fc.weight": (E, 2 * E), "mtp.norm.weight": (E,), "mtp.pre_fc_norm_embedding.weight": (E,),
               "mtp.pre_fc_norm_hidden.weight": (E,)}  # fmt: skip
    return shapes | _qwen35_block("mtp.layers.0.", feed_forward)


def qwen3_next(directory: Path) -> None:
    config = {**_qwen35_text(), "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
              "rope_parameters": None, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "rope_scaling": None,
              "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
              "shared_expert_intermediate_size": 32, "mtp_num_hidden_layers": None, "layer_types": None}  # fmt: skip

    def feed_forward(p: str) -> Shapes:
        return {p + "gate.weight": (4, E), **_experts(p, 4, 32), **_mlp(p + "shared_expert.", 32),
                p + "shared_expert_gate.weight": (1, E)}  # fmt: skip

    shapes: Shapes = {}
    for name, shape in _qwen35_shapes(feed_forward).items():
        if name.endswith("in_proj_qkv.weight"):
            shapes[name.replace("qkv", "qkvz")] = (96, E)
        elif name.endswith("in_proj_b.weight"):
            shapes[name.replace("_b.", "_ba.")] = (8, E)
        elif not name.endswith(("in_proj_z.weight", "in_proj_a.weight")) and "visual" not in name:
            shapes[name] = shape
    shapes = {name.replace("language_model.", ""): shape for name, shape in shapes.items()}
    config = {key: value for key, value in config.items() if value is not None}
    write_checkpoint(directory, config, random_tensors(shapes))
    write_bpe_tokenizer(directory, QWEN_ADDED)


QWEN_ADDED = ("<|endoftext|>",)  # transformers' class adds it to any vocabulary without it


def qwen35(directory: Path) -> None:
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
              "text_config": _qwen35_text(), "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
    write_checkpoint(directory, config, random_tensors(_qwen35_shapes(_mlp)))
    write_bpe_tokenizer(directory, QWEN_ADDED)


def _qwen35_experts(p: str) -> Shapes:
    return {p + "gate.weight": (4, E), p + "experts.gate_up_proj": (4, 64, E), p + "experts.down_proj": (4, E, 32),
            **_mlp(p + "shared_expert.", 32), p + "shared_expert_gate.weight": (1, E)}  # fmt: skip


def qwen35_moe(directory: Path) -> None:
    text = _qwen35_text(model_type="qwen3_5_moe_text", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                        shared_expert_intermediate_size=32)  # fmt: skip
    del text["intermediate_size"]
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
              "text_config": text, "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
    write_checkpoint(directory, config, random_tensors(_qwen35_shapes(_qwen35_experts)))
    write_bpe_tokenizer(directory, QWEN_ADDED)


def qwen3_fp8(directory: Path) -> None:
    """fp8 weights with one scale per 32x32 block, norms and embeddings in bf16."""
    qwen3(directory)
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [32, 32]}  # fmt: skip
    shapes = _top() | _layers(lambda p: _norms(p) | _attention(p + "self_attn.", norms=True) | _mlp(p + "mlp."))
    tensors = random_tensors(shapes)
    for name, shape in shapes.items():
        if name.endswith("_proj.weight"):
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            codes = rng.integers(0, 0x7F, shape) | rng.integers(0, 2, shape) << 7
            scales = rng.uniform(1e-4, 1e-3, (-(-shape[0] // 32), -(-shape[1] // 32))).astype(np.float32)
            tensors |= {name: stored(codes, "F8_E4M3"), f"{name}_scale_inv": stored(scales, "F32")}
    write_checkpoint(directory, config, tensors)


# --- drafters -------------------------------------------------------------------------------------------------------


def draft_offsets(n: int = DRAFT_V) -> np.ndarray:
    """Offsets of a random sorted subset of the vocabulary."""
    kept = np.sort(np.random.default_rng(7).permutation(V)[:n])
    return kept - np.arange(n)


def vocabulary_map(*, wide: bool = True) -> dict[str, Stored]:
    offsets = draft_offsets()
    mask = np.zeros(V, np.uint8)
    mask[offsets + np.arange(DRAFT_V)] = 1
    return {"d2t": stored(offsets, "I64" if wide else "I32"), "t2d": stored(mask, "BOOL")}


def eagle3_shapes(layer: str = "midlayer.", *, width: int = E, taps: int = 3, head: int = DRAFT_V) -> Shapes:
    return {
        "fc.weight": (E, taps * width), layer + "input_layernorm.weight": (E,), layer + "hidden_norm.weight": (E,),
        layer + "post_attention_layernorm.weight": (E,), **_attention(layer + "self_attn.", width=2 * E),
        **_mlp(layer + "mlp."), "norm.weight": (E,), "lm_head.weight": (head, E),
    }  # fmt: skip


_EAGLE3 = {
    **{key: value for key, value in _BASE.items() if key not in ("bos_token_id", "eos_token_id")},
    "model_type": "llama",
    "num_hidden_layers": 1, "draft_vocab_size": DRAFT_V,
}  # fmt: skip


def eagle3_specforge(directory: Path) -> None:
    """Own embeddings, nested tap list (outputs), no rope base."""
    config = {
        **_EAGLE3,
        "architectures": ["LlamaForCausalLMEagle3"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 4], "use_aux_hidden_state": True},
    }
    shapes = eagle3_shapes() | {"embed_tokens.weight": (V, E)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def eagle3_safeai(directory: Path) -> None:
    """`pytorch_model.bin` in fp16, plain Llama architecture, no rope fields, no taps."""
    import torch

    config = {**_EAGLE3, "architectures": ["LlamaForCausalLM"], "torch_dtype": "float16"}
    del config["head_dim"]
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    state = {name: torch.from_numpy(random_values(name, shape)).half() for name, shape in eagle3_shapes().items()}
    offsets = draft_offsets()
    mask = torch.zeros(V, dtype=torch.bool)
    mask[torch.from_numpy(offsets + np.arange(DRAFT_V))] = True
    torch.save({**state, "d2t": torch.from_numpy(offsets), "t2d": mask}, directory / "pytorch_model.bin")


def eagle3_angelslim(directory: Path) -> None:
    """Tie flag that lies, int32 table, no taps."""
    config = {**_EAGLE3, "architectures": ["Eagle3LlamaForCausalLM"], "rope_theta": 1000000,
              "tie_word_embeddings": True}  # fmt: skip
    write_checkpoint(directory, config, random_tensors(eagle3_shapes()) | vocabulary_map(wide=False))


def eagle_safeai(directory: Path) -> None:
    """EAGLE-1 and -2, HASS: `pytorch_model.bin` in fp16, the target's architecture, a copy of its embeddings."""
    import torch

    config = {**_EAGLE3, "architectures": ["LlamaForCausalLM"], "bias": False}
    del config["head_dim"], config["draft_vocab_size"]
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    state = {name: torch.from_numpy(random_values(name, shape)).half() for name, shape in eagle_shapes().items()}
    torch.save(state, directory / "pytorch_model.bin")


def eagle_shapes() -> Shapes:
    layer = "layers.0."
    return {
        "embed_tokens.weight": (V, E), "fc.weight": (E, 2 * E), layer + "post_attention_layernorm.weight": (E,),
        **_attention(layer + "self_attn."), **_mlp(layer + "mlp."),
    }  # fmt: skip


def eagle_qwen2(directory: Path) -> None:
    """EAGLE-1 of a Qwen2 target: biases in attention and on `fc`, no copy of the embeddings; vLLM's prefix."""
    config = {**_EAGLE3, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_theta": 1e6, "bias": True}
    del config["draft_vocab_size"]
    shapes = {name: shape for name, shape in eagle_shapes().items() if name != "embed_tokens.weight"}
    shapes |= {f"layers.0.self_attn.{part}_proj.bias": (n,) for part, n in (("q", Q), ("k", K), ("v", K))}
    tensors = random_tensors(shapes | {"fc.bias": (E,)})
    write_checkpoint(directory, config, {f"model.{name}": tensor for name, tensor in tensors.items()})


def medusa(directory: Path) -> None:
    """Medusa heads in a file of their own; the config counts fewer heads than there are."""
    config = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "medusa_num_heads": 2, "medusa_num_layers": 1}
    shapes: Shapes = {}
    for head in range(4):
        shapes |= {f"{head}.0.linear.weight": (E, E), f"{head}.0.linear.bias": (E,), f"{head}.1.weight": (V, E)}
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    write_safetensors(directory / "medusa_lm_head.safetensors", random_tensors(shapes))


def eagle3_nvidia(directory: Path) -> None:
    """ModelOpt export: YaRN in the config, norm before fc."""
    config = {**_EAGLE3, "architectures": ["LlamaForCausalLMEagle3"], "norm_before_fc": True,
              "eagle_aux_hidden_state_layer_ids": [2, 4, 7], "rope_theta": 10000.0,
              "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048,
                               "beta_fast": 32.0, "beta_slow": 1.0}}  # fmt: skip
    shapes = eagle3_shapes() | {"input_norm.weight": (3 * E,)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def eagle3_vllm(directory: Path) -> None:
    """`model.` in front of every name, full vocabulary without a table."""
    config = {**_EAGLE3, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": V, "rope_theta": 1e6}
    shapes = eagle3_shapes(head=V)
    tensors = random_tensors(shapes)
    renamed = {n if n == "lm_head.weight" else f"model.{n}": t for n, t in tensors.items()}
    write_checkpoint(directory, config, renamed)


def _speculators(
    kind: str, architecture: str, layer: dict[str, Any], n_proposed: int, **changes: Any
) -> dict[str, Any]:
    return {
        "architectures": [architecture], "speculators_model_type": kind, "speculators_version": "0.9.0",
        "draft_vocab_size": DRAFT_V, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "speculators_config": {
            "algorithm": kind, "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": n_proposed, "accept_tolerance": 0.0,
                                  "verifier_accept_k": 1}],
            "verifier": {"name_or_path": "tiny", "architectures": ["Qwen3ForCausalLM"]},
        },
        "transformer_layer_config": layer, **changes,
    }  # fmt: skip


def _layer_config(kind: str, n_layers: int) -> dict[str, Any]:
    config = {key: value for key, value in _BASE.items() if key not in ("torch_dtype", "tie_word_embeddings")}
    return {**config, "model_type": kind, "num_hidden_layers": n_layers,
            "rope_parameters": {"rope_theta": 50000.0, "rope_type": "default"}}  # fmt: skip


def eagle3_speculators(directory: Path) -> None:
    config = _speculators(
        "eagle3",
        "Eagle3Speculator",
        _layer_config("llama", 1),
        3,
        eagle_aux_hidden_state_layer_ids=list(TAPS),
        norm_before_residual=True,
        norm_before_fc=False,
        fc_norm=False,
        norm_output=False,
        embed_requires_grad=False,
        target_hidden_size=None,
    )
    shapes = eagle3_shapes("layers.0.") | {"embed_tokens.weight": (V, E)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def _eagle3_by_trainer(directory: Path, layer: str, shapes: Shapes, **changes: Any) -> None:
    """What speculators 0.9 writes: a window (its command line has 2048), then what the caller says."""
    config = _speculators("eagle3", "Eagle3Speculator", _layer_config(layer, 1), 3, **changes)
    config["transformer_layer_config"] |= {
        "layer_types": ["sliding_attention"], "sliding_window": 6, "use_sliding_window": True, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    config |= {"eagle_aux_hidden_state_layer_ids": list(TAPS), "embed_requires_grad": False, "target_hidden_size": None}
    shapes = eagle3_shapes("layers.0.") | {"embed_tokens.weight": (V, E)} | shapes
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def eagle3_defaults(directory: Path) -> None:
    """The defaults of that command line."""
    flags = {"norm_before_residual": True, "norm_before_fc": True, "fc_norm": False, "norm_output": True}
    _eagle3_by_trainer(directory, "llama", {"input_norm.weight": (3 * E,)}, **flags)


def eagle3_31(directory: Path) -> None:
    """EAGLE-3.1 with a Qwen3 layer: a norm per tap, query and key norms."""
    flags = {"norm_before_residual": False, "norm_before_fc": False, "fc_norm": True, "norm_output": True}
    head_norms: Shapes = {f"layers.0.self_attn.{part}_norm.weight": (D,) for part in "qk"}
    _eagle3_by_trainer(directory, "qwen3", {f"fc_norm.{i}.weight": (E,) for i in range(3)} | head_norms, **flags)


def dflash_shapes(n_layers: int = 2, taps: int = 3) -> Shapes:
    shapes: Shapes = {"fc.weight": (E, taps * E), "hidden_norm.weight": (E,), "norm.weight": (E,)}
    for i in range(n_layers):
        p = f"layers.{i}."
        shapes |= _norms(p) | _attention(p + "self_attn.", norms=True) | _mlp(p + "mlp.")
    return shapes


def _dflash_config(**changes: Any) -> dict[str, Any]:
    return {**_BASE, "model_type": "qwen3", "num_hidden_layers": 2, "num_target_layers": N, "rope_theta": 1000000,
            "rope_scaling": None, "layer_types": [FULL, FULL], "sliding_window": None, "use_sliding_window": False,
            **changes}  # fmt: skip


def dflash_zlab(directory: Path) -> None:
    """Block size at the top, tie flag copied from the target."""
    config = _dflash_config(architectures=["DFlashDraftModel"], auto_map={"AutoModel": "dflash.DFlashDraftModel"},
                            block_size=16, dflash_config={"mask_token_id": 310, "target_layer_ids": [1, 3, 5]},
                            tie_word_embeddings=True)  # fmt: skip
    write_checkpoint(directory, config, random_tensors(dflash_shapes()))


def dflash_mask_embedding(directory: Path) -> None:
    """An embedding of the mask token beside the weights, as MiMo's heads have it."""
    import torch

    dflash_zlab(directory)
    vector = torch.from_numpy(random_values("mask", (E,), 1.0))
    torch.save({"mask_token_id": 310, "embedding": vector}, directory / "mask_embedding.pt")


def dflash_sliding(directory: Path) -> None:
    """Nested block size, one sliding and one full layer, sinks, soft cap, more taps than layers."""
    config = _dflash_config(architectures=["DFlashDraftModel"], layer_types=[SLIDING, FULL], sliding_window=8,
                            use_sliding_window=True, is_causal=False, final_logit_softcapping=30.0,
                            dflash_config={"mask_token_id": 4, "target_layer_ids": [0, 2, 4, 6], "block_size": 8,
                                           "attention_sink_bias": True})  # fmt: skip
    shapes = dflash_shapes(taps=4) | {f"layers.{i}.self_attn.attention_sink_bias": (H,) for i in range(2)}
    write_checkpoint(directory, config, random_tensors(shapes))


def dflash2(directory: Path) -> None:
    """Convolutions and the candidate selector."""
    config = _dflash_config(architectures=["DFlash2DraftModel"], dflash_config={
        "mask_token_id": 310, "target_layer_ids": [1, 3, 5], "block_size": 8, "conv_kernel_size": 3,
        "conv_group_size": 16, "selector_rank": 8, "selector_top_k": 4, "output_multiplier": 0.5})  # fmt: skip
    shapes = dflash_shapes()
    for i in range(2):
        for part in ("attention_conv", "mlp_conv"):
            shapes |= {f"layers.{i}.{part}.base_kernel": (2, 3, E),
                       f"layers.{i}.{part}.kernel_projection.weight": (2 * 3 * 4, E)}  # fmt: skip
    shapes |= {"candidate_selector.predecessor_codebook.weight": (V, 8),
               "candidate_selector.successor_codebook.weight": (V, 8),
               "candidate_selector.hidden_projection.weight": (8, E)}  # fmt: skip
    write_checkpoint(directory, config, random_tensors(shapes))


def dflash_speculators(directory: Path) -> None:
    """Reduced vocabulary, boundaries, nested body; upstream's converter cannot read it."""
    config = _speculators("dflash", "DFlashSpeculator", _layer_config("qwen3", 2), 7, block_size=8, mask_token_id=310,
                          aux_hidden_state_layer_ids=list(TAPS), max_anchors=64, target_hidden_size=None,
                          sample_from_anchor=False, sliding_window_non_causal=False)  # fmt: skip
    shapes = dflash_shapes() | {"lm_head.weight": (DRAFT_V, E), "embed_tokens.weight": (V, E)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def _sliding(layer: dict[str, Any], *kinds: str) -> dict[str, Any]:
    """A layer config whose layers slide, causal within a block, as speculators' command line has it by default."""
    return layer | {"layer_types": list(kinds), "sliding_window": 24, "use_sliding_window": True}


def dflash_sliding_speculators(directory: Path) -> None:
    """Every layer slides: causal, and a file can say so for all. No reduced vocabulary, no head of its own."""
    layer = _sliding(_layer_config("qwen3", 2), SLIDING, SLIDING)
    config = _speculators("dflash", "DFlashSpeculator", layer, 7, block_size=8, mask_token_id=310,
                          aux_hidden_state_layer_ids=list(TAPS), target_hidden_size=None, sample_from_anchor=False,
                          sliding_window_non_causal=False)  # fmt: skip
    config["draft_vocab_size"] = V
    write_checkpoint(directory, config, random_tensors(dflash_shapes()))


def dflash_deepspec(directory: Path) -> None:
    """DeepSpec's DFlash releases: a DSpark head of rank 0 without confidence, whose first slot predicts."""
    config = _dflash_config(architectures=["Qwen3DSparkModel"], block_size=7, target_layer_ids=[1, 3, 5],
                            mask_token_id=310, markov_rank=0, markov_head_type="vanilla", enable_confidence_head=False,
                            num_anchors=512)  # fmt: skip
    shapes = dflash_shapes() | {"embed_tokens.weight": (V, E), "lm_head.weight": (V, E)}
    write_checkpoint(directory, config, random_tensors(shapes))


def dflash_anchor_speculators(directory: Path) -> None:
    """The first slot predicts, and no layer slides."""
    config = _speculators("dflash", "DFlashSpeculator", _layer_config("qwen3", 2), 8, block_size=8, mask_token_id=310,
                          aux_hidden_state_layer_ids=list(TAPS), target_hidden_size=None, sample_from_anchor=True,
                          sliding_window_non_causal=False)  # fmt: skip
    config["draft_vocab_size"] = V
    write_checkpoint(directory, config, random_tensors(dflash_shapes()))


def dspark_sliding_speculators(directory: Path) -> None:
    """One layer slides and is causal, the other is not."""
    layer = _sliding(_layer_config("qwen3", 2), SLIDING, FULL)
    config = _speculators("dspark", "DSparkSpeculator", layer, 8, block_size=8, mask_token_id=310, markov_rank=16,
                          aux_hidden_state_layer_ids=list(TAPS), target_hidden_size=None, sample_from_anchor=True,
                          sliding_window_non_causal=False, markov_head_type="vanilla", enable_confidence_head=True,
                          confidence_head_with_markov=True)  # fmt: skip
    shapes = dflash_shapes() | _markov(DRAFT_V) | {"lm_head.weight": (DRAFT_V, E)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def _markov(n: int = V, rank: int = 16) -> Shapes:
    return {"markov_head.markov_w1.weight": (V, rank), "markov_head.markov_w2.weight": (n, rank),
            "confidence_head.proj.weight": (1, E + rank), "confidence_head.proj.bias": (1,)}  # fmt: skip


def dspark_deepspec(directory: Path) -> None:
    """Frozen copies of embedding and head."""
    config = _dflash_config(architectures=["Qwen3DSparkModel"], block_size=7, target_layer_ids=[1, 3, 5],
                            mask_token_id=310, markov_rank=16, markov_head_type="vanilla", enable_confidence_head=True,
                            confidence_head_with_markov=True, num_anchors=512)  # fmt: skip
    shapes = dflash_shapes() | _markov() | {"embed_tokens.weight": (V, E), "lm_head.weight": (V, E)}
    write_checkpoint(directory, config, random_tensors(shapes))


def dspark_speculators(directory: Path) -> None:
    """Reduced vocabulary, slot 0 reserved (block 8, 7 proposals)."""
    config = _speculators("dspark", "DSparkDraftModel", _layer_config("qwen3", 2), 7, block_size=8, mask_token_id=310,
                          aux_hidden_state_layer_ids=list(TAPS), markov_rank=16, markov_head_type="vanilla",
                          enable_confidence_head=True, confidence_head_with_markov=True, max_anchors=64)  # fmt: skip
    shapes = dflash_shapes() | _markov(DRAFT_V) | {"lm_head.weight": (DRAFT_V, E)}
    write_checkpoint(directory, config, random_tensors(shapes) | vocabulary_map())


def dspark_specforge(directory: Path) -> None:
    """Markov keys nested, YaRN that is real, no embedding or head."""
    config = _dflash_config(architectures=["DSparkDraftModel"], block_size=7, rope_theta=None, rope_parameters={
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 8192, "rope_theta": 1e7},
        dflash_config={"projector_type": "dspark", "markov_rank": 16, "markov_head_type": "vanilla",
                       "enable_confidence_head": True, "confidence_head_with_markov": True, "attention_mode": "gqa",
                       "mask_token_id": 310, "target_layer_ids": [2, 4, 6]})  # fmt: skip
    write_checkpoint(directory, config, random_tensors(dflash_shapes() | _markov()))


def dspark_lfm2(directory: Path) -> None:
    """Interleaved rope rows."""
    config = _dflash_config(
        architectures=["Lfm2DSparkDraftModel"],
        block_size=9,
        rope_is_neox_style=False,
        markov_rank=16,
        dflash_config={"mask_token_id": 16, "target_layer_ids": [1, 3, 5]},
    )
    write_checkpoint(directory, config, random_tensors(dflash_shapes() | _markov()))


def dspark_gemma4(directory: Path) -> None:
    """Gemma 4 layers with keys as values."""
    config = {**_gemma4_text([FULL, FULL], attention_k_eq_v=True, num_global_key_value_heads=1),
              "architectures": ["Gemma4DSparkModel"], "model_type": "gemma4_dspark", "block_size": 7,
              "target_layer_ids": [0, 1, 3],
              "mask_token_id": 4, "markov_rank": 16, "markov_head_type": "vanilla", "num_target_layers": 5,
              "enable_confidence_head": True, "confidence_head_with_markov": True, "tie_word_embeddings": False,
              "final_logit_softcapping": None, "torch_dtype": "bfloat16"}  # fmt: skip
    shapes: Shapes = {"fc.weight": (E, 3 * E), "hidden_norm.weight": (E,), "norm.weight": (E,),
                      "embed_tokens.weight": (V, E), "lm_head.weight": (V, E), **_markov()}  # fmt: skip
    for i in range(2):
        p = f"layers.{i}."
        block = _gemma_block(p, H * 32, 32, 32) | {p + "layer_scalar": (1,)}
        del block[p + "self_attn.v_proj.weight"]
        shapes |= block
    write_checkpoint(directory, config, random_tensors(shapes))


def gemma4_assistant(directory: Path) -> None:
    """Query-only layers, centroids of the ordered embedding beside them."""
    types = [SLIDING, SLIDING, FULL]
    config = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
              "backbone_hidden_size": 96, "use_ordered_embeddings": True, "num_centroids": 8,
              "centroid_intermediate_top_k": 2, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
              "text_config": _gemma4_text(types, num_kv_shared_layers=3, final_logit_softcapping=None,
                                          vocab_size_per_layer_input=0)}  # fmt: skip
    shapes: Shapes = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,),
                      "pre_projection.weight": (E, 2 * 96), "post_projection.weight": (96, E),
                      "masked_embedding.centroids.weight": (8, E)}  # fmt: skip
    for i, kind in enumerate(types):
        p, d = f"model.layers.{i}.", 32 if kind == FULL else D
        block = _gemma_block(p, H * d, G * d, d) | {p + "layer_scalar": (1,)}
        shapes |= {n: s for n, s in block.items() if not any(x in n for x in ("k_proj", "v_proj", "k_norm"))}
    tensors = random_tensors(shapes)
    tensors["masked_embedding.token_ordering"] = stored(np.arange(V), "I64")
    write_checkpoint(directory, config, tensors)
    write_fallback_tokenizer(directory, GEMMA4_VISIBLE)


@dataclass(frozen=True)
class Case:
    """One layout.

    Attributes:
        write: Writes the checkpoint into a directory.
        target: Case name of its target.
        mtp: Mode of `--mtp` / `--no-mtp`.
        upstream: Why llama.cpp's converter cannot be compared with, or "".
    """

    write: Callable[[Path], None]
    target: str | None = None
    mtp: str = "with"
    upstream: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)


CASES: dict[str, Case] = {
    "llama": Case(llama),
    "mistral": Case(mistral),
    "mixtral": Case(mixtral),
    "qwen2": Case(qwen2),
    "qwen3": Case(qwen3),
    "qwen3-tied": Case(qwen3_tied),
    "qwen3-fp8": Case(qwen3_fp8),
    "qwen3-moe": Case(qwen3_moe),
    "gemma3": Case(gemma3),
    "gemma4": Case(gemma4),
    "gemma4-moe": Case(gemma4_moe),
    "gpt-oss": Case(gpt_oss),
    "gpt-oss-bf16": Case(gpt_oss_bf16),
    "glm4-moe": Case(glm4_moe),
    "glm4-moe-mtp": Case(glm4_moe, mtp="only"),
    "glm4-moe-trunk": Case(glm4_moe, mtp="without"),
    "deepseek-v2-lite": Case(deepseek_v2_lite),
    "deepseek-v3": Case(deepseek_v3),
    "deepseek-v3-mtp": Case(deepseek_v3, mtp="only", upstream="leaves the MTP block of these models out"),
    "glm4-moe-lite": Case(glm4_moe_lite),
    "glm4-moe-lite-mtp": Case(glm4_moe_lite, mtp="only"),
    "glm4-moe-lite-trunk": Case(glm4_moe_lite, mtp="without"),
    "qwen35": Case(qwen35),
    "qwen35-mtp": Case(qwen35, mtp="only"),
    "qwen35-trunk": Case(qwen35, mtp="without"),
    "qwen35-moe": Case(qwen35_moe),
    "qwen3-next": Case(qwen3_next),
    "qwen3-next-trunk": Case(qwen3_next, mtp="without"),
    "eagle-safeai": Case(eagle_safeai, "llama", upstream="has no such architecture"),
    "eagle-qwen2": Case(eagle_qwen2, "llama", upstream="has no such architecture"),
    "medusa": Case(medusa, "llama", upstream="has no such architecture"),
    "eagle3-specforge": Case(eagle3_specforge, "qwen3", upstream="ignores the nested tap list"),
    "eagle3-safeai": Case(eagle3_safeai, "llama"),
    "eagle3-angelslim": Case(eagle3_angelslim, "qwen3"),
    "eagle3-nvidia": Case(eagle3_nvidia, "qwen3"),
    "eagle3-vllm": Case(eagle3_vllm, "llama", upstream="does not take `model.` off the names"),
    "eagle3-speculators": Case(eagle3_speculators, "qwen3"),
    "eagle3-defaults": Case(eagle3_defaults, "qwen3", upstream="does not know norm_output and windows"),
    "eagle3-31": Case(eagle3_31, "qwen3", upstream="does not know fc_norm"),
    "dflash-zlab": Case(dflash_zlab, "qwen3"),
    "dflash-mask-embedding": Case(dflash_mask_embedding, "qwen3"),
    "dflash-mask-embedding-tied": Case(dflash_mask_embedding, "qwen3-tied"),
    "dflash-sliding": Case(dflash_sliding, "qwen3"),
    "dflash2": Case(dflash2, "qwen3"),
    "dflash-speculators": Case(dflash_speculators, "qwen3", upstream="does not read the nested layer config"),
    "dspark-deepspec": Case(dspark_deepspec, "qwen3-tied"),
    "dspark-untied": Case(dspark_deepspec, "qwen3", upstream="drops the head of an untied target"),
    "dflash-speculators-sliding": Case(
        dflash_sliding_speculators, "qwen3", upstream="does not read the nested layer config"
    ),
    "dflash-speculators-anchor": Case(
        dflash_anchor_speculators, "qwen3", upstream="does not read the nested layer config"
    ),
    "dflash-deepspec": Case(dflash_deepspec, "qwen3", upstream="needs a Markov head"),
    "dspark-speculators-sliding": Case(
        dspark_sliding_speculators, "qwen3", upstream="does not know layers that are causal beside others that are not"
    ),
    "dspark-speculators": Case(dspark_speculators, "qwen3"),
    "dspark-specforge": Case(dspark_specforge, "qwen3"),
    "dspark-lfm2": Case(dspark_lfm2, "qwen3"),
    "dspark-gemma4": Case(dspark_gemma4, "gemma4"),
    "gemma4-assistant": Case(gemma4_assistant),
    **{name: Case(partial(write_published, name=name), upstream=x.upstream) for name, x in PUBLISHED.items()},
}
"""Every layout once; names are also directory names, which end up in `general.name`."""
