"""Writes trained networks as Hugging Face directories in published layouts, and converts them to GGUF."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from specli.convert import ConvertConfig, convert
from specli.demo.train.answers import TAPS
from specli.demo.train.block import MARKOV_RANK, N_LAYERS, BlockDrafter
from specli.demo.train.eagle3 import FEATURE_SCALE, Eagle3
from specli.demo.train.mtp import EXPERT_INNER, N_EXPERTS, Mtp
from specli.demo.train.network import EPS, ROPE_BASE, Qwen3, Shape

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def body_config(shape: Shape, n_layers: int) -> dict[str, Any]:
    """Config keys of a Qwen3 body."""
    return {
        "model_type": "qwen3",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_groups,
        "head_dim": shape.head,
        "hidden_act": "silu",
        "rms_norm_eps": EPS,
        "rope_theta": ROPE_BASE,
        "rope_scaling": None,
        "attention_bias": False,
        "vocab_size": shape.n_tokens,
        "max_position_embeddings": shape.context,
        "sliding_window": None,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
    }


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """One checkpoint directory; floating-point tensors in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).contiguous().clone()
        for name, tensor in tensors.items()
    }
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def language_model(network: Qwen3, tokenizer: Path, folder: Path, ends: tuple[int, int]) -> None:
    """A `Qwen3ForCausalLM` with its tokenizer; `ends` are the ids of end-of-turn and end-of-text."""
    config = body_config(network.shape, network.shape.n_layers) | {
        "architectures": ["Qwen3ForCausalLM"],
        "tie_word_embeddings": True,
        "eos_token_id": ends[0],
        "pad_token_id": ends[1],
    }
    write(folder, config, {f"model.{name}": tensor for name, tensor in network.state_dict().items()})
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, folder / name)


GLM_TOKENS = ("[gMASK]", "<|user|>", "<|observation|>")
"""Added tokens that a GLM tokenizer must have; the demo's text never contains them."""


def with_mtp(base: Qwen3, network: Mtp, tokenizer: Path, folder: Path, ends: tuple[int, int]) -> None:
    """A `Glm4MoeForCausalLM` of dense layers, the MTP block behind them; the vocabulary grows to a multiple of 32."""
    shape, n_trunk = base.shape, base.shape.n_layers
    n_tokens = -(-(shape.n_tokens + len(GLM_TOKENS)) // 32) * 32
    config = body_config(shape, n_trunk) | {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "vocab_size": n_tokens,
        "partial_rotary_factor": 1.0,
        "use_qk_norm": True,
        "first_k_dense_replace": n_trunk,
        "num_nextn_predict_layers": 1,
        "moe_intermediate_size": EXPERT_INNER,
        "n_routed_experts": N_EXPERTS,
        "n_shared_experts": shape.inner // EXPERT_INNER,
        "num_experts_per_tok": 1,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": True,
        "eos_token_id": ends[0],
        "pad_token_id": ends[1],
    }
    tensors = {f"model.{name}": tensor for name, tensor in base.state_dict().items()}
    table = torch.cat((base.embed_tokens.weight, torch.zeros(n_tokens - shape.n_tokens, shape.width)))
    tensors["model.embed_tokens.weight"] = table
    prefix = f"model.layers.{n_trunk}."
    tensors |= {prefix + name: tensor for name, tensor in network.state_dict().items()}
    tensors[f"{prefix}mlp.gate.e_score_correction_bias"] = torch.zeros(N_EXPERTS)
    write(folder, config, tensors)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, folder / name)
    grown = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    grown.add_special_tokens(list(GLM_TOKENS))
    grown.save(str(folder / "tokenizer.json"))


def eagle3(network: Eagle3, shape: Shape, folder: Path) -> None:
    """SpecForge's `LlamaForCausalLMEagle3`; its tap list counts layer outputs, one less than boundaries."""
    kept = network.kept
    config = body_config(shape, 1) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": len(kept),
        "tie_word_embeddings": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in TAPS], "use_aux_hidden_state": True},
    }
    is_kept = torch.zeros(shape.n_tokens, dtype=torch.bool).index_fill_(0, kept, True)
    maps = {"d2t": kept - torch.arange(len(kept)), "t2d": is_kept}
    write(folder, config, {**network.state_dict(), "fc.weight": network.fc.weight * FEATURE_SCALE, **maps})


def block(network: BlockDrafter, shape: Shape, folder: Path) -> None:
    """z-lab's `DFlashDraftModel` or DeepSpec's `Qwen3DSparkModel`."""
    taps = [tap - 1 for tap in TAPS]
    config = body_config(shape, N_LAYERS) | {
        "block_size": network.block,
        "num_target_layers": shape.n_layers,
        "layer_types": ["full_attention"] * N_LAYERS,
    }
    if network.is_dspark:
        config |= {
            "architectures": ["Qwen3DSparkModel"],
            "tie_word_embeddings": False,
            "mask_token_id": network.mask,
            "target_layer_ids": taps,
            "markov_rank": MARKOV_RANK,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }
    else:
        config |= {
            "architectures": ["DFlashDraftModel"],
            "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
            "tie_word_embeddings": True,
            "dflash_config": {"mask_token_id": network.mask, "target_layer_ids": taps},
        }
    write(folder, config, network.state_dict())


def to_gguf(folder: Path, path: Path, *, target: Path | None, outtype: str) -> int:
    """Converts a directory and gives the file's size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = convert(
        ConvertConfig(source=folder, target=target, outfile=path, outtype=outtype, model_name=f"specli {path.stem}")
    )
    return report.n_bytes
