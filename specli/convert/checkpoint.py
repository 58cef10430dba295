"""A checkpoint directory: config.json and an index of every tensor, in the order llama.cpp's converter visits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from types import TracebackType

from specli.convert.lazy import LazyTensor
from specli.convert.pickled import open_pickled
from specli.convert.safetensors import TensorFile, open_safetensors
from specli.convert.values import Values, load_object
from specli.errors import FormatError, UnsupportedError, listed
from specli.files import is_there
from specli.gguf.metadata import show

Opener = Callable[[Path], tuple[TensorFile, dict[str, LazyTensor]]]

# first glob pattern, index file, reader: safetensors wins over pickles
_FORMATS: tuple[tuple[str, str, Opener], ...] = (
    ("model*.safetensors", "model.safetensors.index.json", open_safetensors),
    ("pytorch_model*.bin", "pytorch_model.bin.index.json", open_pickled),
    ("medusa_lm_head.safetensors", "medusa_lm_head.safetensors.index.json", open_safetensors),
    ("medusa_lm_head.pt", "medusa_lm_head.pt.index.json", open_pickled),
)


class Checkpoint:
    """Config and lazily read tensors of one directory. A context manager: leaving it closes the files.

    Args:
        directory: Holds config.json and the weights.
        config: Parsed config.json.
        tensors: Name to tensor, in visiting order.
        files: Open tensor files.
    """

    def __init__(
        self, directory: Path, config: Values, tensors: dict[str, LazyTensor], files: Iterable[TensorFile] = ()
    ) -> None:
        self.directory = directory
        self.config = config
        self.tensors = tensors
        self._files = tuple(files)

    @classmethod
    def open(cls, directory: Path, *, weights: bool = True, weights_needed: bool = True) -> Checkpoint:
        """Reads config.json and the headers of all weight files.

        Args:
            directory: Checkpoint directory.
            weights: Whether to look at weights at all.
            weights_needed: Whether it is an error when there are none.

        Raises:
            FormatError: Something is missing, truncated or inconsistent.
        """
        config = Values(_find_config(directory), load_object(_find_config(directory)))
        if not weights:
            return cls(directory, config, {})
        parts, index, reader = _find_parts(directory)
        if not parts and weights_needed:
            patterns = " or ".join(pattern for pattern, _, _ in _FORMATS)
            raise FormatError(f"{directory}: no weights, expected {patterns}")
        files: list[TensorFile] = []
        tensors: dict[str, LazyTensor] = {}
        for part in parts:
            file, found = reader(part)
            files.append(file)
            for name in found.keys() & tensors.keys():
                raise FormatError(f"{part}: tensor {name!r} is already in another file of {directory}")
            tensors.update(found)
        if index is not None:
            _check_index(index[0], index[1], tensors)
        return cls(directory, config, tensors, files)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


def _find_config(directory: Path) -> Path:
    path = directory / "config.json"
    if is_there(path):
        return path
    inside = sorted(str(p.relative_to(directory)) for p in directory.glob("*/config.json"))
    if len(inside) > 1:
        raise FormatError(f"{directory}: no config.json, but {len(inside)} candidates inside: {listed(inside)}")
    hint = f"convert {directory / inside[0]} instead".replace("/config.json", "") if inside else None
    if (directory / "params.json").is_file():
        raise UnsupportedError(f"{directory}: params.json without config.json is Mistral's own format, not handled")
    raise FormatError(f"{directory}: no config.json", hint=hint)


def _find_parts(directory: Path) -> tuple[list[Path], tuple[Path, dict[str, str]] | None, Opener]:
    """Weight files in order, the weight map if there is one, and the reader for the format."""
    for pattern, index_name, reader in _FORMATS:
        index = directory / index_name
        if is_there(index):
            weight_map = load_object(index).get("weight_map")
            if not isinstance(weight_map, dict) or not all(isinstance(part, str) for part in weight_map.values()):
                raise FormatError(f"{index}: weight_map is missing, expected tensor names with their files")
            names = sorted(set(weight_map.values()))
            outside = [name for name in names if PurePath(name).name != name]
            if outside:
                raise FormatError(
                    f"{index}: weight files outside the folder: {listed([show(name) for name in outside])}"
                )
            missing = [name for name in names if not is_there(directory / name)]
            if missing:
                raise FormatError(f"{index}: missing weight files: {listed(missing)}")
            return [directory / name for name in names], (index, weight_map), reader
        parts = sorted(part for part in directory.glob(pattern) if is_there(part))
        if parts:
            return parts, None, reader
    return [], None, open_safetensors


def _check_index(index: Path, weight_map: dict[str, str], tensors: dict[str, LazyTensor]) -> None:
    missing = sorted(weight_map.keys() - tensors.keys())
    extra = sorted(tensors.keys() - weight_map.keys())
    if missing:
        raise FormatError(f"{index}: {len(missing)} tensors are in no weight file: {listed(missing)}")
    if extra:
        raise FormatError(f"{index}: {len(extra)} tensors of the weight files are not listed: {listed(extra)}")
