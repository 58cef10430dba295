"""Draft trees: besides each likeliest token, the runners-up that are worth a row of the target's forward.

The rule is EAGLE-2's (Li et al. 2024, arXiv 2406.16858): of all nodes those with the highest joint probability are
verified, the product of the draft network's probabilities down to the node. Only the likeliest branch is expanded, so a
tree costs the network no more than a chain of its depth.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft
from specli.drafters.settings import DraftConfig

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


def tree_of(values: Floats, ids: Ints, config: DraftConfig, *, limit: int) -> Draft:
    """The best nodes among the candidates along a greedy draft.

    Args:
        values: `[N, C]` logits of every step's candidates, descending, each step behind the best one before.
        ids: `[N, C]`, the candidates.
        config: `tree` nodes at most, `n_max` levels, and `p_split`: a runner-up less likely than that is no node.
        limit: Most nodes that are of use.

    Returns:
        The likeliest branch, then the others by joint probability.
    """
    values, ids = values[: config.n_max], ids[: config.n_max]
    is_finite = np.isfinite(values[:, 0])
    depth = len(values) if is_finite.all() else int(is_finite.argmin())
    weights = np.exp((values[:depth] - values[:depth, :1]).astype(np.float64))
    chances = weights / weights.sum(axis=1, keepdims=True)
    reached = np.cumprod(np.append(1.0, chances[:, 0]))[:-1]
    nodes = [
        (float(-reached[level] * chance), level, rank)
        for level, row in enumerate(chances.tolist())
        for rank, chance in enumerate(row)
        if rank == 0 or (chance > config.p_split and np.isfinite(values[level, rank]))
    ]
    chosen = sorted(nodes)[: min(config.tree, limit)]
    chosen.sort(key=lambda node: node[2] > 0)  # stable
    levels, ranks = [level for _, level, _ in chosen], [rank for _, _, rank in chosen]
    tokens = [int(ids[level, rank]) for level, rank in zip(levels, ranks, strict=True)]
    return Draft(tokens, parents=[level - 1 for level in levels])
