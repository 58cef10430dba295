"""Broken and unsupported checkpoints: one error each, compared in full, and nothing left on disk."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specli.convert import ConvertConfig, convert
from specli.convert.layouts import LAYOUTS
from specli.errors import SpecliError
from tests.support.checkpoints import CASES, DRAFT_V, E, dflash_shapes, draft_offsets, eagle3_shapes, vocabulary_map
from tests.support.hf_files import (
    Stored,
    V,
    bf16,
    random_tensors,
    read_safetensors,
    stored,
    write_checkpoint,
    write_json,
    write_safetensors,
)

FORMATS = "model*.safetensors or pytorch_model*.bin or medusa_lm_head.safetensors or medusa_lm_head.pt"


def folder(tmp_path: Path, name: str) -> Path:
    CASES[name].write(tmp_path / name)
    return tmp_path / name


def refused(source: Path, *, target: Path | None = None, **changes: Any) -> str:
    """The message with its hint; checks that no file appeared or changed."""
    before = {path: path.lstat().st_mtime_ns for path in source.parent.rglob("*")}
    outfile = changes.pop("outfile", source.parent / "out.gguf")
    with pytest.raises(SpecliError) as caught:
        convert(ConvertConfig(source, outfile=outfile, target=target, **changes))
    assert {path: path.lstat().st_mtime_ns for path in source.parent.rglob("*")} == before
    message = str(caught.value).replace(str(source.parent) + "/", "").replace(str(source.parent), "PARENT")
    assert "\n" not in message
    hint = caught.value.hint
    return message if hint is None else f"{message} | {hint}".replace(str(source.parent) + "/", "")


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text())
    for key, value in changes.items():
        config.pop(key, None) if value is ... else config.__setitem__(key, value)
    write_json(path, config)


# --- files ----------------------------------------------------------------------------------------------------------


def truncate(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def short_header(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes((5000).to_bytes(8, "little") + b"{}")


def bad_header(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes((4).to_bytes(8, "little") + b"nope")


def strange_dtype(directory: Path) -> None:
    text = json.dumps({"x": {"dtype": "Q3", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0")


def wrong_size(directory: Path) -> None:
    text = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))


def no_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def no_config(directory: Path) -> None:
    (directory / "config.json").unlink()


def two_configs(directory: Path) -> None:
    for name in ("draft", "target"):
        (directory / name).mkdir()
        shutil.copy(directory / "config.json", directory / name)
    no_config(directory)


def bad_json(directory: Path) -> None:
    (directory / "config.json").write_text("{")


def missing_shard(directory: Path) -> None:
    write_json(directory / "model.safetensors.index.json", {"weight_map": {"a": "model-00001-of-00002.safetensors"}})


def incomplete_index(directory: Path) -> None:
    write_json(directory / "model.safetensors.index.json", {"weight_map": {"a": "model.safetensors"}})


def raw_safetensors(directory: Path, header: str, n_data: int) -> None:
    text = header.encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(n_data))


def entries(*spans: tuple[int, int]) -> str:
    """Header of one-axis tensors a, b, … of bytes."""
    found = (
        f'"{name}": {{"dtype": "U8", "shape": [{last - first}], "data_offsets": [{first}, {last}]}}'
        for name, (first, last) in zip("abcd", spans, strict=False)
    )
    return "{" + ", ".join(found) + "}"


def equal_offsets(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4), (0, 4)), 4)


def overlap(directory: Path) -> None:
    raw_safetensors(directory, entries((2, 6), (0, 4)), 6)


def gap(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4), (6, 8)), 8)


def gap_at_the_start(directory: Path) -> None:
    raw_safetensors(directory, entries((2, 4)), 4)


def trailing_bytes(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0")


def name_twice(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4))[:-1] + ", " + entries((4, 8))[1:], 8)


def key_twice(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4)).replace('"shape"', '"data_offsets": [0, 2], "shape"'), 4)


def header_in_utf16(directory: Path) -> None:
    text = "{}".encode("utf-16")
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def huge_number(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4)).replace("[4]", f"[{'9' * 5000}]"), 4)


def name_with_line_end(directory: Path) -> None:
    raw_safetensors(directory, entries((0, 4)).replace('"a"', '"a\\nb"'), 4)


def pointer_as_weights(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    )


def page_as_config(directory: Path) -> None:
    (directory / "config.json").write_text("<!doctype html><title>Sign in</title>")


def folder_as_weights(directory: Path) -> None:
    no_weights(directory)
    (directory / "model.safetensors").mkdir()


def pipe_as_weights(directory: Path) -> None:
    no_weights(directory)
    os.mkfifo(directory / "model.safetensors")


def device_as_weights(directory: Path) -> None:
    no_weights(directory)
    (directory / "model.safetensors").symlink_to("/dev/zero")


def dangling_weights(directory: Path) -> None:
    no_weights(directory)
    (directory / "model.safetensors").symlink_to("gone")


def pipe_as_pickle(directory: Path) -> None:
    no_weights(directory)
    os.mkfifo(directory / "pytorch_model.bin")


def pipe_in_the_index(directory: Path) -> None:
    pipe_as_weights(directory)
    incomplete_index(directory)


def pipe_as_config(directory: Path) -> None:
    (directory / "config.json").unlink()
    os.mkfifo(directory / "config.json")


def pipe_as_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.model").unlink()
    os.mkfifo(directory / "tokenizer.model")


def index_above(directory: Path) -> None:
    shutil.copy(directory / "model.safetensors", directory.parent)
    write_json(directory / "model.safetensors.index.json", {"weight_map": {"a": "../model.safetensors"}})


def absolute_index(directory: Path) -> None:
    write_json(directory / "model.safetensors.index.json", {"weight_map": {"a": "/etc/passwd"}})


def config_in_utf16(directory: Path) -> None:
    path = directory / "config.json"
    path.write_bytes(path.read_text().encode("utf-16"))


def config_of_huge_number(directory: Path) -> None:
    (directory / "config.json").write_text('{"vocab_size": ' + "9" * 5000 + "}")


def readme_of_bytes(directory: Path) -> None:
    (directory / "README.md").write_bytes(b"---\nname: \xff\n---\n")


def readme_of_aliases(directory: Path) -> None:
    (directory / "README.md").write_text("---\nname: &a [x]\nlicense: [*a, *a]\n---\n")


def readme_of_no_tags(directory: Path) -> None:
    (directory / "README.md").write_text("---\ntags: [[a]]\n---\n")


FILES: list[tuple[Callable[[Path], None], str]] = [
    (
        truncate,
        "qwen3/model.safetensors: truncated: tensor 'model.layers.7.mlp.down_proj.weight' ends at byte 576128 of "
        "576028",
    ),
    (short_header, "qwen3/model.safetensors: truncated: header of 5000 bytes in a file of 10 bytes"),
    (bad_header, "qwen3/model.safetensors: header starts with 'nope', expected a JSON object"),
    (
        strange_dtype,
        "qwen3/model.safetensors: tensor 'x' has dtype 'Q3', expected one of F64, F32, F16, BF16, F8_E4M3, F8_E5M2, "
        "F8_E8M0, I64, I32, I16, I8, U64, U32, U16, U8, BOOL",
    ),
    (wrong_size, "qwen3/model.safetensors: tensor 'x' has 4 bytes, expected 8 for F32 [2]"),
    (no_weights, f"qwen3: no weights, expected {FORMATS}"),
    (no_config, "qwen3: no config.json"),
    (two_configs, "qwen3: no config.json, but 2 candidates inside: draft/config.json, target/config.json"),
    (
        bad_json,
        "qwen3/config.json: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    (
        missing_shard,
        "qwen3/model.safetensors.index.json: missing weight files: model-00001-of-00002.safetensors",
    ),
    (equal_offsets, "qwen3/model.safetensors: tensor 'b' at bytes 0 to 4 overlaps tensor 'a', which ends at 4"),
    (overlap, "qwen3/model.safetensors: tensor 'a' at bytes 2 to 6 overlaps tensor 'b', which ends at 4"),
    (gap, "qwen3/model.safetensors: tensor 'b' at bytes 6 to 8 leaves a gap after tensor 'a', which ends at 4"),
    (
        gap_at_the_start,
        "qwen3/model.safetensors: tensor 'a' at bytes 2 to 4 leaves a gap after the header, which ends at 0",
    ),
    (trailing_bytes, "qwen3/model.safetensors: 1 bytes after the last tensor belong to none"),
    (name_twice, "qwen3/model.safetensors: header is not JSON: key 'a' is there twice"),
    (key_twice, "qwen3/model.safetensors: header is not JSON: key 'data_offsets' is there twice"),
    (
        header_in_utf16,
        "qwen3/model.safetensors: header is not UTF-8: 'utf-8' codec can't decode byte 0xff in position 0: invalid "
        "start byte",
    ),
    (
        huge_number,
        "qwen3/model.safetensors: header is not JSON: Exceeds the limit (4300 digits) for integer string conversion: "
        "value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit",
    ),
    (
        name_with_line_end,
        r"qwen3/model.safetensors: tensor name 'a\nb' is no name of at most 500 printable characters",
    ),
    (
        pointer_as_weights,
        "qwen3/model.safetensors: not a safetensors file, but a git-LFS pointer | fetch the file itself: git lfs pull",
    ),
    (
        page_as_config,
        "qwen3/config.json: not JSON, but an HTML page | download the file itself, not the page that shows it",
    ),
    (folder_as_weights, "qwen3/model.safetensors: is a directory, expected a file"),
    (pipe_as_weights, "qwen3/model.safetensors: is a pipe, expected a file"),
    (device_as_weights, "qwen3/model.safetensors: is a device, expected a file"),
    (dangling_weights, "qwen3/model.safetensors: cannot be read: No such file or directory"),
    (pipe_as_pickle, "qwen3/pytorch_model.bin: is a pipe, expected a file"),
    (pipe_in_the_index, "qwen3/model.safetensors: is a pipe, expected a file"),
    (pipe_as_config, "qwen3/config.json: is a pipe, expected a file"),
    (pipe_as_tokenizer, "qwen3/tokenizer.model: is a pipe, expected a file"),
    (index_above, "qwen3/model.safetensors.index.json: weight files outside the folder: '../model.safetensors'"),
    (absolute_index, "qwen3/model.safetensors.index.json: weight files outside the folder: '/etc/passwd'"),
    (config_in_utf16, "qwen3/config.json: cannot be read: UTF-16 text, expected UTF-8"),
    (
        config_of_huge_number,
        "qwen3/config.json: not JSON: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 "
        "digits; use sys.set_int_max_str_digits() to increase the limit",
    ),
    (
        readme_of_bytes,
        "qwen3/README.md: cannot be read: 'utf-8' codec can't decode byte 0xff in position 10: invalid start byte",
    ),
    (readme_of_aliases, "qwen3/README.md: front matter has aliases or more than 1048576 characters"),
    (readme_of_no_tags, "qwen3: tags of the model are not understood, expected a list of texts"),
    (incomplete_index, "qwen3/model.safetensors.index.json: 1 tensors are in no weight file: a"),
]


@pytest.mark.parametrize(("break_it", "message"), FILES, ids=[f.__name__ for f, _ in FILES])
def test_broken_files(tmp_path: Path, break_it: Callable[[Path], None], message: str) -> None:
    source = folder(tmp_path, "qwen3")
    break_it(source)
    assert refused(source) == message


def test_pickle_that_runs_code_is_not_loaded(tmp_path: Path) -> None:
    import torch

    source = folder(tmp_path, "qwen3")
    no_weights(source)
    torch.save({"x": Path("y")}, source / "pytorch_model.bin")
    assert refused(source).startswith("qwen3/pytorch_model.bin: weights-only loading failed: Weights only load failed")


def test_pickle_that_is_no_archive(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    no_weights(source)
    (source / "pytorch_model.bin").write_bytes(b"junk")
    expected = "qwen3/pytorch_model.bin: not a torch zip archive (truncated, or written by torch before 1.6)"
    assert refused(source) == expected


# --- configs --------------------------------------------------------------------------------------------------------

KNOWN = "known: " + ", ".join(sorted(name for layout in LAYOUTS for name in layout.architectures))
CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["BertModel"]}, f"qwen3/config.json: unknown architecture BertModel | {KNOWN}"),
    ({"architectures": ...}, f"qwen3/config.json: unknown architecture none | {KNOWN}"),
    ({"hidden_size": "64"}, 'qwen3/config.json: hidden_size is "64", expected an integer'),
    ({"num_hidden_layers": ...}, "qwen3/config.json: num_hidden_layers is missing, expected a positive integer"),
    ({"num_hidden_layers": 2**31}, "qwen3/config.json: num_hidden_layers is 2147483648, expected 0 to 10000"),
    ({"num_hidden_layers": 0}, "qwen3/config.json: num_hidden_layers is 0, expected a positive integer"),
    ({"vocab_size": None}, "qwen3/config.json: vocab_size is missing, expected a positive integer"),
    ({"vocab_size": 2**31}, "qwen3/config.json: vocab_size is 2147483648, expected 0 to 10000000"),
    ({"intermediate_size": None}, "qwen3/config.json: intermediate_size is missing, expected a positive integer"),
    ({"rope_theta": [1]}, "qwen3/config.json: rope_theta is [1], expected a number"),
    ({"rope_theta": float("nan")}, "qwen3/config.json: rope_theta is NaN, expected a finite number"),
    (
        {"quantization_config": {"quant_method": "gptq"}},
        "qwen3/config.json: quant_method 'gptq' is not handled, only fp8, compressed-tensors, mxfp4",
    ),
    (
        {"speculators_model_type": "peagle"},
        "qwen3/config.json: speculators type 'peagle': P-EAGLE drafts several depths in one pass",
    ),
    (
        {"dflash_config": {}, "architectures": ["Eagle3Speculator"]},
        "qwen3/config.json: matches DFlash and EAGLE-3: architecture and keys disagree",
    ),
]


@pytest.mark.parametrize(("changes", "message"), CONFIGS)
def test_bad_configs(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    source = folder(tmp_path, "qwen3")
    edit_config(source, **changes)
    assert refused(source) == message


# --- tensors --------------------------------------------------------------------------------------------------------


def test_missing_unused_and_misshapen_tensors_are_all_named(tmp_path: Path) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    target = folder(tmp_path, "qwen3")
    shapes = eagle3_shapes() | {"fc.weight": (E, 2 * E), "extra.weight": (3,)}
    del shapes["midlayer.mlp.up_proj.weight"]
    write_safetensors(source / "model.safetensors", random_tensors(shapes) | vocabulary_map())
    assert refused(source, target=target) == (
        "eagle3-angelslim: not a complete EAGLE-3 checkpoint: fc.weight has shape [64, 128], expected [64, 192]; "
        "missing layers.0.mlp.up_proj.weight; unused extra.weight"
    )


TWINS = [
    ("llama", "model.norm.weight", "language_model.model.norm.weight", "model.norm.weight"),
    ("llama", "model.norm.weight", "text_model.norm.weight", "model.norm.weight"),
    ("qwen3", "model.norm.weight", "norm.weight", "model.norm.weight"),
    ("gemma3", "model.norm.weight", "language_model.norm.weight", "model.norm.weight"),
    ("glm4-moe", "model.norm.weight", "model.language_model.norm.weight", "model.norm.weight"),
    ("qwen35", "mtp.norm.weight", "model.mtp.norm.weight", "model.layers.4.shared_head.norm.weight"),
    ("qwen35", "mtp.layers.0.input_layernorm.weight", "mtp.layers.00.input_layernorm.weight",
     "model.layers.4.input_layernorm.weight"),
    ("eagle3-angelslim", "fc.weight", "model.fc.weight", "fc.weight"),
    ("eagle3-angelslim", "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight", "layers.0.hidden_norm.weight"),
    ("eagle3-angelslim", "t2d", "model.t2d", "t2d"),
    ("eagle3-31", "fc_norm.0.weight", "aux_norm_low.weight", "fc_norm.0.weight"),
    ("dflash-zlab", "fc.weight", "model.fc.weight", "fc.weight"),
    ("dflash-sliding", "layers.0.self_attn.attention_sink_bias", "layers.0.self_attn.sinks",
     "layers.0.self_attn.sinks"),
    ("dflash2", "candidate_selector.hidden_projection.weight", "candidate_selector.hidden_projection",
     "candidate_selector.hidden_projection"),
    ("dspark-deepspec", "markov_head.markov_w1.weight", "logit_head.markov_w1.weight", "markov_head.markov_w1.weight"),
    ("dspark-gemma4", "confidence_head.proj.weight", "confidence_proj.weight", "confidence_head.proj.weight"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "name", "twin", "both"), TWINS)
def test_two_names_of_one_tensor(tmp_path: Path, layout: str, name: str, twin: str, both: str) -> None:
    """The twin holds other values, so taking either of the two would be a guess."""
    source = folder(tmp_path, layout)
    of = CASES[layout].target
    path = source / "model.safetensors"
    tensors = read_safetensors(path)
    alias = next(key for key in tensors if key.endswith(name))
    other = tensors[alias]
    tensors[twin] = Stored(other.dtype, other.shape, bytes(len(other.data)))
    write_safetensors(path, tensors)
    message = refused(source, target=None if of is None else folder(tmp_path, of))
    first, second = sorted([alias, twin])
    assert f": {first} and {second} are both {both}" in message


def test_packed_weight_beside_a_plain_one(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    weights = {"num_bits": 4, "group_size": 32, "strategy": "group"}
    edit_config(source, quantization_config={
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights": weights}},
    })  # fmt: skip
    name = "model.layers.0.mlp.up_proj.weight"
    twins = {f"{name}_packed": bf16(np.zeros((1, 1))), f"{name}_scale": bf16(np.zeros((1, 1)))}
    twins[f"{name}_shape"] = stored(np.zeros(2), "I64")
    path = source / "model.safetensors"
    write_safetensors(path, read_safetensors(path) | twins)
    assert refused(source) == f"qwen3: {name} is there as it is and as {name}_packed"


def test_many_faults_are_counted(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    write_safetensors(source / "model.safetensors", {"x": bf16(np.zeros((2, 2)))})
    message = refused(source)
    # 3 tensors of the whole model, 11 of each of the 8 layers, and the one that is unused
    assert message.startswith("qwen3: not a complete Qwen3 checkpoint: missing model.embed_tokens.weight; missing ")
    assert message.endswith(" and 84 more")
    assert len(message) < 600


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    tensors = random_tensors(eagle3_shapes()) | vocabulary_map()
    tensors["norm.weight"] = stored(np.ones(E), "I32")
    write_safetensors(source / "model.safetensors", tensors)
    assert refused(source, target=folder(tmp_path, "qwen3")) == (
        "eagle3-angelslim: not a complete EAGLE-3 checkpoint: norm.weight is I32, expected floating point numbers"
    )


def test_nan_weights_are_warned_of(tmp_path: Path) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    tensors = random_tensors(eagle3_shapes()) | vocabulary_map()
    broken = np.ones((E, 3 * E), np.float32)
    broken[0, 0] = np.nan
    write_safetensors(source / "model.safetensors", tensors | {"fc.weight": bf16(broken)})
    request = ConvertConfig(source, outfile=tmp_path / "x.gguf", target=folder(tmp_path, "qwen3"))
    assert "fc.weight: holds NaN or infinite values" in convert(request).warnings


def table(values: np.ndarray) -> dict[str, Stored]:
    return {"d2t": stored(values, "I64")}


def negative() -> dict[str, Stored]:
    values = draft_offsets()
    values[3] = -10
    return table(values)


def repeated() -> dict[str, Stored]:
    values = draft_offsets()
    values[5] = values[4] - 1
    return table(values)


def absolute() -> dict[str, Stored]:
    values = np.arange(DRAFT_V) + V - DRAFT_V
    return table(values)


def disagreeing() -> dict[str, Stored]:
    mask = np.zeros(V, np.uint8)
    mask[:DRAFT_V] = 1
    return table(draft_offsets()) | {"t2d": stored(mask, "BOOL")}


TABLES: list[tuple[Callable[[], dict[str, Stored]], str]] = [
    (negative, "eagle3-angelslim: d2t: draft id 3 means target id -7, outside 0 to 319"),
    (repeated, f"eagle3-angelslim: d2t: draft ids 4 and 5 both mean target id {draft_offsets()[4] + 4}"),
    (
        absolute,
        "eagle3-angelslim: d2t: draft id 24 means target id 320, outside 0 to 319 | the table looks as if it held "
        "absolute ids; checkpoints store offsets",
    ),
    (disagreeing, "eagle3-angelslim: d2t: its 48 target ids are not the 48 that t2d marks"),
    (
        lambda: table(draft_offsets(40)),
        "eagle3-angelslim: not a complete EAGLE-3 checkpoint: d2t has shape [40], expected [48]",
    ),
    (dict, "eagle3-angelslim: not a complete EAGLE-3 checkpoint: missing d2t"),
]


@pytest.mark.parametrize(("make", "message"), TABLES)
def test_bad_vocabulary_tables(tmp_path: Path, make: Callable[[], dict[str, Stored]], message: str) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    write_safetensors(source / "model.safetensors", random_tensors(eagle3_shapes()) | make())
    assert refused(source, target=folder(tmp_path, "qwen3")) == message


def test_absolute_table_is_taken_when_t2d_proves_it(tmp_path: Path) -> None:
    source, target = folder(tmp_path, "eagle3-angelslim"), folder(tmp_path, "qwen3")
    ids = draft_offsets() + np.arange(DRAFT_V)
    plain = convert(ConvertConfig(source, outfile=tmp_path / "a.gguf", target=target))
    write_safetensors(
        source / "model.safetensors",
        random_tensors(eagle3_shapes()) | vocabulary_map() | table(ids),
    )
    other = convert(ConvertConfig(source, outfile=tmp_path / "b.gguf", target=target))
    assert "d2t held absolute ids already, as t2d shows" in other.notes
    assert plain.paths[0].read_bytes() == other.paths[0].read_bytes()


# --- drafters and their targets -------------------------------------------------------------------------------------


def test_drafter_needs_its_target(tmp_path: Path) -> None:
    message = "dflash-zlab: a drafter (DFlash) needs --target-model-dir"
    hint = "give the target's checkpoint directory or GGUF file"
    assert refused(folder(tmp_path, "dflash-zlab")) == f"{message} | {hint}"


def test_target_must_not_be_the_source(tmp_path: Path) -> None:
    source = folder(tmp_path, "dflash-zlab")
    expected = "dflash-zlab: is the checkpoint itself, expected the target it drafts for"
    assert refused(source, target=source) == expected


def test_target_must_be_a_target(tmp_path: Path) -> None:
    source, other = folder(tmp_path, "dflash-zlab"), folder(tmp_path, "eagle3-angelslim")
    assert refused(source, target=other) == "eagle3-angelslim: is a drafter (EAGLE-3), expected a target"


DRAFTERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "dflash-zlab",
        {"num_target_layers": 9},
        "dflash-zlab/config.json: num_target_layers 9 does not match qwen3 (8)",
    ),
    (
        "dflash-zlab",
        {"vocab_size": 319},
        "dflash-zlab/config.json: vocab_size 319 does not match qwen3 (320)",
    ),
    (
        "dflash-zlab",
        {"dflash_config": {"mask_token_id": 320, "target_layer_ids": [1, 3, 5]}},
        "dflash-zlab/config.json: mask_token_id is 320, expected an id below 320",
    ),
    (
        "dflash-zlab",
        {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 3, 8]}},
        "dflash-zlab/config.json: DFlash target layers [2, 4, 9] (from target_layer_ids, which lists outputs): 9 is "
        "outside 0 to 8 | give the right ones with --target-layers",
    ),
    (
        "eagle3-angelslim",
        {"target_hidden_size": 128},
        "eagle3-angelslim/config.json: target_hidden_size 128 does not match qwen3 (64)",
    ),
    (
        "eagle3-angelslim",
        {"draft_vocab_size": 400},
        "eagle3-angelslim/config.json: draft_vocab_size 400 exceeds vocab_size 320",
    ),
    (
        "eagle3-angelslim",
        {"fc_norm": True},
        "eagle3-angelslim: not a complete EAGLE-3 checkpoint: missing fc_norm.0.weight; missing fc_norm.1.weight; "
        "missing fc_norm.2.weight",
    ),
    (
        "eagle3-31",
        {"norm_before_fc": True},
        "eagle3-31/config.json: norm_before_fc and fc_norm exclude each other",
    ),
    (
        "eagle3-angelslim",
        {"eagle_config": {"use_aux_hidden_state": False}},
        "eagle3-angelslim/config.json: EAGLE-3 with use_aux_hidden_state: false is not handled | llama.cpp runs no "
        "such head either; look for another drafter of this target",
    ),
    (
        "eagle3-angelslim",
        {"norm_output": False},
        "eagle3-angelslim/config.json: EAGLE-3 with norm_output: false (no last norm) is not handled | llama.cpp runs "
        "no such head either; look for another drafter of this target",
    ),
    (
        "eagle3-angelslim",
        {"hidden_act": "gelu_pytorch_tanh"},
        "eagle3-angelslim/config.json: activation 'gelu_pytorch_tanh' is not handled, expected silu or swish",
    ),
    ("dflash-zlab", {"block_size": 0}, "dflash-zlab/config.json: block_size is 0, expected 1 to 128"),
    ("dflash-zlab", {"block_size": 129}, "dflash-zlab/config.json: block_size is 129, expected 1 to 128"),
    (
        "dspark-deepspec",
        {"markov_head_type": "gated"},
        "dspark-deepspec/config.json: markov_head_type 'gated' is not handled, only 'vanilla' | llama.cpp runs no "
        "other kind either; look for another drafter of this target",
    ),
    (
        "dspark-deepspec",
        {"markov_head_type": "rnn"},
        "dspark-deepspec/config.json: markov_head_type 'rnn' is not handled, only 'vanilla' | llama.cpp runs no "
        "other kind either; look for another drafter of this target",
    ),
    (
        "dflash-deepspec",
        {"markov_rank": 16},
        "dflash-deepspec/config.json: markov_rank is 16, but there is no Markov head",
    ),
    (
        "dspark-gemma4",
        {"attention_k_eq_v": False, "final_logit_softcapping": 30.0},
        "dspark-gemma4/config.json: a Gemma 4 DSpark body is not handled when attention_k_eq_v is not true; "
        "final_logit_softcapping is set",
    ),
]


@pytest.mark.parametrize(("name", "changes", "message"), DRAFTERS)
def test_drafter_that_does_not_fit(tmp_path: Path, name: str, changes: dict[str, Any], message: str) -> None:
    source = folder(tmp_path, name)
    edit_config(source, **changes)
    assert refused(source, target=folder(tmp_path, "gemma4" if name == "dspark-gemma4" else "qwen3")) == message


@pytest.mark.parametrize(
    ("name", "changes", "option"),
    [
        ("qwen3", {"target_layers": (1, 2)}, "--target-layers"),
        ("qwen3", {"rope_theta": 5e5}, "--rope-theta"),
        ("qwen3", {"norm_before_residual": False}, "--norm-before-residual"),
        ("qwen3", {"sample_from_anchor": True}, "--sample-from-anchor"),
        ("qwen3", {"target": Path("anywhere")}, "--target-model-dir"),
        ("dflash-zlab", {"norm_before_residual": True}, "--norm-before-residual"),
        ("eagle3-angelslim", {"sample_from_anchor": True}, "--sample-from-anchor"),
        ("gemma4-assistant", {"rope_theta": 5e5}, "--rope-theta"),
    ],
)
def test_option_of_another_layout(tmp_path: Path, name: str, changes: dict[str, Any], option: str) -> None:
    assert refused(folder(tmp_path, name), **changes).startswith(f"{option} does not apply to ")


def test_check_target_that_is_missing_is_noticed_first(tmp_path: Path) -> None:
    message = refused(folder(tmp_path, "qwen3"), check=tmp_path / "none.gguf")
    assert message == "none.gguf: cannot open: no such file or directory"


def test_eagle3_head_of_two_layers(tmp_path: Path) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    tensors = random_tensors(eagle3_shapes() | eagle3_shapes("layers.1.")) | vocabulary_map()
    write_safetensors(source / "model.safetensors", tensors)
    assert refused(source, target=folder(tmp_path, "qwen3")) == (
        "eagle3-angelslim/config.json: EAGLE-3 with 2 decoder layers is not handled | llama.cpp runs no "
        "such head either; look for another drafter of this target"
    )


@pytest.mark.parametrize("name", ["layers.first.weight", "layers."])
def test_layer_without_a_number_is_an_unused_tensor(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    tensors = random_tensors(eagle3_shapes() | {name: (E,)}) | vocabulary_map()
    write_safetensors(source / "model.safetensors", tensors)
    assert refused(source, target=folder(tmp_path, "qwen3")) == (
        f"eagle3-angelslim: not a complete EAGLE-3 checkpoint: unused {name}"
    )


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4, 5, 6])
def test_default_taps_need_seven_layers(tmp_path: Path, n_layers: int) -> None:
    source, target = folder(tmp_path, "eagle3-angelslim"), folder(tmp_path, "qwen3")
    edit_config(target, num_hidden_layers=n_layers)
    taps = [2, n_layers // 2, n_layers - 3]
    bad = [tap for tap in taps if not 0 <= tap <= n_layers]
    fault = f"{bad[0]} is outside 0 to {n_layers}" if bad else "one layer occurs twice"
    if not bad and len(set(taps)) == 3:
        convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", target=target))
        return
    assert refused(source, target=target) == (
        f"eagle3-angelslim/config.json: EAGLE-3 target layers {taps} (default for {n_layers} layers, the checkpoint "
        f"lists none): {fault} | give the right ones with --target-layers"
    )


def test_missing_tokenizer_file_is_named(tmp_path: Path) -> None:
    source, target = folder(tmp_path, "dflash-zlab"), folder(tmp_path, "qwen3-moe")
    edit_config(target, num_hidden_layers=8)
    (target / "tokenizer.json").unlink()
    assert refused(source, target=target) == "qwen3-moe: no tokenizer.json, needed for the tokenizer"


@pytest.mark.parametrize("name", ["tekken.json", "tiktoken.model"])
def test_vocabularies_of_other_forms_are_named(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path, "qwen3-moe")
    (source / "tokenizer.json").rename(source / name)
    assert refused(source) == (
        f"qwen3-moe: no tokenizer.json, needed for the tokenizer | {name} is not read; look for a copy of the "
        "model with tokenizer.json"
    )


def test_unknown_pretokenizer(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3-moe")
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    write_json(source / "tokenizer.json", {**tokenizer, "pre_tokenizer": {"type": "WhitespaceSplit"}})
    assert refused(source) == "qwen3-moe/tokenizer.json: pre-tokenizer not recognised"


def test_unknown_keys_are_warned_of(tmp_path: Path) -> None:
    source = folder(tmp_path, "dflash-zlab")
    edit_config(source, new_switch=True)
    report = convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", target=folder(tmp_path, "qwen3")))
    assert report.warnings == ("config keys that are not understood and have no effect: new_switch",)


def test_layer_count_of_the_tensors_wins(tmp_path: Path) -> None:
    source = folder(tmp_path, "eagle3-angelslim")
    edit_config(source, num_hidden_layers=40)
    report = convert(ConvertConfig(source, outfile=tmp_path / "x.gguf", target=folder(tmp_path, "qwen3")))
    assert report.warnings == ("num_hidden_layers is 40, the checkpoint has one layer; one is written",)
    assert report.metadata["eagle3.block_count"] == 1


# --- output ---------------------------------------------------------------------------------------------------------


def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder(tmp_path, "qwen3")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    assert refused(source) == "out.gguf: needs 17 MB, 1 MB are free"


def test_missing_output_directory(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    assert refused(source, outfile=tmp_path / "no" / "x.gguf") == "no: no such directory"


def test_bad_template(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")
    assert refused(source, outfile=tmp_path / "{x}.gguf") == (
        "{x}.gguf: bad template, expected {ftype}, {outtype}, {}, {FTYPE} or {OUTTYPE}"
    )


def test_mtp_flag_needs_mtp_blocks(tmp_path: Path) -> None:
    assert refused(folder(tmp_path, "qwen3"), mtp="only") == "--mtp does not apply to Qwen3 checkpoints"


def test_failure_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    """The data ends early although the header promises it: found out in the middle of writing."""
    source = folder(tmp_path, "qwen3")
    (tmp_path / "out.gguf").write_text("old")

    def cut(progress: object) -> None:
        (source / "model.safetensors").write_bytes(b"")

    with pytest.raises(SpecliError, match="ends at byte"):
        convert(ConvertConfig(source, outfile=tmp_path / "out.gguf"), cut)
    assert (tmp_path / "out.gguf").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf", "qwen3"]


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    source = folder(tmp_path, "qwen3")

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(ConvertConfig(source, outfile=tmp_path / "out.gguf"), stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["qwen3"]


def test_dflash_checkpoint_without_body_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path, "dflash-zlab")
    shapes = {name: shape for name, shape in dflash_shapes().items() if "layers" not in name}
    config = json.loads((source / "config.json").read_text())
    write_checkpoint(source, config, random_tensors(shapes))
    message = refused(source, target=folder(tmp_path, "qwen3"))
    assert message.count("missing layers.") == 8
    assert message.endswith(" and 14 more")


@pytest.mark.parametrize("share", [-1, 2**31])
def test_rotary_share_beyond_one(tmp_path: Path, share: int) -> None:
    """2**31 of a head of 16 would be a table of 17 thousand million factors."""
    source = folder(tmp_path, "gemma4")
    config = json.loads((source / "config.json").read_text())
    config["text_config"]["rope_parameters"]["full_attention"]["partial_rotary_factor"] = share
    write_json(source / "config.json", config)
    assert refused(source) == f"gemma4/config.json: partial_rotary_factor is {share}, expected 0 to 1"


def mask_embedding(token: object = 310, size: int = E) -> dict[str, object]:
    return {"mask_token_id": token, "embedding": torch.zeros(size)}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([1], "expected a torch file with mask_token_id and embedding"),
        ({"embedding": torch.zeros(E)}, "expected a torch file with mask_token_id and embedding"),
        (mask_embedding(311), "mask_token_id is 311, expected that of the config (310), below 320"),
        (mask_embedding("a"), "mask_token_id is a, expected that of the config (310), below 320"),
        (mask_embedding(size=5), f"embedding is [5], expected a tensor of shape [{E}]"),
        ({"mask_token_id": 310, "embedding": 1}, f"embedding is int, expected a tensor of shape [{E}]"),
    ],
    ids=str,
)
def test_mask_embedding_that_does_not_fit(tmp_path: Path, record: object, message: str) -> None:
    source = folder(tmp_path, "dflash-zlab")
    torch.save(record, source / "mask_embedding.pt")
    assert refused(source, target=folder(tmp_path, "qwen3")) == f"dflash-zlab/mask_embedding.pt: {message}"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama", {"hidden_act": "relu"}, "activation 'relu' is not handled, expected silu or swish"),
        ("qwen3", {"hidden_act": "gelu"}, "activation 'gelu' is not handled, expected silu or swish"),
        ("llama", {"rms_norm_eps": None}, "rms_norm_eps is missing, expected a number"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "linear rope scaling without factor"),
        ("qwen3", {"rope_scaling": {"rope_type": "yarn"}}, "yarn rope scaling without factor"),
        (
            "llama",
            {
                "rope_parameters": None,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            "llama3 rope scaling needs base and factors above 0, high_freq_factor above low_freq_factor",
        ),
    ],
)
def test_what_a_file_cannot_express(tmp_path: Path, name: str, changes: dict[str, Any], message: str) -> None:
    source = folder(tmp_path, name)
    edit_config(source, **changes)
    assert refused(source) == f"{name}/config.json: {message}"


def test_unknown_rope_type_is_named(tmp_path: Path) -> None:
    source = folder(tmp_path, "llama")
    edit_config(source, rope_scaling={"rope_type": "spiral", "factor": 2.0})
    warnings = convert(ConvertConfig(source, outfile=tmp_path / "out.gguf")).warnings
    assert warnings == ("rope type 'spiral' is unknown and left out, as llama.cpp does",)


def test_activation_of_a_dflash_head_is_written(tmp_path: Path) -> None:
    source = folder(tmp_path, "dflash-zlab")
    edit_config(source, hidden_act="gelu_pytorch_tanh")
    report = convert(ConvertConfig(source, outfile=tmp_path / "out.gguf", target=folder(tmp_path, "qwen3")))
    assert report.metadata["dflash.hidden_activation"] == "gelu_pytorch_tanh"


class Canary:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04rubbish", None], ids=["empty", "rubbish", "code"])
def test_mask_embedding_that_is_no_torch_file(tmp_path: Path, content: bytes | None) -> None:
    source, target = folder(tmp_path, "dflash-zlab"), folder(tmp_path, "qwen3")
    path = source / "mask_embedding.pt"
    if content is None:
        torch.save({"mask_token_id": 310, "embedding": Canary(tmp_path / "canary")}, path)
    else:
        path.write_bytes(content)
    expected = "dflash-zlab/mask_embedding.pt: expected a torch file with mask_token_id and embedding"
    assert refused(source, target=target) == expected
    assert not (tmp_path / "canary").exists()


def test_mask_embedding_needs_the_targets_weights(tmp_path: Path) -> None:
    source, target = folder(tmp_path, "dflash-mask-embedding"), folder(tmp_path, "qwen3")
    convert(ConvertConfig(target, outfile=tmp_path / "qwen3.gguf"))
    assert refused(source, target=tmp_path / "qwen3.gguf") == (
        "dflash-mask-embedding/mask_embedding.pt: needs the target's embeddings and head | "
        "give its checkpoint directory with --target-model-dir, not a GGUF file"
    )
    (target / "model.safetensors").unlink()
    assert refused(source, target=target) == f"qwen3: no weights, expected {FORMATS}"
    write_safetensors(target / "model.safetensors", random_tensors({"model.embed_tokens.weight": (320, E)}))
    assert refused(source, target=target) == "qwen3: missing lm_head.weight, which mask_embedding.pt needs"
