"""The start of the fit of a night: from zero, or from the current model, to whose rows others were added."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError
from bigsvm.model import versions as registry
from bigsvm.run.fit.plan import make_plan
from bigsvm.run.start.earlier import model_digest, open_earlier
from bigsvm.run.start.known_rows import known_content
from bigsvm.store.blocks import RowBlocks
from pipelines.config import Job


@dataclass(frozen=True)
class Start:
    """The start of a fit.

    model : folder of a version in the registry, which never changes; None: zero
    digest : digest of that model, '' for zero
    why_not : why the fit starts from zero although the job asks for a warm start, in words
    """

    model: str | None = None
    digest: str = ""
    why_not: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"model": self.model, "digest": self.digest}

    @classmethod
    def of(cls, document: Any) -> Start | None:
        """From `document()`; None if it is invalid, or the model no longer exists."""
        try:
            start = cls(document["model"], document["digest"])
        except (TypeError, KeyError):
            return None
        if start.model is not None and model_digest(start.model) != start.digest:
            return None
        return start

    def applied(self, config: FitConfig) -> FitConfig:
        """The options of a fit with this start."""
        return config if self.model is None else dataclasses.replace(config, warm_start=self.model)


def choose(job: Job, store: RowBlocks) -> Start:
    """The current model, if the job asks for it and the fit can start from it; else zero.

    Dual variables belong to rows, so they are used only if the manifest of the store says that its first rows are those
    of the model; no row is read for that.  The certificate does not depend on the start.
    """
    if not job.warm_start:
        return Start()
    try:
        model = registry.current(job.registry)
        if model is None:
            return Start(why_not="nothing is current")
        config = dataclasses.replace(job.fit, warm_start=str(model))
        plan = make_plan(store, config)
        if plan.solver.starts_from is None:
            return Start(why_not=f"solver {plan.solver.name!r} starts from zero")
        earlier = open_earlier(str(model), plan.solver, plan.problem, store)
    except BigSVMError as error:
        return Start(why_not=error.what)
    if earlier.alpha is not None and known_content(store, earlier.alpha.shape[1]) != earlier.content:
        return Start(why_not="its rows are not the first of the store, as `ingest --append` has it")
    return Start(str(model), earlier.digest)
