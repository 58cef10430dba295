"""The tokens still in play while a sampler chain runs, with llama.cpp's arithmetic (`src/llama-sampler.cpp`, b11434).

All values are float32 and all sums run in list order, one rounding per step: a seed gives llama.cpp's tokens only if
the probabilities agree nearly to the last bit. `exp` and `log` are taken in double and rounded once; a libm's `expf` is
within 0.502 units of that, so that one value in some hundred differs in its last bit. Ties between equal logits are
broken by the lower id (llama.cpp: unspecified).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specli.errors import SpecliError

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
NOT_NUMBERS = "the model's logits are not numbers"
ALL_BANNED = "every token is banned"

_MAX_ROWS = 64  # of the table whose column maxima bound the k-th largest logit
_MANY = 2048  # from here on sorting pairs of value and place is faster: 0.5 ms against 5 ms for 49152 values
_COLUMNS_PER_PICK = 8  # more columns than picks: a tight bound, so that few candidates are sorted


def descending(values: Floats) -> npt.NDArray[np.int64]:
    """The order that sorts the values descending, equal ones by their place; `[n]` int64."""
    if len(values) < _MANY:
        order: npt.NDArray[np.int64] = np.argsort(-values, kind="stable")
        return order
    bits = (values + np.float32(0)).view(np.int32)  # -0 becomes 0, which it equals
    ascending = bits ^ (bits >> 31 & 0x7FFFFFFF)  # int32 in the order of the floats
    keys: npt.NDArray[np.int64] = -ascending.astype(np.int64) << 32 | np.arange(len(values))
    keys.sort()
    keys &= 0xFFFFFFFF
    return keys


def largest(logits: Floats) -> int:
    """The id of the largest logit, the lowest of equals.

    Raises:
        SpecliError: A logit is not a number, or all are -inf.
    """
    best = int(logits.argmax())
    check_largest(logits[best])
    return best


def check_largest(logit: np.float32) -> None:
    """Refuses a row whose largest logit leaves nothing to choose from.

    Raises:
        SpecliError: It is not a number, or -inf.
    """
    if logit != logit:
        raise SpecliError(NOT_NUMBERS)
    if logit == -np.inf:
        raise SpecliError(ALL_BANNED)


def reduce(logits: Floats, k: int) -> Ids:
    """The ids of the `k` largest of the logits, descending: the one pass over a whole row that most chains need.

    Any partition of the row gives a lower bound on its k-th largest value: the k-th largest of the parts' maxima. What
    is below the bound (nearly everything) is dropped in one comparison, and only the rest is sorted.

    Args:
        logits: `[V]` float32.
        k: How many, ≥ 1; more than V gives V.

    Returns:
        `[min(k, V)]` int32; equal logits in ascending id order.

    Raises:
        SpecliError: A logit is not a number.
    """
    n = len(logits)
    if k == 1:
        return np.array([largest(logits)], np.int32)
    n_rows = min(_MAX_ROWS, n // (_COLUMNS_PER_PICK * k))
    if n_rows < 4:
        ids = descending(logits)[:k]
        if n and np.isnan(logits.max()):
            raise SpecliError(NOT_NUMBERS)
        return ids.astype(np.int32)
    body = n - n % n_rows
    maxima = logits[:body].reshape(n_rows, -1).max(axis=0)
    if body < n:
        maxima[0] = np.maximum(maxima[0], logits[body:].max())
    maxima.partition(len(maxima) - k)
    if np.isnan(maxima[-k:]).any():
        raise SpecliError(NOT_NUMBERS)
    above = np.flatnonzero(logits >= maxima[-k])
    order = descending(logits[above])[:k]
    return above[order].astype(np.int32)


def exp32(x: Floats) -> Floats:
    """Correctly rounded float32 exponential."""
    return np.exp(x.astype(np.float64)).astype(np.float32)


def log32(x: Floats) -> Floats:
    """Correctly rounded float32 natural logarithm; the logarithm of 0 is -inf."""
    with np.errstate(divide="ignore"):
        return np.log(x.astype(np.float64)).astype(np.float32)


def running_sum(x: Floats) -> Floats:
    """Sums of the leading elements, added one by one in float32."""
    return np.add.accumulate(x)


def total(x: Floats) -> np.float32:
    """The float32 sum in list order; 0 for nothing."""
    last: np.float32 = running_sum(x)[-1] if len(x) else np.float32(0)
    return last


def entropy(p: Floats) -> np.float32:
    """Shannon entropy in nats of the probabilities, summed in list order; impossible tokens add nothing."""
    p = p[p > 0]
    return total(-p * log32(p))


class Candidates:
    """A list of tokens with logits, shrunk and changed by one sampler after the other.

    Args:
        logits: `[V]` float32 by token id; not changed.

    Attributes:
        ids: `[n]` int32 token ids, or None: all V tokens in id order.
        logits: `[n]` float32.
        is_sorted: The list descends by logit.
        probabilities: `[n]` float32, normalised, once a token was picked.
    """

    __slots__ = ("_is_owned", "ids", "is_sorted", "logits", "probabilities")

    def __init__(self, logits: Floats) -> None:
        self.ids: Ids | None = None
        self.logits = logits
        self.is_sorted = False
        self.probabilities: Floats | None = None
        self._is_owned = False

    def __len__(self) -> int:
        return len(self.logits)

    def token(self, place: int) -> int:
        """The id at a place of the list."""
        return place if self.ids is None else int(self.ids[place])

    def token_ids(self) -> Ids:
        """The ids of the list, `[n]` int32."""
        return np.arange(len(self.logits), dtype=np.int32) if self.ids is None else self.ids

    def take(self, places: npt.NDArray[np.integer] | npt.NDArray[np.bool_] | slice, *, is_sorted: bool) -> None:
        """Keeps only what `places` selects, in that order."""
        if self.ids is None and isinstance(places, np.ndarray) and places.dtype != bool:
            self.ids = places.astype(np.int32)
        else:
            self.ids = self.token_ids()[places]
        self.logits = self.logits[places]
        self.is_sorted = is_sorted
        self._is_owned = self._is_owned or not isinstance(places, slice)

    def replace(self, places: Ids, logits: Floats, probabilities: Floats) -> None:
        """Keeps what `places` names, in that order and descending, with other logits; the arrays are not shared."""
        self.ids = places.copy() if self.ids is None else self.ids[places]
        self.logits, self.probabilities = logits, probabilities
        self.is_sorted = self._is_owned = True

    def keep_largest(self, k: int) -> None:
        """Cuts to the `k` largest logits; the list is sorted afterwards."""
        if self.is_sorted:
            self.take(slice(k), is_sorted=True)
            return
        places = reduce(self.logits, k)
        self.ids = places if self.ids is None else self.ids[places]
        self.logits = self.logits[places]
        self.is_sorted = self._is_owned = True

    def sort(self) -> None:
        """Sorts descending by logit."""
        if not self.is_sorted:
            self.keep_largest(len(self.logits))

    def locate(self, tokens: Ids) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer] | slice]:
        """Places of distinct tokens in the list.

        Returns:
            Where the tokens stand that are in the list, and which of `tokens` these are.
        """
        if self.ids is None:
            return tokens, slice(None)
        _, where, which = np.intersect1d(self.ids, tokens, assume_unique=True, return_indices=True)
        return where, which

    def change(self, where: npt.NDArray[np.integer], values: Floats) -> None:
        """Sets the logits at some places; the list counts as unsorted afterwards."""
        if not self._is_owned:
            self.logits = self.logits.copy()
            self._is_owned = True
        self.logits[where] = values
        self.is_sorted = False

    def scale(self, divisor: np.float32) -> None:
        """Divides all logits by a positive number; the order stays."""
        self.logits = np.divide(self.logits, divisor)
        self._is_owned = True

    def largest(self) -> np.float32:
        """The largest logit.

        Raises:
            SpecliError: See `check_largest`.
        """
        largest: np.float32 = self.logits[0] if self.is_sorted else self.logits.max()
        check_largest(largest)
        return largest

    def softmax(self) -> Floats:
        """Probabilities in list order, `[n]` float32: exp(l - max), divided by their float32 sum."""
        p = exp32(self.logits - self.largest())
        p /= total(p)
        return p
