"""Stop strings in a token stream: text is released only when no stop string can begin in it."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Holds back text that might be the start of a stop string.

    Args:
        stops: Stop strings; empty ones are ignored.

    Example: with the stop `###`, pushing `a#` releases `a`, pushing `b` then releases `#b`, and pushing `x### y`
    releases `x` and sets `matched`.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Takes new text and returns what may be shown. After a match nothing more is released."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        found = min(
            ((at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None, key=lambda f: f[0]
        )
        if found is not None:
            at, self.matched = found
            shown, self._held = self._held[:at], ""
            return shown
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """The text still held back when the stream ends without a match."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """Length of the longest proper prefix of `stop` that the held text ends with."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
