"""Downloads against a hub on this machine: choice of files, cache, resuming, and a hub that lies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specli.cli import main
from specli.cli.hub import bit_width, choose_model, choose_side_file, has_tag, is_model
from specli.cli.options.request import SourceConfig
from specli.cli.sources import resolve_draft, resolve_target
from specli.convert import ConvertConfig, convert
from specli.errors import FormatError, ResourceError, SpecliError, UsageError
from specli.gguf.file import GGUFFile
from specli.hub import cache_root, endpoint, is_repository, may_have_token, safe_name
from tests.cli.fake_hub import COMMIT, FakeHub, running
from tests.support.checkpoints import CASES

FILES = (
    "README.md", "T-Q2_K.gguf", "T-Q4_K_M.gguf", "T-Q8_0.gguf", "big/T-BF16-00001-of-00002.gguf",
    "big/T-BF16-00002-of-00002.gguf", "mmproj-T-F16.gguf", "mtp-T-Q8_0.gguf", "eagle3-T-Q4_K_M.gguf",
    "eagle3-T-BF16.gguf", "dflash-T-BF16.gguf",
)  # fmt: skip


@pytest.fixture
def hub(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one repository; the cache is empty."""
    for name in (
        "LLAMA_CACHE",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "XDG_CACHE_HOME",
        "MODEL_ENDPOINT",
        "HF_HUB_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(workdir / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    heads = ("T-EAGLE3-BF16.gguf", "T-EAGLE3-Q8_0.gguf")
    repos = {"user/model": FILES, "user/heads": heads}
    hub = FakeHub({
        repo: {name: f"content of {name} ".encode() * 400 for name in names} for repo, names in repos.items()
    })  # fmt: skip
    with running(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def source(**values: object) -> SourceConfig:
    return SourceConfig(**{"hf_repo": "user/model", **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("repo", "file"),
    [
        ("user/model", "T-Q4_K_M.gguf"),
        ("user/model:Q8_0", "T-Q8_0.gguf"),
        ("user/model:q2_k", "T-Q2_K.gguf"),
        ("user/model:BF16", "big/T-BF16-00001-of-00002.gguf"),
    ],
)
def test_quant_tag_chooses_the_file(hub: FakeHub, repo: str, file: str) -> None:
    path = resolve_target(source(hf_repo=repo))
    assert path.as_posix().endswith(f"hf/hub/models--user--model/snapshots/{COMMIT}/{file}")
    assert path.read_bytes() == hub.repos["user/model"][file]
    assert path.is_symlink()


def test_cached_models_are_listed_as_hf_names_them(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    for repo in ("user/model", "user/model:q2_k", "user/model:BF16"):
        resolve_target(source(hf_repo=repo))
    resolve_draft(source(), ("draft-eagle3",))
    assert main(["generate", "--cache-list"]) == 0
    tags = ("BF16", "Q2_K", "Q4_K_M")
    lines = [f"   {number}. user/model:{tag}" for number, tag in enumerate(tags, 1)]
    assert capsys.readouterr().out.splitlines() == ["number of models in cache: 3", *lines]


def test_cache_list_of_an_empty_cache(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "-cl"]) == 0
    assert capsys.readouterr().out == "number of models in cache: 0\n"


def test_all_parts_of_a_split_model_are_fetched(hub: FakeHub) -> None:
    path = resolve_target(source(hf_repo="user/model:BF16"))
    assert path.with_name("T-BF16-00002-of-00002.gguf").exists()
    del hub.repos["user/model"]["big/T-BF16-00002-of-00002.gguf"]
    with pytest.raises(FormatError, match=r"big/T-BF16-00002-of-00002.gguf is missing"):
        resolve_target(source(hf_repo="user/model:BF16"))


def test_named_file_beats_the_tag(hub: FakeHub) -> None:
    assert resolve_target(source(hf_repo="user/model:Q8_0", hf_file="T-Q2_K.gguf")).name == "T-Q2_K.gguf"
    with pytest.raises(UsageError, match=r"^file 'x.gguf' not found in repository$"):
        resolve_target(source(hf_file="x.gguf"))


@pytest.mark.parametrize(
    ("values", "types", "file"),
    [
        ({}, ("draft-eagle3",), "eagle3-T-Q4_K_M.gguf"),
        ({"hf_repo": "user/model:BF16"}, ("draft-eagle3",), "eagle3-T-BF16.gguf"),
        ({}, ("draft-dflash", "ngram-mod"), "dflash-T-BF16.gguf"),
        ({}, ("draft-dspark",), None),
        ({}, ("ngram-mod",), None),
        ({"hf_repo": None, "draft_hf_repo": "user/model"}, (), "mtp-T-Q8_0.gguf"),
        ({"hf_repo": None, "draft_hf_repo": "user/model"}, ("draft-dflash",), "dflash-T-BF16.gguf"),
        ({"hf_repo": None, "draft_hf_repo": "user/heads"}, (), "T-EAGLE3-Q8_0.gguf"),
        ({"hf_repo": None, "draft_hf_repo": "user/heads:BF16"}, ("draft-eagle3",), "T-EAGLE3-BF16.gguf"),
        ({"hf_repo": None, "draft_hf_repo": "user/model:Q2_K"}, ("draft-simple",), "T-Q2_K.gguf"),
        ({"hf_repo": None, "draft_hf_repo": "user/model", "draft_model": "T-Q8_0.gguf"}, (), "T-Q8_0.gguf"),
    ],
)  # fmt: skip
def test_drafter_of_a_repository(
    hub: FakeHub, values: dict[str, str], types: tuple[str, ...], file: str | None
) -> None:
    path = resolve_draft(source(**values), types)
    assert (path.name if path else None) == file


def test_second_run_needs_neither_download_nor_network(hub: FakeHub) -> None:
    first = resolve_target(source())
    hub.requests.clear()
    assert resolve_target(source()) == first
    assert hub.paths("/resolve/") == []
    hub.requests.clear()
    assert resolve_target(source(offline=True)) == first
    assert hub.requests == []


def test_hub_that_does_not_answer_leaves_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_target(source())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert resolve_target(source()) == first


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"offline": True}, "user/model: not in the cache"),
        ({"hf_repo": "user/other"}, "user/other: not in the cache"),
        ({"hf_repo": "user/model:Q3_K"}, "no GGUF files found in repository user/model:Q3_K"),
        ({"model": "x.gguf"}, "--model and --hf-repo exclude each other"),
        ({"hf_repo": None, "hf_file": "x.gguf"}, "--hf-file needs --hf-repo"),
    ],
)
def test_errors(hub: FakeHub, values: dict[str, object], message: str) -> None:
    with pytest.raises(SpecliError) as caught:
        resolve_target(source(**values))
    assert str(caught.value).startswith(message)


