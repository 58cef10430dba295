"""A Hugging Face hub on 127.0.0.1: listings, files with ranges, and ways to misbehave."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What the server has and what it was asked for.

    Attributes:
        repos: Repository → file name → content.
        url: Its address.
        requests: (method, path, headers) of all requests.
        cut_after: Bytes after which a download breaks off once; None = never.
        downs_after_cut: From the break on the server answers with errors.
        is_down: It does.
        lies: Names whose content differs from the announced sum.
        storage: Address of another server that downloads are redirected to; "" = none.
    """

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    url: str = ""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    cut_after: int | None = None
    downs_after_cut: bool = False
    is_down: bool = False
    lies: set[str] = field(default_factory=set)
    storage: str = ""

    def paths(self, kind: str) -> list[str]:
        """Paths asked for whose path contains `kind`."""
        return [path for _, path, _ in self.requests if kind in path]


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    """Serves until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append((self.command, self.path, dict(self.headers)))
            listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(refs|tree/.+)", path)
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
            repo = (listing or file)[1] if listing or file else ""
            if hub.is_down:
                self._send(503, b"")
            elif repo not in hub.repos:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif listing and listing[2] == "refs":
                branches = [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}]
                self._send(200, json.dumps({"branches": branches, "converts": [], "tags": []}).encode())
            elif listing:
                items = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in hub.repos[repo].items()
                ]
                self._send(200, json.dumps(items).encode())
            elif file and file[2] in hub.repos[repo]:
                self._file(file[2], hub.repos[repo][file[2]])
            else:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def _file(self, name: str, data: bytes) -> None:
            etag = hashlib.sha256(data).hexdigest()
            head = {
                "X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "X-Linked-Etag": f'"{etag}"',
                "X-Linked-Size": str(len(data)), "Accept-Ranges": "bytes",
            }  # fmt: skip
            if hub.storage:
                self._send(302, b"", head | {"Location": hub.storage + self.path})
                return
            body = b"x" * len(data) if name in hub.lies else data
            start = int(match[1]) if (match := re.fullmatch(r"bytes=(\d+)-.*", self.headers.get("Range", ""))) else 0
            status = 200
            if start:
                status, head["Content-Range"] = 206, f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(status, body[start:], head, cut=hub.cut_after if self.command == "GET" else None)

        def _send(
            self, status: int, body: bytes, head: dict[str, str] | None = None, *, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **(head or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(body[:cut])
            if cut is not None and cut < len(body):
                self.close_connection = True
                hub.is_down = hub.downs_after_cut

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
