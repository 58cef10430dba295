"""What a conversion says, names and writes apart from tensors: names, templates, dry run, shards, types, hub ids."""

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from specli.convert import ConvertConfig, Progress, convert
from specli.convert.records import OUTTYPES
from specli.errors import FormatError, ResourceError, UsageError
from specli.gguf.file import GGUFFile
from tests.support.checkpoints import CASES
from tests.support.hf_files import V, write_json


def folder(tmp_path: Path, name: str, directory: str | None = None) -> Path:
    path = tmp_path / (directory or name)
    CASES[name].write(path)
    return path


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("Tiny-Qwen3-0.5M-Instruct-v1.2", "Tiny-Qwen3-0.5M-Instruct-v1.2-BF16.gguf"),
        ("plain", "Plain-288K-BF16.gguf"),
    ],
)
def test_default_name(tmp_path: Path, directory: str, name: str) -> None:
    source = folder(tmp_path, "qwen3", directory)
    assert convert(ConvertConfig(source, dry_run=True)).paths == (source / name,)
    assert convert(ConvertConfig(source, outfile=tmp_path, dry_run=True)).paths == (tmp_path / name,)


@pytest.mark.parametrize(
    ("template", "name"), [("a-{ftype}.gguf", "a-q8_0.gguf"), ("{}.gguf", "q8_0.gguf"), ("{OUTTYPE}", "Q8_0")]
)
def test_templates(tmp_path: Path, template: str, name: str) -> None:
    source = folder(tmp_path, "qwen3")
    report = convert(ConvertConfig(source, outfile=tmp_path / template, outtype="q8_0", dry_run=True))
    assert report.paths == (tmp_path / name,)


def test_mtp_and_vocabulary_names(tmp_path: Path) -> None:
    source = folder(tmp_path, "glm4-moe", "glm")
    assert convert(ConvertConfig(source, mtp="only", dry_run=True)).paths[0].name == "mtp-Glm-BF16.gguf"
    assert convert(ConvertConfig(source, vocab_only=True, dry_run=True)).paths[0].name == "Glm-vocab.gguf"


