"""GGUF files of Hugging Face repositories: which file of a repository, and where it lies on disk (cli.md §8).

llama.cpp `common/download.cpp`, `common/hf-cache.cpp`, b11434. Listing, transport and retries are
`huggingface_hub`'s, the cache has its layout. Choosing is done here, and so is putting a download into its place, since
`huggingface_hub` 2 no longer continues what an earlier process left. Everything a server says about names is checked
before it touches a path, and a file gets its name only when its SHA-256 sum is right.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from specli.cli.options.config import SourceConfig
from specli.errors import FormatError, ResourceError, UsageError

ENDPOINT = "https://huggingface.co"
DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
SIDE_PREFIXES = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
SIDE_FILES = {
    "draft-mtp": "mtp-",
    "draft-dspark": "dspark-",
    "draft-dflash": "dflash-",
    "draft-eagle3": "eagle3-",
}
"""Spec type → what names of its side files contain, in the order in which types are inferred."""
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def cache_root(environ: Mapping[str, str]) -> Path:
    """Where downloads are kept, in the layout of the Hugging Face hub."""
    for name, below in (
        ("LLAMA_CACHE", ""), ("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):  # fmt: skip
        if environ.get(name):
            return Path(environ[name]).expanduser() / below
    return Path(environ.get("HOME") or "~").expanduser() / ".cache" / "huggingface" / "hub"


def endpoint(environ: Mapping[str, str]) -> str:
    """The server, without a slash at its end."""
    return (environ.get("MODEL_ENDPOINT") or environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def split_repo(text: str) -> tuple[str, str | None]:
    """`user/model` and the quant tag of `user/model:tag`."""
    repo, _, tag = text.partition(":")
    return repo, tag or None


def safe_name(name: str, repo: str) -> str:
    """A file name of a listing.

    Raises:
        FormatError: It would leave the cache.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name or not path.parts:
        raise FormatError(f"{repo}: the file name {name!r} leads out of the cache")
    return name


def is_model(name: str) -> bool:
    """Whether a file can be a whole model: no side file, and of a split one the first part."""
    base = PurePosixPath(name).name
    shard = SHARD.search(base)
    return base.endswith(".gguf") and not any(p in base for p in SIDE_PREFIXES) and (not shard or int(shard[1]) == 1)


def has_tag(name: str, tag: str) -> bool:
    """Whether a path has the tag as a word of its own: `Q6_K` is not in `Q6_K_L`, `COMPACT` not in `I-COMPACT`.

    llama.cpp takes the first path that contains the tag anywhere.
    """
    return re.search(rf"(?:^|[/._]|(?<![A-Za-z])-){re.escape(tag)}(?=[.-]|/|$)", name, re.IGNORECASE) is not None or (
        re.search(rf"-{re.escape(tag)}[.-]", name, re.IGNORECASE) is not None
        and re.search(rf"(?:^|-)I-{re.escape(tag)}[.-]", name, re.IGNORECASE) is None
    )


def tag_of(name: str) -> str:
    """The quant tag at the end of a model's name: `Q4_K_M` for `T-q4_k_m.gguf`, nothing for `T.gguf`."""
    found = re.search(r"[-.]([A-Za-z0-9_]+)$", SHARD.sub("", name).removesuffix(".gguf"))
    return found[1].upper() if found else ""


def choose_model(files: Sequence[str], repo: str, tag: str | None) -> str:
    """The file that stands for a repository and tag.

    Raises:
        UsageError: None has the tag, or several differ in more than it.
    """
    models = [name for name in files if is_model(name)]
    if not models:
        raise UsageError(f"no GGUF files found in repository {repo}")
    for wanted in (tag,) if tag else DEFAULT_TAGS:
        found = [name for name in models if has_tag(name, wanted)]
        if tag and len(found) > 1:
            raise UsageError(f"{repo}: several files have the tag {tag}: {', '.join(found)}", hint="name one with -hff")
        if found:
            return found[0]
    if tag:
        raise UsageError(f"no GGUF files found in repository {repo}:{tag}", hint=f"available: {', '.join(models)}")
    return models[0]


def choose_side_file(files: Sequence[str], prefix: str, model: str | None, tag: str | None) -> str | None:
    """The side file of a kind that fits best: deepest directory, then the tag, then the nearest bit width."""
    above = {str(parent) for parent in PurePosixPath(model).parents} if model else {"."}
    found = [
        name for name in files if name.endswith(".gguf") and prefix in name and str(PurePosixPath(name).parent) in above
    ]
    wanted = bit_width(tag or model or "")

    def distance(name: str) -> tuple[int, bool, int]:
        depth = len(PurePosixPath(name).parts)
        width = bit_width(name)
        off = abs(width - wanted) if width is not None and wanted is not None else 99
        return -depth, not (tag and re.search(rf"-{re.escape(tag)}\.", name, re.IGNORECASE)), off

    return min(found, key=distance, default=None)  # the first of equals


