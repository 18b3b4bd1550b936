"""The proof of a saved model, apart from the run that made it."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.compiled.linear.gap_terms import ALPHA, ALPHA_DIAG
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.machine import memory_limit, return_freed_memory
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, load_alpha, load_model
from bigsvm.problem.certificate import Accumulator, Certificate, RowsShare, certify_blocks, keep_best
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.run.execute.aside import compiled_aside
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.memory import PeakMemory
from bigsvm.run.execute.small_rows import kind_of, small_rows
from bigsvm.run.fit.sizes import BLOCK_BYTES, FIXED
from bigsvm.run.proof.kernel_certify import certify_kernel_model
from bigsvm.run.proof.saved_problem import models_document, problem_of
from bigsvm.store.blocks import BlockRef, RowBlocks, row_bytes
from bigsvm.store.survey import Survey
from bigsvm.tasks import BLOCKS_PER_TASK, Mapper, SerialMapper, over_shares, runs_of
from bigsvm.units import MIB, show_bytes

_FEW = 4  # rows that code is compiled with


def certify_model(path: Path, store: RowBlocks, config: FitConfig, emit: Emit = silent) -> dict[str, Any]:
    """Prove the duality gap of a saved model again, on the store that it was trained on.

    Independent of the run that made it: reads model, alpha and rows, nothing else.

    Raises
    ------
    DataError : the store's content is not what the model was trained on, or the model is damaged.
    """
    return_freed_memory()
    began = time.monotonic()
    model = load_model(path)
    if isinstance(model, KernelModel) or model.pairs or model.regression:
        return certify_kernel_model(path, model, store, config, emit)
    alpha = load_alpha(path, model)
    problem = problem_of(model, store)
    if alpha is not None and alpha.shape[1] != store.n_samples:
        raise DataError(
            f"the model was trained on {alpha.shape[1]} rows and the store has {store.n_samples}", store.uri
        )
    w = weights_of(model, problem, store.n_features)
    _precompile(store, problem, alpha is not None)
    budget = config.memory_bytes(memory_limit().nbytes)
    block_bytes = min(BLOCK_BYTES, max(budget // 32, 1))
    block_rows = int(min(max(block_bytes // row_bytes(store), 1), store.n_samples))
    # Each task holds its part of v, the chunks that a block lies in, the block, and its rows of alpha.
    chunks = int(getattr(store, "chunk_nbytes", 0))
    each = w.nbytes + 2 * block_bytes + chunks * 3 // 2 + 8 * problem.n_models * block_rows * BLOCKS_PER_TASK
    spare = budget - 3 * w.nbytes - FIXED
    # Beside several tasks the store keeps what one of them read last; a task alone has it among its own.
    at_most = max((spare - chunks) // each, min(spare // each, 1))
    if at_most < 1:
        least = -(-(each + 3 * w.nbytes + FIXED) // MIB)
        raise PlanRefused(
            f"{show_bytes(budget)} of memory cannot hold this proof; {least} MiB would do",
            store.uri,
            f"say --memory {least}MiB",
            min_memory_bytes=least * MIB,
        )
    emit(WorkStarted("certificate", store.n_samples, "rows"))
    with open_mapper(config) as mapper, PeakMemory() as memory:
        certificate, survey = _prove(store, block_rows, problem, w, alpha, mapper, at_most, emit)
    emit(WorkEnded("certificate", time.monotonic() - began))
    expected = model.about.get("content_fingerprint")
    if expected != survey.content_fingerprint:
        raise DataError(
            f"its content ({survey.content_fingerprint}) is not what the model was trained on ({expected})",
            store.uri,
            "certify with the training store",
        )
    certificate, _ = keep_best(certificate, None)  # as a fit counts: alpha = 0 has the dual value 0
    if not (np.all(np.isfinite(certificate.primal)) and np.all(np.isfinite(certificate.gap))):
        raise DataError("the objective of this model is not a finite number: nothing can be proved", str(path))
    return {
        "model": str(path),
        "n_samples": store.n_samples,
        "objective": float(certificate.primal.sum()),
        "dual_objective": float(certificate.dual.sum()),
        "duality_gap": float(certificate.gap.sum()),
        "relative_gap": certificate.relative_gap,
        "certificate": "proved",
        "bound": "alpha" if alpha is not None else "weaker bound: no alpha was saved, its margins' dual point was used",
        "content_fingerprint": survey.content_fingerprint,
        "models": models_document(problem, certificate),
        "seconds": time.monotonic() - began,
        "memory": memory.document(budget),
    }


def _prove(
    store: RowBlocks, block_rows: int, problem: Problem, w: np.ndarray, alpha: np.ndarray | None, mapper: Mapper,
    at_most: int, emit: Emit,
) -> tuple[Certificate, Survey]:  # fmt: skip
    """The certificate of (w, alpha) from one reading of all rows, and what these are.

    alpha : (n_models, n_samples), may be a map; None: the dual point that the margins give, at its best multiple
    at_most : tasks at one time
    """
    total, survey = Accumulator(problem, w), Survey()

    def share(run: tuple[BlockRef, ...]) -> RowsShare:
        # A copy, never a view of the map: kernels are compiled for arrays that may be written.
        rows = None if alpha is None else np.array(alpha[:, run[0].start : run[-1].stop].T, order="C")
        return RowsShare(store, run, problem, w, rows, with_survey=True)

    pieces = runs_of(store.refs(block_rows), BLOCKS_PER_TASK)
    for _, terms in over_shares(mapper, certify_blocks, pieces, share, at_most):
        total.add(terms)
        assert terms.survey is not None
        survey.merge(terms.survey)
        emit(WorkAdvanced("certificate", total.n_rows))
    return total.finish() if alpha is not None else _best_scaled(total, problem), survey


def _precompile(store: RowBlocks, problem: Problem, with_alpha: bool) -> None:
    """Compile, or load, what the proof calls: w = 0 and alpha = 0 are proved on a few rows of the store's kind."""

    def prove_few() -> None:
        few = small_rows(store, _FEW, 1, len(problem.classes))
        alpha = np.zeros((problem.n_models, _FEW)) if with_alpha else None
        _prove(few, _FEW, problem, zero_weights(1, problem.n_models), alpha, SerialMapper(), 1, silent)

    compiled_aside(("certificate", *kind_of(store), problem.n_models, with_alpha), prove_few)


