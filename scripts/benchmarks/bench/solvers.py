"""The solvers as a child process runs them: each takes a job and gives back the points that it reached.

A point is the weights, (n_features + 1, n_models) float64 with the bias entry last, and what it cost.  Seconds are
of training; bringing the data into the solver's own form is `load_s`.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bench.by_cli import fit_by_cli
from bench.cold import files_below, raw_read
from bench.jobs import Job, Point, before_training
from bench.problems import Arrays

_LIBLINEAR = {"hinge": "3", "squared_hinge": "1"}
_PIECE_ROWS = 20_000


def bigsvm_fit(job: Job, points: list[Point]) -> dict[str, Any]:
    """One fit, with the proofs that it made on the way."""
    import bigsvm
    from bigsvm.events import CertificateMade, Event, FitStarted, WorkEnded

    trace: list[tuple[float, float, float]] = []
    mode, ready = "", 0.0

    def watch(event: Event) -> None:
        nonlocal mode, ready
        if isinstance(event, CertificateMade):
            trace.append((event.wall_s, event.passes, event.relative_gap))
        elif isinstance(event, FitStarted):
            mode = event.plan["mode"]
        elif isinstance(event, WorkEnded) and event.what != "certificate" and not event.what.startswith("pass "):
            ready = time.process_time()  # compiled, or the rows brought in: no other work ends before training

    options = {"loss": job.loss, "C": job.C, "bias": job.bias, "tol": job.rung, "memory": job.memory}
    result = bigsvm.fit(
        str(Path(job.folder) / "store.zarr"),
        emit=watch, threads=job.cores, scratch=job.scratch, max_time=job.limit_s, **options,
    )  # fmt: skip
    trained = time.process_time()
    total, before = result.seconds["total"], before_training(result.seconds)
    w = np.vstack([result.model.coef.T, result.model.intercept])
    points.append(Point(job.rung, total - before, w, result.figures["passes"], trained - ready))
    models = result.figures["models"]
    return {
        "status": result.status,
        "mode": mode,
        "load_s": before,
        "total_s": total,
        "io_wait_s": result.seconds["io_wait"],
        "certify_s": result.seconds["certify"],
        "proven_gap": result.certificate.relative_gap,
        "dual": [model["objective"] - model["duality_gap"] for model in models],
        "bytes_read": result.figures["bytes_read"],
        "data_bytes": result.figures["data_bytes"],
        "epochs": result.figures["epochs"],
        "memory_bytes": result.memory["peak_anon_bytes"] - result.memory["base_bytes"],
        "trace": trace,  # the loop's clock begins when the rows are ready
    }


def liblinear(job: Job, points: list[Point]) -> dict[str, Any]:
    """LIBLINEAR, by default its dual coordinate descent, rows in memory; iterations as it prints them."""
    from liblinear.liblinearutil import parameter, problem, train

    began = time.perf_counter()
    X, y = Arrays(Path(job.folder), job.n_features, mapped=False).whole()
    bias = 1 if job.bias == "augmented" else -1
    rows = problem(y.astype(np.float64), X.astype(np.float64), bias=bias)
    del X
    loaded, cpu = time.perf_counter(), time.process_time()
    method = job.method or _LIBLINEAR[job.loss]
    with _printed() as said:
        model = train(rows, parameter(f"-s {method} -c {job.C} -B {bias} -e {job.rung}"))
    seconds, cpu = time.perf_counter() - loaded, time.process_time() - cpu
    labels = model.get_labels()
    binary = len(labels) == 2
    wide = job.n_features + (bias > 0)
    W = np.ctypeslib.as_array(model.w, (wide, 1 if binary else len(labels))).astype(np.float64)
    W = W if bias > 0 else np.vstack([W, np.zeros(W.shape[1])])
    if binary:
        W = W if labels[0] > labels[1] else -W
    else:
        W = W[:, np.argsort(labels)]
    about = _iterations("".join(said))
    points.append(Point(job.rung, seconds, W, about["iterations"], cpu))
    return {"load_s": loaded - began, **about}


@contextmanager
def _printed() -> Iterator[list[str]]:
    """What C code prints on standard output while the block runs; the list has it afterwards."""
    said: list[str] = []
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield said
        finally:
            ctypes.CDLL(None).fflush(None)  # C has a buffer of its own
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            said.append(file.read())


def _iterations(said: str) -> dict[str, Any]:
    """LIBLINEAR's own count, summed over classes, and whether it ended at its limit or went on with -s 2 there."""
    dual = sum(int(count) for count in re.findall(r"#iter = (\d+)", said))
    newton = len(re.findall(r"^iter +\d+", said, re.MULTILINE))
    return {
        "iterations": float(dual + newton),
        "capped": "reaching max number" in said,
        "went_on": "Switching to use -s 2" in said,
    }


