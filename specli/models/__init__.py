"""Target architectures and how to load them. A family's module is imported when a file asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from specli.errors import IncompatibleError, UnsupportedError

if TYPE_CHECKING:
    from specli.gguf.file import GGUFFile
    from specli.kernels.ops import Executor
    from specli.models.base import Model, ModelOptions

# general.architecture -> module below specli.models, class
ARCHITECTURES: dict[str, tuple[str, str]] = {
    "cohere2": ("cohere2", "Cohere2"),
    "deepseek2": ("deepseek2", "DeepSeek2"),
    "ernie4_5": ("ernie4_5", "Ernie45"),
    "ernie4_5-moe": ("ernie4_5", "Ernie45MoE"),
    "exaone4": ("exaone4", "Exaone4"),
    "gemma2": ("gemma2", "Gemma2"),
    "gemma3": ("gemma3", "Gemma3"),
    "gemma4": ("gemma4", "Gemma4"),
    "glm4": ("glm4", "Glm4"),
    "glm4moe": ("glm4moe", "Glm4MoE"),
    "gpt-oss": ("gpt_oss", "GptOss"),
    "granite": ("granite", "Granite"),
    "granitemoe": ("granite", "Granite"),
    "hunyuan-dense": ("hunyuan_dense", "HunyuanDense"),
    "hy_v3": ("hy_v3", "HyV3"),
    "llama": ("llama", "Llama"),
    "llama4": ("llama4", "Llama4"),
    "mimo2": ("mimo2", "Mimo2"),
    "mistral3": ("mistral3", "Mistral3"),
    "olmo2": ("olmo2", "Olmo2"),
    "phi3": ("phi3", "Phi3"),
    "qwen2": ("qwen2", "Qwen2"),
    "qwen2moe": ("qwen2", "Qwen2MoE"),
    "qwen3": ("qwen3", "Qwen3"),
    "qwen35": ("qwen35", "Qwen35"),
    "qwen35moe": ("qwen35", "Qwen35MoE"),
    "qwen3next": ("qwen35", "Qwen3Next"),
    "qwen3moe": ("qwen3", "Qwen3MoE"),
    "smollm3": ("smollm3", "SmolLM3"),
    "starcoder2": ("starcoder2", "Starcoder2"),
}
DRAFT_ARCHITECTURES = frozenset({"dflash", "eagle", "eagle3", "gemma4-assistant", "medusa"})


def model_class(file: GGUFFile) -> type[Model]:
    """The class that implements the file's architecture.

    Raises:
        IncompatibleError: The file is a drafter.
        UnsupportedError: No family has this architecture.
    """
    architecture = file.architecture
    if architecture in DRAFT_ARCHITECTURES:
        raise IncompatibleError(
            f"{file.path}: architecture {architecture} is a drafter, not a target", hint="this is a drafter; use -md"
        )
    entry = ARCHITECTURES.get(architecture)
    if entry is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedError(f"{file.path}: unknown architecture {architecture!r}, expected one of {known}")
    if "blk.0.attn_norm.weight" not in file.tensors and any(".nextn." in name for name in file.tensors):
        raise IncompatibleError(
            f"{file.path}: has the MTP heads of a {architecture} model, not the model",
            hint="this is a drafter; use -md",
        )
    module, name = entry
    found: type[Model] = getattr(import_module(f"specli.models.{module}"), name)
    return found


def load_model(file: GGUFFile, executor: Executor, options: ModelOptions) -> Model:
    """Builds the model of a file: metadata and tensor table are checked first, then weights are read.

    Raises:
        SpecliError: See `model_class` and `Model`.
    """
    return model_class(file)(file, executor, options)
