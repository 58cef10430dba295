"""Drafters on a target: built side by side, put to use one set at a time, replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from specli.drafters.chain import DrafterChain
from specli.drafters.costs import RowCosts
from specli.engine.config import RunConfig
from specli.engine.drafting import DrafterSet, TargetNeeds
from specli.engine.loader import Loader
from specli.engine.loop import Engine
from specli.engine.measure import measure_rows
from specli.engine.verify import lossless_rule
from specli.errors import SpecliError
from specli.models.base import Model

log = logging.getLogger(__name__)


class Binding:
    """The sets of drafters that are built on a target, and the engine that runs one of them.

    The target's weights are read again only if new drafters need hidden states that it does not capture, or longer
    drafts than it has room for.

    Args:
        loader: The target.

    Attributes:
        loader: As given.
        used: The drafters in use; None before the first `use`.
        load_ns: Time from the start to the end of the first `build`; 0 until then.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.used: DrafterSet | None = None
        self.load_ns = 0
        self._begun = time.perf_counter_ns()
        self._engine: Engine | None = None
        self._measured: tuple[Model, int, RowCosts] | None = None  # the target, for which draft length, the costs
        self._built: list[DrafterSet] = []
        self._draft_files = ExitStack()

    @property
    def engine(self) -> Engine:
        """The engine; there once drafters have been built. A target that is read again gets a new one."""
        assert self._engine is not None, "nothing has been built"
        return self._engine

    def build(self, configs: Sequence[RunConfig], *, keeps_files: bool = False) -> list[DrafterSet]:
        """Builds the drafters of several settings side by side; those built before are closed.

        Args:
            configs: One per set; only drafters, draft model and synthetic acceptance count.
            keeps_files: The files of the sets built before are left as they are.

        Raises:
            SpecliError: Drafters do not fit; those built before stay in use if metadata says so already.
        """
        loader = self.loader
        with ExitStack() as files:
            plans = [loader.plan(config, files) for config in configs]
            TargetNeeds.union(plan.needs for plan in plans)  # refuses what cannot be side by side
            self.close_drafters(keeps_files=keeps_files)
            self._draft_files = files.pop_all()
        target = loader.load(plans)
        if self._engine is None or self._engine.target is not target:
            rule = lossless_rule(loader.tokenizer.eog_ids)
            self._engine = Engine(target, loader.tokenizer, DrafterChain(()), rule, n_ctx=loader.n_ctx)
        for plan in plans:
            self._built.append(DrafterSet(plan, target, loader.report))
        self.load_ns = self.load_ns or time.perf_counter_ns() - self._begun
        return list(self._built)

    def use(self, drafters: DrafterSet) -> None:
        """From now on requests use these drafters, one of those that `build` returned last; the cache starts empty."""
        self.used = drafters
        self.engine.use(drafters.chain, drafters.rule)
        if drafters.adapts:
            drafters.adapt(self._costs(drafters.chain.max_draft))
        for doubt in drafters.plan.doubts(self.loader.n_ctx):
            log.warning(doubt)

    def _costs(self, max_draft: int) -> RowCosts:
        """What forwards of the target cost; measured once for a loaded target, and again for longer drafts."""
        target = self.engine.target
        if self._measured is None or self._measured[0] is not target or self._measured[1] < max_draft:
            self._measured = target, max_draft, RowCosts(measure_rows(target, 1 + max_draft))
        return self._measured[2]

    def change(self, config: RunConfig) -> None:
        """Replaces the drafters in use; if that fails, the old ones are used on.

        Raises:
            SpecliError: The new ones do not fit.
        """
        before = self.used
        try:
            self.use(self.build([config])[0])
        except SpecliError:
            if before is not None and not self._built:
                self.use(self.build([before.plan.config])[0])
            raise

    def close_drafters(self, *, keeps_files: bool = False) -> None:
        """Releases all drafters; the engine is left without any."""
        built, self._built = self._built, []
        if self._engine is not None:
            self._engine.use(DrafterChain(()), lossless_rule(self.loader.tokenizer.eog_ids))
        for drafters in built:
            drafters.close(keeps_files=keeps_files)
        self._draft_files.close()

    def close(self) -> None:
        """Releases drafters and target."""
        self.close_drafters()
        self.loader.close()
