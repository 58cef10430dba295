"""Converted checkpoints of published families against what `transformers` computes of them (support/published.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specli.convert import ConvertConfig, convert
from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Executor
from specli.kernels.threads import ThreadConfig
from tests.support.hf_files import write_json
from tests.support.published import IDS, PROMPT, PUBLISHED, ROWS, config_of, recorded, write_published
from tests.support.running import all_logits, forward, open_model
from tests.support.runs import executors
from tests.support.tiny_gguf import tiny_gguf

TOLERANCE = 1e-4
NATIVE = pytest.mark.skipif("cpu" not in executors(), reason="the native CPU library is not built")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("published")


def converted(folder: Path, name: str) -> Path:
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_published(folder / name, name)
        convert(ConvertConfig(folder / name, outfile=path, outtype="f32"))
    return path


def native() -> Executor:
    from specli.kernels.cpu.executor import CpuExecutor

    return CpuExecutor(threads=ThreadConfig(n_threads=1), exact=True)


def check_logits(path: Path, name: str, executor: Executor | None = None) -> None:
    found = all_logits(open_model(path, executor), PROMPT, chunk=17).numpy()
    expected = np.array(recorded()[name]["logits"])
    np.testing.assert_allclose(found[list(ROWS)][:, list(IDS)], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_are_the_recorded_ones(folder: Path, name: str) -> None:
    path = converted(folder, name)
    with GGUFFile.open(path) as file:
        assert file.architecture == PUBLISHED[name].architecture
    check_logits(path, name)


@NATIVE
@pytest.mark.parametrize("name", PUBLISHED)
def test_native_logits_are_the_recorded_ones(folder: Path, name: str) -> None:
    check_logits(converted(folder, name), name, native())


@pytest.mark.parametrize("name", PUBLISHED)
def test_recorded_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """Live, with every boundary between layers besides."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    path = converted(tmp_path, name)
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs = load(tmp_path / name, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        output = theirs(torch.tensor([PROMPT]), output_hidden_states=True)
    found = output.logits[0].numpy()[list(ROWS)][:, list(IDS)]
    np.testing.assert_allclose(found, recorded()[name]["logits"], rtol=0, atol=2e-5)
    n = len(output.hidden_states) - 1  # the last one is normed
    ours = open_model(path, taps=tuple(range(n)), max_tokens=64)
    layers = forward(ours, PROMPT).features["layers"].data[: len(PROMPT)]
    expected = torch.cat([state[0] for state in output.hidden_states[:n]], dim=1)
    assert float((layers - expected).abs().max() / expected.abs().max()) < TOLERANCE


@pytest.mark.parametrize(
    ("architecture", "keys", "message", "hint"),
    [
        ("phi3", {"expert_count": ("u32", 4)}, "phi3 with experts", "dense Phi-3"),
        ("glm4", {"rope.dimension_sections": ("[i32]", [2, 2, 2, 2])}, "vision model's text part", "text-only GLM-4"),
        ("ernie4_5", {"rope.dimension_sections": ("[i32]", [2, 2, 2, 2])}, "vision model's text part", "text-only"),
        ("granite", {"deepstack_mapping": ("[i32]", [-1, 1])}, "vision model's text part", "text-only Granite"),
        ("llama4", {"expert_used_count": ("u32", 2)}, "2 experts per token", "use 1"),
        ("llama4", {"attention.sliding_window": ("u32", 0)}, "without chunks", "Scout and Maverick"),
    ],
)
def test_refused_variants_are_named(
    tmp_path: Path, architecture: str, keys: dict[str, tuple[str, object]], message: str, hint: str
) -> None:
    metadata = {f"{architecture}.{key}": value for key, value in keys.items()}
    path = tiny_gguf(tmp_path / "m.gguf", architecture, metadata=metadata)
    with pytest.raises(UnsupportedError) as error:
        open_model(path)
    assert message in str(error.value)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("smollm3", {"no_rope_layers": [1, 0, 1, 0]}, "no_rope_layers is not every fourth layer"),
        ("exaone4", {"sliding_window": 16}, "files of 64 layers have windows"),
        ("cohere2", {"layer_types": ["full_attention"] * 4}, "windows are not in three of four layers"),
        ("gemma2", {"layer_types": ["full_attention"] * 4}, "windows are not in layers 0, 2"),
        ("llama4", {"attention_chunk_size": 4096}, "attention_chunk_size is 4096, expected 8192"),
        ("mistral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "expected yarn"),
        ("hunyuan-dense", {"max_position_embeddings": 4096}, "the scaled context is not known"),
    ],
)
def test_checkpoints_that_files_cannot_express_are_refused(
    tmp_path: Path, name: str, change: dict[str, object], message: str
) -> None:
    write_published(tmp_path / name, name)
    write_json(tmp_path / name / "config.json", config_of(name) | change)
    with pytest.raises(UnsupportedError, match=message):
        convert(ConvertConfig(tmp_path / name, dry_run=True))
