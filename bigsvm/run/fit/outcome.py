"""What a fit gives back: status, model, proof, and the record of what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import Interrupted, told_outside
from bigsvm.model.linear_model import Model
from bigsvm.peak_memory import PeakMemory
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.run.fit.plan import Plan
from bigsvm.run.fit.problem_identity import ProblemIdentity
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.state.vectors import RowVector
from bigsvm.store.survey import Survey

_EXIT = {"converged": 0, "paper_rule": 0, "kkt": 0, "stopped": 4, "stalled": 4, "interrupted": 75}


_HINT = "scale the features to about [-1, 1], or choose a smaller C or a wider --tol"
_FURTHER = "; with --max-passes N a fit goes on for N passes"
_LONGER = "give it more --max-passes or --max-time"
_FROM_HERE = "; with --warm-start MODEL a fit goes on from this model"
_STREAMED = "give it more --memory, so that more rows stay in memory, "


def how_it_ended(
    status: str, rule: Sequence[Any], limited: bool, streamed: bool, starts_another: bool
) -> dict[str, Any]:
    """What a result says of its end beside the status: the rule that held, or what may help a fit that fell short.

    rule : (name, value, tolerance), or empty
    limited : --max-passes was given;  streamed : the rows did not fit the memory
    starts_another : a fit may start from its model
    """
    if status in ("paper_rule", "kkt"):
        return {"rule": dict(zip(("name", "value", "tolerance"), rule, strict=True))}
    if status == "stalled":
        return {"hint": f"{_STREAMED if streamed else ''}{_HINT}{'' if limited else _FURTHER}"}
    if status == "stopped":
        return {"hint": f"{_LONGER}{_FROM_HERE if starts_another else ''}"}
    return {}


def exit_code(status: str, allow_unconverged: bool) -> int:
    """0 when the tolerance is proved, 4 when it is not (0 if that is allowed)."""
    code = _EXIT[status]
    return 0 if code == 4 and allow_unconverged else code


@dataclass(repr=False)
class FitResult:
    """Result of `bigsvm.fit`.

    status : 'converged' | 'paper_rule' | 'kkt' | 'stopped' | 'stalled'
    model : LinearModel or KernelModel, the one whose objective and gap are reported
    certificate : Certificate
    figures : the numbers of `result` in the JSON of `bigsvm fit` (docs/output.md)
    warnings : what the user should know
    identity : the rows and options that it is the result of
    """

    status: str
    model: Model
    certificate: Certificate
    figures: dict[str, Any]
    warnings: list[str]
    identity: ProblemIdentity
    alpha: list[RowVector] = field(default_factory=list)
    """Of each group of models, (n_samples, n_models) in working order; empty where none is kept."""
    working_row: np.ndarray | None = None
    """Row of `alpha` of each store row, may be a map; None for the identity."""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    loaded_bytes: int = 0
    """Memory that compiled code and libraries took that were loaded for this fit, before its base was measured."""
    stopped_by: str | None = None
    """The signal that asked for a stop so late that the fit ended all the same, such as SIGTERM; None without one."""

    def heed_a_late_stop(self, hint: str = "") -> FitResult:
        """The result itself.  Raises Interrupted if a signal came during the last step, which nobody has acted on.

        hint : how to go on, if something was kept to go on from
        """
        if self.stopped_by is not None:
            error = Interrupted(f"stopped by {self.stopped_by}", hint=hint)
            error.by = self.stopped_by
            raise error
        return self

    def __repr__(self) -> str:
        """One line, however large the model."""
        gap, kind = self.certificate.relative_gap, self.certificate.kind
        objective = self.figures.get("objective", float("nan"))
        return f"FitResult({self.status}: relative gap {gap:.3g} ({kind}), objective {objective:.6g}, {self.model!r})"

    def document(self, model: str | None = None, run: str | None = None) -> dict[str, Any]:
        """The `result` object: figures, seconds, memory, and where model and run were written."""
        return {"model": model, "run": run, **self.figures, "seconds": self.seconds, "memory": self.memory}

    def exit_code(self, allow_unconverged: bool = False) -> int:
        """0 when the tolerance is proved, 4 when it is not (0 if that is allowed)."""
        return exit_code(self.status, allow_unconverged)

    @told_outside
    def save_model(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the model directory, alpha in bounded memory.  Raises OutputError."""
        with PeakMemory() as peak:
            alpha: Callable[[BinaryIO], None] | None = self._write_alpha if self.alpha else None
            alpha_bytes = sum(8 * vector.values.size for vector in self.alpha)
            self.model.save(path, alpha, overwrite, alpha_bytes)
        if self.memory:
            self.memory["peak_anon_bytes"] = max(self.memory["peak_anon_bytes"], peak.peak_anon_bytes)
            self.memory["peak_rss_bytes"] = max(self.memory["peak_rss_bytes"], peak.peak_rss_bytes)

    def _write_alpha(self, file: BinaryIO) -> None:
        """alpha.npy: (n_models, n_samples) float64 in store order, written tile by tile."""
        n_samples = len(self.alpha[0].values)
        n_models = sum(vector.values.shape[1] for vector in self.alpha)
        header = {"descr": "<f8", "fortran_order": False, "shape": (n_models, n_samples)}
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        for vector in self.alpha:
            for row, column, values in vector.tiles_in_store_order(self.working_row):
                for m, of_model in enumerate(values.T, column):
                    file.seek(begin + 8 * (m * n_samples + row))
                    file.write(np.ascontiguousarray(of_model).astype("<f8", copy=False).data)
            begin += 8 * vector.values.shape[1] * n_samples

    def close(self) -> None:
        """Give back the memory or scratch file of alpha; the model stays usable."""
        for vector in self.alpha:
            vector.close()
        self.alpha = []


def about_model(
    problem: Problem, data: RowBlocks, certificate: Certificate | None, plan: Plan, config: FitConfig, survey: Survey,
    status: str,
) -> dict[str, Any]:  # fmt: skip
    """What model.json holds beside the arrays and the classes."""
    assert certificate is not None
    found = {
        "loss": problem.loss.name,
        "kernel": problem.kernel.document() if problem.kernel.name != "linear" else "linear",
        "C": problem.C.tolist(),
        "bias": problem.bias,
        "bias_scale": problem.bias_scale,
        "class_weight": problem.class_weight.tolist() if problem.member is None else [1.0] * problem.n_models,
        "multi_class": problem.multi_class,
    }
    if problem.regression:
        found["epsilon"] = problem.loss.epsilon
    if problem.loss.nu is not None:
        found["nu"] = problem.loss.nu
    if not problem.kernel.by_construction:
        found["positive_semidefinite"] = problem.kernel.definite.document()
    proof = {
        "kind": certificate.kind,
        "objective": certificate.primal.tolist(),
        "dual_objective": certificate.dual.tolist(),
        "duality_gap": certificate.gap.tolist(),
        "relative_gap": certificate.relative_gaps.tolist(),
        "n_support": certificate.n_support.tolist(),
    }
    return {
        "problem": found,
        "status": status,
        "tol": config.tol,
        "seed": config.seed,
        "certificate": proof,
        "plan": plan.resolved(),
        "n_samples": data.n_samples,
        "nnz": survey.nnz,
        "dtype": data.dtype.name,
        "content_fingerprint": survey.content_fingerprint,
    }
