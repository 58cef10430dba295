"""Settings of the server as one frozen record, with llama.cpp's defaults (`tools/server`, b11434)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specli.engine.config import shared_context

AUTO_SLOTS = 4


@dataclass(frozen=True)
class ServeConfig:
    """How requests are taken.

    Attributes:
        host: Addresses to listen on, separated by commas; one that ends in `.sock` is the path of a Unix socket.
        port: Their port; 0 = any free one.
        api_keys: Keys of which a request must show one; empty = none is asked for.
        n_parallel: Requests that run at once; -1 = chosen here. A given number shares `-c` among them.
        slot_tokens: Most tokens of context of each slot; 0 = any number.
        reuses: What a slot holds of a prompt is not evaluated again, unless a request says otherwise.
        similarity: Share of its prompt above which a request prefers the slot that knows most of it to the one idle
            longest; 0 = never.
        shares_pool: Slots share what ngram-mod has learnt.
        slot_path: Folder of saved slots; None = slots are not saved.
        aliases: Names of the model for clients; empty = the file's name.
        tags: What `/v1/models` says the model is good for.
        has_slots: `/slots` answers.
        has_metrics: `/metrics` answers.
        has_props: `POST /props` answers.
        timeout: Seconds a client may take to send a request or to read a piece of its answer.
        ping_interval: Seconds of silence after which a stream gets a comment; -1 = never.
        n_queue: Requests that may wait for a slot; more are refused with status 503.
        grace: Seconds that requests under way get to finish after SIGTERM.
        cors_origins: `*` reflects any origin, `localhost` only those of this machine; else the one origin allowed.
        prefix: What the path of every route begins with, without a slash at its end.
        cors_methods: Methods that pages of other origins may use.
        cors_headers: Headers that they may send.
        cors_credentials: They may send cookies and keys.
        prefills: A last message of the assistant is continued.
        reasoning_format: `none` leaves thoughts in the content, where a request says nothing else.
        is_parsed: Thoughts and tool calls are told apart from the content.
        has_page: `/` shows the chat page.
        is_verbose: OpenAI's answers have the native one within, unless a request says otherwise.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = ()
    n_parallel: int = -1
    slot_tokens: int = 0
    reuses: bool = True
    similarity: float = 0.1
    shares_pool: bool = True
    slot_path: Path | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    has_slots: bool = True
    has_metrics: bool = False
    has_props: bool = False
    timeout: int = 3600
    ping_interval: int = 30
    n_queue: int = 256
    grace: float = 10.0
    cors_origins: str = "*"
    prefix: str = ""
    cors_methods: str = "GET, POST, DELETE, OPTIONS"
    cors_headers: str = "*"
    cors_credentials: bool = True
    prefills: bool = True
    reasoning_format: str = "deepseek"
    is_parsed: bool = True
    has_page: bool = True
    is_verbose: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses one by one."""
        return tuple(host for part in self.host.split(",") if (host := part.strip()))

    @property
    def n_slots(self) -> int:
        """Requests that run at once."""
        return AUTO_SLOTS if self.n_parallel < 0 else max(1, self.n_parallel)

    def slot_context(self, n_ctx: int) -> int:
        """Tokens of context of each slot, from `-c`; 0 = the model's trained context.

        As in llama.cpp a given number of slots shares the context, while without one any request may use all of it.
        """
        found = n_ctx if self.n_parallel < 0 else shared_context(n_ctx, self.n_slots)
        return min(found, self.slot_tokens) if found and self.slot_tokens else found or self.slot_tokens
