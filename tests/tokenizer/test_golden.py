"""Token ids recorded from llama.cpp b11434 (golden/*.json; ../shared/golden/*.json)."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from specli.gguf.file import GGUFFile
from specli.tokenizer import ChatTemplate, Tokenizer
from specli.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.token_cases import NAMES, TEXTS, vocabulary
from tests.support.token_cases import PRE_TOKENIZERS as RECORDED
from tests.support.vocab_files import byte_level_pairs, sentencepiece_pairs, vocab_file

GOLDEN = Path(__file__).parents[1] / "golden"


def assert_recorded_ids(tokenizer: Tokenizer, golden: Path) -> None:
    recorded = json.loads(golden.read_text("utf-8"))
    assert recorded["tokenize"]
    for case in recorded["tokenize"]:
        flags = {"add_special": case["add_special"], "parse_special": case["parse_special"]}
        assert tokenizer.encode(case["text"], **flags) == case["ids"], case["text"]
    for case in recorded["logits"]:
        assert tokenizer.encode(case["prompt"], add_special=True, parse_special=True) == case["ids"]


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_every_pretokenizer_are_llama_cpps(name: str) -> None:
    recorded = json.loads((GOLDEN / "tokens.json").read_text("utf-8"))["ids"][name]
    tokenizer = Tokenizer.from_gguf(vocab_file(vocabulary(name)))
    for text, ids in zip(TEXTS, recorded, strict=True):
        assert tokenizer.encode(text, add_special=True, parse_special=True) == ids, text


def test_every_rule_of_a_pretokenizer_is_recorded() -> None:
    rules = {id(rule) for rule in PRE_TOKENIZERS.values()}
    assert {id(PRE_TOKENIZERS[name]) for name in RECORDED} == rules


# BERT's is no text generator's vocabulary; those without recorded ids are left out.
VOCABULARY_FILES = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "mpt",
    "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip


@pytest.mark.parametrize("name", VOCABULARY_FILES)
def test_vocabulary_files_that_llama_cpp_ships(name: str) -> None:
    source = os.environ.get("SPECLI_LLAMA_CPP_SOURCE")
    if not source:
        pytest.skip("SPECLI_LLAMA_CPP_SOURCE does not name llama.cpp's source tree")
    path = Path(source) / "models" / f"ggml-vocab-{name}.gguf"
    separator = "\n__ggml_vocab_test__\n"
    texts = Path(f"{path}.inp").read_bytes().decode().removesuffix(separator).split(separator)
    expected = [list(map(int, line.split())) for line in Path(f"{path}.out").read_text("utf-8").splitlines()]
    with GGUFFile.open(path) as file:
        tokenizer = Tokenizer.from_gguf(file)
    assert len(texts) > 40
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, add_special=False, parse_special=False) == ids, text


@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_zoo_of_smollm2s_vocabulary(shared: Path, model: str) -> None:
    folder = shared / "golden" / "zoo" / model
    tokenizer = Tokenizer.from_gguf(vocab_file(byte_level_pairs(folder / "hf", "smollm")))
    assert tokenizer.eog_ids == {0, 2, 4}
    assert_recorded_ids(tokenizer, folder / "golden.json")


def test_zoo_of_gemma3s_pieces(shared: Path) -> None:
    folder = shared / "golden" / "zoo" / "gemma3"
    pairs = sentencepiece_pairs(folder / "hf")
    header = {row["key"]: row for row in json.loads((folder / "gguf" / "f32.json").read_text())["metadata"]}
    for key in ("tokens", "token_type", "scores"):
        row = header[f"tokenizer.ggml.{key}"]
        value = json.dumps(pairs[f"tokenizer.ggml.{key}"][1], separators=(",", ":"))
        assert hashlib.sha256(value.encode()).hexdigest() == row["sha256"], key
    assert_recorded_ids(Tokenizer.from_gguf(vocab_file(pairs)), folder / "golden.json")


@pytest.mark.real
def test_smollm2(smollm2_path: Path) -> None:
    file = GGUFFile.open(smollm2_path)
    tokenizer = Tokenizer.from_gguf(file)
    assert_recorded_ids(tokenizer, GOLDEN / f"{smollm2_path.stem}.json")
    assert tokenizer.eog_ids == {0, 2, 4}
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, False)

    for prompt in json.loads((GOLDEN / "drafters.json").read_text("utf-8"))["prompts"]:
        assert tokenizer.encode(prompt["text"], add_special=True, parse_special=True) == prompt["ids"]

    hi = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.encode_chat(ChatTemplate.from_gguf(file, tokenizer).render(hi, add_generation_prompt=True))
    assert (len(ids), ids[:4]) == (31, [1, 9690, 198, 2683])  # as llama.cpp b11434 gives them


@pytest.mark.real
def test_gemma3(shared: Path, gemma3_path: Path) -> None:
    file = GGUFFile.open(gemma3_path)
    tokenizer = Tokenizer.from_gguf(file)
    assert_recorded_ids(tokenizer, shared / "golden" / f"{gemma3_path.stem}.json")
    assert tokenizer.eog_ids == {1, 106, 212}
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer._vocabulary.roles["eot"], tokenizer.add_bos) == (
        2,
        1,
        106,
        True,
    )
    assert tokenizer.piece(212) == b""
    assert tokenizer.piece(212, special=True) == b"</s>"
    assert len(tokenizer.encode(" " * 40, add_special=False, parse_special=False)) == 2  # 31 + 9

    text = ChatTemplate.from_gguf(file, tokenizer).render(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"  # the file has no template
