"""Every published layout against llama.cpp's converter, byte for byte; where it should not be followed, why."""

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specli.convert import ConvertConfig, ConvertReport, convert
from specli.errors import FormatError, UnsupportedError
from specli.gguf.file import GGUFFile
from tests.support.checkpoints import CASES
from tests.support.draft_oracle import EagleOracle
from tests.support.gguf_diff import without_origin
from tests.support.runs import run as run_prompts
from tests.support.runs import speculation

KINDS = ("weight", "bias")
GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "convert_layouts.json").read_text())["sha256"]


def run(tmp_path: Path, name: str, outtype: str = "auto", **changes: object) -> ConvertReport:
    case = CASES[name]
    source = tmp_path / name
    case.write(source)
    target = None
    if case.target is not None:
        target = tmp_path / case.target
        CASES[case.target].write(target)
    request = ConvertConfig(
        source, outfile=tmp_path / "out.gguf", outtype=outtype, target=target, mtp=case.mtp, **changes
    )
    return convert(request)


@pytest.mark.parametrize("outtype", ["f32", "auto", "q8_0"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.upstream])
def test_layout_equals_upstream_byte_for_byte(tmp_path: Path, name: str, outtype: str) -> None:
    (path,) = run(tmp_path, name, outtype).paths
    assert hashlib.sha256(without_origin(path)).hexdigest() == GOLDEN[f"{name}.{outtype}"]


def test_nested_taps_list_outputs_where_upstream_takes_its_default(tmp_path: Path) -> None:
    """Nested lists are off by one from GGUF's; with upstream's default given by hand the file is upstream's."""
    report = run(tmp_path, "eagle3-specforge")
    assert report.metadata["eagle3.target_layers"] == [1, 4, 5]
    assert report.notes == (
        "target layers 1, 4, 5 (inputs of these layers; from eagle_config, which lists outputs)",
        "rope base 10000 (default, the checkpoint names none)",
    )
    (path,) = run(tmp_path, "eagle3-specforge", target_layers=(2, 4, 5)).paths
    assert hashlib.sha256(without_origin(path)).hexdigest() == GOLDEN["eagle3-specforge.auto"]


def test_model_prefix_of_vllm_names_is_taken_off(tmp_path: Path) -> None:
    report = run(tmp_path, "eagle3-vllm")
    assert {row.name for row in report.tensors} >= {"fc.weight", "blk.0.attn_norm_2.weight", "output.weight"}
    assert report.borrowed == ("token_embd.weight",)


def test_untied_target_keeps_the_drafters_head(tmp_path: Path) -> None:
    """Upstream drops it, and its loader then takes `token_embd` for the head."""
    untied = {row.name: row for row in run(tmp_path / "untied", "dspark-untied").tensors}
    tied = {row.name: row for row in run(tmp_path / "tied", "dspark-deepspec").tensors}
    assert untied.keys() - tied.keys() == {"output.weight"}
    assert untied["output.weight"].sources == ("lm_head.weight",)


def test_a_tied_glm_has_no_head_of_its_own(tmp_path: Path) -> None:
    """llama.cpp reads the head from `token_embd` then, that of the MTP block as well (src/models/glm4-moe.cpp)."""
    source = tmp_path / "glm4-moe"
    CASES["glm4-moe"].write(source)
    tensors = load_file(source / "model.safetensors")
    heads = {"lm_head.weight", "model.layers.3.shared_head.head.weight"}
    save_file({name: tensor for name, tensor in tensors.items() if name not in heads}, source / "model.safetensors")
    request = ConvertConfig(source, outfile=tmp_path / "out.gguf")
    with pytest.raises(FormatError, match=r"lm_head\.weight"):
        convert(request)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    file = GGUFFile.open(convert(request).paths[0])
    assert "blk.3.nextn.eh_proj.weight" in file.tensors
    assert not file.tensors.keys() & {"output.weight", "blk.3.nextn.shared_head_head.weight"}


def test_speculators_dflash_is_read(tmp_path: Path) -> None:
    report = run(tmp_path, "dflash-speculators")
    file = GGUFFile.open(report.paths[0])
    assert file.metadata.require("dflash.target_layers", "[i32]") == [2, 4, 5]
    assert file.metadata.require("dflash.block_size", "u32") == 8
    assert file.metadata.require("dflash.rope.freq_base", "f32") == 50000.0
    assert file.metadata.require("tokenizer.ggml.mask_token_id", "u32") == 310
    ids = file.tensors["d2t"].numbers()
    assert (ids == np.sort(ids)).all()
    assert file.tensors["output.weight"].shape == (len(ids), 64)


