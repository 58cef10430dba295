"""Plain torch on any device: the definition of a correct result.

Two rules make a row's result independent of the other rows of its call. Whatever sums over elements (products, norms,
softmax, attention) is computed for `TILE` rows at a time, filled up with zeros, so that its shapes are always the same.
Everything else is a formula of single elements, written in functions that torch computes alike at every place of a
tensor: on the CPU `exp` and `tanh` are, `sigmoid`, `silu` and `log1p` are not.

The operations can be captured: a fixed number of torch calls for a number of rows, no reading of values by the host, no
shape that depends on them, and results only in the buffers they are given. Where a run has fewer live rows than were
captured, a row behind the live ones computes what nobody reads; in what outlasts a run (caches, states, scattered rows)
it repeats the write of row 0.

| module | operations |
|---|---|
| `frame` | which rows a run has, and how they are cut into tiles |
| `weights` | matrices and stacks of experts, products |
| `rows` | norms, products, rope, movers, formulas of single elements |
| `attention` | cache writes, attention |
| `blocks` | cache types in torch |
| `experts` | routing, products with chosen experts |
| `recurrent` | gated delta nets |
| `executor` | the executor |
"""

from specli.kernels.reference.executor import ReferenceExecutor
from specli.kernels.reference.weights import ReferenceStack, ReferenceWeight

__all__ = ["ReferenceExecutor", "ReferenceStack", "ReferenceWeight"]
