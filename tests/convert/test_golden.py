"""Whole files against what llama.cpp b11434's converter wrote for the same checkpoints."""

import hashlib
import json
from pathlib import Path

import pytest

from specli.convert import ConvertConfig, convert
from specli.gguf.file import GGUFFile
from tests.support.gguf_diff import differences, pairs, without_origin

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "convert_drafters.json").read_text())

ZOO = [("llama", None), ("qwen3", None), ("gemma3", None), ("eagle3_angelslim", "qwen3"), ("dflash_zlab", "qwen3")]


@pytest.mark.parametrize(("name", "target"), ZOO, ids=[name for name, _ in ZOO])
@pytest.mark.parametrize("outtype", ["f32", "auto", "q8_0"])
def test_zoo_checkpoint_equals_upstream(
    shared: Path, tmp_path: Path, name: str, target: str | None, outtype: str
) -> None:
    zoo = shared / "golden" / "zoo"
    golden = zoo / name / "gguf" / f"{outtype}.json"
    if not golden.is_file():
        pytest.skip(f"no {outtype} golden for {name}")
    request = ConvertConfig(
        zoo / name / "hf",
        outfile=tmp_path / "x.gguf",
        outtype=outtype,
        target=None if target is None else zoo / target / "hf",
    )
    (path,) = convert(request).paths
    assert differences(path, json.loads(golden.read_text())) == []


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case.endswith("-q8_0") else ()) for case in GOLDEN["sha256"]],
)  # the zoo shows q8_0 as well
def test_trained_drafter_equals_upstream_byte_for_byte(shared: Path, tmp_path: Path, case: str) -> None:
    name, outtype = case.rsplit("-", 1)
    drafters = shared / "drafters"
    request = ConvertConfig(drafters / name, outfile=tmp_path / "x.gguf", outtype=outtype, target=drafters / "target")
    (path,) = convert(request).paths
    assert hashlib.sha256(without_origin(path)).hexdigest() == GOLDEN["sha256"][case]


@pytest.mark.real
@pytest.mark.parametrize("name", sorted({case.rsplit("-", 1)[0] for case in GOLDEN["sha256"]}))
def test_target_may_be_a_gguf_file(shared: Path, smollm2_path: Path, tmp_path: Path, name: str) -> None:
    """The same tensors and keys; tokenizer keys stand in the target file's order."""
    drafters = shared / "drafters"
    made = {}
    for kind, target in (("directory", drafters / "target"), ("file", smollm2_path)):
        request = ConvertConfig(drafters / name, outfile=tmp_path / f"{kind}.gguf", target=target)
        made[kind] = GGUFFile.open(convert(request).paths[0])
    assert pairs(made["file"]) == pairs(made["directory"])
    assert list(made["file"].tensors) == list(made["directory"].tensors)
    assert all(
        (made["file"].tensors[tensor].data == made["directory"].tensors[tensor].data).all()
        for tensor in made["file"].tensors
    )
