"""dcd on rows that stream, where values of 16 bits, or w in float32, are too coarse for the tolerance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bigsvm.config import FitConfig
from bigsvm.events import Warned
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.dcd import rounding, slow_sweeps
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.reference import dual_value, primal_value
from tests.products import each_of, pairs_of
from tests.run.test_checkpoint import comes_to_the_same, same_folder
from tests.solvers.test_momentum import hard

KEPT, WEIGHTS = "values kept in memory were rounded to 16 bits", "w was rounded to float32"


def separable(largest: float = 100.0, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows that a plane separates, just so; one value of each is much larger, and sets the scale of the others."""
    rng = np.random.default_rng(1)
    X = sparse.random(200, 150, 0.08, "csr", np.float32, random_state=1, data_rvs=rng.standard_normal).toarray()
    y = np.argmax(X @ rng.standard_normal((150, n_classes)), axis=1)
    X[np.arange(200), rng.integers(0, 150, 200)] *= largest
    return X, y


def store_of(layout: str, n_classes: int = 2, weighted: bool = False) -> tuple[ArrayRows, np.ndarray]:
    """The rows, and their weights."""
    X, y = separable(n_classes=n_classes)
    weights = np.random.default_rng(0).integers(1, 4, len(y)) / 2.0 if weighted else np.ones(len(y))
    return ArrayRows(sparse.csr_array(X) if layout == "csr" else X, y, weights if weighted else None), weights


def fitted(store: ArrayRows, **options: Any) -> tuple[Any, list[str]]:
    """The result, and what the fit says of rounding."""
    told: list[str] = []
    config = FitConfig.of(**{"solver": "dcd", "memory": "64MiB", "max_passes": 250, **options})
    result = fit_store(store, config, lambda e: told.append(e.message) if isinstance(e, Warned) else None)
    return result, [message for message in told if "rounded" in message]


@pairs_of(
    layout=["csr", "dense"],
    loss=["hinge", "squared_hinge"],
    n_classes__shards__C=[(2, 1, 100.0), (9, 1, 3.0), (2, 2, 5.0)],
    weighted=[False, True],
    bias=["augmented", "none"],
)
@pytest.mark.usefixtures("streaming")
def test_rounding_keeps_no_fit_from_its_tolerance(
    layout: str, loss: str, n_classes: int, shards: int, C: float, weighted: bool, bias: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    store, weights = store_of(layout, n_classes, weighted)
    tol = 1e-4 if loss == "hinge" else 1e-7
    asked: dict[str, Any] = {"loss": loss, "C": C, "tol": tol, "shards": shards, "bias": bias}
    result, told = fitted(store, **asked)
    assert result.status == "converged"
    assert KEPT in told[0]
    if n_classes == 2:
        assert isinstance(result.model, LinearModel)
        X, y = separable()
        y, constant = np.where(y == 1, 1.0, -1.0), 1.0 if bias == "augmented" else 0.0
        w = np.append(result.model.coef[0], result.model.intercept) if constant else result.model.coef[0]
        P = primal_value(X, y, C * weights, loss, w, constant)
        D = dual_value(X, y, C * weights, loss, np.asarray(result.alpha[0].values)[:, 0], constant)
        assert result.figures["objective"] == pytest.approx(P, rel=1e-6)
        assert 1.01 * tol * P >= P - D
    if shards > 1:  # which take their time
        return
    monkeypatch.setattr(rounding, "go_finer", lambda state, ctx, free: "")
    coarse, _ = fitted(store, **asked, max_passes=math.ceil(result.figures["passes"]))
    assert coarse.status != "converged"  # else the rows tell nothing


@pytest.mark.parametrize(
    ("n_classes", "loss", "shards", "C"),
    [(2, "hinge", 1, 1e3), (9, "hinge", 1, 3.0), (2, "squared_hinge", 2, 5.0)],
)
@pytest.mark.usefixtures("streaming")
def test_interrupted_anywhere_and_with_any_threads_it_comes_to_the_same_bytes(
    n_classes: int, loss: str, shards: int, C: float, tmp_path: Path
) -> None:
    store, _ = store_of("dense" if shards == 2 else "csr", n_classes)
    asked = {"loss": loss, "C": C, "tol": 1e-4 if loss == "hinge" else 1e-7, "shards": shards, "max_passes": 250}
    alone, told = fitted(store, **asked, threads=1)
    assert [KEPT in told[0], WEIGHTS in told[-1]] == [True, C == 1e3]
    comes_to_the_same(
        store, FitConfig.of(solver="dcd", memory="64MiB", threads=2, **asked), tmp_path, 40 if shards == 1 else 150
    )  # fmt: skip
    alone.save_model(tmp_path / "alone")
    assert same_folder(tmp_path / "a", tmp_path / "alone")


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("row_buffer", ["auto", "off"])
def test_without_room_a_fit_goes_on_and_names_the_memory_that_has_room(
    row_buffer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes; this row buffer does not grow with the memory, and has no room to lend."""
    monkeypatch.setattr(rounding, "_LARGEST_PART", 1e-6)
    monkeypatch.setattr(rounding, "MIB", 1)
    monkeypatch.setattr(slow_sweeps, "_SMALL_THINGS", 100 << 20)
    asked: dict[str, Any] = {"loss": "hinge", "C": 1e4, "tol": 1e-4, "solver_options": {"row_buffer": row_buffer}}
    result, told = fitted(store_of("csr")[0], **asked, max_passes=80 if row_buffer == "auto" else 250)
    assert result.status != "converged"
    (advice,) = (message for message in told if "--memory" in message)
    enough = int(advice.split("--memory ")[1].split("MiB")[0])
    result, told = fitted(store_of("csr")[0], **asked, memory=enough)
    assert WEIGHTS in told[-1]
    assert result.status == "converged"


@each_of(loss=["hinge", "squared_hinge"], C=[1.0, 10.0])
@pytest.mark.usefixtures("streaming")
def test_fits_that_rounding_does_not_hinder_go_on_as_they_are(loss: str, C: float) -> None:
    X, y = hard()
    result, told = fitted(ArrayRows(X, y), loss=loss, C=C, tol=1e-3)
    assert result.status == "converged"
    assert not told