def test_broken_download_is_resumed_and_never_has_the_final_name(
    hub: FakeHub, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after 4000 bytes and stays down; the next process asks for the rest only."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    content = hub.repos["user/model"]["T-Q4_K_M.gguf"]
    hub.cut_after, hub.downs_after_cut = 4000, True
    with pytest.raises(ResourceError, match="download failed"):
        resolve_target(source())
    blobs = workdir / "hf/hub/models--user--model/blobs"
    [partial] = blobs.glob("*.incomplete")
    assert partial.stat().st_size == 4000
    assert not list(workdir.glob("hf/hub/models--user--model/snapshots/*/*.gguf"))
    hub.cut_after, hub.is_down = None, False
    hub.requests.clear()
    assert resolve_target(source()).read_bytes() == content
    ranges = [head.get("range") or head.get("Range") for kind, _, head in hub.requests if kind == "GET"]
    assert "bytes=4000-" in ranges
    assert not list(blobs.glob("*.incomplete"))


def test_damaged_download_is_found_by_its_sum_and_removed(hub: FakeHub, workdir: Path) -> None:
    hub.lies.add("T-Q4_K_M.gguf")
    with pytest.raises(FormatError, match=r"T-Q4_K_M.gguf: the download is damaged"):
        resolve_target(source())
    assert not [path for path in (workdir / "hf").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    hub.lies.clear()
    assert resolve_target(source()).read_bytes() == hub.repos["user/model"]["T-Q4_K_M.gguf"]


@pytest.mark.parametrize("name", ["../../x.gguf", "/abs/x.gguf", "a/../../x.gguf", "c:\\x.gguf", "..\\x.gguf"])
def test_name_that_leads_out_of_the_cache_is_refused(hub: FakeHub, workdir: Path, name: str) -> None:
    hub.repos["user/model"][name] = b"evil"
    with pytest.raises(FormatError, match="leads out of the cache"):
        resolve_target(source())
    assert hub.paths("/resolve/") == []
    with pytest.raises(FormatError):
        safe_name(name, "user/model")


def test_token_goes_with_downloads(hub: FakeHub) -> None:
    resolve_target(source(hf_token="secret"))
    tokens = {
        ("/resolve/" in path, head.get("authorization") or head.get("Authorization")) for _, path, head in hub.requests
    }
    assert tokens == {(True, "Bearer secret"), (False, None)}
    hub.requests.clear()
    good = "hf_" + "a" * 34
    resolve_target(source(hf_repo="user/model:Q8_0", hf_token=good))
    assert {head.get("authorization") or head.get("Authorization") for _, _, head in hub.requests} == {f"Bearer {good}"}


@pytest.mark.parametrize("is_mirror", [False, True])
def test_token_stays_with_the_hub(hub: FakeHub, is_mirror: bool) -> None:
    """A download is redirected to another host, directly or by way of one more address of the hub itself."""
    storage = FakeHub(hub.repos)
    with running(storage):
        hub.storage = storage.url
        if is_mirror:
            relay = FakeHub(hub.repos, storage=storage.url)
            with running(relay):
                hub.storage = relay.url
                path = resolve_target(source(hf_token="hf_" + "a" * 34))
            assert not authorizations(relay)
        else:
            path = resolve_target(source(hf_token="hf_" + "a" * 34))
    assert path.read_bytes() == hub.repos["user/model"]["T-Q4_K_M.gguf"]
    assert storage.paths("/resolve/")
    assert not authorizations(storage)
    assert authorizations(hub) == {"Bearer hf_" + "a" * 34}


def authorizations(hub: FakeHub) -> set[str]:
    found = (head.get("authorization") or head.get("Authorization") for _, _, head in hub.requests)
    return {value for value in found if value}


@pytest.mark.parametrize(
    ("location", "may"),
    [
        ("https://mirror.example/x", True),
        ("http://mirror.example/x", False),
        ("https://mirror.example:444/x", False),
        ("https://mirror.example.org/x", False),
        ("https://user@mirror.example/x", False),
        ("https://huggingface.co/x", True),
        ("http://huggingface.co/x", False),
        ("https://huggingface.co.example/x", False),
        ("https://cdn-lfs.example/x", False),
    ],
)
def test_where_a_token_may_go(location: str, may: bool) -> None:
    assert may_have_token("https://mirror.example/user/model/resolve/main/x", location) is may


@pytest.mark.parametrize(
    "name", ["a", "a b/c", "../b", "a/..", "a/b/c", "a/b.git", "a/" + "b" * 100, "a--b/c", "a/b\n", "/b", "a/", "~/b"]
)
def test_bad_repository_name(hub: FakeHub, name: str, workdir: Path) -> None:
    assert not is_repository(name)
    with pytest.raises(UsageError, match="is no name of a Hugging Face repository"):
        resolve_target(source(hf_repo=name))
    with pytest.raises(UsageError, match="is no name of a Hugging Face repository"):
        convert(ConvertConfig(name, remote=True))
    assert hub.requests == []


def put_checkpoint(hub: FakeHub, name: str, folder: Path, case: str) -> None:
    CASES[case].write(folder)
    hub.repos[name] = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_checkpoint_of_a_repository(hub: FakeHub, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache, endpoint and token are those of the other commands; offline the same files are found again."""
    put_checkpoint(hub, "me/draft", workdir / "draft", "dflash-mask-embedding")
    put_checkpoint(hub, "me/target", workdir / "target", "qwen3")
    unwanted = {
        "original/model.safetensors": b"x",
        "pytorch_model.bin": b"x",
        "model.onnx": b"x",
        "sub/config.json": b"",
    }
    hub.repos["me/target"] |= unwanted
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.setenv("MODEL_ENDPOINT", hub.url + "/")
    monkeypatch.setenv("LLAMA_CACHE", str(workdir / "cache"))
    monkeypatch.chdir(workdir)
    assert main(["convert", "--remote", "me/target", "-hft", "secret", "--outtype", "f32"]) == 0
    assert Path("me-target-f32.gguf").exists()
    assert authorizations(hub) == {"Bearer secret"}
    fetched = {path.rpartition("/")[2] for path in hub.paths("/resolve/")}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"}
    snapshot = workdir / f"cache/models--me--target/snapshots/{COMMIT}"
    assert {path.name for path in snapshot.iterdir()} == fetched

    arguments = ["convert", "me/draft", "--target-model-dir", "me/target"]
    assert main(arguments) == 0
    made = Path("me-draft-bf16.gguf").read_bytes()
    convert(ConvertConfig(workdir / "draft", outfile=Path("x.gguf"), target=workdir / "target", model_name="me/draft"))
    assert GGUFFile.open("me-draft-bf16.gguf").tensors.keys() == GGUFFile.open("x.gguf").tensors.keys()
    assert "token_embd.weight" in GGUFFile.open("x.gguf").tensors  # mask_embedding.pt was fetched, too
    hub.requests.clear()
    assert main([*arguments, "--offline"]) == 0
    assert hub.requests == []
    assert Path("me-draft-bf16.gguf").read_bytes() == made


@pytest.mark.parametrize(
    ("name", "offline", "message"),
    [
        ("me/none", False, "me/none: not in the cache"),
        ("me/none", True, "me/none: not in the cache"),
        ("user/model", False, "user/model: no checkpoint, the repository has no config.json"),
    ],
)
def test_no_checkpoint(hub: FakeHub, name: str, offline: bool, message: str) -> None:
    with pytest.raises(SpecliError, match=f"^{message}"):
        convert(ConvertConfig(name, offline=offline))


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "/f"}, "/f/hub"),
        ({"HF_HOME": "/f", "HUGGINGFACE_HUB_CACHE": "/c"}, "/c"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HUB_CACHE": "/d"}, "/d"),
        ({"HF_HUB_CACHE": "/d", "LLAMA_CACHE": "/l"}, "/l"),
        ({"HOME": "/h", "LLAMA_CACHE": ""}, "/h/.cache/huggingface/hub"),
    ],
)
def test_cache_root(environ: dict[str, str], root: str) -> None:
    assert cache_root(environ) == Path(root)


def test_endpoint() -> None:
    assert endpoint({}) == "https://huggingface.co"
    assert endpoint({"HF_ENDPOINT": "http://a/"}) == "http://a"
    assert endpoint({"HF_ENDPOINT": "http://a/", "MODEL_ENDPOINT": "http://b"}) == "http://b"


def test_tag_is_a_word_of_the_name() -> None:
    assert has_tag("T-Q6_K.gguf", "Q6_K")
    assert has_tag("T.Q6_K.gguf", "q6_k")
    assert has_tag("Q6_K/T-00001-of-00002.gguf", "Q6_K")
    assert not has_tag("T-Q6_K_L.gguf", "Q6_K")
    assert not has_tag("T-IQ4_XS.gguf", "Q4_XS")
    assert has_tag("T-COMPACT.gguf", "COMPACT")
    assert not has_tag("T-I-COMPACT.gguf", "COMPACT")
    with pytest.raises(UsageError, match=r"several files have the tag Q6_K: a/T-Q6_K.gguf, b/T-Q6_K.gguf"):
        choose_model(["a/T-Q6_K.gguf", "b/T-Q6_K.gguf"], "user/model", "Q6_K")


def test_side_files_and_later_parts_are_no_models() -> None:
    assert [name for name in FILES if is_model(name)] == [
        "T-Q2_K.gguf", "T-Q4_K_M.gguf", "T-Q8_0.gguf", "big/T-BF16-00001-of-00002.gguf",
    ]  # fmt: skip


def test_side_file_lies_beside_the_model_or_above_it() -> None:
    files = ["mtp-a-Q8_0.gguf", "q4/mtp-b-BF16.gguf", "q4/mtp-b-Q5_K.gguf", "other/mtp-c-Q4_K_M.gguf"]
    assert choose_side_file(files, "draft-mtp", "q4/T-Q4_K_M.gguf", None) == "q4/mtp-b-Q5_K.gguf"
    assert choose_side_file(files, "draft-mtp", "q4/T-Q4_K_M.gguf", "BF16") == "q4/mtp-b-BF16.gguf"
    assert choose_side_file(files, "draft-mtp", "T-Q4_K_M.gguf", None) == "mtp-a-Q8_0.gguf"
    assert choose_side_file(files, "draft-mtp", None, None) == "mtp-a-Q8_0.gguf"
    assert choose_side_file(files, "draft-dspark", "T-Q4_K_M.gguf", None) is None


DRAFTERS = (
    ("draft-eagle3", "Qwen3-4B-EAGLE3-Q4_K_M.gguf"),
    ("draft-eagle3", "Eagle3-T-Q4_K_M.gguf"),
    ("draft-eagle3", "T-eagle-3-Q4_K_M.gguf"),
    ("draft-eagle3", "T_EAGLE3.Q4_K_M.gguf"),
    ("draft-eagle3", "EAGLE3/T-Q4_K_M.gguf"),
    ("draft-dflash", "Qwen3-4B-DFlash-b16-Q4_K_M.gguf"),
    ("draft-dflash", "T-DFlash2-Q4_K_M.gguf"),
    ("draft-dspark", "T-DSpark-Q4_K_M.gguf"),
    ("draft-mtp", "MTP-T-Q4_K_M.gguf"),
    ("draft-mtp", "T-mtp-Q4_K_M.gguf"),
)


@pytest.mark.parametrize("other", [name for _, name in DRAFTERS] + [
    "MMPROJ-T-Q4_K_M.gguf", "A-mmproj-Q4_K_M.gguf", "T-imatrix-Q4_K_M.gguf", "T-Draft-Q4_K_M.gguf",
    "T-MTP-Q4_K_M.gguf", "T-assistant-Q4_K_M.gguf", "A-speculator.eagle3-Q4_K_M.gguf", "a-drafter-Q4_K_M.gguf",
])  # fmt: skip
@pytest.mark.parametrize("tag", [None, "Q4_K_M"])
def test_model_is_chosen_among_drafters_and_projectors(other: str, tag: str | None) -> None:
    for model in ("Z-T-Q4_K_M.gguf", "Z-T-Q8_0.gguf"):
        if has_tag(model, tag or "Q8_0") or not tag:
            assert choose_model([other, model], "user/model", tag) == model
            assert choose_model([model, other], "user/model", tag) == model


@pytest.mark.parametrize(("spec_type", "name"), DRAFTERS)
def test_drafter_is_chosen_beside_a_model(spec_type: str, name: str) -> None:
    model = str(Path(name).parent / "A-T-Q4_K_M.gguf")
    assert choose_side_file([model, name], spec_type, model, None) == name
    others = {"draft-mtp", "draft-dflash", "draft-dspark", "draft-eagle3"} - {spec_type}
    assert all(choose_side_file([model, name], other, model, None) is None for other in others)


def test_model_with_heads_of_its_own_is_a_model() -> None:
    files = ["T-MTP-Q4_K_M.gguf", "T-MTP-Q8_0.gguf"]
    assert choose_model(files, "user/model", None) == files[0]
    assert choose_model([*files, "S-Q4_K_M.gguf"], "user/model", "Q8_0") == files[1]
    assert choose_side_file(files, "draft-mtp", files[0], None) is None


def test_repository_without_a_model_says_what_it_has() -> None:
    with pytest.raises(UsageError, match=r"^no GGUF files found in repository a/b$") as caught:
        choose_model(["README.md", "T-EAGLE3-Q4_K_M.gguf", "mmproj-T.gguf"], "a/b", None)
    assert caught.value.hint == (
        "these are drafters or projectors, which go with a model: T-EAGLE3-Q4_K_M.gguf, mmproj-T.gguf"
    )


def test_bit_width_of_a_name() -> None:
    assert [bit_width(name) for name in ("T-Q4_K_M.gguf", "T-IQ3_S", "BF16", "T-7B-Q8_0.gguf", "T.gguf")] == [
        4, 3, 16, 8, None,
    ]  # fmt: skip
