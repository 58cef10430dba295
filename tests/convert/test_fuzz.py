"""Whatever a checkpoint's files hold: a conversion, or one error and nothing left behind; never a traceback."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from specli.convert import ConvertConfig, convert
from specli.convert.safetensors import open_safetensors
from specli.errors import FormatError, SpecliError
from tests.support.checkpoints import CASES

Folders = Callable[[str], tuple[Path, Path | None]]
JUNK = st.one_of(
    st.sampled_from([None, True, False, "", "x", "llama3", "</s>", [], {}, [[]], [{}], [1], ["x"], {"x": []}, 0.5]),
    st.sampled_from([0, -1, 1, 7, 2**31, 2**32, 10**30, 1e300, float("nan"), float("inf"), "\ud800"]),
    st.recursive(st.one_of(st.integers(-9, 400), st.text(max_size=3)), lambda s: st.lists(s, max_size=4), max_leaves=8),
)
LAYOUTS = ["qwen3", "llama", "gemma3", "gemma4-moe", "gpt-oss", "glm4-moe", "qwen35",
           "eagle3-angelslim", "eagle3-speculators",
           "dflash-zlab", "dflash-speculators", "dspark-deepspec"]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of a JSON tree's nodes, of long lists and objects only the first few."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, child) in enumerate(entries):
        if number < 40:
            yield from places(child, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    """A copy of the tree with one node exchanged; an exchange for `...` removes it."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = replaced(value[path[0]], path[1:], junk)
    elif junk is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = junk
    return copy


def taken_or_refused(source: Path, target: Path | None, **options: Any) -> None:
    """Converts; after an error the folder is empty, and the error is one line."""
    message, made = "", []
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = list(convert(ConvertConfig(source, outfile=Path(folder) / "x.gguf", target=target, **options)).paths)
        except SpecliError as error:
            message = str(error)
        assert list(Path(folder).iterdir()) == made
    assert "\n" not in message


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path | None]]:
    """Gives a layout's checkpoint and its target, written once."""
    root = tmp_path_factory.mktemp("layouts")

    @cache
    def written(name: str) -> tuple[Path, Path | None]:
        case = CASES[name]
        case.write(root / name)
        return root / name, None if case.target is None else written(case.target)[0]

    return written


@contextmanager
def spoilt(data: st.DataObject, path: Path) -> Iterator[None]:
    """One or two nodes of a JSON file exchanged for others while the block runs."""
    original = path.read_bytes()
    tree = json.loads(original)
    paths = list(places(tree))
    for _ in range(data.draw(st.integers(1, 2))):
        with suppress(KeyError, IndexError, TypeError):  # the first exchange took the second one's place away
            tree = replaced(tree, data.draw(st.sampled_from(paths)), data.draw(st.one_of(st.just(...), JUNK)))
    path.write_text(json.dumps(tree))
    try:
        yield
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_config(folders: Folders, name: str, data: st.DataObject) -> None:
    source, target = folders(name)
    with spoilt(data, source / "config.json"):
        taken_or_refused(source, target, mtp=CASES[name].mtp)
        taken_or_refused(source, target, vocab_only=True)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_tokenizer(folders: Folders, name: str, file: str, data: st.DataObject) -> None:
    source, target = folders(name)
    path = (source if target is None else target) / file
    if not path.exists():
        path.write_text("{}")
    with spoilt(data, path):
        taken_or_refused(source, target, vocab_only=True)


HEADER = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"format": "pt"}}
SPANS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(metadata=JUNK)
def test_metadata_is_taken_as_the_format_has_it(tmp_path_factory: pytest.TempPathFactory, metadata: Any) -> None:
    text = json.dumps({"__metadata__": metadata}).encode()
    path = tmp_path_factory.getbasetemp() / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    try:
        safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError:
        with pytest.raises(FormatError):
            open_safetensors(path)
    else:
        open_safetensors(path)[0].close()


@settings(max_examples=300, deadline=None)
@given(spans=SPANS, n_data=st.integers(0, 4))
def test_offsets_are_taken_as_the_format_has_it(
    tmp_path_factory: pytest.TempPathFactory, spans: list[list[int]], n_data: int
) -> None:
    """Gaps, overlaps, order, rest: what the format's own library refuses is refused, and nothing else."""
    header = {
        name: {"dtype": "U8", "shape": [b - a], "data_offsets": [a, b]}
        for name, (a, b) in zip("abc", spans, strict=False)
    }
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(range(n_data))
    path = tmp_path_factory.getbasetemp() / "z.safetensors"
    path.write_bytes(content)
    try:
        expected = {name: bytes(entry["data"]) for name, entry in safetensors.deserialize(content)}
    except safetensors.SafetensorError:
        with pytest.raises(FormatError):
            open_safetensors(path)
        return
    file, tensors = open_safetensors(path)
    assert {name: tensor.all().tobytes() for name, tensor in tensors.items()} == expected
    file.close()


def open_or_refuse(path: Path) -> None:
    """Header, then every value: both may be refused, nothing else may happen."""
    with suppress(FormatError):
        file, tensors = open_safetensors(path)
        try:
            for tensor in tensors.values():
                assert tensor.n_elements <= 24
                if tensor.n_elements:
                    tensor.all()
        finally:
            file.close()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_safetensors_header(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "x.safetensors"
    tree = replaced(HEADER, data.draw(st.sampled_from(list(places(HEADER)))), data.draw(JUNK))
    text = json.dumps(tree).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))
    open_or_refuse(path)


@settings(max_examples=100, deadline=None)
@given(start=st.binary(max_size=40), n=st.integers(0, 2**64 - 1) | st.integers(0, 60), cut=st.integers(0, 140))
def test_any_safetensors_bytes(tmp_path_factory: pytest.TempPathFactory, start: bytes, n: int, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "y.safetensors"
    for content in (start, n.to_bytes(8, "little") + start, (b"[" * 100_000 if n % 7 == 0 else start) + bytes(24)):
        path.write_bytes(content)
        open_or_refuse(path)
    text = json.dumps(HEADER).encode()
    path.write_bytes((len(text).to_bytes(8, "little") + text + bytes(24))[:cut])
    open_or_refuse(path)