def bit_width(text: str) -> int | None:
    """The number in a quant name: 4 for `Q4_K_M`, 16 for `BF16`."""
    found = re.findall(r"(?:^|[-._/])(?:IQ|Q|BF|F|MXFP)(\d+)", text, re.IGNORECASE)
    return int(found[-1]) if found else None


def parts_of(name: str, files: Iterable[str], repo: str) -> list[str]:
    """All parts of a split model, the first one first; just the name for a whole file.

    Raises:
        FormatError: The repository lacks a part.
    """
    shard = SHARD.search(name)
    if not shard:
        return [name]
    stem, known = name[: shard.start()], set(files)
    parts = [f"{stem}-{number:05d}-of-{shard[2]}.gguf" for number in range(1, int(shard[2]) + 1)]
    missing = next((part for part in parts if part not in known), None)
    if missing:
        raise FormatError(f"{repo}: {missing} is missing")
    return parts


@dataclass(frozen=True)
class Repository:
    """One repository at one commit, with its files.

    Attributes:
        name: `user/model`.
        commit: Commit, or branch when nothing better is known.
        files: Names, checked, in listing order.
        hub: Where files come from.
    """

    name: str
    commit: str
    files: tuple[str, ...]
    hub: Hub

    def fetch(self, name: str) -> Path:
        """The local path of a file and, of a split model, of its other parts."""
        paths = [self.hub.fetch(self, part) for part in parts_of(name, self.files, self.name)]
        return paths[0]


@dataclass(frozen=True)
class Hub:
    """Access to a hub and its cache.

    Attributes:
        root: The cache.
        url: The server.
        token: Access token, or None.
        offline: Nothing but the cache is used.
    """

    root: Path
    url: str
    token: str | None = None
    offline: bool = False

    @classmethod
    def of(cls, source: SourceConfig, environ: Mapping[str, str] = os.environ) -> Hub:
        """As the options and the environment say."""
        return cls(cache_root(environ), endpoint(environ), source.hf_token or None, source.offline)

    def open(self, name: str) -> Repository:
        """Lists a repository; offline, or without an answer, as the cache has it.

        Raises:
            ResourceError: Neither knows it.
        """
        cause = "--offline"
        if not self.offline:
            try:
                return self._listed(name)
            except _hub_errors() as error:
                cause = _reason(error)
        cached = self._cached(name)
        if cached is None:
            raise ResourceError(
                f"{name}: not in the cache {self.root}, and the hub cannot be asked: {cause}",
                hint="give a local file with -m" if self.offline else "check the name, the network and the token",
            )
        return cached

    def fetch(self, repository: Repository, name: str) -> Path:
        """The local path of one file, downloaded if the cache lacks it.

        Raises:
            ResourceError: The download failed.
            FormatError: What came is not what the hub announced.
        """
        folder = self._folder(repository.name)
        path = folder / "snapshots" / repository.commit / name
        if path.exists():
            return path
        if self.offline:
            raise ResourceError(f"{repository.name}/{name}: not in the cache {self.root}", hint="run without --offline")
        try:
            blob = self._download(repository, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a link to a blob that is gone
            path.symlink_to(os.path.relpath(blob, path.parent))
        except _hub_errors() as error:
            raise ResourceError(
                f"{repository.name}/{name}: download failed: {_reason(error)}", hint="run again to resume it"
            ) from None
        return path

    def _download(self, repository: Repository, name: str) -> Path:
        """The blob of a file, complete; what an earlier try left is continued."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(repository.name, name, revision=repository.commit, endpoint=self.url)
        token = self.token or False
        facts = get_hf_file_metadata(url, token=token, endpoint=self.url)
        if not facts.etag or not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", facts.etag):
            raise FormatError(f"{repository.name}/{name}: the hub names no usable sum of the file: {facts.etag!r}")
        blob = self._folder(repository.name) / "blobs" / facts.etag
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial = blob.with_name(f"{blob.name}.incomplete")
        with WeakFileLock(blob.with_name(f"{blob.name}.lock")):
            if blob.exists():
                return blob
            with partial.open("ab") as file:
                http_get(
                    facts.location, file, resume_size=file.tell(), headers=build_hf_headers(token=token),
                    expected_size=facts.size,
                )  # fmt: skip
            check_sum(partial, facts.etag, f"{repository.name}/{name}")
            partial.replace(blob)
        return blob

    def cached_models(self) -> list[str]:
        """`user/model:TAG` of every whole model in the cache whose name has a tag, sorted."""
        found = set()
        for folder in self.root.glob("models--*--*"):
            name = folder.name.removeprefix("models--").replace("--", "/", 1)
            repository = self._cached(name)
            files = filter(is_model, repository.files if repository else ())
            found |= {f"{name}:{tag}" for file in files if (tag := tag_of(file))}
        return sorted(found)

    def _listed(self, name: str) -> Repository:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.url, token=_listing_token(self.token))
        refs = api.list_repo_refs(name).branches
        commit = next(
            (ref.target_commit for ref in refs if ref.name == "main"), refs[0].target_commit if refs else "main"
        )
        items: Iterable[Any] = api.list_repo_tree(name, recursive=True, revision=commit)
        files = tuple(safe_name(item.path, name) for item in items if hasattr(item, "blob_id"))
        self._remember(name, commit)
        return Repository(name, commit, files, self)

    def _remember(self, name: str, commit: str) -> None:
        """Notes the branch's commit, so that the cache can be used without the server."""
        path = self._folder(name) / "refs" / "main"
        if path.is_file() and path.read_text(encoding="ascii") == commit:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit, encoding="ascii")
        except OSError as error:
            raise ResourceError(f"{path}: cannot be written: {error.strerror}") from None

    def _cached(self, name: str) -> Repository | None:
        folder = self._folder(name)
        try:
            commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        snapshot = folder / "snapshots" / commit
        files = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf"))
        return Repository(name, commit, tuple(files), self) if files else None

    def _folder(self, name: str) -> Path:
        return self.root / f"models--{name.replace('/', '--')}"


