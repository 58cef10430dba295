"""Medusa: heads that read the target's last state and write one token of a draft each (arXiv 2401.10774).

FasterDecoding/Medusa `medusa/model/medusa_model.py`. Head i takes the state at position P, adds `silu(W x + b)` once or
several times, and multiplies with a matrix of its own, which predicts token P+2+i; the target's own head predicts P+1.
The heads read no tokens and leave nothing in a cache. llama.cpp has no such architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Executor, Ops, Weight
from specli.models.architecture import Keys
from specli.models.base import Model, ModelOptions
from specli.models.draft import taps_of
from specli.models.feedback import FeedbackNetwork, Step
from specli.models.tensors import Matrix, Tensors, Vector, value_of

ARCHITECTURE = "medusa"
MAX_HEADS = 64
MAX_RESIDUALS = 16


@dataclass(frozen=True)
class MedusaConfig:
    """Shape.

    Attributes:
        n_heads: Tokens of the longest draft.
        n_residuals: Residual parts of a head, 0 or more.
        n_embd: Width of the target's states.
        n_vocab: Tokens.
        taps: The boundary behind the target's last layer, alone.
    """

    n_heads: int
    n_residuals: int
    n_embd: int
    n_vocab: int
    taps: tuple[int, ...]

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> MedusaConfig:
        """Reads and checks the metadata of a draft file.

        Raises:
            FormatError: A key is missing, of another type, or out of range; names file and key.
        """
        keys, taps = Keys(file), taps_of(file)
        n_residuals = keys.integer("residual_count")
        if n_residuals > MAX_RESIDUALS:
            raise keys.error("residual_count", n_residuals, f"0 to {MAX_RESIDUALS}")
        if len(taps) != 1:
            raise keys.error("target_layers", list(taps), "one layer")
        return cls(
            n_heads=keys.count("block_count", maximum=MAX_HEADS),
            n_residuals=n_residuals,
            n_embd=keys.count("embedding_length"),
            n_vocab=keys.count("vocab_size"),
            taps=taps,
        )


class MedusaWeights:
    """The tensors of a draft file.

    Args:
        file: The open file.
        config: Its shape.

    Attributes:
        tensors: The claims.
        residuals: Of every head, matrix and bias of its residual parts.
        outputs: Of every head, `(V, E)`, what makes logits.

    Raises:
        FormatError: Tensors do not fit.
    """

    def __init__(self, file: GGUFFile, config: MedusaConfig) -> None:
        width = config.n_embd
        self.tensors = tensors = Tensors(file)
        self.residuals: list[list[tuple[Matrix, Vector | None]]] = []
        self.outputs: list[Matrix] = []
        for head in range(config.n_heads):
            prefix = f"blk.{head}."
            self.residuals.append(
                [
                    (
                        tensors.matrix(f"{prefix}residual.{part}.weight", (width, width)),
                        tensors.vector(f"{prefix}residual.{part}.bias", width, "optional"),
                    )
                    for part in range(config.n_residuals)
                ]
            )
            self.outputs.append(tensors.matrix(f"{prefix}output.weight", (config.n_vocab, width)))
        tensors.check()


def draft_limit(file: GGUFFile) -> int:
    """The longest draft: one token per head."""
    return MedusaConfig.from_gguf(file).n_heads


class MedusaNetwork(FeedbackNetwork):
    """Medusa heads, bound to a target.

    Args:
        file: The open draft file.
        executor: Runs them.
        options: Number of slots.
        target: Whose states they read, and whose last norm they borrow.
        n_draft: Tokens of a draft, at most one per head.
        steps: Also make the programs for single steps.

    Raises:
        FormatError: Metadata or tensors do not fit the architecture; found before weights are read.
    """

    has_cells = False

    def __init__(
        self,
        file: GGUFFile,
        executor: Executor,
        options: ModelOptions,
        target: Model,
        *,
        n_draft: int,
        steps: bool = False,
    ) -> None:
        self.config = config = MedusaConfig.from_gguf(file)
        assert n_draft <= config.n_heads, "one head per token"
        self._weights = weights = MedusaWeights(file, config)
        self._target = target
        super().__init__(
            executor,
            options,
            features=target.features["layers"],
            width=config.n_embd,
            n_draft=n_draft,
            steps=steps,
            n_logits=config.n_vocab,
            n_blocks=config.n_heads,
        )
        weights.tensors.load(executor)
        self._compile()

    def _trace_states(self, ops: Ops) -> None:
        ops.gather(self._at, self._features, self._feature_rows)
        self._target.output_norm.trace(ops, self._at, self._at)

    def _trace_cells(self, ops: Ops) -> None:
        """Nothing: the heads have no cache."""

    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        out, width = self._last, self._last.width
        inner, gate = (step.rows.scratch.buffer(name, width) for name in ("inner", "gate"))
        ops.copy(out, step.before)
        for matrix, bias in self._weights.residuals[index]:
            ops.linear([inner], out, [matrix.value], biases=[value_of(bias)])
            ops.copy(gate, inner)
            ops.sigmoid(gate)
            ops.multiply(inner, gate)
            ops.add(out, inner)
        ops.copy(step.after, step.before)  # all heads read the target's state

    def _head(self, index: int) -> Weight:
        return self._weights.outputs[index].value
