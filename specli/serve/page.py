"""The chat page: one file, which may run its own script and talk to its own server, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.responses import Response


def page_response() -> Response:
    """The page, with a policy that names its script and its style by their hashes."""
    source = files("specli.serve").joinpath("page.html").read_bytes()
    script, style = (_hash(source, name) for name in (b"script", b"style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(source, 200, headers, media_type="text/html; charset=utf-8")


def _hash(source: bytes, name: bytes) -> str:
    found = re.search(rb"<%s>(.*?)</%s>" % (name, name), source, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"