def check_sum(path: Path, etag: str, name: str) -> None:
    """Holds a fresh download against the SHA-256 sum that is the ETag of large files.

    Raises:
        FormatError: It differs; the file is removed.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", etag):
        return
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    if digest.hexdigest() != etag:
        path.unlink()
        raise FormatError(f"{name}: the download is damaged (SHA-256 {digest.hexdigest()}, expected {etag})")


def fetch_target(source: SourceConfig, open_hub: Callable[[SourceConfig], Hub] = Hub.of) -> Path:
    """The target's file of `-hf`, `-hff`.

    Raises:
        SpecliError: There is no such file, or it cannot be had.
    """
    assert source.hf_repo
    name, tag = split_repo(source.hf_repo)
    repository = open_hub(source).open(name)
    if source.hf_file:
        return _exact(repository, source.hf_file)
    return repository.fetch(choose_model(repository.files, name, tag))


def fetch_draft(source: SourceConfig, types: tuple[str, ...], open_hub: Callable[[SourceConfig], Hub] = Hub.of) -> Path:
    """The draft file of `-hfd`: exactly `-md`, or a side file of the chosen type, or the repository's model.

    Raises:
        SpecliError: There is no such file, or it cannot be had.
    """
    assert source.draft_hf_repo
    name, tag = split_repo(source.draft_hf_repo)
    repository = open_hub(source).open(name)
    if source.draft_model:
        return _exact(repository, source.draft_model)
    model = _model_or_none(repository, tag)
    for spec_type, prefix in SIDE_FILES.items():
        if not types or spec_type in types:
            side = choose_side_file(repository.files, prefix, model, tag)
            if side:
                return repository.fetch(side)
    return repository.fetch(choose_model(repository.files, name, tag))


def fetch_side_file(
    source: SourceConfig, types: tuple[str, ...], open_hub: Callable[[SourceConfig], Hub] = Hub.of
) -> Path | None:
    """The drafter that lies beside the target in the `-hf` repository, for a chosen type; None if there is none."""
    assert source.hf_repo
    prefixes = [prefix for spec_type, prefix in SIDE_FILES.items() if spec_type in types]
    if not prefixes:
        return None
    name, tag = split_repo(source.hf_repo)
    repository = open_hub(source).open(name)
    model = source.hf_file or _model_or_none(repository, tag)
    side = next((s for p in prefixes if (s := choose_side_file(repository.files, p, model, tag))), None)
    return repository.fetch(side) if side else None


def _exact(repository: Repository, file: str) -> Path:
    if file not in repository.files:
        raise UsageError(f"file '{file}' not found in repository", hint=f"repository {repository.name}")
    return repository.fetch(file)


def _model_or_none(repository: Repository, tag: str | None) -> str | None:
    try:
        return choose_model(repository.files, repository.name, tag)
    except UsageError:
        return None


def _listing_token(token: str | None) -> str | bool:
    """The token for listings, which llama.cpp sends only if it looks like one."""
    return token if token and re.fullmatch(r"hf_[A-Za-z0-9]{34,253}", token) else False


def _hub_errors() -> tuple[type[Exception], ...]:
    """What listing and downloading may raise; the transport depends on the version of huggingface_hub."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    transports = (sys.modules[name].HTTPError for name in ("httpx", "httpx2") if name in sys.modules)
    return (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError, *transports)


def _reason(error: Exception) -> str:
    """An error in a few words."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return f"status code {status}" if status else str(error).strip().split("\n")[0][:200]
