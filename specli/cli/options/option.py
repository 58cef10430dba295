"""One row of the option table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specli.cli.options.kinds import FLAG, Kind

LOCAL = ("generate", "chat", "stats", "synth")
RUN = (*LOCAL, "serve")
TEXT = ("generate", "chat")


@dataclass(frozen=True)
class Option:
    """One option with everything that help, parsing, man pages, completion and configuration need.

    Attributes:
        names: Spellings, short ones first, as in help.
        help: One sentence, no full stop.
        panel: Option group in help.
        field: Where the value goes: a path through `CommandConfig` such as `request.sampling.top_k`.
        kind: How the value is read.
        negative: Spellings that set False.
        env: Environment variable.
        commands: Commands that have it.
        const: Value a flag sets.
        types: Drafter types that read it; () = any. Setting it for other types draws a warning.
        needs: Fields of which one has to be set for it to have an effect; () = none.
        idle: Why it has no effect here, although it is taken; giving it draws a warning.
        is_elsewhere: Whether it has an effect in other commands, so that this one leaves it alone in the environment
            and in config files.
        implies: Options set along with it, as (spelling, value).
        excludes: Field that goes back to its default when this option is set (last one wins).
        refused: Why it cannot be used here.
        satisfied: Values (`on` / `off` for a flag's positive / negative spelling) that an option which is refused or
            has no effect takes without a word, because they ask for what happens anyway.
        removed: What replaces an option that llama.cpp removed.
        default_text: The default as help shows it, where the value itself says little.
    """

    names: tuple[str, ...]
    help: str
    panel: str
    field: str | None = None
    kind: Kind = FLAG
    negative: tuple[str, ...] = ()
    env: str | None = None
    commands: tuple[str, ...] = RUN
    const: Any = True
    types: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    idle: str | None = None
    is_elsewhere: bool = False
    implies: tuple[tuple[str, str], ...] = ()
    excludes: str | None = None
    refused: str | None = None
    satisfied: tuple[str, ...] = ()
    removed: str | None = None
    default_text: str | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings, negative ones last."""
        return (*self.names, *self.negative)

    @property
    def name(self) -> str:
        """The first long spelling, or the first one."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def is_listed(self) -> bool:
        """Whether help shows it: it can be used, and sets something."""
        return self.refused is None and self.removed is None and (self.idle is None or self.field is not None)

    @property
    def negative_env(self) -> str | None:
        """`LLAMA_ARG_NO_…`, which switches off an option that has negative spellings."""
        if self.env is None or not self.negative:
            return None
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
