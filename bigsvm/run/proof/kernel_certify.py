"""The proof of a saved model whose dual has kernel values in it: kernels, pairs of classes, regression.

Apart from the run that made it: model arrays, alpha and the store's rows are all that is read, and none of the code
that trained computes f.  Rows stream from the store once, for all models; of each block nothing is kept but sums.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.machine import memory_limit
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import Model, load_alpha
from bigsvm.problem.certificate import Certificate, cost_of_imbalance
from bigsvm.problem.definite import whole_bytes
from bigsvm.problem.kernel import Kernel
from bigsvm.problem.problem import Problem
from bigsvm.run.execute.aside import compiled_aside
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.memory import PeakMemory
from bigsvm.run.execute.small_rows import kind_of, rows_like
from bigsvm.run.fit.sizes import BLOCK_BYTES, FIXED
from bigsvm.run.proof.kernel_check import check_needs, checked_kernel, quadratic_refutes, refuted
from bigsvm.run.proof.kernel_terms import (
    BALANCE,
    BRACKETS,
    LINEAR,
    LOSS,
    QUADRATIC,
    SIZE,
    SQUARES,
    Terms,
    TermsShare,
    terms_of_blocks,
)
from bigsvm.run.proof.saved_problem import models_document, problem_of
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks, blocks_of, row_bytes
from bigsvm.tasks import BLOCKS_PER_TASK, Mapper, SerialMapper, over_shares, runs_of
from bigsvm.units import MIB, show_bytes

_MOST_ROWS = 4096  # of a block: threads share the blocks
_A_MODEL = 12  # float64 values of a row for each model: alpha, beta, scores, and one model's programme


def certify_kernel_model(path: Path, model: Model, store: RowBlocks, config: FitConfig, emit: Emit) -> dict[str, Any]:
    """Prove the duality gap of a saved kernel model, of pairs of classes or of regression, on its store.

    Of a kernel that is not positive semidefinite there is no gap: what is left of the optimality conditions is told.
    A precomputed one is checked as a fit checks it, from a reading of its own.

    Raises
    ------
    DataError : the store's content is not what the model was trained on, or its arrays do not go together; a
        precomputed kernel is not symmetric; the user vouched for a kernel that is refuted.
    PlanRefused : the memory is too small.
    """
    began = time.monotonic()
    problem, alpha = problem_of(model, store), load_alpha(path, model)
    trained_on = model.about.get("n_samples", store.n_samples) if alpha is None else alpha.shape[1]
    if trained_on != store.n_samples:
        raise DataError(f"the model was trained on {trained_on} rows and the store has {store.n_samples}", store.uri)
    _precompile(store, model, problem, alpha is not None)
    budget = config.memory_bytes(memory_limit().nbytes)
    block_rows, at_most = _sizes(store, model, budget)
    refs = store.refs(block_rows)
    emit(WorkStarted("certificate", store.n_samples, "rows"))
    with open_mapper(config) as mapper, PeakMemory() as memory:
        total = _terms_of(store, refs, problem, model, alpha, mapper, at_most, emit)
    emit(WorkEnded("certificate", time.monotonic() - began))
    found, expected = total.survey.content_fingerprint, model.about.get("content_fingerprint")
    if expected != found:
        raise DataError(
            f"its content ({found}) is not what the model was trained on ({expected})",
            store.uri,
            "certify with the training store",
        )
    problem = dataclasses.replace(problem, kernel=_checked(problem.kernel, store, refs, budget, total))
    certificate = certificate_of(total, problem, model)
    if not (np.all(np.isfinite(certificate.primal)) and np.all(np.isfinite(certificate.gap))):
        raise DataError("the objective of this model is not a finite number: nothing can be proved", str(path))
    return {
        **_figures(certificate, problem),
        "model": str(path),
        "n_samples": store.n_samples,
        "violation": violation_of(total),
        "bound": _bound(model, alpha),
        "content_fingerprint": found,
        "seconds": time.monotonic() - began,
        "memory": memory.document(budget),
    }


def _terms_of(
    store: RowBlocks, refs: Sequence[BlockRef], problem: Problem, model: Model, alpha: np.ndarray | None,
    mapper: Mapper, at_most: int, emit: Emit,
) -> Terms:  # fmt: skip
    """The terms of all rows, from one reading.

    alpha : (n_models, n_samples), may be a map; None where none was saved
    at_most : tasks at one time
    """
    per_task = 1 if isinstance(model, KernelModel) else BLOCKS_PER_TASK

    def share(run: tuple[BlockRef, ...]) -> TermsShare:
        rows = None if alpha is None else np.array(alpha[:, run[0].start : run[-1].stop].T, order="C")
        return TermsShare(store, run, problem, model, rows)

    total = Terms.none(model, not isinstance(model, KernelModel) and alpha is not None)
    for _, terms in over_shares(mapper, terms_of_blocks, runs_of(refs, per_task), share, at_most):
        total.merge(terms)
        emit(WorkAdvanced("certificate", total.n_rows))
    return total


def _precompile(store: RowBlocks, model: Model, problem: Problem, with_alpha: bool) -> None:
    """Compile, or load, what the proof calls: a model of the same kind is proved on two rows, which are 0."""

    def prove_two() -> None:
        n_classes = len(problem.classes)
        two = rows_like(store, np.zeros((2, 1)), np.zeros(2, np.int64 if n_classes else np.float64), n_classes)
        alpha = np.zeros((problem.n_models, 2)) if with_alpha else None
        _terms_of(two, two.refs(2), problem, model.tiny(), alpha, SerialMapper(), 1, silent)

    compiled_aside(("terms", *kind_of(store), *model.kinds, problem.n_models, with_alpha), prove_two)


def certificate_of(total: Terms, problem: Problem, model: Model) -> Certificate:
    """P, D and their gap from the sums over all rows: a sum of non-negative terms (docs/mathematics.md 2.1, 2.2)."""
    sums = total.sums
    kind = problem.kernel.certificate
    if isinstance(model, KernelModel):
        w_sq = v_sq = sums[:, QUADRATIC]
        apart = np.zeros(len(sums))
    else:
        v = total.v if len(total.v) else np.zeros(model.coef.shape)
        w_sq, v_sq = np.einsum("mj,mj->m", model.coef, model.coef), np.einsum("mj,mj->m", v, v)
        apart = np.einsum("mj,mj->m", model.coef - v, model.coef - v)
    primal, dual = 0.5 * w_sq + sums[:, LOSS], sums[:, LINEAR] - 0.5 * v_sq
    if kind != "proved":
        return Certificate(primal, dual, primal - dual, total.n_rows, 0.0, total.n_support, kind)
    cost = cost_of_imbalance(model.intercept, sums[:, BALANCE], sums[:, SIZE], v_sq)
    gap = sums[:, BRACKETS] + 0.5 * apart + cost
    # beta = 0 has the dual value 0, whatever the saved one is worth.
    gap = np.minimum(gap, primal)
    return Certificate(
        primal, np.where(gap < primal, dual, 0.0), gap, total.n_rows, float(np.sqrt(apart.max())), total.n_support
    )


def _checked(
    kernel: Kernel, store: RowBlocks, refs: Sequence[BlockRef], budget: int, total: Terms
) -> Kernel:  # fmt: skip
    """`kernel` with what the rows and the saved dual point show of it; K is factorised where the memory holds it."""
    if kernel.by_construction:
        return kernel
    n = store.n_samples
    needs = sum(need.nbytes for need in check_needs(kernel, n)) + int(3 * row_bytes(store) * refs[0].n_rows)
    needs += int(getattr(store, "chunk_nbytes", 0)) * 2 + FIXED
    decide = kernel.name == "precomputed" and needs + whole_bytes(n) <= budget

    def reading() -> Iterator[tuple[int, Matrix]]:
        for block in blocks_of(store, refs):
            yield block.start, block.X

    kernel = checked_kernel(kernel, store, reading, MemoryBudget(budget), decide)
    for m in range(len(total.sums)):
        if kernel.definite.how in ("checked", "refuted"):
            break
        quadratic, squares, size = total.sums[m, [QUADRATIC, SQUARES, SIZE]].tolist()
        why = quadratic_refutes(kernel, quadratic, squares, size)
        if why and kernel.definite.how == "assumed":
            raise refuted(why, store.uri)
        if why:
            kernel = kernel.refuted_by(why)
    return kernel


def violation_of(total: Terms) -> float:
    """b_low - b_up of the worst model, at least 0; of a model where nothing may move there is none."""
    known = np.isfinite(total.b_up) & np.isfinite(total.b_low)
    return float(np.max(total.b_low[known] - total.b_up[known], initial=0.0))


def _figures(certificate: Certificate, problem: Problem) -> dict[str, Any]:
    """The figures of a result; of what is not even an estimate, no gap."""
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
    if problem.kernel.unproved:
        found["warnings"] = [problem.kernel.unproved]
    return found


def _bound(model: Model, alpha: np.ndarray | None) -> str:
    """What the dual point was."""
    if alpha is not None:
        return "alpha"
    if isinstance(model, KernelModel):
        return "dual_coef"
    return "weaker bound: no alpha was saved, alpha = 0 was used"


def _sizes(store: RowBlocks, model: Model, budget: int) -> tuple[int, int]:
    """(rows of a block, tasks at one time).  Raises PlanRefused where not even one task fits."""
    block_bytes = min(BLOCK_BYTES, max(budget // 32, 1))
    a_row, per_task, wide = row_bytes(store), 1, 0
    if isinstance(model, KernelModel):
        scoring = model.scoring_bytes
    else:
        per_task, wide = BLOCKS_PER_TASK, model.coef.nbytes
        scoring = 2 * wide + 2 * MIB
    values = 8 * _A_MODEL * model.n_models
    block_rows = int(min(max(block_bytes // (a_row + values), 1), store.n_samples, _MOST_ROWS))
    chunks = int(getattr(store, "chunk_nbytes", 0))
    # A block, its support vectors once more, and what is made of its rows; alpha of all blocks of the task.
    each = int(3 * a_row * block_rows) + values * block_rows + 8 * model.n_models * block_rows * per_task
    each += scoring + chunks * 3 // 2
    spare = budget - FIXED - 3 * wide
    # Beside several tasks the store keeps what one of them read last; a task alone has it among its own.
    at_most = max((spare - chunks) // each, min(spare // each, 1))
    if at_most < 1:
        least = -(-(each + 3 * wide + FIXED) // MIB)
        raise PlanRefused(
            f"{show_bytes(budget)} of memory cannot hold this proof; {least} MiB would do",
            store.uri,
            f"say --memory {least}MiB",
            min_memory_bytes=least * MIB,
        )
    return block_rows, int(at_most)
