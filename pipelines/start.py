"""Where the fit of a night begins: at zero, or where the current model ended, which rows were added to since."""

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
    """What a fit starts from.

    model : folder of a version of the registry, which never changes; None: zero
    digest : of that model, '' for zero
    why_not : the reason for zero where the job asks for more, in words
    """

    model: str | None = None
    digest: str = ""
    why_not: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"model": self.model, "digest": self.digest}

    @classmethod
    def of(cls, document: Any) -> Start | None:
        """From `document()`; None where it is none, or the model is not there any more."""
        try:
            start = cls(document["model"], document["digest"])
        except (TypeError, KeyError):
            return None
        if start.model is not None and model_digest(start.model) != start.digest:
            return None
        return start

    def applied(self, config: FitConfig) -> FitConfig:
        """The options of the fit that starts here."""
        return config if self.model is None else dataclasses.replace(config, warm_start=self.model)


def choose(job: Job, store: RowBlocks) -> Start:
    """The current model, where the job asks for it and the fit can start there; else zero.

    Duals belong to rows: they are taken where the manifest of the store says that its first rows are those that the
    model was trained on, so nothing is read.  The certificate is the same claim wherever a fit began.
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
            return Start(why_not=f"solver {plan.solver.name!r} begins at zero")
        earlier = open_earlier(str(model), plan.solver, plan.problem, store)
    except BigSVMError as error:
        return Start(why_not=error.what)
    if earlier.alpha is not None and known_content(store, earlier.alpha.shape[1]) != earlier.content:
        return Start(why_not="its rows are not the first of the store, as `ingest --append` has it")
    return Start(str(model), earlier.digest)
