"""The proof of a saved model, independent of the run that made it.

Only the arrays of the model, alpha and the rows of the store are read; the rows once, for all models.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bigsvm.compile_in_child import compiled_in_child
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused, in_words
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.files.packed_text import text_bytes
from bigsvm.machine import memory_limit, return_freed_memory
from bigsvm.model.linear_model import Model, load_with_alpha
from bigsvm.model.model_rows import check_alike, rows_bytes
from bigsvm.model.named_columns import other_columns
from bigsvm.peak_memory import PeakMemory
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.small_rows import kind_of, rows_like
from bigsvm.run.fit.sizes import BLOCK_BYTES, FIXED
from bigsvm.run.proof.alpha_terms import AlphaTerms
from bigsvm.run.proof.beta_terms import KernelTerms, SignedLinearTerms
from bigsvm.run.proof.saved_problem import TRAINING_STORE, models_document, problem_of
from bigsvm.run.proof.terms import SavedTerms, n_samples_of
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import naming_lines
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.transforms.withheld import HashedShare, WithheldRows
from bigsvm.tasks import SerialMapper, runs_of
from bigsvm.units import MIB, counted, show_bytes


@np.errstate(all="ignore")  # as in a fit
@naming_lines
def certify_model(path: Path, store: RowBlocks, config: FitConfig, emit: Emit = silent) -> dict[str, Any]:
    """Prove the duality gap of a saved model again, on the store that it was trained on.

    The proof does not depend on the run that made the model: it reads model, alpha and rows, and nothing else.

    Raises
    ------
    DataError : the rows are not those that the model was trained on; the model is damaged, or its arrays contradict
        each other; a precomputed kernel is not symmetric; or the proof refutes what --assume-psd states.
    PlanRefused : the memory is too small; has the smallest that would do.
    """
    return_freed_memory()
    began = time.monotonic()
    model, alpha = load_with_alpha(path)
    store = rows_trained_on(model, store)
    told = other_columns(model.about, store)
    for text in told:
        emit(Warned(text))
    problem = problem_of(model, store)
    check_alike(model.about.get("rows", {}), store)
    trained_on = n_samples_of(model, alpha)
    if trained_on not in (None, store.n_samples):
        raise DataError(
            f"the model was trained on {counted(trained_on, 'row')}, but the store has {store.n_samples}",
            store.uri,
            TRAINING_STORE,
        )
    terms = terms_kind(model, problem, alpha is not None)(model, problem, store, alpha)
    loaded = time.monotonic()
    _precompile(terms, emit)
    compiled = time.monotonic()
    budget = config.memory_bytes(memory_limit().nbytes)
    sizes = _sizes(terms, store, budget)
    refs = store.refs(sizes.block_rows)
    emit(WorkStarted("certificate", store.n_samples, "rows"))
    with open_mapper(config) as mapper, PeakMemory() as memory:
        for _, found in terms.results(mapper, runs_of(refs, terms.blocks_per_task), sizes.at_most):
            terms.add(found)
            emit(WorkAdvanced("certificate", terms.n_rows))
    check_unchanged(store)
    emit(WorkEnded("certificate", time.monotonic() - began))
    expected, content = model.about.get("content_fingerprint"), terms.survey.content_fingerprint
    # A model that another program trained does not record its rows: then the gap on these rows is reported.
    if expected != content and not (expected is None and "imported" in model.about):
        raise DataError(
            f"its content ({content}) is not what the model was trained on ({expected})",
            store.uri,
            TRAINING_STORE,
        )
    problem = terms.checked(refs, budget)
    certificate = terms.certificate(problem)
    if not (np.all(np.isfinite(certificate.primal)) and np.all(np.isfinite(certificate.gap))):
        raise DataError("the objective of this model is not finite, so nothing can be proved", str(path))
    return {
        "model": str(path),
        "n_samples": store.n_samples,
        **_figures(certificate, problem, told),
        **terms.said(),
        "bound": terms.bound,
        "content_fingerprint": content,
        "seconds": time.monotonic() - began,
        "compile_seconds": compiled - loaded,
        "memory": memory.document(budget),
    }


def rows_trained_on(model: Model, store: RowBlocks) -> RowBlocks:
    """The rows that the model was trained on: those of the store without the rows held out for calibration."""
    held_out = model.about.get("calibration", {}).get("held_out")
    if not held_out:
        return store
    try:
        which = HashedShare(float(held_out["share"]), int(held_out["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"calibration.json does not say which rows were held out: {in_words(error)}", store.uri
        ) from error
    return cast(RowBlocks, WithheldRows(store, which))


def terms_kind(model: Model, problem: Problem, with_alpha: bool) -> type[SavedTerms]:
    """The class that computes the terms of the gap for such a model.

    Linear models of kernel solvers are proved in the same form (beta with signs) as kernel models, so that `certify`
    reports the same gap as `fit`.  So are models of pairs of classes, and models of which no solver is recorded if they
    are a regression with a free bias and bounds on |beta|, which most likely a kernel solver made.
    """
    proof = _proof_of_solver(model)
    of_kernel = model.kind == "kernel" or proof == "kernel"
    if of_kernel and problem.loss.smooth:  # its terms have bounds on alpha, and would prove another loss
        raise DataError(f"no kernel solver trains with {problem.loss.name}", "model.json", "restore the model")
    if model.kind == "kernel":
        return KernelTerms
    balanced = model.regression and problem.bias == "free" and not problem.loss.smooth and proof != "linear"
    balanced = balanced or problem.loss.nu is not None or (with_alpha and proof == "kernel")
    return SignedLinearTerms if model.pairs or balanced else AlphaTerms


def _proof_of_solver(model: Model) -> str:
    """The kind of proof of the solver that trained the model: 'kernel' or 'linear'; '' if it is not recorded."""
    plan = model.about.get("plan")
    solver = SOLVERS.get(str(plan.get("solver"))) if isinstance(plan, dict) else None
    return "" if solver is None else solver.proof


def _precompile(terms: SavedTerms, emit: Emit) -> None:
    """Compile or load what the proof calls, by proving a tiny model of the same kind on two zero rows."""
    model, problem, store, with_alpha = terms.model, terms.problem, terms.store, terms.alpha is not None
    centre = problem.centre and problem.centre._replace(mu=np.zeros(1))
    problem = dataclasses.replace(problem, centre=centre)

    def prove_two() -> None:
        n_classes = 0 if problem.one_class else len(problem.classes)
        if problem.member is not None:
            n_classes = problem.member.shape[1]
        two = rows_like(store, np.zeros((2, 1)), np.zeros(2, np.int64 if n_classes else np.float64), n_classes)
        alpha = np.zeros((problem.n_models, 2)) if with_alpha else None
        tiny = type(terms)(model.tiny(), problem, two, alpha)
        for _, found in tiny.results(SerialMapper(), runs_of(two.refs(2), 1), 1):
            tiny.add(found)
        tiny.certificate(problem)

    kind = (type(terms).__name__, *kind_of(store), *model.kinds, problem.n_models, problem.bias, with_alpha)
    precompile_reading(store, emit)
    compiled_in_child(kind, prove_two, emit=emit)


class _Sizes(NamedTuple):
    """Rows of a block, and number of tasks at a time."""

    block_rows: int
    at_most: int


def _sizes(terms: SavedTerms, store: RowBlocks, budget: int) -> _Sizes:
    """Choose sizes that fit the budget; the blocks are smaller than usual if necessary.

    Raises PlanRefused if not even one task with single rows fits.
    """
    block_bytes = min(BLOCK_BYTES, max(budget // 32, 1))
    chunks = store.chunk_nbytes
    fixed = FIXED + terms.held_bytes + text_bytes(store.feature_names) + rows_bytes(terms.model.about.get("rows", {}))
    spare = budget - fixed
    while True:
        block_rows = min(terms.block_rows(block_bytes), store.n_samples)
        # A task also holds the chunks of its block, and its rows of alpha.
        each = terms.task_bytes(block_rows, block_bytes) + chunks * 3 // 2
        each += 8 * terms.problem.n_models * min(block_rows * terms.blocks_per_task, store.n_samples)
        # With several tasks the store caches the chunks that one of them read last; a single task counts them itself.
        at_most = max((spare - chunks) // each, min(spare // each, 1))
        if at_most >= 1:
            return _Sizes(block_rows, int(at_most))
        if block_rows == 1 and block_bytes == 1:
            break
        block_bytes = max(block_bytes // 2, 1)
    least = -(-(each + fixed) // MIB)
    raise PlanRefused(
        f"{show_bytes(budget)} of memory cannot hold this proof; {least} MiB would do",
        store.uri,
        f"use --memory {least}MiB",
        min_memory_bytes=least * MIB,
    )


def _figures(certificate: Certificate, problem: Problem, told: list[str]) -> dict[str, Any]:
    """The figures of a result; no gap if it is not even an estimate.  told : warnings about columns"""
    models = models_document(problem, certificate)
    found: dict[str, Any] = {
        "objective": float(certificate.primal.sum()),
        "dual_objective": float(certificate.dual.sum()),
        "duality_gap": float(certificate.gap.sum()),
        "relative_gap": certificate.relative_gap,
        "certificate": certificate.kind,
        "models": models,
    }
    if certificate.kind == "none":
        for document in (found, *models):
            document["duality_gap"] = document["relative_gap"] = None
    if not problem.kernel.by_construction:
        found["positive_semidefinite"] = problem.kernel.definite.how
    if warnings := [text for text in (*told, problem.kernel.unproved) if text]:
        found["warnings"] = warnings
    return found
