"""What a drafter's file remembers of its target, and the drafter's own embeddings beside the target's."""

from pathlib import Path

import numpy as np
import pytest

from specli.convert import ConvertConfig, convert
from specli.errors import UsageError
from specli.gguf.file import GGUFFile
from specli.gguf.origin import EMBEDDINGS, NAME, VOCABULARY, cosine, other_target, sampled_rows, vocabulary_hash
from tests.support.checkpoints import CASES
from tests.support.hf_files import Stored, read_safetensors, write_safetensors


def made(tmp_path: Path, name: str, **changes: object) -> Path:
    case = CASES[name]
    if not (tmp_path / name).exists():
        case.write(tmp_path / name)
    target = None
    if case.target is not None:
        target = tmp_path / case.target
        if not target.exists():
            CASES[case.target].write(target)
    outfile = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}.gguf"
    request = ConvertConfig(tmp_path / name, outfile=outfile, **{"target": target, **changes})  # type: ignore[arg-type]
    return convert(request).paths[0]


def test_hash_and_sample() -> None:
    """`printf 'a\\0b' | sha256sum`."""
    digest = "59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138"
    assert vocabulary_hash(["a", "b"]) == digest
    assert vocabulary_hash(["a", "b", "[PAD2]", "[PAD3]"]) == digest
    assert vocabulary_hash(["a", "[PAD1]", "b"]) != digest
    assert sampled_rows(64) == list(range(0, 64, 2))
    assert sampled_rows(3) == [0, 1, 2]
    assert sampled_rows(0) == []
    x = np.arange(4, dtype=np.float32)
    assert cosine(x, 3 * x) == pytest.approx(1)
    assert cosine(x, -x) == pytest.approx(-1)
    assert cosine(x, x[:2]) == cosine(x, 0 * x) == cosine(x, x * np.float32(np.nan)) == 0


@pytest.mark.parametrize("name", ["eagle3-angelslim", "dflash-zlab", "dspark-speculators", "dspark-gemma4"])
def test_target_is_remembered_and_known_again(tmp_path: Path, name: str) -> None:
    """Of whatever type the target is, and whether a folder or a file was given for it."""
    target_name = CASES[name].target
    assert target_name is not None
    bf16, q4 = (made(tmp_path, target_name, outtype=outtype) for outtype in ("bf16", "q4_0"))
    for draft in (made(tmp_path, name), made(tmp_path, name, target=bf16), made(tmp_path, name, target=q4)):
        file = GGUFFile.open(draft)
        assert file.metadata.require(NAME, "str").lower().replace(" ", "-") == target_name
        assert len(file.metadata.require(VOCABULARY, "str")) == 64
        assert len(file.metadata.require(EMBEDDINGS, "[f32]")) == 32 * 32
        for target in (bf16, q4):
            assert other_target(file, GGUFFile.open(target)) is None


def test_other_targets_are_seen(tmp_path: Path) -> None:
    draft = GGUFFile.open(made(tmp_path, "dflash-zlab"))
    table = tmp_path / "qwen3" / "model.safetensors"
    tensors = read_safetensors(table)
    old = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = Stored(old.dtype, old.shape, old.data[::-1][1:] + old.data[:1])
    write_safetensors(table, tensors)
    changed = GGUFFile.open(made(tmp_path, "qwen3"))
    assert other_target(draft, changed) == (
        f"{draft.path}: was converted for qwen3, but {changed.path} has other embeddings: few drafts may be accepted"
    )
    other = GGUFFile.open(made(tmp_path, "gemma4"))
    assert other_target(draft, other) == (
        f"{draft.path}: was converted for qwen3, but {other.path} has another vocabulary: few drafts may be accepted"
    )
    assert other_target(other, draft) is None  # it remembers nothing


def test_folder_without_weights(tmp_path: Path) -> None:
    CASES["qwen3"].write(tmp_path / "qwen3")
    (tmp_path / "qwen3" / "model.safetensors").unlink()
    metadata = GGUFFile.open(made(tmp_path, "dflash-zlab")).metadata
    assert VOCABULARY in metadata
    assert EMBEDDINGS not in metadata


def with_table(tmp_path: Path, *, same: bool) -> None:
    """An EAGLE-3 head with an embedding table of its own."""
    for name in ("eagle3-angelslim", "qwen3"):
        CASES[name].write(tmp_path / name)
    table = read_safetensors(tmp_path / "qwen3" / "model.safetensors")["model.embed_tokens.weight"]
    own = table if same else Stored(table.dtype, table.shape, table.data[2:] + table.data[:2])
    path = tmp_path / "eagle3-angelslim" / "model.safetensors"
    write_safetensors(path, read_safetensors(path) | {"embed_tokens.weight": own})


@pytest.mark.parametrize("same", [True, False])
def test_embeddings_of_the_drafter(tmp_path: Path, same: bool) -> None:
    with_table(tmp_path, same=same)
    target = tmp_path / "qwen3"
    source = tmp_path / "eagle3-angelslim"
    report = convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", target=target))
    assert "token_embd.weight" in GGUFFile.open(tmp_path / "x.gguf").tensors
    notes = [text for text in (*report.notes, *report.warnings) if "embeddings" in text]
    if same:
        assert notes == ["the drafter's embeddings are the target's: --borrow-embeddings would save them"]
    else:
        assert len(notes) == 1
        assert notes[0] in report.warnings
        assert notes[0].startswith("the drafter's embeddings differ from the target's (cosine ")
    report = convert(ConvertConfig(source, outfile=tmp_path / "y.gguf", target=target, borrow_embeddings=True))
    assert "token_embd.weight" not in GGUFFile.open(tmp_path / "y.gguf").tensors
    assert report.unused["embed_tokens.weight"] == "the target's are read (--borrow-embeddings)"
    assert not [text for text in (*report.notes, *report.warnings) if "drafter's embeddings" in text]


@pytest.mark.parametrize("name", ["dflash-mask-embedding", "qwen3"])
def test_embeddings_that_cannot_be_borrowed(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--borrow-embeddings"):
        made(tmp_path, name, borrow_embeddings=True)