@pytest.mark.parametrize("name", ["gemma4", "gemma4-moe"])
def test_gemma4_settings_by_layer_are_those_of_the_older_keys(tmp_path: Path, name: str) -> None:
    """What the config class of newer `transformers` versions writes; a default of an older key has no say then."""
    source, new = tmp_path / "old" / "model", tmp_path / "new" / "model"
    CASES[name].write(source)
    CASES[name].write(new)
    config = json.loads((new / "config.json").read_text())
    text = config["text_config"]
    own = {"head_dim": text.pop("global_head_dim")}
    if groups := text.pop("num_global_key_value_heads", None):
        own["num_key_value_heads"] = groups
    full = [i for i, kind in enumerate(text["layer_types"]) if kind == "full_attention"]
    text["per_layer_config"] = {"0": {"sliding_window": 16}, **{str(i): own for i in full}}
    (new / "config.json").write_text(json.dumps(config))
    paths = [convert(ConvertConfig(path, outfile=path.with_name("out.gguf"))).paths[0] for path in (source, new)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("change", "causal", "pattern"),
    [
        ({"is_causal": None}, None, [True, False]),
        ({"is_causal": None, "layer_types": ["sliding_attention"] * 2}, True, None),
        ({"is_causal": None, "layer_types": ["full_attention"] * 2}, None, None),
        ({"is_causal": None, "sliding_window_non_causal": True}, None, None),
        ({"is_causal": True}, True, None),
        ({"is_causal": False}, False, None),
    ],
    ids=str,
)
def test_which_dflash_layers_are_causal(
    tmp_path: Path, change: dict[str, object], causal: bool | None, pattern: list[bool] | None
) -> None:
    source, target = tmp_path / "dflash", tmp_path / "qwen3"
    CASES["dflash-sliding"].write(source)
    CASES["qwen3"].write(target)
    path = source / "config.json"
    path.write_text(json.dumps({k: v for k, v in (json.loads(path.read_text()) | change).items() if v is not None}))
    metadata = convert(ConvertConfig(source, outfile=tmp_path / "out.gguf", target=target)).metadata
    assert metadata.get("dflash.attention.causal") is causal
    assert metadata.get("dflash.attention.causal_pattern") == pattern


def test_deepspecs_dflash_heads_predict_from_the_anchor(tmp_path: Path) -> None:
    report = run(tmp_path, "dflash-deepspec")
    assert report.metadata["dflash.sample_from_anchor"] is True
    assert not any(row.name.startswith("markov") for row in report.tensors)
    warning = "the anchor's position predicts: llama.cpp takes it as reserved in a DFlash file, and drafts badly"
    assert report.warnings[0] == warning
    reserved = run(tmp_path / "reserved", "dflash-deepspec", sample_from_anchor=False)
    assert "dflash.sample_from_anchor" not in reserved.metadata
    assert warning not in reserved.warnings


@pytest.mark.parametrize(
    ("name", "architecture"), [("eagle3-angelslim", "eagle3"), ("dflash-zlab", "dflash"), ("dspark-gemma4", "dflash")]
)
def test_rope_base_can_be_overridden_wherever_it_stands(tmp_path: Path, name: str, architecture: str) -> None:
    """Gemma 4 bodies have a block of settings for each kind of layer."""
    report = run(tmp_path, name, rope_theta=77000.0)
    assert report.metadata[f"{architecture}.rope.freq_base"] == 77000.0
    assert "rope base 77000 (--rope-theta)" in report.notes


def with_config(tmp_path: Path, name: str, **changes: object) -> ConvertConfig:
    """A request for a case whose config has other values; None takes a key away."""
    CASES[name].write(tmp_path / name)
    path = tmp_path / name / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    gone = {key for key, value in changes.items() if value is None}
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in gone}))
    return ConvertConfig(path.parent, outfile=tmp_path / "out.gguf", dry_run=True)


def test_routers_that_say_nothing_of_their_scores_have_those_of_the_class(tmp_path: Path) -> None:
    """Sigmoid (transformers modeling_deepseek_v3.py, modeling_glm4_moe_lite.py); DeepSeek-V2: the reader knows."""
    for name in ("deepseek-v3", "glm4-moe-lite"):
        report = convert(with_config(tmp_path / name, name, scoring_func=None))
        assert report.metadata["deepseek2.expert_gating_func"] == 2
    report = convert(with_config(tmp_path / "v2", "deepseek-v2-lite", scoring_func=None))
    assert "deepseek2.expert_gating_func" not in report.metadata


def test_dense_layers_of_glm_flash_may_be_listed(tmp_path: Path) -> None:
    kinds = ["dense", "sparse", "sparse"]
    request = with_config(tmp_path, "glm4-moe-lite", first_k_dense_replace=None, mlp_layer_types=kinds)
    assert convert(request).metadata["deepseek2.leading_dense_block_count"] == 1
    with pytest.raises(UnsupportedError, match="dense layers behind sparse ones"):
        convert(with_config(tmp_path, "glm4-moe-lite", first_k_dense_replace=None, mlp_layer_types=kinds[::-1]))


@pytest.mark.parametrize(
    "change", [{"mscale": 0.5}, {"mscale_all_dim": None, "mscale": None}, {"attention_factor": 1.0}]
)
def test_magnitudes_that_no_reader_computes_are_refused(tmp_path: Path, change: dict[str, float]) -> None:
    rope = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 128, "mscale": 1.0, "mscale_all_dim": 1.0}
    with pytest.raises(UnsupportedError, match="expected mscale = mscale_all_dim, no attention_factor"):
        convert(with_config(tmp_path, "deepseek-v3", rope_scaling={**rope, **change}))


