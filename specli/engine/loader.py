"""A target's file, and loading it: check cheap things first, then metadata, pairing, memory, and weights last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from specli.engine.config import RunConfig
from specli.engine.drafting import DrafterPlan, TargetNeeds, plan_drafters, rewind_for
from specli.engine.loop import PROMPT_SHARE
from specli.engine.memory import NetworkMemory, measure_growth
from specli.engine.placement import executor_of, with_shares
from specli.engine.plan import Fitted, MemoryPlan, available_bytes, check_memory, fit_context, memory_for
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.kernels.counting import CountingExecutor
from specli.kernels.ops import Executor
from specli.models import load_model, model_class
from specli.models.base import Model, ModelOptions
from specli.tokenizer import Tokenizer

MIN_OUTPUTS = 65  # rows of logits there is room for at least: any default draft, so that /spec need not load again


class Loader:
    """The target: what its file says, what fits into memory with it, and the model once it is loaded.

    Args:
        config: What was asked for.
        file: The target's open file.
        tokenizer: The target's.
        report: Takes a line of progress.

    Attributes:
        config: As given, with shares of several devices.
        file: As given.
        tokenizer: As given.
        report: As given.
        target: The model; None until `load`.
        networks: What the target and the draft networks loaded last take.
        notes: Lines about memory for the user.
    """

    def __init__(self, config: RunConfig, file: GGUFFile, tokenizer: Tokenizer, report: Callable[[str], None]) -> None:
        self.config = replace(config, target=with_shares(config.target))
        self.file = file
        self.tokenizer = tokenizer
        self.report = report
        self.target: Model | None = None
        self.networks: tuple[NetworkMemory, ...] = ()
        self.notes: list[str] = []
        self._n_ctx_train = model_class(file).configure(file).n_ctx_train
        self._fitted: Fitted | None = None
        self._needs = TargetNeeds()

    @property
    def n_ctx(self) -> int:
        """Tokens of a sequence's context; chosen by `fit`, or else by the first `load`, and the same from then on."""
        assert self._fitted is not None, "the context is not chosen yet"
        return self._fitted.n_ctx

    @property
    def record(self) -> dict[str, Any]:
        """Path, architecture, quant type, parameters and bytes of the target."""
        file = self.file
        return {
            "path": str(file.path),
            "arch": file.architecture,
            "quant": _quant(file),
            "n_params": sum(tensor.n_elements for tensor in file.tensors.values()),
            "bytes": file.n_bytes,
        }

    def line(self) -> str:
        """The target in one line."""
        file = self.file
        return f"target: {file.path.name} ({file.architecture}, {_quant(file)}), context {self.n_ctx}"

    def plan(self, config: RunConfig, files: ExitStack) -> DrafterPlan:
        """Chooses and checks drafters by metadata; `files` closes the draft file.

        Raises:
            SpecliError: They do not fit.
        """
        draft = GGUFFile.open(config.draft.path, config.draft.metadata) if config.draft else None
        draft_file = files.enter_context(closing(draft)) if draft else None
        return plan_drafters(config, self.file, self.tokenizer, draft_file)

    def check(self, config: RunConfig) -> DrafterPlan:
        """As `plan`, with the draft file closed again.

        Raises:
            SpecliError: They do not fit.
        """
        with ExitStack() as files:
            return self.plan(config, files)

    def fit(self, groups: Iterable[Sequence[RunConfig]]) -> None:
        """Checks settings by metadata, and chooses the context that leaves room for any of the groups.

        Args:
            groups: Settings whose drafters will be built side by side.

        Raises:
            SpecliError: They do not fit.
        """
        for group in groups:
            with ExitStack() as files:
                fitted = self._fit([self.plan(config, files) for config in group], None)
            if self._fitted is None or fitted.n_ctx < self._fitted.n_ctx:
                self._fitted = fitted

    def load(self, plans: Sequence[DrafterPlan]) -> Model:
        """The target, loaded so that it serves these drafters side by side, if it fits into memory with them.

        What is loaded already is kept if it serves them, too.

        Raises:
            SpecliError: It does not fit, or two of the plans ask for different hidden states.
        """
        needs = TargetNeeds.union(plan.needs for plan in plans)
        if self.target is not None and self._needs.covers(needs):
            self._check_memory(self.target.executor, self.target.options, plans, is_loaded=True)
            return self.target
        with ExitStack() as opened:
            executor = executor_of(self.config.target, self.file)
            opened.callback(executor.close)
            if self._fitted is None:
                self._fitted = self._fit(plans, executor)
            options = self._options(needs, self.n_ctx)
            self._check_memory(executor, options, plans, is_loaded=False)
            if self.target is not None:
                self.target.close()
            self.report(f"loading {self.file.path}")
            with memory_for(self.file, "target", self.n_ctx), self.tokenizer.preparing():
                self.target = target = load_model(self.file, executor, options)
            opened.pop_all()
        n_rows = min(options.max_outputs, options.max_tokens) // options.n_slots
        room = min(n_rows - 1, target.cache.max_rewind - rewind_for(0))
        self._needs = replace(needs, max_draft=max(needs.max_draft, room))
        return target

    def lines(self) -> list[str]:
        """What the user should know about context and memory."""
        fitted = self._fitted
        return [*([fitted.note] if fitted and fitted.note else []), *self.notes]

    def memory_line(self) -> str:
        """What is loaded takes this much memory."""
        return MemoryPlan.of(self.networks, self.n_ctx).line()

    def close(self) -> None:
        """Releases the target."""
        if self.target is not None:
            self.target.close()

    def _options(self, needs: TargetNeeds, n_ctx: int) -> ModelOptions:
        config = self.config
        n_rows = config.n_slots * (1 + needs.max_draft)  # no request's draft is cut because of others
        reserve = n_rows // (PROMPT_SHARE - 1) + 1 if config.n_slots > 1 else 0  # nor does a prompt wait for answers
        return ModelOptions(
            capacity=n_ctx,
            n_slots=config.n_slots,
            type_k=QuantType.from_label(config.target.type_k),
            type_v=QuantType.from_label(config.target.type_v),
            taps=needs.taps,
            nextn=needs.reads_nextn,
            max_tokens=max(min(config.n_batch, n_ctx), n_rows + reserve),
            max_outputs=max(MIN_OUTPUTS, n_rows),
            max_rewind=rewind_for(needs.max_draft),
            tree_depth=needs.tree_depth,
        )

    def _fit(self, plans: Sequence[DrafterPlan], executor: Executor | None) -> Fitted:
        wanted = self.config.n_ctx
        if wanted > 0:
            return fit_context(wanted, self._n_ctx_train, (), {})
        needs = TargetNeeds.union(plan.needs for plan in plans)
        networks = self._networks(executor, self._options(needs, self.config.n_batch), plans)
        available = {part.device: available_bytes(part.device) for part in networks[0].parts}
        return fit_context(wanted, self._n_ctx_train, networks, available)

    def _check_memory(
        self, executor: Executor, options: ModelOptions, plans: Sequence[DrafterPlan], *, is_loaded: bool
    ) -> None:
        """Plans memory, and refuses what does not fit; a loaded target has its share already."""
        networks = self._networks(executor, options, plans)
        plan = MemoryPlan.of(networks, options.capacity)
        note = check_memory(self.file, networks[1:] if is_loaded else networks, options.capacity, plan)
        self.networks = tuple(networks)
        if note is not None and note not in self.notes:
            self.notes.append(note)

    def _networks(
        self, executor: Executor | None, options: ModelOptions, plans: Sequence[DrafterPlan]
    ) -> list[NetworkMemory]:
        """The target, then the draft networks of all plans, then their tables; the capacity does not count."""
        if executor is None:  # not opened yet
            with closing(executor_of(self.config.target, self.file)) as opened:
                return self._networks(opened, options, plans)

        def count(n_ctx: int) -> list[CountingExecutor]:
            counting = CountingExecutor(executor)
            target = load_model(self.file, counting, replace(options, capacity=n_ctx))
            return [counting, *(made for plan in plans for made in plan.count(target))]

        tables = (table for plan in plans for table in plan.table_memory(options.n_slots))
        return [*measure_growth(count), *tables]


def _quant(file: GGUFFile) -> str:
    """The quant type that holds most of the weights."""
    sizes: dict[QuantType, int] = {}
    for tensor in file.tensors.values():
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.nbytes
    return max(sizes, key=lambda kind: sizes[kind]).label if sizes else "none"
