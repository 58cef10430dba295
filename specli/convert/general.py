"""`general.*` keys and default file names, by the `gguf` package's own rules for model cards and directory names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import yaml  # type: ignore[import-untyped]

from specli.convert.config import ConvertConfig
from specli.convert.keys import Keys
from specli.convert.outtype import Outtype
from specli.convert.plan import PlannedTensor
from specli.convert.special import optional_object
from specli.convert.values import load_object
from specli.errors import FormatError, UsageError

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
_ORIGIN_FIELDS = ("name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url")


class General:
    """Authorship and naming of one conversion.

    Args:
        request: For the overrides.
        directory: Checkpoint directory.
        tensors: For the parameter count.
    """

    def __init__(self, request: ConvertConfig, directory: Path, tensors: Iterable[PlannedTensor]) -> None:
        if request.metadata is not None:
            if not request.metadata.is_file():
                raise UsageError(f"{request.metadata}: no such file")
            self._override = load_object(request.metadata)
        else:
            self._override = {}
        self._sampling = optional_object(directory / "generation_config.json") or {}
        total, shared, expert, n_experts = count_parameters(tensors)
        try:
            self._found = gguf.Metadata.load(request.metadata, directory, request.model_name, total)
        except yaml.YAMLError as error:
            raise FormatError(f"{directory / 'README.md'}: front matter is not YAML: {error}") from None
        if request.remote or not Path(request.source).is_dir():  # a snapshot's directory is named by its revision
            self._found.name = str(request.source)
        if self._found.name is None:
            self._found.name = directory.resolve().name
        if self._found.size_label is None and total > 0:
            self._found.size_label = gguf.size_label(total, shared, expert, n_experts)

    def keys(self) -> Keys:
        """`general.*` keys in upstream's order."""
        keys = Keys()
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

    def _add_origins(self, keys: Keys, kind: str, origins: list[dict[str, Any]] | None) -> None:
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
