"""The layouts that can be converted, one row each, told apart by keys and tensor names (docs/checkpoints.md §3)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from specli.convert.checkpoint import Checkpoint
from specli.convert.job import Job
from specli.convert.keys import KeyValues
from specli.convert.plan import Blueprint
from specli.errors import FormatError, UnsupportedError, listed

Names = Collection[str]

OVERRIDES = {
    "target": "--target-model-dir",
    "target_layers": "--target-layers",
    "rope_theta": "--rope-theta",
    "norm_before_residual": "--norm-before-residual",
    "sample_from_anchor": "--sample-from-anchor",
    "borrow_embeddings": "--borrow-embeddings",
}
"""Fields of `ConvertConfig` that only some layouts read, with their options."""

BLOCK_OVERRIDES = ("target", "target_layers", "rope_theta", "sample_from_anchor", "borrow_embeddings")

SILU = ("silu", "swish")
GELU = ("gelu_pytorch_tanh",)


@dataclass(frozen=True)
class Layout:
    """One kind of checkpoint.

    Attributes:
        label: Shown to the user.
        role: Whether it is a target or a drafter.
        architectures: Values of `architectures[0]` that say it.
        plan: "module:function" in this package, imported when chosen.
        speculators: Value of `speculators_model_type` that says it.
        signs: Config keys of which one is enough.
        tensors: Parts of tensor names of which one is enough.
        lacks: Parts of tensor names that speak against it in spite of `tensors`.
        vocabulary: For targets: "module:function" of the tokenizer procedure.
        gguf: GGUF architecture of layouts that are whole models: targets and assistants.
        mtp: Whether `--mtp` and `--no-mtp` apply.
        activations: What the feed-forward's activation may be called.
        overrides: Fields of `ConvertConfig` that are about drafters and that it reads.
    """

    label: str
    role: Literal["target", "drafter"]
    architectures: tuple[str, ...]
    plan: str
    speculators: str | None = None
    signs: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    vocabulary: str | None = None
    gguf: str | None = None
    mtp: bool = False
    activations: tuple[str, ...] = SILU
    overrides: tuple[str, ...] = ()

    def has_tensors(self, names: Names) -> bool:
        """Whether tensor names say that a checkpoint is of this kind."""
        return any(part in name for part in self.tensors for name in names) and not any(
            part in name for part in self.lacks for name in names
        )

    def planner(self) -> Callable[[Job], Blueprint]:
        """The function that makes a blueprint."""
        planner: Callable[[Job], Blueprint] = _import(self.plan)
        return planner

    def vocabulary_procedure(self) -> Callable[[Path, int], KeyValues]:
        """The tokenizer procedure of a target."""
        assert self.vocabulary is not None
        procedure: Callable[[Path, int], KeyValues] = _import(self.vocabulary)
        return procedure


def _import(place: str) -> Any:
    module, function = place.split(":")
    return getattr(import_module(f"specli.convert.{module}"), function)


LAYOUTS: tuple[Layout, ...] = (  # drafters first, the more specific before the more general
    Layout(
        "DSpark",
        "drafter",
        ("Qwen3DSparkModel", "DSparkDraftModel", "DSparkSpeculator", "Lfm2DSparkDraftModel", "LingDSparkModel"),
        "dspark:plan_dspark",
        speculators="dspark",
        tensors=("markov_head.", "logit_head."),
        activations=(*SILU, *GELU),
        overrides=BLOCK_OVERRIDES,
    ),
    Layout(
        "DSpark, Gemma 4 body",
        "drafter",
        ("Gemma4DSparkModel",),
        "gemma4_dspark:plan_gemma4_dspark",
        tensors=("markov_head.", "logit_head."),
        activations=GELU,
        overrides=BLOCK_OVERRIDES,
    ),
    Layout(
        "DFlash",
        "drafter",
        ("DFlashDraftModel", "DFlash2DraftModel", "DFlashSpeculator"),
        "dflash:plan_dflash",
        speculators="dflash",
        signs=("dflash_config",),
        activations=(*SILU, *GELU),
        overrides=BLOCK_OVERRIDES,
    ),
    Layout(
        "EAGLE-3",
        "drafter",
        (
            "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel",
            "Qwen3Eagle3Model", "Gemma4Eagle3Model",
        ),
        "eagle3:plan_eagle3",
        speculators="eagle3",
        tensors=("midlayer.", "layers.0.hidden_norm."),
        overrides=("target", "target_layers", "rope_theta", "norm_before_residual", "borrow_embeddings"),
    ),
    Layout(
        "EAGLE",
        "drafter",
        (),  # its configs name a target's
        "eagle:plan_eagle",
        tensors=("fc.weight",),
        lacks=("input_layernorm.", "midlayer.", "eh_proj.", "hidden_norm."),
        overrides=("target", "rope_theta", "borrow_embeddings"),
    ),
    Layout(
        "Medusa",
        "drafter",
        ("MedusaModel",),
        "medusa:plan_medusa",
        signs=("medusa_num_heads",),
        overrides=("target",),
    ),
    Layout(
        "Gemma 4 assistant",
        "drafter",
        ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"),
        "gemma4:plan_assistant",
        signs=("backbone_hidden_size",),
        gguf="gemma4-assistant",
        activations=GELU,
        overrides=("target",),
    ),
    Layout(
        "Llama",
        "target",
        ("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "LlamaModel"),
        "llama:plan_llama",
        vocabulary="vocab:llama_keys",
        gguf="llama",
    ),
    Layout(
        "Qwen2",
        "target",
        ("Qwen2ForCausalLM", "Qwen2Model"),
        "qwen:plan_qwen2",
        vocabulary="vocab:qwen_keys",
        gguf="qwen2",
    ),
    Layout(
        "Qwen3",
        "target",
        ("Qwen3ForCausalLM", "Qwen3Model"),
        "qwen:plan_qwen3",
        vocabulary="vocab:qwen_keys",
        gguf="qwen3",
    ),
    Layout(
        "Qwen3-MoE",
        "target",
        ("Qwen3MoeForCausalLM",),
        "qwen:plan_qwen3_moe",
        vocabulary="vocab:bpe_keys",
        gguf="qwen3moe",
    ),
    Layout(
        "SmolLM3",
        "target",
        ("SmolLM3ForCausalLM",),
        "llama:plan_smollm3",
        vocabulary="vocab:llama_keys",
        gguf="smollm3",
    ),
    Layout(
        "Llama 4",
        "target",
        ("Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        "llama4:plan_llama4",
        vocabulary="vocab:bpe_keys",
        gguf="llama4",
    ),
    Layout(
        "Mistral 3",
        "target",
        ("Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"),
        "mistral3:plan_mistral3",
        vocabulary="vocab:llama_keys",
        gguf="mistral3",
    ),
    Layout(
        "Phi-3",
        "target",
        ("Phi3ForCausalLM",),
        "phi:plan_phi3",
        vocabulary="phi:phi3_keys",
        gguf="phi3",
    ),
    Layout(
        "OLMo 2",
        "target",
        ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
        "olmo:plan_olmo2",
        vocabulary="vocab:bpe_keys",
        gguf="olmo2",
    ),
    Layout(
        "Granite",
        "target",
        ("GraniteForCausalLM",),
        "granite:plan_granite",
        vocabulary="vocab:llama_keys",
        gguf="granite",
    ),
    Layout(
        "Granite-MoE",
        "target",
        ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        "granite:plan_granite_moe",
        vocabulary="vocab:llama_keys",
        gguf="granitemoe",
    ),
    Layout(
        "GLM-4",
        "target",
        ("Glm4ForCausalLM",),
        "glm:plan_glm4",
        vocabulary="glm:glm4_keys",
        gguf="glm4",
    ),
    Layout(
        "Qwen2-MoE",
        "target",
        ("Qwen2MoeForCausalLM",),
        "qwen:plan_qwen2_moe",
        vocabulary="vocab:bpe_keys",
        gguf="qwen2moe",
    ),
    Layout(
        "EXAONE 4",
        "target",
        ("Exaone4ForCausalLM",),
        "exaone:plan_exaone4",
        vocabulary="vocab:bpe_keys",
        gguf="exaone4",
    ),
    Layout(
        "Cohere 2",
        "target",
        ("Cohere2ForCausalLM",),
        "cohere:plan_cohere2",
        vocabulary="vocab:bpe_keys",
        gguf="cohere2",
    ),
    Layout(
        "ERNIE 4.5",
        "target",
        ("Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM"),
        "ernie:plan_ernie4_5",
        vocabulary="ernie:ernie_keys",
        gguf="ernie4_5",
    ),
    Layout(
        "ERNIE 4.5-MoE",
        "target",
        ("Ernie4_5_MoeForCausalLM",),
        "ernie:plan_ernie4_5_moe",
        vocabulary="ernie:ernie_keys",
        gguf="ernie4_5-moe",
    ),
    Layout(
        "Hunyuan",
        "target",
        ("HunYuanDenseV1ForCausalLM",),
        "hunyuan:plan_hunyuan_dense",
        vocabulary="hunyuan:hunyuan_keys",
        gguf="hunyuan-dense",
    ),
    Layout(
        "StarCoder 2",
        "target",
        ("Starcoder2ForCausalLM",),
        "starcoder:plan_starcoder2",
        vocabulary="vocab:bpe_keys",
        gguf="starcoder2",
        activations=GELU,
    ),
    Layout(
        "Gemma 2",
        "target",
        ("Gemma2ForCausalLM",),
        "gemma:plan_gemma2",
        vocabulary="gemma:gemma2_keys",
        gguf="gemma2",
        activations=GELU,
    ),
    Layout(
        "Gemma 3",
        "target",
        ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        "gemma:plan_gemma3",
        vocabulary="vocab:gemma3_keys",
        gguf="gemma3",
        activations=GELU,
    ),
    Layout(
        "Gemma 4",
        "target",
        ("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4UnifiedForConditionalGeneration"),
        "gemma4:plan_gemma4",
        vocabulary="gemma4:gemma4_keys",
        gguf="gemma4",
        activations=GELU,
    ),
    Layout(
        "gpt-oss",
        "target",
        ("GptOssForCausalLM",),
        "gpt_oss:plan_gpt_oss",
        vocabulary="vocab:bpe_keys",
        gguf="gpt-oss",
    ),
    Layout(
        "GLM-4.5",
        "target",
        ("Glm4MoeForCausalLM",),
        "glm:plan_glm4_moe",
        vocabulary="glm:glm_keys",
        gguf="glm4moe",
        mtp=True,
    ),
    Layout(
        "DeepSeek",
        "target",
        ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"),
        "deepseek:plan_deepseek2",
        vocabulary="vocab:bpe_keys",
        gguf="deepseek2",
        mtp=True,
    ),
    Layout(
        "GLM-4.7-Flash",
        "target",
        ("Glm4MoeLiteForCausalLM",),
        "deepseek:plan_glm4_moe_lite",
        vocabulary="glm:glm_keys",
        gguf="deepseek2",
        mtp=True,
    ),
    Layout(
        "Qwen3.5",
        "target",
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        "qwen35:plan_qwen35",
        vocabulary="vocab:bpe_keys",
        gguf="qwen35",
        mtp=True,
    ),
    Layout(
        "Qwen3-Next",
        "target",
        ("Qwen3NextForCausalLM",),
        "qwen35:plan_qwen3_next",
        vocabulary="vocab:bpe_keys",
        gguf="qwen3next",
        mtp=True,
    ),
    Layout(
        "Qwen3.5-MoE",
        "target",
        ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
        "qwen35:plan_qwen35_moe",
        vocabulary="vocab:bpe_keys",
        gguf="qwen35moe",
        mtp=True,
    ),
)  # fmt: skip

REFUSED_SPECULATORS = {
    "peagle": "P-EAGLE drafts several depths in one pass",
    "mtp": "stitch its weights back into the target (speculators scripts/stitch_mtp.py) and convert that",
    "eagle": "EAGLE-1 heads are converted from SafeAILab's layout only",
}


def architecture_names(checkpoint: Checkpoint) -> list[str]:
    """`architectures` of the root, or of the text part when that names one."""
    config = checkpoint.config
    return config.section("text_config").texts("architectures") or config.texts("architectures") or []


def find_layout(checkpoint: Checkpoint) -> Layout:
    """The layout of a checkpoint; tensor names outrank config keys, which outrank the architecture's name.

    Raises:
        FormatError: Architecture and keys of the config name two kinds of drafter.
        UnsupportedError: No layout matches the checkpoint.
    """
    config = checkpoint.config
    names = architecture_names(checkpoint)
    kind = config.text("speculators_model_type")
    if kind is not None:
        if kind in REFUSED_SPECULATORS:
            raise UnsupportedError(f"{config.path}: speculators type {kind!r}: {REFUSED_SPECULATORS[kind]}")
        found = [layout for layout in LAYOUTS if layout.speculators == kind]
        if not found:
            known = ", ".join(layout.speculators for layout in LAYOUTS if layout.speculators)
            raise UnsupportedError(f"{config.path}: unknown speculators type {kind!r}, expected one of {known}")
        return found[0]
    by_name = [x for x in LAYOUTS if set(names) & set(x.architectures)]
    by_tensor = [layout for layout in LAYOUTS if layout.has_tensors(checkpoint.tensors)]
    if by_tensor:
        return next((x for x in by_tensor if x in by_name), by_tensor[0])
    by_key = [x for x in LAYOUTS if any(sign in config for sign in x.signs)]
    drafters = [x for x in LAYOUTS if x.role == "drafter" and (x in by_name or x in by_key)]
    if len(drafters) > 1:
        labels = " and ".join(x.label for x in drafters)
        raise FormatError(f"{config.path}: matches {labels}: architecture and keys disagree")
    if drafters or by_name:
        return (drafters or by_name)[0]
    known = ", ".join(sorted(name for layout in LAYOUTS for name in layout.architectures))
    shown = listed(names) or "none"
    raise UnsupportedError(f"{config.path}: unknown architecture {shown}", hint=f"known: {known}")
