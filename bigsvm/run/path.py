"""`bigsvm.fit_path`: models for several values of C from one fit, which share every pass over the data.

`newton-cg` on rows in memory has no passes to share, and all models of a fit take part in each of its products until
the last one is proved: there the values of C have fits of their own, each of which starts from the last one's weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import PlanRefused, Unsupported, UsageError
from bigsvm.events import Emit, silent
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.certificate import Certificate
from bigsvm.run.apply.held_out import add_held_out
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.fit.plan import Plan, make_plan
from bigsvm.run.fit.scales import is_told, told_once
from bigsvm.run.start.lazy_rows import apart, rows_on_disk
from bigsvm.run.start.targets import open_for
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.ingest.collections.lazy import is_lazy

_BY_MODEL = ("objective", "dual_objective", "duality_gap", "relative_gap", "n_support")
"""Lists in the `certificate` of a model that have an entry for each of its models."""

_ADDED = ("passes", "epochs", "certificate_passes", "bytes_read")
"""Figures of a path that are the sums of those of its fits."""
_OF_THE_FIRST = ("base_bytes", "budget_bytes")
"""Memory before a fit, of which the first one says what it was before the path."""


def fit_path(
    source: Any,
    Cs: Sequence[float],
    *,
    label: str | None = None,
    weight: str | None = None,
    split: float | None = None,
    emit: Emit = silent,
    **options: Any,
) -> list[FitResult]:
    """Train an SVM for each of several values of C on the same passes, each with its own certificate.

    For each C the problem is that of `bigsvm.fit`:  min_w  1/2 ||w||^2 + C sum_i c_i loss(1 - y_i f(x_i)), with c_i the
    class weight times the sample weight.  All models advance in every pass, until the last of them is proved, so a path
    reads about as much as its hardest C would alone.  It takes as much memory as a fit of len(Cs) * n_models models.
    Where rows in memory go to `newton-cg`, the values of C are trained one after another instead, from the smallest,
    each from the weights of the last; not if max_passes or max_time limits the path.

    Parameters
    ----------
    source, label, weight, split, emit : as for `bigsvm.fit`
    Cs : positive numbers, in any order, possibly repeated
    options : as for `bigsvm.fit`, without C and lam.  solver='auto' decides by the largest C.

    Returns
    -------
    list of FitResult, one for each C in the given order.  `model`, `certificate`, `status` ('converged' if its own
    relative gap is at most tol), `figures['objective']` and the other figures of a model belong to that C alone.
    `epochs`, `passes` and all bytes in `figures`, and `seconds` and `memory`, belong to the whole path, whose values of
    C are in `figures['C_path']`.  Dual variables are not kept, so for a saved model `certify` proves a weaker bound. If
    you need them, fit again with the chosen C.

    Raises
    ------
    UsageError : Cs is empty or has a value that is not positive and finite; or C or lam is among the options.
    BigSVMError : whatever `bigsvm.fit` raises.

    Example
    -------
    >>> import bigsvm, numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.9, 0.1]])
    >>> path = bigsvm.fit_path((X, [1, 0, 1, 0]), [0.1, 1, 10], loss="hinge")
    >>> [result.figures["C"] for result in path]
    [0.1, 1.0, 10.0]
    >>> max(result.certificate.relative_gap for result in path) <= 1e-3
    True
    """
    for name in ("C", "lam"):
        if name in options:
            raise UsageError(f"{name} is not an option of a path", hint="pass the values of C as Cs")
    config = FitConfig.of(**options)
    X, y, weights = apart(source)
    if is_lazy(X):
        beside = {"y": y, "sample_weight": weights, "label": label, "weight": weight}
        with rows_on_disk(X, options, beside, config.regression, emit) as (path, options):
            return fit_path(path, Cs, split=split, emit=emit, **options)
    store = open_for(
        source, config.regression, label=label, weight=weight, split="recorded" if split is None else split
    )
    results = [result.heed_a_late_stop() for result in fit_path_store(store, costs_of(Cs), config, emit)]
    for result in results:
        add_held_out(result, store, config, emit)
    return results


def fit_path_store(
    store: RowBlocks,
    Cs: list[float],
    config: FitConfig,
    emit: Emit = silent,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
) -> list[FitResult]:
    """The results for `Cs` from one fit of `store`; C of `config` is ignored; checkpoints as in `fit_store`."""
    if config.of_kernel:
        raise Unsupported(
            "a path of C needs a linear solver, because kernel models share no passes", hint="fit one C at a time"
        )
    if config.calibrate is not None:
        raise UsageError("a path cannot be calibrated", hint="choose a C, and fit it with calibrate")
    config = dataclasses.replace(config, C=max(Cs), C_path=Cs, no_dual=True)
    if checkpoints is None and (plan := _plan_of_turns(store, config)) is not None:
        return _in_turn(store, config, plan, emit)
    return _together(store, config, emit, checkpoints, resume)


def by_products_in_memory(plan: Plan) -> bool:
    """Whether a fit is by `newton-cg` in memory, so that several C are better trained one after another."""
    return plan.resident and plan.solver.name == "newton-cg"


def _together(
    store: RowBlocks, config: FitConfig, emit: Emit, checkpoints: Checkpoints | None = None, resume: bool = False
) -> list[FitResult]:
    whole = fit_store(store, config, emit, checkpoints, resume)
    assert config.C_path is not None
    return [part_of_path(whole, number, config) for number in range(len(config.C_path))]


def _plan_of_turns(store: RowBlocks, config: FitConfig) -> Plan | None:
    """The plan of a fit of all values of C, if they are to be trained one after another; else None."""
    limited = config.max_passes is not None or config.max_time is not None  # which is a limit of the whole path
    if limited or config.solver not in ("auto", "newton-cg") or len(set(config.C_path or ())) < 2:
        return None
    try:
        plan = make_plan(store, config)
    except PlanRefused:
        return None
    return plan if by_products_in_memory(plan) else None


def _in_turn(store: RowBlocks, config: FitConfig, plan: Plan, emit: Emit) -> list[FitResult]:
    """The results of fits of one C after another, from the smallest; their cost is that of all."""
    assert config.C_path is not None
    found: dict[float, FitResult] = {}
    # Small C alone might have another solver, which does not start from weights.
    own = dataclasses.replace(config, solver=plan.solver.name)
    emit = told_once(emit)
    with temporary_folder() as folder:
        for C in sorted(set(config.C_path)):
            (found[C],) = _together(store, dataclasses.replace(own, C=C, C_path=[C]), emit)
            found[C].heed_a_late_stop()
            if len(found) < len(set(config.C_path)):
                found[C].model.save(folder / repr(C))
                own = dataclasses.replace(own, warm_start=str(folder / repr(C)))
    fits = list(found.values())
    cost = {name: sum(fit.figures[name] for fit in fits) for name in _ADDED}
    seconds = {name: math.fsum(fit.seconds[name] for fit in fits) for name in fits[0].seconds}
    memory = {name: max(fit.memory[name] for fit in fits) for name in fits[0].memory}
    memory.update((name, fits[0].memory[name]) for name in _OF_THE_FIRST if name in memory)
    warnings: list[str] = []
    for text in (text for fit in fits for text in fit.warnings):
        warnings += [] if is_told(text, warnings) else [text]
    path = {"C_path": list(config.C_path)}
    results = []
    for C in config.C_path:
        model, figures = found[C].model, {**found[C].figures, **cost, **path}
        about = {**model.about, **path, "plan": {**model.about["plan"], "why": plan.why}}
        of_path: dict[str, Any] = {
            "warnings": list(warnings),
            "seconds": dict(seconds),
            "memory": dict(memory),
            "figures": figures,
        }
        results.append(dataclasses.replace(found[C], model=dataclasses.replace(model, about=about), **of_path))
    return results


def costs_of(Cs: Any) -> list[float]:
    """`Cs` as floats.  Raises UsageError."""
    try:
        found = [] if isinstance(Cs, str) else [float(C) for C in Cs]
    except (TypeError, ValueError) as error:
        raise UsageError(f"Cs must be positive numbers: {error}") from error
    if not found:
        raise UsageError("Cs must be some positive numbers", hint="such as Cs=[0.1, 1, 10]")
    for C in found:
        if not 0.0 < C < math.inf:
            raise UsageError(f"every C must be a positive number, not {C!r}")
    return found


def part_of_path(whole: FitResult, number: int, config: FitConfig) -> FitResult:
    """The result for the C with index `number`, from the fit of the whole path."""
    assert config.C_path is not None
    n_models = whole.model.n_models // len(config.C_path)
    part = slice(number * n_models, (number + 1) * n_models)
    certificate = _certificate_of(whole.certificate, part)
    proved = config.stop == "gap" and certificate.relative_gap <= config.tol
    status = "converged" if proved else whole.status
    # How the path ended is not how a model ended that was proved before.
    about_all = {name: value for name, value in whole.figures.items() if not proved or name not in ("hint", "rule")}
    figures = {
        **about_all,
        "C": config.C_path[number],
        "objective": math.fsum(certificate.primal),
        "dual_objective": math.fsum(certificate.dual),
        "duality_gap": math.fsum(certificate.gap),
        "relative_gap": certificate.relative_gap,
        "n_support": int(certificate.n_support.sum()),
        "models": whole.figures["models"][part],
    }
    assert isinstance(whole.model, LinearModel)
    return FitResult(
        status,
        _model_of(whole.model, part, status, config.C_path),
        certificate,
        figures,
        list(whole.warnings),
        whole.identity,
        seconds=dict(whole.seconds),
        memory=dict(whole.memory),
        loaded_bytes=whole.loaded_bytes,
        stopped_by=whole.stopped_by,
    )


def _certificate_of(whole: Certificate, part: slice) -> Certificate:
    return dataclasses.replace(
        whole,
        primal=whole.primal[part],
        dual=whole.dual[part],
        gap=whole.gap[part],
        n_support=whole.n_support[part],
    )


def _model_of(whole: LinearModel, part: slice, status: str, path: list[float]) -> LinearModel:
    """The models of one C, with their `about`; the path is recorded, because its other values decided when it ended."""
    about = whole.about
    proof = about["certificate"]
    return dataclasses.replace(
        whole,
        coef=whole.coef[part].copy(),
        intercept=whole.intercept[part].copy(),
        positive=whole.positive[part].copy(),
        negative=whole.negative[part].copy(),
        about={
            **about,
            "status": status,
            "problem": {**about["problem"], "C": about["problem"]["C"][part]},
            "certificate": {**proof, **{name: proof[name][part] for name in _BY_MODEL}},
            "C_path": list(path),
        },
    )
