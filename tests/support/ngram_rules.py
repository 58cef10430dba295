"""The n-gram drafters as docs/speculation.md §§5.8-5.11 writes them down, step by step and as slow as that is.

The drafters of the package are held against these. State and letters are those of the reference: T history, s last
token, n and m sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class SimpleRules:
    def __init__(self, n: int, m: int, min_hits: int = 1) -> None:
        self.n, self.m = n, m

    def begin(self, T: Sequence[int]) -> None:
        pass

    def draft(self, T: Sequence[int], s: int) -> list[int]:
        n, m, length = self.n, self.m, len(T)
        if length <= n + m + 1:
            return []
        key = [*T[length - n + 1 :], s]
        for j in range(length - n - 1, 0, -1):
            if list(T[j : j + n]) == key:
                c = min(m, length - (j + n))
                return [] if c < n else list(T[j + n : j + n + c])
        return []

    def accept(self, a: int) -> None:
        pass


def hash32(tokens: Sequence[int]) -> int:
    h = 0
    for t in tokens:
        h = (h * 2654435761 + t) % 2**32
    return h


@dataclass
class ValueState:
    idx: int = 0
    num: int = 0
    n_acc: int = 0


@dataclass
class KeyState:
    key_idx: int
    values: list[ValueState]
    stat_idx: int = 0
    key_num: int = 0


class MapRules:
    PLACES = 262144

    def __init__(self, n: int, m: int, min_hits: int = 1, *, k4v: bool) -> None:
        self.n, self.m, self.min_hits, self.k4v = n, m, min_hits, k4v
        self.b = self.c = self.h = 0
        self.table = [0] * self.PLACES
        self.keys: list[KeyState] = []
        self.last: ValueState | None = None

    def begin(self, T: Sequence[int]) -> None:
        n, m, length0 = self.n, self.m, len(T)
        cut = self.b
        if cut > length0:
            cut = length0 - n - m if length0 > n + m else 0
        if length0 < self.c:
            self.table = [0 if x >= cut else x for x in self.table]
            self.h = cut - 1 if cut else 0
            for key in list(reversed(self.keys)):
                if key.key_idx >= cut:
                    self.keys.remove(key)
                elif self.k4v:
                    kept = [v for v in key.values if v.idx < cut]
                    key.values = kept + [ValueState(n_acc=m) for _ in range(4 - len(kept))]
                    if key.values[0].idx == 0:
                        self.keys.remove(key)
        self.b = self.c = length0

    def draft(self, T: Sequence[int], s: int) -> list[int]:
        n, m, length = self.n, self.m, len(T)
        self.last = None
        if length < 2 * n + m:
            return []
        assert self.c <= length
        assert self.b <= length
        self.c = length
        key = [*T[length - n + 1 :], s]
        lim = length - n - m - 1
        prompt_range = range(self.b - n - m - 1, self.h, -1) if self.b > n + m + 1 else range(0)
        later_range = range(lim, max(self.b, self.h), -1)

        def is_key(j: int) -> bool:
            return list(T[j : j + n]) == key

        x = self.table[hash32(key) % self.PLACES]
        match = 0
        if x != 0 and x < lim and is_key(x):
            match = x
        for j in (*prompt_range, *later_range):
            if not match and is_key(j):
                match = j
        for j in (*prompt_range, *later_range):
            place = hash32(T[j : j + n]) % self.PLACES
            if self.table[place] == 0:
                self.table[place] = j
        self.h = max(self.h, lim)
        if not match:
            return []
        found = next((k for k in self.keys if is_key(k.key_idx)), None)
        if found is None:
            found = KeyState(match, [ValueState(n_acc=m) for _ in range(4)])
            self.keys.append(found)
        found.key_num = min(found.key_num + 1, 16380)
        value = found.values[0]
        if self.k4v:
            if found.key_num < self.min_hits:
                return []
            for i in range(found.stat_idx, match + 1):
                if is_key(i):
                    self.count(T, found, i)
            found.stat_idx = match
            value = found.values[max(range(4), key=lambda v: (found.values[v].num, -v))]
            others = sum(v.num for v in found.values if v is not value)
            if others > 0 and value.num < 2 * others:
                return []
        self.last = value
        return list(T[match + n : match + n + min(m, value.n_acc)])

    def count(self, T: Sequence[int], key: KeyState, i: int) -> None:
        n, m = self.n, self.m
        for value in key.values:
            if value.idx == 0:
                value.idx, value.num, value.n_acc = i + n, 0, m
            if T[i + n : i + n + m] == T[value.idx : value.idx + m]:
                value.num = min(value.num + 1, 16380)
                return

    def accept(self, a: int) -> None:
        if self.last is not None:
            self.last.n_acc = a


class ModRules:
    SIZE = 4194304

    def __init__(self, n_match: int, n_min: int, n_max: int) -> None:
        self.n, self.n_min, self.n_max = n_match, n_min, n_max
        self.entry: dict[int, int] = {}
        self.i_last = self.n_draft_last = self.n_low = 0

    def index(self, tokens: Sequence[int]) -> int:
        r = 0
        for t in tokens:
            r = (r * 6364136223846793005 + t) % 2**64
        return r % self.SIZE

    def add(self, T: Sequence[int], i: int) -> None:
        self.entry[self.index(T[i : i + self.n])] = T[i + self.n]

    def begin(self, T: Sequence[int]) -> None:
        self.i_last = self.n_draft_last = 0
        if len(T) < self.n:
            return
        for i in range(len(T) - self.n):
            self.add(T, i)
        self.i_last = len(T) - self.n
        if len(self.entry) / self.SIZE > 0.25:
            self.entry = {}

    def draft(self, T: Sequence[int], s: int) -> list[int]:
        n, length = self.n, len(T)
        self.n_draft_last = 0
        if length < n:
            return []
        if self.i_last + 32 < length:
            for i in range(self.i_last, length - n):
                self.add(T, i)
            self.i_last = length - n
        walk = [*T[length - n + 1 :], s]
        for i in range(self.n_max):
            t = self.entry.get(self.index(walk[-n:]))
            if t is None:
                if i < self.n_min:
                    return []
                break
            walk.append(t)
        self.n_draft_last = len(walk) - n
        return walk[n:]

    def accept(self, a: int) -> None:
        if self.n_draft_last == 0:
            return
        if a / self.n_draft_last < 0.25:
            self.n_low += 1
            if self.n_low >= 5:
                self.entry = {}
                self.n_low = self.i_last = 0
        else:
            self.n_low = 0


class UnorderedMap:
    """`std::unordered_map<int, int>` of libstdc++ as a linked list: only what decides the iteration order."""

    GROWTH = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043)

    def __init__(self) -> None:
        self.order: list[int] = []
        self.counts: dict[int, int] = {}
        self.n_buckets = 13

    def insert(self, order: list[int], token: int) -> None:
        mates = [i for i, other in enumerate(order) if other % self.n_buckets == token % self.n_buckets]
        order.insert(mates[0] if mates else 0, token)

    def add(self, token: int, count: int = 1) -> None:
        if token not in self.counts:
            if len(self.order) == self.n_buckets:
                self.n_buckets = self.GROWTH[self.GROWTH.index(self.n_buckets) + 1]
                rebuilt: list[int] = []
                for other in self.order:
                    self.insert(rebuilt, other)
                self.order = rebuilt
            self.insert(self.order, token)
            self.counts[token] = 0
        self.counts[token] += count

    def items(self) -> list[tuple[int, int]]:
        return [(token, self.counts[token]) for token in self.order]


Cache = dict[tuple[int, ...], UnorderedMap]


@dataclass
class CacheRules:
    static: Cache = field(default_factory=dict)
    dynamic: Cache = field(default_factory=dict)
    context: Cache = field(default_factory=dict)
    cache_size: int = 0

    def begin(self, T: Sequence[int]) -> None:
        pass

    def accept(self, a: int) -> None:
        pass

    @staticmethod
    def update(cache: Cache, low: int, high: int, seq: Sequence[int], n_new: int) -> None:
        for k in range(low, high + 1):
            for i in range(max(len(seq) - n_new, k), len(seq)):
                cache.setdefault(tuple(seq[i - k : i]), UnorderedMap()).add(seq[i])

    def draft(self, T: Sequence[int], s: int) -> list[int]:
        length = len(T)
        if self.cache_size < length + 1:
            new = [*T[self.cache_size :], s]
            self.update(self.context, 1, 4, new, len(new))
            self.cache_size = length + 1
        x = [*T, s]
        if len(x) < 2:
            return []
        while len(x) < length + 1 + 8:
            static = self.static.get(tuple(x[-2:]))
            token = self.primary(self.context, x, static, {1: (2, 66), 2: (2, 50), 3: (1, 50), 4: (1, 50)})
            if token is None:
                token = self.primary(self.dynamic, x, static, {1: (4, 75), 2: (3, 66), 3: (2, 66), 4: (2, 66)})
            if token is None and static is not None:
                token, count = max(static.items(), key=lambda item: item[1])  # the first on ties
                total = sum(c for _, c in static.items())
                if total < 2 or 100 * count < 50 * total:
                    token = None
            if token is None:
                break
            x.append(token)
        return x[length + 1 :]

    @staticmethod
    def primary(
        cache: Cache, x: list[int], static: UnorderedMap | None, table: dict[int, tuple[int, int]]
    ) -> int | None:
        for k in (4, 3, 2, 1):
            counts = cache.get(tuple(x[-k:])) if len(x) >= k else None
            if counts is None:
                continue
            known = static.counts if static else {}
            token, best = max(
                counts.items(), key=lambda item: item[1] * (100 * known[item[0]] if item[0] in known else 1)
            )
            total = sum(c for _, c in counts.items())
            if total >= table[k][0] and 100 * best >= table[k][1] * total:
                return token
        return None