def test_vocabulary_only_needs_no_weights(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    (source / "model.safetensors").unlink()
    report = convert(ConvertConfig(source, outfile=tmp_path / "v.gguf", vocab_only=True))
    file = GGUFFile.open(report.paths[0])
    assert not file.tensors
    assert len(file.metadata.require("tokenizer.ggml.tokens", "[str]")) == V


def test_dry_run_lists_every_tensor_and_writes_nothing(tmp_path: Path) -> None:
    source, target = folder(tmp_path, "eagle3-angelslim"), folder(tmp_path, "qwen3")
    report = convert(ConvertConfig(source, target=target, dry_run=True))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["schema"] == "specli.convert/1"
    assert found["borrowed"] == ["token_embd.weight"]
    assert found["unused"] == {"t2d": "the inverse of d2t, not used at run time"}
    assert found["tensors"][0] == {
        "sources": ["fc.weight"], "name": "fc.weight", "shape": [64, 192], "type": "bf16", "n_bytes": 24576,
    }  # fmt: skip
    assert sorted(path.name for path in source.iterdir()) == ["config.json", "model.safetensors"]


def test_sampling_settings_and_overrides(tmp_path: Path) -> None:
    source = folder(tmp_path, "llama")
    override = tmp_path / "override.json"
    write_json(override, {"general.author": "somebody", "general.sampling.top_k": 7})
    request = ConvertConfig(source, outfile=tmp_path / "x.gguf", metadata=override, model_name="Named")
    meta = GGUFFile.open(convert(request).paths[0]).metadata
    assert meta.require("general.name", "str") == "Named"
    assert meta.require("general.author", "str") == "somebody"
    assert meta.require("general.sampling.top_k", "i32") == 7
    assert meta.require("general.sampling.temp", "f32") == pytest.approx(0.6)
    assert meta.require("general.sampling.penalty_repeat", "f32") == pytest.approx(1.05)


@pytest.mark.parametrize("outtype", [name for name in OUTTYPES if name != "auto"])
def test_every_type_is_close_to_the_source(tmp_path: Path, outtype: str) -> None:
    """Rows of 64 do not hold k-quant blocks of 256, so those fall back to f16 with one warning."""
    source = folder(tmp_path, "qwen3")
    exact = GGUFFile.open(convert(ConvertConfig(source, outfile=tmp_path / "f.gguf", outtype="f32")).paths[0])
    report = convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", outtype=outtype))
    tensor = GGUFFile.open(report.paths[0]).tensors["blk.0.attn_q.weight"]
    assert tensor.type.label == ("f16" if outtype.endswith("_k") else outtype)
    assert len(report.warnings) == int(outtype.endswith("_k"))
    reference = exact.tensors["blk.0.attn_q.weight"].dequantise()
    error = np.abs(tensor.dequantise() - reference).max() / np.abs(reference).max()
    assert error < {"q4_0": 0.15, "q4_1": 0.08, "q5_0": 0.07, "q5_1": 0.04}.get(outtype, 0.01)


def test_progress_ends_complete(tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = convert(ConvertConfig(folder(tmp_path, "qwen3"), outfile=tmp_path / "x.gguf"), seen.append)
    assert (seen[-1].n_done, seen[-1].bytes_done) == (len(report.tensors), seen[-1].n_bytes)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"split_max_tensors": 40}, [40, 40, 11]),
        ({"split_max_tensors": 40, "no_tensor_first_split": True}, [0, 40, 40, 11]),
    ],
)
def test_shards(tmp_path: Path, changes: dict[str, int], counts: list[int]) -> None:
    report = convert(ConvertConfig(folder(tmp_path, "qwen3"), outfile=tmp_path / "x.gguf", **changes))
    assert [path.name for path in report.paths] == [
        f"x-{i:05d}-of-{len(counts):05d}.gguf" for i in range(1, len(counts) + 1)
    ]
    assert len(GGUFFile.open(report.paths[0]).tensors) == sum(counts)


