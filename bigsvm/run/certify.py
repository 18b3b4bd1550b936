"""Proofs: the certificate pass of a running fit, and of a saved model on its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, WorkAdvanced, WorkEnded, WorkStarted, silent
from bigsvm.kernels.certify import ALPHA, ALPHA_DIAG
from bigsvm.kernels.rows import decision
from bigsvm.machine import return_freed_memory
from bigsvm.problem.certificate import Accumulator, Certificate, RowsShare, RowsTerms, certify_block
from bigsvm.problem.loss import loss_named
from bigsvm.problem.model import LinearModel, load_alpha, load_model
from bigsvm.problem.problem import Problem, zero_weights
from bigsvm.run.mapper import open_mapper
from bigsvm.run.plan import BLOCK_BYTES
from bigsvm.run.warm import warm
from bigsvm.solvers.base import Context, View
from bigsvm.store.blocks import BlockRef, RowBlocks, kernel_matrix, row_bytes
from bigsvm.store.survey import Survey


def certify_view(problem: Problem, view: View, ctx: Context, workers: int) -> tuple[Certificate, np.ndarray]:
    """One pass: the certificate of a solver's point, and w(alpha) rebuilt.

    workers : tasks whose parts (as large as w) fit the budget at one time
    """
    shares = (
        RowsShare(ctx.data, ref, problem, view.w, None if view.alpha is None else view.alpha.get(ref))
        for ref in ctx.proof_refs
    )
    total = Accumulator(problem, view.w)
    release = getattr(ctx.data, "release", lambda ref: None)
    for ref, terms in zip(ctx.proof_refs, ctx.mapper.map(certify_block, shares, workers), strict=True):
        total.add(terms)
        ctx.charge(terms.bytes_read)
        release(ref)
    certificate = total.finish()
    if certificate.n_rows != ctx.data.n_samples:
        raise DataError(f"{certificate.n_rows} rows seen of {ctx.data.n_samples}: nothing is proved", ctx.data.uri)
    return certificate, total.v


class ModelShare(NamedTuple):
    """What a worker needs to certify one block of a saved model."""

    rows: RowsShare
    margins_dual: bool  # no alpha was saved: take the one that the margins give


def certify_model_block(share: ModelShare) -> tuple[RowsTerms, Survey]:
    """Task: the terms of one block, and its share of the content fingerprint."""
    rows = share.rows
    block = rows.data.read(rows.ref)
    survey = Survey()
    survey.add(block, rows.data.classes)
    if share.margins_dual:
        rows = rows._replace(alpha=_alpha_of_margins(rows))
    return certify_block(rows), survey


def _alpha_of_margins(rows: RowsShare) -> np.ndarray:
    """alpha_i = C_i loss'(s_i): in the box always, and tight at the optimum of the squared hinge."""
    block = rows.data.read(rows.ref)
    problem = rows.problem
    codes, cost = problem.codes_and_cost(block)
    W = rows.w if rows.w.ndim == 2 else rows.w[:, None]
    n_columns = block.X.shape[1] if isinstance(block.X, np.ndarray) else len(W) - 1
    scores = np.empty((block.n_rows, problem.n_models))
    decision(kernel_matrix(block.X), np.ascontiguousarray(W[:n_columns]), scores)
    scores += problem.constant_feature * W[-1]
    sign = np.where(codes[:, None] == problem.positive[None, :], 1.0, -1.0)
    s = np.maximum(1.0 - sign * scores, 0.0)
    C = cost[:, None] * problem.C[None, :]
    return C * (s > 0) if problem.loss.name == "hinge" else 2.0 * C * s


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
    alpha = load_alpha(path, model)
    problem = problem_of(model, store)
    if alpha is not None and alpha.shape[1] != store.n_samples:
        raise DataError(
            f"the model was trained on {alpha.shape[1]} rows and the store has {store.n_samples}", store.uri
        )
    w = weights_of(model, problem, store.n_features)
    warm(store, problem.n_models)
    block_rows = int(min(max(BLOCK_BYTES // row_bytes(store), 1), store.n_samples))
    refs = store.refs(block_rows)
    total, survey = Accumulator(problem, w), Survey()

    def shares() -> Iterator[ModelShare]:
        for ref in refs:
            yield ModelShare(RowsShare(store, ref, problem, w, _alpha_rows(alpha, ref)), alpha is None)

    emit(WorkStarted("certificate", store.n_samples, "rows"))
    with open_mapper(config) as mapper:
        for ref, (terms, seen) in zip(refs, mapper.map(certify_model_block, shares()), strict=True):
            total.add(terms)
            survey.merge(seen)
            emit(WorkAdvanced("certificate", ref.stop))
    emit(WorkEnded("certificate", time.monotonic() - began))
    expected = model.about.get("content_fingerprint")
    if expected != survey.content_fingerprint:
        raise DataError(
            f"its content ({survey.content_fingerprint}) is not what the model was trained on ({expected})",
            store.uri,
            "certify with the training store",
        )
    certificate = total.finish() if alpha is not None else _best_scaled(total, problem)
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
    }


def _alpha_rows(alpha: np.ndarray | None, ref: BlockRef) -> np.ndarray | None:
    return None if alpha is None else np.ascontiguousarray(alpha[:, ref.start : ref.stop].T)


def _best_scaled(total: Accumulator, problem: Problem) -> Certificate:
    """The certificate with the best multiple t alpha of the dual point: D is a parabola in t.

    D(t) = t A - t^2 (||v||^2 / 2 + sum D_i alpha_i^2 / 2), and t <= 1 where alpha has upper bounds.
    """
    certificate = total.finish()
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


def problem_of(model: LinearModel, store: RowBlocks) -> Problem:
    """The problem that a saved model solved.

    Raises DataError where the store has other classes than the model.
    """
    about = model.about["problem"]
    if store.classes is None or store.classes.tolist() != model.classes.tolist():
        raise DataError(f"classes {store.classes} are not the model's {model.classes}", store.uri)
    n_models = model.n_models
    return Problem(
        loss=loss_named(about["loss"]),
        C=np.array(about["C"], np.float64),
        class_weight=np.array(about["class_weight"], np.float64),
        bias=about["bias"],
        bias_scale=float(about["bias_scale"]),
        classes=model.classes,
        positive=np.array([1] if n_models == 1 else range(n_models), np.int32),
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


def models_document(problem: Problem, certificate: Certificate) -> list[dict[str, Any]]:
    """One entry for each model, as the result lists them."""
    gaps = certificate.relative_gaps
    return [
        {
            "class": problem.classes[code].item(),
            "objective": float(certificate.primal[m]),
            "duality_gap": float(certificate.gap[m]),
            "relative_gap": float(gaps[m]),
            "n_support": int(certificate.n_support[m]),
        }
        for m, code in enumerate(problem.positive)
    ]
