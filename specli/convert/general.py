"""`general.*` keys and default file names, by the `gguf` package's own rules for model cards and directory names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import yaml  # type: ignore[import-untyped]

from specli.convert.keys import KeyValues
from specli.convert.outtype import Outtype
from specli.convert.plan import PlannedTensor
from specli.convert.records import ConvertConfig
from specli.convert.special import optional_object
from specli.convert.values import load_object
from specli.errors import FormatError, UsageError
from specli.files import is_there, read_text, user_path

# generation_config.json name, key under general.sampling., kind (gguf-py/gguf/metadata.py, `Metadata.load`)
_SAMPLING: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("sequence",), "sequence", "str"),
    (("top_k",), "top_k", "i32"),
    (("top_p",), "top_p", "f32"),
    (("min_p",), "min_p", "f32"),
    (("xtc_probability",), "xtc_probability", "f32"),
    (("xtc_threshold",), "xtc_threshold", "f32"),
    (("temperature",), "temp", "f32"),
    (("penalty_last_n",), "penalty_last_n", "i32"),
    (("penalty_repeat", "repetition_penalty"), "penalty_repeat", "f32"),
    (("mirostat",), "mirostat", "i32"),
    (("mirostat_tau",), "mirostat_tau", "f32"),
    (("mirostat_eta",), "mirostat_eta", "f32"),
)

# attribute of gguf.Metadata, key under general.
_AUTHORSHIP = (
    "name", "author", "version", "organization", "finetune", "basename", "description", "quantized_by", "size_label",
)  # fmt: skip
_LICENCE = (("license", "license"), ("license_name", "license.name"), ("license_link", "license.link"))
_LINKS = (
    ("url", "url"), ("doi", "doi"), ("uuid", "uuid"), ("repo_url", "repo_url"), ("source_url", "source.url"),
    ("source_doi", "source.doi"), ("source_uuid", "source.uuid"), ("source_repo_url", "source.repo_url"),
)  # fmt: skip
_TEXTS = (*((name, name) for name in _AUTHORSHIP), *_LICENCE, *_LINKS)
_LISTS = (("base_models", "base_models"), ("datasets", "datasets"), ("tags", "tags"), ("languages", "languages"))
_ORIGIN_FIELDS = ("name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url")

_MAX_FRONT_MATTER = 1 << 20  # characters


class General:
    """Authorship and naming of one conversion.

    Args:
        request: For the overrides.
        directory: Checkpoint directory.
        tensors: For the parameter count.
    """

    def __init__(self, request: ConvertConfig, directory: Path, tensors: Iterable[PlannedTensor]) -> None:
        if request.metadata is not None and not is_there(request.metadata):
            raise UsageError(f"{request.metadata}: no such file")
        self._override = {} if request.metadata is None else load_object(request.metadata)
        self._sampling = optional_object(directory / "generation_config.json") or {}
        total, shared, expert, n_experts = count_parameters(tensors)
        self._found = _authorship(directory, total)
        for name, suffix in (*_TEXTS, *_LISTS):
            value = self._override.get(f"general.{suffix}")
            if value is not None:
                setattr(self._found, name, value)
        if request.model_name is not None:
            self._found.name = request.model_name
        _check_kinds(self._found, directory if request.metadata is None else request.metadata)
        if request.remote or not user_path(request.source).is_dir():  # a snapshot's directory is named by its revision
            self._found.name = str(request.source)
        if self._found.name is None:
            self._found.name = directory.resolve().name
        if self._found.size_label is None and total > 0:
            self._found.size_label = gguf.size_label(total, shared, expert, n_experts)

    def keys(self) -> KeyValues:
        """`general.*` keys in llama.cpp's order."""
        keys = KeyValues()
        keys.add("general.type", "str", "model")
        for names, suffix, kind in _SAMPLING:
            value = next((self._sampling[name] for name in names if name in self._sampling), None)
            value = self._override.get(f"general.sampling.{suffix}", value)
            keys.add(f"general.sampling.{suffix}", kind, value)
        for name in _AUTHORSHIP:
            keys.add(f"general.{name}", "str", self._text(name))
        for name, suffix in (*_LICENCE, *_LINKS):
            keys.add(f"general.{suffix}", "str", self._text(name))
        self._add_origins(keys, "base_model", self._found.base_models)
        self._add_origins(keys, "dataset", self._found.datasets)
        keys.add("general.tags", "[str]", self._found.tags)
        keys.add("general.languages", "[str]", self._found.languages)
        return keys

    def _text(self, name: str) -> str | None:
        value = getattr(self._found, name)
        if isinstance(value, list):  # several licences
            value = ",".join(map(str, value))
        return None if value is None else str(value)

    def _add_origins(self, keys: KeyValues, kind: str, origins: list[dict[str, Any]] | None) -> None:
        if not origins:
            return
        keys.add(f"general.{kind}.count", "u32", len(origins))
        for number, origin in enumerate(origins):
            for field in _ORIGIN_FIELDS:
                if field in origin:
                    keys.add(f"general.{kind}.{number}.{field}", "str", str(origin[field]))

    def file_name(self, outtype: Outtype, *, vocab_only: bool, mtp_only: bool) -> str:
        """Default name: base, size, finetune, version and type, as far as they are known."""
        found = self._found
        size = None if vocab_only or mtp_only else found.size_label
        name = gguf.naming_convention(
            found.name, found.basename, found.finetune, found.version, size,
            None if vocab_only else outtype.label, "vocab" if vocab_only else None,
        )  # fmt: skip
        return f"{'mtp-' if mtp_only else ''}{name}.gguf"


