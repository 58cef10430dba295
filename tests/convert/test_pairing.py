"""`--check`: what is compared between a drafter and its target, and what is refused; only headers are read."""

from pathlib import Path

import pytest

from specli.convert import ConvertConfig, convert
from specli.convert.pairing import check_pair
from specli.errors import IncompatibleError
from tests.support.checkpoints import CASES


def made(tmp_path: Path, name: str, *, target: str | None = None) -> Path:
    case = CASES[name]
    case.write(tmp_path / name)
    target = target or case.target
    if target is not None:
        CASES[target].write(tmp_path / target)
    request = ConvertConfig(
        tmp_path / name,
        outfile=tmp_path / f"{name}.gguf",
        target=None if target is None else tmp_path / target,
        mtp=case.mtp,
    )
    return convert(request).paths[0]


FITS = {
    "eagle3-specforge": (
        "target layers 1, 4, 5 of 8, 3 x 64 = 192 wide",
        "rope base 10000, scaling none (the target's base is 1e+06; each uses its own)",
        "vocabulary of 320 tokens, the same in both; 48 of them can be drafted",
    ),
    "dflash-zlab": (
        "target layers 2, 4, 6 of 8, 3 x 64 = 192 wide",
        "token_embd.weight and output.weight from the target, 64 wide",
        "rope base 1e+06, scaling none (the target's base is 1e+06; each uses its own)",
        "block size 16, at most 15 draft tokens, mask token 310",
        "vocabulary of 320 tokens, the same in both",
    ),
    "dspark-specforge": (
        "target layers 3, 5, 7 of 8, 3 x 64 = 192 wide",
        "token_embd.weight and output.weight from the target, 64 wide",
        "rope base 1e+07, scaling yarn (the target's base is 1e+06; each uses its own)",
        "block size 7, at most 7 draft tokens, mask token 310",
        "vocabulary of 320 tokens, the same in both",
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_pair_that_fits(tmp_path: Path, name: str) -> None:
    target = made(tmp_path, "qwen3")
    assert check_pair(made(tmp_path, name), target) == FITS[name]


@pytest.mark.parametrize("family", ["glm4-moe", "qwen35"])
def test_mtp_file_fits_its_trunk(tmp_path: Path, family: str) -> None:
    n_layers = {"glm4-moe": 3, "qwen35": 4}[family]
    assert check_pair(made(tmp_path, f"{family}-mtp"), made(tmp_path, f"{family}-trunk")) == (
        f"1 MTP block after {n_layers} layers, 64 wide",
        "vocabulary of 320 tokens, the same in both",
    )


def test_assistant_needs_its_backbone(tmp_path: Path) -> None:
    draft, target = made(tmp_path, "gemma4-assistant"), made(tmp_path, "gemma4")
    with pytest.raises(IncompatibleError) as caught:
        check_pair(draft, target)
    assert str(caught.value) == f"{draft}: output width 96 does not match {target} (64)"


def test_other_tokenizer_is_refused(tmp_path: Path) -> None:
    """Same sizes, other tokens."""
    draft, target = made(tmp_path, "dflash-zlab"), made(tmp_path, "mistral")
    with pytest.raises(IncompatibleError) as caught:
        check_pair(draft, target)
    assert str(caught.value) == (f"{draft}: 59 tokens differ from {target}, first 259: '\u2581t' and 'a'")


def test_target_is_no_drafter(tmp_path: Path) -> None:
    draft, target = made(tmp_path, "llama"), made(tmp_path, "qwen3")
    with pytest.raises(IncompatibleError) as caught:
        check_pair(draft, target)
    assert str(caught.value) == f"{draft}: architecture llama is no drafter for {target} (qwen3)"
    assert caught.value.hint == "specli check -m TARGET -md DRAFT compares a plain draft model with its target"
    with pytest.raises(IncompatibleError) as caught:
        check_pair(target, target)
    assert str(caught.value) == f"{target}: has no MTP blocks, so it is no drafter of {target}"


def test_check_after_conversion_and_of_a_file(tmp_path: Path) -> None:
    target = made(tmp_path, "qwen3")
    CASES["dflash-zlab"].write(tmp_path / "draft")
    request = ConvertConfig(tmp_path / "draft", outfile=tmp_path / "d.gguf", target=target, check=target)
    report = convert(request)
    assert report.fit == FITS["dflash-zlab"]
    again = convert(ConvertConfig(tmp_path / "d.gguf", check=target))
    assert again.fit == report.fit
    assert again.paths == (tmp_path / "d.gguf",)