def outputs_as_they_were(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {p.name: (p.lstat().st_mode, b"" if not p.is_file() else p.read_bytes()) for p in folder.iterdir()}


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device", "folder in the way", "weights", "config"])
def test_outfile_that_is_no_new_file(tmp_path: Path, kind: str) -> None:
    source = folder(tmp_path, "qwen3")
    place = tmp_path / "place"
    place.mkdir()
    path = place / "x.gguf"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/null")
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    elif kind == "folder in the way":
        path = source / "model.safetensors" / "x.gguf"
    else:
        path.symlink_to(source / ("model.safetensors" if kind == "weights" else "config.json"))
    before = outputs_as_they_were(place), outputs_as_they_were(source)
    with pytest.raises((UsageError, ResourceError)) as caught:
        convert(ConvertConfig(source, outfile=path))
    assert str(caught.value) == {
        "folder in the way": f"{path.parent}: no such directory",
        "weights": f"{path}: is read by the conversion, expected another file",
        "config": f"{path}: is read by the conversion, expected another file",
    }.get(kind, f"{path}: is a pipe or a device, expected a file")
    assert (outputs_as_they_were(place), outputs_as_they_were(source)) == before
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_target_file_is_not_replaced(tmp_path: Path) -> None:
    (target,) = convert(ConvertConfig(folder(tmp_path, "qwen3"), outfile=tmp_path / "t.gguf")).paths
    source, content = folder(tmp_path, "dflash-zlab"), target.read_bytes()
    with pytest.raises(UsageError, match="is read by the conversion"):
        convert(ConvertConfig(source, outfile=target, target=target))
    assert target.read_bytes() == content


def test_outfile_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(tmp_path / "real.gguf")
    convert(ConvertConfig(folder(tmp_path, "qwen3"), outfile=tmp_path / "link.gguf"))
    assert (tmp_path / "link.gguf").is_symlink()
    assert len(GGUFFile.open(tmp_path / "real.gguf").tensors) > 0


def test_parts_of_a_killed_conversion_are_said(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    part = tmp_path / f".x.gguf.{gone.pid}.part"
    part.touch()
    report = convert(ConvertConfig(folder(tmp_path, "qwen3"), outfile=tmp_path / "x.gguf"))
    assert f"{part}: left by a program that was killed; remove it" in report.warnings
    assert part.exists()


MEASURE = """
import sys
from pathlib import Path
from specli.convert import ConvertConfig, convert
convert(ConvertConfig(Path(sys.argv[1]), outfile=Path(sys.argv[2]), outtype=sys.argv[3]))
status = Path("/proc/self/status").read_text()  # ru_maxrss would include the parent's peak
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("outtype", ["f32", "q8_0"])
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path, outtype: str) -> None:
    """Peak memory at most three times the largest tensor (60 MB here) plus 300 MB, for 0.6 GB of weights."""
    from tests.support.checkpoints import qwen3
    from tests.support.hf_files import Stored, write_safetensors

    source = tmp_path / "big"
    qwen3(source)
    config = json.loads((source / "config.json").read_text())
    rows = 30_000
    config |= {"hidden_size": 1024, "vocab_size": V, "intermediate_size": rows, "num_hidden_layers": 3, "head_dim": 16}
    write_json(source / "config.json", config)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, 1024), "model.norm.weight": (1024,),
                                          "lm_head.weight": (V, 1024)}  # fmt: skip
    for i in range(3):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (1024,), p + "post_attention_layernorm.weight": (1024,),
                   p + "self_attn.q_proj.weight": (64, 1024), p + "self_attn.k_proj.weight": (32, 1024),
                   p + "self_attn.v_proj.weight": (32, 1024), p + "self_attn.o_proj.weight": (1024, 64),
                   p + "self_attn.q_norm.weight": (16,), p + "self_attn.k_norm.weight": (16,),
                   p + "mlp.gate_proj.weight": (rows, 1024), p + "mlp.up_proj.weight": (rows, 1024),
                   p + "mlp.down_proj.weight": (1024, rows)}  # fmt: skip
    tensors = {name: Stored("BF16", shape, bytes(2 * math.prod(shape))) for name, shape in shapes.items()}
    write_safetensors(source / "model.safetensors", tensors)
    command = [sys.executable, "-c", MEASURE, str(source), str(tmp_path / "x.gguf"), outtype]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert peak < 3 * rows * 1024 * 2 + 300e6


@pytest.mark.parametrize("place", ["tokenizer_config.json", "chat_template.jinja", "chat_template.json"])
def test_chat_template_is_found_where_it_lies(tmp_path: Path, place: str) -> None:
    """docs/faults.md C26: newer folders keep it in a file of its own, and a drafter takes its target's."""
    source, target, text = tmp_path / "eagle3-angelslim", tmp_path / "qwen3", "{{ messages[0].content }}"
    CASES["eagle3-angelslim"].write(source)
    CASES["qwen3"].write(target)
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))
    if place.endswith(".jinja"):
        (target / place).write_text(text)
    else:
        found = json.loads((target / place).read_text()) if (target / place).exists() else {}
        (target / place).write_text(json.dumps({**found, "chat_template": text}))
    for request in (
        ConvertConfig(target, outfile=tmp_path / "target.gguf"),
        ConvertConfig(source, outfile=tmp_path / "draft.gguf", target=target),
    ):
        assert convert(request).metadata["tokenizer.chat_template"] == text


def test_an_object_is_no_name(tmp_path: Path) -> None:
    """Such an override was once written as Python shows it."""
    source, override = folder(tmp_path, "qwen3"), tmp_path / "m.json"
    write_json(override, {"general.name": {"a": 1}})
    with pytest.raises(FormatError, match=r"m\.json: name of the model is an object, expected a text$"):
        convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", metadata=override))
    assert not (tmp_path / "x.gguf").exists()
