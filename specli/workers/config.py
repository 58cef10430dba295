"""How many workers, and where; says nothing about what they do."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WORKERS = 256


@dataclass(frozen=True)
class WorkersConfig:
    """What `--workers` asks for.

    Attributes:
        n: How many; None = as many as the Ray cluster has CPUs for.
        ray: None = processes on this machine; `local` = a Ray cluster that is started here for the run; otherwise the
            address of a cluster, `ray://HOST:PORT`.
    """

    n: int | None = None
    ray: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether others than this process answer."""
        return self.ray is not None or self.n != 1

    def __str__(self) -> str:
        """As it is given on the command line."""
        place = "ray" if self.ray == "local" else self.ray
        return ",".join(str(part) for part in (place, self.n) if part is not None)


def read_workers(text: str) -> WorkersConfig:
    """Reads `N`, `ray`, `ray,N`, `ray://HOST:PORT` or `ray://HOST:PORT,N`.

    Raises:
        ValueError: It is nothing of the kind.
    """
    place, _, number = text.partition(",")
    if not place.startswith("ray"):
        place, number = "", text
    elif number == "" and "," in text:
        raise ValueError("expected a number of workers behind the comma")
    n: int | None = None
    if number:
        if not (number.isascii() and number.isdigit()) or not 1 <= int(number) <= MAX_WORKERS:
            raise ValueError(f"expected 1 to {MAX_WORKERS} workers, or ray, ray,N, ray://HOST:PORT,N")
        n = int(number)
    if not place:
        if n is None:
            raise ValueError(f"expected 1 to {MAX_WORKERS} workers, or ray, ray,N, ray://HOST:PORT,N")
        return WorkersConfig(n)
    if place == "ray":
        return WorkersConfig(n, "local")
    host, colon, port = place.removeprefix("ray://").rpartition(":")
    if not place.startswith("ray://") or not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("a Ray cluster is named ray://HOST:PORT; its client port is 10001 unless it was set")
    return WorkersConfig(n, place)