def test_mtp_block_of_deepseek_v3_is_a_file_of_its_own(tmp_path: Path) -> None:
    """llama.cpp's converter cannot write it; the block is that of GLM-4.7-Flash, whose files it reads."""
    whole = run(tmp_path / "whole", "deepseek-v3")
    assert any(name.startswith("model.layers.3.") for name in whole.unused)
    heads = {row.name for row in run(tmp_path / "heads", "deepseek-v3-mtp").tensors}
    flash = {row.name for row in run(tmp_path / "flash", "glm4-moe-lite-mtp").tensors}
    assert heads == flash


class PublishedEagle(EagleOracle):
    """EAGLE-1 with the tensors of a checkpoint in their published order: rotary pairs are halves of a head."""

    NAMES: ClassVar = {
        "fc.weight": "fc.weight",
        "fc.bias": "fc.bias",
        "token_embd.weight": "embed_tokens.weight",
        **{f"blk.0.attn_{part}.{kind}": f"layers.0.self_attn.{part}_proj.{kind}" for part in "qkv" for kind in KINDS},
        "blk.0.attn_output.weight": "layers.0.self_attn.o_proj.weight",
        "blk.0.ffn_norm.weight": "layers.0.post_attention_layernorm.weight",
        **{f"blk.0.ffn_{part}.weight": f"layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")},
    }

    def __init__(self, file: GGUFFile, target: GGUFFile, published: dict[str, np.ndarray]) -> None:
        self.published = published
        super().__init__(file, target)
        self.interleaved = False

    def tensor(self, name: str, other: GGUFFile | None = None) -> np.ndarray:
        if other is self.target:
            return super().tensor(name, other)
        return self.published[self.NAMES[name]].astype(np.float64)


@pytest.mark.parametrize("name", ["eagle-safeai", "eagle-qwen2"])
def test_eagle_of_a_converted_file_is_that_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    """Logits of a draft, with the tensors as they are published and as they are written."""
    (path,) = run(tmp_path, name, "f32").paths
    case = CASES[name]
    assert case.target is not None
    [target_path] = convert(ConvertConfig(tmp_path / case.target, outfile=tmp_path / "t.gguf", outtype="f32")).paths
    source = tmp_path / name
    if (source / "model.safetensors").exists():
        tensors = {key.removeprefix("model."): value for key, value in load_file(source / "model.safetensors").items()}
    else:
        tensors = torch.load(source / "pytorch_model.bin")
    published = {key: value.float().numpy() for key, value in tensors.items()}
    history, last, draft = [5, 17, 200, 31, 4, 9], 77, [12, 300]
    with GGUFFile.open(path) as file, GGUFFile.open(target_path) as target:
        written = EagleOracle(file, target).steps(history, last, draft)
        expected = PublishedEagle(file, target, published).steps(history, last, draft)
    np.testing.assert_allclose(written, expected, rtol=1e-6, atol=1e-9)


def test_medusa_heads_are_written_as_they_are(tmp_path: Path) -> None:
    """All heads there are tensors for, whatever the config says."""
    report = run(tmp_path, "medusa", "f32")
    assert report.notes == ("4 heads, as many as there are tensors for; the config says 2",)
    tensors = load_file(tmp_path / "medusa" / "medusa_lm_head.safetensors")
    with GGUFFile.open(report.paths[0]) as file:
        assert file.metadata.require("medusa.block_count", "u32") == 4
        assert file.metadata.require("medusa.residual_count", "u32") == 1
        assert file.metadata.require("medusa.target_layers", "[i32]") == [8]
        for head in range(4):
            parts = {
                "0.linear.weight": "residual.0.weight",
                "0.linear.bias": "residual.0.bias",
                "1.weight": "output.weight",
            }
            for source, written in parts.items():
                found = file.tensors[f"blk.{head}.{written}"].dequantise()
                np.testing.assert_array_equal(found, tensors[f"{head}.{source}"].float().numpy())


@pytest.mark.parametrize("name", ["eagle-safeai", "eagle-qwen2", "medusa"])
def test_converted_heads_draft_for_their_target(tmp_path: Path, name: str) -> None:
    """The file is recognised, and the text is that of plain decoding."""
    case = CASES[name]
    assert case.target is not None
    (draft,) = run(tmp_path, name).paths
    [target] = convert(ConvertConfig(tmp_path / case.target, outfile=tmp_path / "t.gguf")).paths
    spec_type = "draft-medusa" if name == "medusa" else "draft-eagle"
    prompts = [[5, 17, 200, 31, 4, 9, 44]]
    plain = run_prompts(target, prompts)[0]
    drafted = run_prompts(target, prompts, draft=draft, spec=speculation([spec_type], 3))[0]
    assert drafted.tokens == plain.tokens
    assert drafted.n_drafted > 0
