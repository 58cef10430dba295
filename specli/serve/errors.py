"""Errors as clients see them: status, type and text in one JSON object (llama.cpp `format_error_response`)."""

from __future__ import annotations

from typing import Any

from specli.errors import SpecliError

CODES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "exceed_context_size_error": 400,
    "server_error": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
}
"""Type → HTTP status."""


class RequestError(Exception):
    """What is wrong with a request, or why it got no answer.

    Args:
        message: One line.
        kind: A key of `CODES`.
        details: Further members of the error object.
    """

    def __init__(self, message: str, kind: str = "invalid_request_error", **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details
        self.headers: dict[str, str] = {}

    @classmethod
    def of(cls, error: Exception) -> RequestError:
        """Any error that a request met."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, SpecliError):
            return cls(f"{error}; {error.hint}" if error.hint else str(error))
        return cls(f"{type(error).__name__}: {error}", "server_error")

    @property
    def code(self) -> int:
        """The HTTP status."""
        return CODES[self.kind]

    def record(self) -> dict[str, Any]:
        """The JSON object."""
        return {"error": {"code": self.code, "message": str(self), "type": self.kind, **self.details}}


def unsupported(what: str) -> RequestError:
    """The error of a field or value that is known, but not handled."""
    return RequestError(f"{what} is not supported by this server", "not_supported_error")
