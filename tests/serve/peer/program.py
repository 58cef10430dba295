"""What llama.cpp's server tests start in place of llama-server: `specli serve` with a stand-in for their models.

They name models by repository, and first start all of them to download them. Here a start that may download answers
`/health` and nothing else, and every other start serves a tiny model of random weights. `SPECLI_PEER_PROGRAM` names
another program to run, such as llama-server itself, to see whether a test asks for the text of the model it names.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

NAMES = ("--hf-repo", "--hf-file", "--model-url", "--model")
NOT_OURS = ("--backend_sampling",)  # no option of llama-server either


class Healthy(BaseHTTPRequestHandler):
    """Says that it is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def translated(arguments: list[str], model: str) -> list[str]:
    """The command line with the stand-in for whatever model it names."""
    found = ["--model", model]
    given = iter(arguments)
    for argument in given:
        if argument in NAMES:
            next(given)
        elif argument not in NOT_OURS:
            found.append(argument)
    return found


def main(model: str, arguments: list[str]) -> None:
    """Runs the server in place of this process."""
    if "--offline" not in arguments:
        address = arguments[arguments.index("--host") + 1], int(arguments[arguments.index("--port") + 1])
        HTTPServer(address, Healthy).serve_forever()
    program = os.environ.get("SPECLI_PEER_PROGRAM")
    command = [program] if program else [sys.executable, "-m", "specli", "serve", "--threads", "1"]
    os.execv(command[0], [*command, *translated(arguments, model)])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
