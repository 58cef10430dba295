"""The files of Hugging Face checkpoints, written without transformers: config, safetensors, tokenizers.

Values are random but reproducible: every tensor is seeded by its name.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

V = 320  # vocabulary


@dataclass(frozen=True)
class Stored:
    """Bytes of one tensor with its safetensors dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def bf16(values: np.ndarray) -> Stored:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return Stored("BF16", values.shape, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes())


def stored(values: np.ndarray, dtype: str) -> Stored:
    kinds = {"F16": "<f2", "F32": "<f4", "I64": "<i8", "I32": "<i4", "BOOL": "u1", "U8": "u1", "F8_E4M3": "u1"}
    return Stored(dtype, values.shape, values.astype(kinds[dtype]).tobytes())


def random_values(name: str, shape: tuple[int, ...], scale: float = 0.02) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = rng.standard_normal(shape).astype(np.float32)
    return 1 + 0.1 * values if name.endswith("norm.weight") or "scalar" in name else scale * values


def random_tensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, Stored]:
    encode = bf16 if dtype == "BF16" else lambda values: stored(values, dtype)
    return {name: encode(random_values(name, shape)) for name, shape in shapes.items()}


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.data)


def read_safetensors(path: Path) -> dict[str, Stored]:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        first, last = entry["data_offsets"]
        tensors[name] = Stored(entry["dtype"], tuple(entry["shape"]), content[start + first : start + last])
    return tensors


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_checkpoint(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Stored]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


SPECIALS = ("<unk>", "<s>", "</s>")


def byte_texts() -> list[str]:
    """The visible characters byte-level BPE writes bytes 0…255 as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def write_bpe_tokenizer(directory: Path, extra: tuple[str, ...] = ()) -> None:
    """Byte-level BPE: special tokens, 256 bytes, a few merges, further added tokens."""
    directory.mkdir(parents=True, exist_ok=True)
    merges = [("t", "h"), ("i", "n"), ("a", "n"), ("\u0120", "th"), ("e", "r")]
    vocabulary = [*byte_texts(), *("".join(pair) for pair in merges)]
    ids = {text: number for number, text in enumerate(vocabulary, len(SPECIALS))}
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, text in [*enumerate(SPECIALS), *enumerate(extra, len(SPECIALS) + len(vocabulary))]
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": level, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {**{text: number for number, text in enumerate(SPECIALS)}, **ids},
            "merges": [list(pair) for pair in merges],
        },
    }  # fmt: skip
    write_json(directory / "tokenizer.json", tokenizer)
    write_tokenizer_config(directory)


def write_fallback_tokenizer(directory: Path, extra: tuple[str, ...] = ()) -> None:
    """Byte-fallback BPE, as Gemma 4 and Llama 2 ship it in tokenizer.json."""
    directory.mkdir(parents=True, exist_ok=True)
    merges = [("t", "h"), ("i", "n"), ("\u2581", "th")]
    letters = [chr(c) for c in range(97, 123)] + ["\u2581"]
    texts = [*SPECIALS, *(f"<0x{b:02X}>" for b in range(256)), *letters, *("".join(pair) for pair in merges)]
    texts += [chr(0x4E00 + number) for number in range(V - len(texts) - len(extra))]
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": text in SPECIALS}
        for number, text in [*enumerate(SPECIALS), *enumerate(extra, len(texts))]
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(texts)}, "merges": [list(pair) for pair in merges],
        },
    }  # fmt: skip
    write_json(directory / "tokenizer.json", tokenizer)
    write_tokenizer_config(directory)


def write_sentencepiece_tokenizer(directory: Path) -> None:
    """A SentencePiece model with byte pieces and letters."""
    directory.mkdir(parents=True, exist_ok=True)
    normal, unknown, control, byte_piece = 1, 2, 3, 6
    pieces = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control)]
    pieces += [(f"<0x{byte:02X}>", 0.0, byte_piece) for byte in range(256)]
    pieces += [
        (text, -float(rank), normal) for rank, text in enumerate(["\u2581t", "he", "in", "\u2581", *"etaoinshrdlu"])
    ]
    data = b"".join(_field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))
                    for text, score, kind in pieces)  # fmt: skip
    trainer = bytes([0x18, 2]) + b"\x98\x02\x01"  # model_type = BPE, byte_fallback = true
    (directory / "tokenizer.model").write_bytes(data + _field(2, trainer) + _field(3, _field(1, b"identity")))
    write_tokenizer_config(directory)


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field; the model's schema is sentencepiece_model.proto."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def write_tokenizer_config(directory: Path) -> None:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}", "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    write_json(directory / "tokenizer_config.json", config)
