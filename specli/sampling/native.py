"""The usual end of a sampler chain in the native library: from the first top-k on, all is done in one call.

`specli.sampling.links` is the definition, and runs where the library was not built; the results are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from specli.errors import ResourceError, SpecliError
from specli.kernels.cpu.library import ChainStruct, LinkStruct, native_exports, native_library
from specli.sampling.candidates import NOT_NUMBERS, Candidates, check_largest
from specli.sampling.links import Distribution, Link, Picker


class NativeTail:
    """Links that shorten a sorted list, and the draw from what is left.

    Args:
        links: They have a `native` form; the first is a top-k.
        room: Logits that may differ from the row's.
    """

    def __init__(self, links: Sequence[Link], room: int) -> None:
        self._sample, number = native_library().chain_sample, native_exports().number
        most = number("limit", "max_candidates")
        forms = [link.native for link in links]
        structs = [LinkStruct(number("link", name), min(n, most), value) for name, n, value in filter(None, forms)]
        self._links = (LinkStruct * len(structs))(*structs)
        self._room = room
        self._places = np.empty(most, np.int32)
        self._logits = np.empty(most, np.float32)
        self._probabilities = np.empty(most, np.float32)
        self._chain = ChainStruct(n_links=len(structs), links=self._links)
        for name in ("places", "logits", "probabilities"):
            setattr(self._chain, name, getattr(self, f"_{name}").ctypes.data)
        self._argument = ctypes.byref(self._chain)

    @classmethod
    def of(cls, links: Sequence[Link], picker: Picker) -> tuple[list[Link], NativeTail | None]:
        """Splits a chain into the links before the tail and the tail; None if there is none, or no library."""
        start = next((i for i, link in enumerate(links) if link.native and link.native[0] == "top_k"), len(links))
        tail = links[start:]
        is_usual = bool(tail) and all(link.native for link in tail) and type(picker) is Distribution
        if is_usual:
            try:
                room = native_exports().number("limit", "max_candidates") - tail[0].native[1]  # type: ignore[index]
                return list(links[:start]), cls(tail, room) if room >= 0 else None
            except ResourceError:
                pass
        return list(links), None

    def pick(self, leading: Sequence[Link], candidates: Candidates, random: float) -> int:
        """Applies the links before the tail, then the tail.

        Args:
            leading: Those links.
            candidates: A whole row; left as the chain leaves it.
            random: The number that decides, from [0, 1).

        Returns:
            The place of the token drawn.

        Raises:
            SpecliError: A logit is not a number, or all are -inf.
        """
        chain, changes = self._chain, leading[0].changes(candidates.logits) if len(leading) == 1 else None
        if changes is not None and len(changes[0]) <= self._room:
            tokens, values = changes
            chain.n_changed, chain.changed, chain.changes = len(tokens), tokens.ctypes.data, values.ctypes.data
        else:
            chain.n_changed = 0
            for link in leading:
                link.apply(candidates)
        row = np.ascontiguousarray(candidates.logits)
        place: int = self._sample(self._argument, row.__array_interface__["data"][0], len(row), random)
        if place < 0:
            raise SpecliError(NOT_NUMBERS)
        check_largest(self._logits[0])
        n = chain.n
        candidates.replace(self._places[:n], self._logits[:n].copy(), self._probabilities[:n].copy())
        return place