def _authorship(directory: Path, n_parameters: int) -> gguf.Metadata:
    """What the model card, config.json and the directory's name say."""
    card, config = front_matter(directory / "README.md"), optional_object(directory / "config.json")
    try:
        return gguf.Metadata.apply_metadata_heuristic(gguf.Metadata(), card, config, directory, n_parameters)
    except (AttributeError, TypeError, ValueError, LookupError) as error:  # of values that are no texts
        raise FormatError(f"{directory}: authorship in README.md or config.json is not understood: {error}") from None


def front_matter(path: Path) -> dict[str, Any]:
    """The YAML between the first two `---` lines of a model card, repaired as llama.cpp does; empty without one.

    Raises:
        FormatError: The lines are not YAML, or use aliases, which could expand to more than fits into memory.
    """
    lines = read_text(path, encoding="utf-8-sig").splitlines() if is_there(path) else []
    if not lines or lines[0] != "---":
        return {}
    end = lines.index("---", 1) if "---" in lines[1:] else len(lines)
    text = "".join(f"{line}\n" for line in lines[1:end]).replace("- no\n", '- "no"\n').replace("\t", "  ")
    try:
        if len(text) > _MAX_FRONT_MATTER or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise FormatError(f"{path}: front matter has aliases or more than {_MAX_FRONT_MATTER} characters")
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        reason = " ".join(str(error).split())
        raise FormatError(f"{path}: front matter is not YAML: {reason}") from None
    return found if isinstance(found, dict) else {}


def _check_kinds(found: gguf.Metadata, path: Path) -> None:
    """Makes texts of numbers and dates, and refuses what is neither text nor list where it should be.

    Raises:
        FormatError: A field that should be a list is something else, or an entry of a list has the wrong kind.
    """
    for name, _ in _TEXTS:
        value = getattr(found, name)
        if isinstance(value, dict):
            raise FormatError(f"{path}: {name} of the model is an object, expected a text")
        if value is not None and not isinstance(value, str | list):
            setattr(found, name, str(value))
        elif isinstance(value, list) and name != "license":
            raise FormatError(f"{path}: {name} of the model is a list, expected a text")
    for name, _ in _LISTS:
        value, is_record = getattr(found, name), name in ("base_models", "datasets")
        if value is None:
            continue
        if not isinstance(value, list) or any(isinstance(item, dict | list) is not is_record for item in value):
            expected = "objects" if is_record else "texts"
            raise FormatError(f"{path}: {name} of the model are not understood, expected a list of {expected}")
        setattr(found, name, value if is_record else [str(item) for item in value])


def count_parameters(tensors: Iterable[PlannedTensor]) -> tuple[int, int, int, int]:
    """Parameters in all, outside experts, of one expert, and experts per stack, as size labels count them.

    Stacks are told by name (`_exps.`) and at least three axes, so stacked biases count as shared (gguf_writer.py,
    `get_total_parameter_count`).
    """
    total = shared = expert = n_experts = n_stacks = 0
    for tensor in tensors:
        size = tensor.values.n_elements
        total += size
        if "_exps." in tensor.name and len(tensor.shape) >= 3:
            expert += size // tensor.shape[-3]
            n_experts += tensor.shape[-3]
            n_stacks += 1
        else:
            shared += size
    return total, shared, expert, n_experts // n_stacks if n_stacks else 0