def snapml(job: Job, points: list[Point]) -> dict[str, Any]:
    """snapml's SupportVectorMachine, rows in memory; its conversion of the data is part of fit, so of training."""
    from snapml import SupportVectorMachine

    began = time.perf_counter()
    X, y = Arrays(Path(job.folder), job.n_features, mapped=False).whole()
    loaded, cpu = time.perf_counter(), time.process_time()
    model = SupportVectorMachine(
        loss=job.loss, max_iter=int(job.rung), tol=1e-12, regularizer=1 / job.C, n_jobs=job.cores,
        fit_intercept=job.bias == "augmented", random_state=0,
    )  # fmt: skip
    model.fit(X, y)
    seconds, cpu = time.perf_counter() - loaded, time.process_time() - cpu
    coef = np.atleast_2d(np.asarray(model.coef_, np.float64))
    intercept = np.zeros(len(coef)) + np.ravel(model.intercept_) if job.bias == "augmented" else np.zeros(len(coef))
    points.append(Point(job.rung, seconds, np.vstack([coef.T, intercept]), float(job.rung), cpu))
    return {"load_s": loaded - began}


def sgd(job: Job, points: list[Point]) -> dict[str, Any]:
    """scikit-learn's SGDClassifier streamed from mapped files, cast to float64 (its float32 loses the L2 term)."""
    from sklearn.linear_model import SGDClassifier

    began = time.perf_counter()
    parts = Arrays(Path(job.folder), job.n_features, mapped=True)
    n = len(parts.y)
    classes = np.unique(parts.y)
    model = SGDClassifier(loss=job.loss, alpha=1 / (job.C * n), fit_intercept=False, random_state=0)
    loaded = time.perf_counter()
    stops, spent = {2**k for k in range(12)}, 0.0
    for epoch in range(1, int(job.rung) + 1):
        began_epoch = time.perf_counter()
        order = np.random.default_rng([0, epoch]).permutation(-(-n // _PIECE_ROWS))
        for number in order:
            X, y = parts.rows(number * _PIECE_ROWS, min((number + 1) * _PIECE_ROWS, n))
            model.partial_fit(X.astype(np.float64), y, classes=classes)
        spent += time.perf_counter() - began_epoch  # looking at the weights is not training
        over = spent > job.limit_s
        if epoch in stops or over or epoch == int(job.rung):
            w = np.vstack([model.coef_.T, np.zeros(len(model.coef_))])
            points.append(Point(float(epoch), spent, w, float(epoch)))
        if over:
            break
    return {"load_s": loaded - began}


def read_only(job: Job, points: list[Point]) -> dict[str, Any]:
    """The files of the scratch folder from end to end: what the device gives under the same limits."""
    nbytes, seconds = raw_read(files_below(Path(job.scratch)))
    return {"bytes_read": nbytes, "total_s": seconds}


SOLVERS: dict[str, Callable[[Job, list[Point]], dict[str, Any]]] = {
    "bigsvm": bigsvm_fit,
    "bigsvm-cli": fit_by_cli,
    "liblinear": liblinear,
    "snapml": snapml,
    "sgd": sgd,
    "read": read_only,
}


def _load_libraries(solver: str) -> None:
    """Import, and compile, what is no part of a run."""
    if solver in ("bigsvm", "bigsvm-cli"):
        import bigsvm.run.fit.fit  # noqa: F401
    elif solver == "snapml":
        import snapml  # noqa: F401
    elif solver == "sgd":
        import sklearn.linear_model  # noqa: F401
    elif solver == "liblinear":
        from liblinear.liblinearutil import problem

        problem(np.ones(1), sparse.csr_matrix(np.ones((1, 1))))  # its conversion is compiled on the first call


def run(job: Job) -> tuple[dict[str, Any], list[Point]]:
    """Do a job in this process.  Memory is anonymous memory above what was held before the data came."""
    from bigsvm.peak_memory import PeakMemory

    _load_libraries(job.solver)
    points: list[Point] = []
    with PeakMemory() as peak:
        about = SOLVERS[job.solver](job, points)
    about.setdefault("memory_bytes", peak.peak_anon_bytes - peak.base_bytes)
    about["peak_rss_bytes"] = peak.peak_rss_bytes
    return {"job": asdict(job), **about}, points
