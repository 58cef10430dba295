"""Hugging Face repositories: what is in one, and its files in the cache (llama.cpp common/hf-cache.cpp, b11434).

The one client of all commands. Listing, transport and retries are `huggingface_hub`'s, the cache has its layout.
Putting a download into its place is done here, since `huggingface_hub` 2 no longer continues what an earlier process
left. Everything a server says about names is checked before it touches a path, and a file gets its name only when its
SHA-256 sum is right. The access token goes to the hub only: a download redirected to another host comes without.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from specli.errors import FormatError, ResourceError, UsageError
from specli.files import user_path

ENDPOINT = "https://huggingface.co"
_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MAX_REPOSITORY = 96  # characters, as the hub has it


def is_repository(text: str) -> bool:
    """Whether it has the form `user/model` that the hub allows."""
    return (
        _REPOSITORY.fullmatch(text) is not None
        and len(text) <= _MAX_REPOSITORY
        and "--" not in text
        and ".." not in text
        and not text.endswith((".git", ".", "-"))
    )


def cache_root(environ: Mapping[str, str]) -> Path:
    """Where downloads are kept, in the layout of the Hugging Face hub."""
    for name, below in (
        ("LLAMA_CACHE", ""), ("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):  # fmt: skip
        if environ.get(name):
            return user_path(environ[name]) / below
    return user_path(environ.get("HOME") or "~") / ".cache" / "huggingface" / "hub"


def endpoint(environ: Mapping[str, str]) -> str:
    """The server, without a slash at its end."""
    return (environ.get("MODEL_ENDPOINT") or environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def safe_name(name: str, repo: str) -> str:
    """A file name of a listing.

    Raises:
        FormatError: It would leave the cache.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name or not path.parts:
        raise FormatError(f"{repo}: the file name {name!r} leads out of the cache")
    return name


def may_have_token(url: str, location: str) -> bool:
    """Whether a download that begins at `url` and is redirected to `location` may take the token along.

    Only to the same server by the same scheme, or to the hub itself: storage elsewhere is signed and asks for none.
    """
    start, end = urlsplit(url), urlsplit(location)
    return (start.scheme, start.netloc) == (end.scheme, end.netloc) or (end.scheme, end.netloc) == (
        "https",
        urlsplit(ENDPOINT).netloc,
    )


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
        """The local path of a file."""
        return self.hub.fetch(self, name)


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
    token: str | None = field(default=None, repr=False)
    offline: bool = False

    @classmethod
    def of(cls, token: str | None, offline: bool, environ: Mapping[str, str] = os.environ) -> Hub:
        """As the options and the environment say."""
        return cls(cache_root(environ), endpoint(environ), token or None, offline)

    def open(self, name: str) -> Repository:
        """Lists a repository; offline, or without an answer, as the cache has it.

        Raises:
            UsageError: The name is none.
            ResourceError: Neither knows it.
        """
        if not is_repository(name):
            raise UsageError(f"{name!r} is no name of a Hugging Face repository", hint="expected <user>/<model>")
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
                hint="give a local file" if self.offline else "check the name, the network and the token",
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
        token = self._bearer()
        facts = get_hf_file_metadata(url, token=token, endpoint=self.url)
        if not may_have_token(url, facts.location):
            token = False
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

    def cached(self) -> list[Repository]:
        """What the cache holds, by name."""
        folders = sorted(self.root.glob("models--*--*"))
        names = (folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders)
        return [repository for name in names if (repository := self._cached(name))]

    def _bearer(self) -> str | bool:
        """The token for downloads: the given one; of those stored on this machine only the hub's own gets one."""
        from huggingface_hub import get_token

        return self.token or (get_token() if self.url == ENDPOINT else None) or False

    def _listed(self, name: str) -> Repository:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.url, token=_listing_token(self._bearer()))
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
        files = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())
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


def _listing_token(token: str | bool) -> str | bool:
    """The token for listings, which llama.cpp sends only if it looks like one."""
    return token if isinstance(token, str) and re.fullmatch(r"hf_[A-Za-z0-9]{34,253}", token) else False


def _hub_errors() -> tuple[type[Exception], ...]:
    """What listing and downloading may raise; the transport depends on the version of huggingface_hub."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    transports = (sys.modules[name].HTTPError for name in ("httpx", "httpx2") if name in sys.modules)
    return (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError, ValueError, *transports)


def _reason(error: Exception) -> str:
    """An error in a few words."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return f"status code {status}" if status else str(error).strip().split("\n")[0][:200]