def _best_scaled(total: Accumulator, problem: Problem) -> Certificate:
    """The certificate with the best multiple t alpha of the dual point: D is a parabola in t.

    D(t) = t A - t^2 (||v||^2 / 2 + sum D_i alpha_i^2 / 2), and t <= 1 where alpha has upper bounds.
    """
    certificate = total.finish()
    if problem.bias == "free":  # a multiple is no better balanced: nothing but alpha = 0 is sure
        dual = np.maximum(certificate.dual, 0.0)
        return dataclasses.replace(certificate, dual=dual, gap=certificate.primal - dual)
    sums = total.sums()
    v = total.v if total.v.ndim == 2 else total.v[:, None]
    quadratic = 0.5 * np.sum(v * v, axis=0) + sums[:, ALPHA_DIAG]
    linear = sums[:, ALPHA]
    t = np.divide(linear, 2.0 * quadratic, out=np.zeros_like(linear), where=quadratic > 0)
    if np.isfinite(problem.loss.upper_factor):
        t = np.minimum(t, 1.0)
    dual = np.maximum(t * linear - t * t * quadratic, certificate.dual)
    return Certificate(
        certificate.primal, dual, certificate.primal - dual, certificate.n_rows, 0.0, certificate.n_support
    )


def weights_of(model: LinearModel, problem: Problem, n_features: int) -> np.ndarray:
    """w with its bias entry, for data of at least the model's and `n_features` features."""
    width = max(n_features, model.n_features)
    w = zero_weights(width, problem.n_models)
    columns = w if w.ndim == 2 else w[:, None]
    columns[: model.n_features] = model.coef.T
    if problem.constant_feature:
        columns[-1] = model.intercept / problem.constant_feature
    return w
